package callback

import (
	"testing"
	"testing/synctest"

	"github.com/rshub/rshub/feed"
)

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
		if _, kept := e.cutter.kept.Get(topic.key(before)); kept {
			t.Error("it is kept")
		}
	})
}
