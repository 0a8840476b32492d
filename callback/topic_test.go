package callback

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
)

// What all subscriptions have got is not kept in memory.
func TestCacheIsForThoseBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		c := w.listen("a.example")
		w.subscribe(c)
		kept := func() int {
			cache := &w.engine.cutter.cache
			cache.mu.Lock()
			defer cache.mu.Unlock()
			return cache.bytes
		}
		c.says(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) })
		w.publish("a", 5)
		w.settled()
		if kept() == 0 {
			t.Error("nothing is kept for who is behind")
		}
		time.Sleep(2 * time.Second)
		w.settled()
		if n := kept(); n != 0 {
			t.Errorf("%d bytes are kept", n)
		}
		c.check(0, 5)
	})
}

// A batch for a set whose last subscription has just left is dropped.
func TestPublishToNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		e := w.engine
		st := e.lock()
		topic := st.topic("demo")
		st.leaveTopic(topic)
		st.unlock()
		before := w.head()
		w.publish("a", 1)
		batch, err := w.log.Since(t.Context(), "demo", before, 0)
		if err != nil {
			t.Fatal(err)
		}
		e.publish(topic, []*feed.Batch{batch})
		if kept, _ := e.cutter.cache.find(topic.logKey, before); kept != nil {
			t.Error("it is kept")
		}
	})
}
