package callback_test

import (
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
)

// A machine was suspended, and meanwhile another hub got the shard. When the machine
// wakes up nothing is sent under the old claim, though Go's clock says that it counts.
func TestSuspended(t *testing.T) {
	for name, do := range map[string]func(w *world, c *callee){
		"a delivery":     func(w *world, _ *callee) { w.publish("a", 1) },
		"a verification": func(w *world, c *callee) { w.send(subscription.Request{Mode: subscription.Subscribe, Callback: c.url}) },
		"a denial":       func(w *world, c *callee) { w.send(subscription.Request{Mode: subscription.Remove, Callback: c.url}) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
				c, id := w.subscribed()
				if _, err := w.registry.Acquire(t.Context(), []int{id.Shard()}); err != nil { // by the other hub
					t.Fatal(err)
				}
				w.clock.Add(int64(time.Minute))
				do(w, c)
				w.settled()
				if tries, _, asked := c.counts(); tries != 0 || asked != 1 {
					t.Errorf("there were %d deliveries, and %d requests before them", tries, asked)
				}
			})
		})
	}
}

// A hub alone goes on where it was when its machine wakes up.
func TestWakesUp(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscribed()
		for i := range 3 {
			w.clock.Add(int64(time.Hour))
			w.publish("a", 1)
			w.pass(2 * time.Second)
			c.check(0, i+1)
		}
	})
}
