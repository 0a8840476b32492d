package callback

import (
	"slices"
	"strconv"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestManyCallbacks has many callbacks of one set at three hubs. Some callbacks fail at random,
// some are down, and one hub is killed twice. Each callback receives every change in order, with
// repeats only after a kill. A callback that was down catches up. RSHUB_E2E_FULL uses 1,000
// callbacks.
func TestManyCallbacks(t *testing.T) {
	const set = "called"
	healthy, flaky, dead, more := 40, 10, 4, 8
	if full(t) {
		healthy, flaky, dead, more = 880, 100, 20, 60
	}
	// A delivery that times out is repeated, which is not an error of the hub. With a timeout
	// of a minute it does not happen.
	c := hubtest.StartCluster(t, 3, append(slices.Clone(hubtest.CallbackEnv), "RSHUB_CALLBACK_TIMEOUT=1m")...)
	hubtest.Publish(t, c.Hubs[0], set, hubtest.Change("first"))

	up, down := hubtest.NewDestination(t, 20), hubtest.NewDestination(t, 2)
	up.Start(t)
	down.Start(t, "-refuse")
	good := append(up.URLs("/healthy/", healthy), up.URLs("/flaky/", flaky)...)
	lost := down.URLs("/dead/", dead)
	for _, d := range []struct {
		*hubtest.Destination
		urls []string
	}{{up, good}, {down, lost}} {
		if n := len(hubtest.SubscribeAll(t, c.Hubs[0].Topic(set), d.urls, c.Hubs...)); n != len(d.urls) {
			t.Fatalf("got %d accepted subscriptions, want %d", n, len(d.urls))
		}
		d.WaitVerified(t, d.urls)
	}
	down.Kill()

	var publishers []*hubtest.Publisher
	for i, h := range c.Hubs {
		publishers = append(publishers, hubtest.StartPublisher(t, h, set, "hub"+strconv.Itoa(i), true))
	}
	hubtest.WaitPublishing(t, more, publishers...)
	for path, r := range up.Reports(t) {
		if r.Repeats > 0 || len(r.Faults) > 0 {
			t.Errorf("before any kill, %s has %d repeats and faults %q, want none", path, r.Repeats, r.Faults)
		}
	}
	for range 2 {
		c.Hubs[2].Kill()
		hubtest.WaitPublishing(t, more, publishers[:2]...)
		c.Hubs[2].Start(t)
		hubtest.WaitPublishing(t, more, publishers...)
	}
	for _, p := range publishers {
		p.Finish()
	}
	all := hubtest.ReadMemory(t, c.Hubs[0], set)
	for _, p := range publishers {
		p.Check(t, all)
	}
	repeats := up.WaitDelivered(t, good, all)
	t.Logf("%d callbacks received %d changes, with %d repeated deliveries", len(good), len(all), repeats)

	// Without further kills there are no repeats.
	for i := range more {
		hubtest.Publish(t, c.Hubs[i%3], set, hubtest.Changes("later", 3))
	}
	if n := up.WaitDelivered(t, good, hubtest.ReadMemory(t, c.Hubs[0], set)); n != repeats {
		t.Errorf("got %d repeated deliveries without a kill, want 0", n-repeats)
	}

	// Callbacks that were down receive what they missed. The next change makes the hub retry
	// soon.
	down.Start(t)
	hubtest.Publish(t, c.Hubs[0], set, hubtest.Change("last"))
	all = hubtest.ReadMemory(t, c.Hubs[0], set)
	down.WaitDelivered(t, lost, all)
	up.WaitDelivered(t, good, all)
}

// TestManySubscriptions requests many subscriptions concurrently at a hub on disk, which is
// killed in the middle, or not. All accepted ones are verified, and receive the next change.
func TestManySubscriptions(t *testing.T) {
	const n = 400 // one caller may request that many at one host concurrently
	for _, kill := range []bool{false, true} {
		t.Run("killed "+strconv.FormatBool(kill), func(t *testing.T) {
			const set = "sought"
			h := hubtest.StartWebSub(t)
			hubtest.Publish(t, h, set, hubtest.Change("first"))
			d := hubtest.NewDestination(t, 20)
			d.Start(t)
			callbacks := d.URLs("/many/", n)
			killed := make(chan struct{})
			if kill {
				go func() {
					defer close(killed)
					_ = trial.Poll(hubtest.Timeout, func() error { // a timeout fails below
						if len(d.Reports(t)) < n/4 {
							return trial.ErrNotYet
						}
						return nil
					})
					h.Kill()
				}()
			} else {
				close(killed)
			}
			accepted := hubtest.SubscribeAll(t, h.Topic(set), callbacks, h)
			<-killed
			if kill {
				h.Start(t)
			}
			t.Logf("got %d accepted subscriptions, want %d", len(accepted), n)
			if len(accepted) < n/8 || !kill && len(accepted) < n {
				t.Fatalf("got %d accepted subscriptions of %d", len(accepted), n)
			}
			callbacks = slices.DeleteFunc(callbacks, func(u string) bool { return !accepted[u] })
			d.WaitVerified(t, callbacks)
			if !kill {
				for path, r := range d.Reports(t) {
					if r.Verified != 1 {
						t.Errorf("%s was verified %d times, want once", path, r.Verified)
					}
				}
			}
			hubtest.Until(t, "all subscriptions are listed", func() error {
				if len(hubtest.SubscriptionsOf(t, h, set)) < len(callbacks) {
					return trial.ErrNotYet
				}
				return nil
			})
			hubtest.Publish(t, h, set, hubtest.Changes("next", 3))
			d.WaitDelivered(t, callbacks, hubtest.ReadMemory(t, h, set))
		})
	}
}
