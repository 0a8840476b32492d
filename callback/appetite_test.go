package callback

import (
	"bytes"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A callback that answered 413 for a while gets its backlog in large deliveries again
// once it is well.
func TestTooLargeIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		c := w.listen("a.example")
		w.subscribe(c)
		c.says(status(http.StatusRequestEntityTooLarge))
		for range 5 {
			w.publish("a", 1000)
		}
		time.Sleep(15 * time.Second) // by then a delivery has one change
		c.says(nil)
		time.Sleep(lastRetry * 2)
		w.settled()
		c.check(0, 5000)
		if _, took, _ := c.counts(); took > 20 {
			t.Errorf("5,000 changes took %d deliveries", took)
		}
		if n := len(c.last().doc.Items); n < 500 {
			t.Errorf("the last delivery has %d changes", n)
		}
	})
}

// A callback that never takes more than some changes at once refuses few deliveries.
func TestTooLargeForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 40
		w := newWorld(t, Options{})
		c := w.listen("a.example")
		w.subscribe(c)
		refused := 0
		c.says(func(w http.ResponseWriter, _ *http.Request) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if bytes.Count(c.tries[len(c.tries)-1].body, []byte("<loc>")) > most {
				refused++
				w.WriteHeader(http.StatusRequestEntityTooLarge)
			}
		})
		const n = 10_000
		for range n / 1000 {
			w.publish("a", 1000)
		}
		time.Sleep(time.Minute)
		w.settled()
		c.check(0, n)
		c.mu.Lock()
		defer c.mu.Unlock()
		if refused > 15 || len(c.took) > n/most*3 {
			t.Errorf("%d deliveries were refused, %d taken", refused, len(c.took))
		}
	})
}

func TestAppetite(t *testing.T) {
	var a appetite
	a.take(1000)
	if a != (appetite{}) {
		t.Errorf("without a refusal it is %+v", a)
	}
	for changes := 1000; changes > 1; changes = a.most {
		a.refuse(changes)
	}
	if a.most != 1 {
		t.Errorf("after refusals it is %+v", a)
	}
	for range 10 {
		a.take(1000)
	}
	if a.most != 0 {
		t.Errorf("after ten successes it is %+v", a)
	}
	for range 1000 { // a hard limit of 100 changes
		if a.most == 0 || a.most > 100 {
			changes := a.most
			if changes == 0 {
				changes = 1000
			}
			a.refuse(changes)
		} else {
			a.take(1000)
		}
	}
	if a.patience != maxPatience-1 {
		t.Errorf("with a hard limit it is %+v", a)
	}
}
