package callback_test

import (
	"iter"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
)

// A secret that is not encrypted with the first key is stored again even if a delivery is in flight when the
// shard is loaded.
func TestResealDuringDelivery(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscribed()
		w.crash()
		w.publish("a", 1)
		r := w.saved(id)
		r.Stale = true
		w.store.load = func(shard int) iter.Seq2[subscription.Record, error] {
			return func(yield func(subscription.Record, error) bool) {
				if shard == id.Shard() {
					yield(r, nil)
				}
			}
		}
		c.says(hang)
		w.start(callback.Options{})
		w.pass(30 * time.Second)
		if n := w.gauge("stale_secrets"); n != 0 {
			t.Errorf("got %d stale secrets, want none", n)
		}
	})
}
