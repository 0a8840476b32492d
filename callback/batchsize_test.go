package callback

import (
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
		w := newLongWorld(t, Options{})
		c, _ := w.subscribed()
		c.says(status(http.StatusRequestEntityTooLarge))
		for range 2 {
			w.publish("a", 1000)
		}
		time.Sleep(15 * time.Second)               // by then a delivery has one change
		if tries, _, _ := c.counts(); tries > 20 { // not even one change fits: it is tried again as after any other failure
			t.Errorf("%d tries in 15 seconds", tries)
		}
		c.says(nil)
		w.pass(lastRetry * 6 / 5)
		c.check(0, 2000)
		if _, took, _ := c.counts(); took > 20 {
			t.Errorf("2,000 changes took %d deliveries", took)
		}
		if n := len(c.last().doc.Items); n < 500 {
			t.Errorf("the last delivery has %d changes", n)
		}
	})
}

func TestBatchSize(t *testing.T) {
	var a batchSize
	a.succeed(1000)
	if a != (batchSize{}) {
		t.Errorf("without a refusal it is %+v", a)
	}
	for changes := 1000; changes > 1; changes = int(a.most) {
		a.refuse(changes)
	}
	if int(a.most) != 1 {
		t.Errorf("after refusals it is %+v", a)
	}
	for range 10 {
		a.succeed(1000)
	}
	if int(a.most) != 0 {
		t.Errorf("after ten successes it is %+v", a)
	}
	for range 1000 { // a hard limit of 100 changes
		if int(a.most) == 0 || a.most > 100 {
			changes := int(a.most)
			if changes == 0 {
				changes = 1000
			}
			a.refuse(changes)
		} else {
			a.succeed(1000)
		}
	}
	if a.patience != maxPatience-1 {
		t.Errorf("with a hard limit it is %+v", a)
	}
}
