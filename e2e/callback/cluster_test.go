package callback

import (
	"slices"
	"strconv"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestManyCallbacks has many callbacks of one set, some of which fail at random
// and some of which are dead, at three hubs of which one is killed twice. Each
// gets every change in order, and repeats only across a kill. A dead one that
// comes back catches up. RSHUB_E2E_FULL makes it 1,000 callbacks.
func TestManyCallbacks(t *testing.T) {
	const set = "called"
	healthy, flaky, dead, more := 40, 10, 4, 8
	if full(t) {
		healthy, flaky, dead, more = 880, 100, 20, 60
	}
	// A callback that is answered too late is called again: that is no fault of
	// the hub's, and does not happen within a minute.
	c := hubtest.StartCluster(t, 3, append(slices.Clone(hubtest.CallbackEnv), "RSHUB_CALLBACK_TIMEOUT=1m")...)
	hubtest.Publish(t, c.Hubs[0], set, hubtest.Change("first"))

	here, gone := hubtest.NewDestination(t, 20), hubtest.NewDestination(t, 2)
	here.Start(t)
	gone.Start(t, "-refuse")
	good := append(here.URLs("/healthy/", healthy), here.URLs("/flaky/", flaky)...)
	lost := gone.URLs("/dead/", dead)
	for _, d := range []struct {
		*hubtest.Destination
		urls []string
	}{{here, good}, {gone, lost}} {
		if n := len(hubtest.SubscribeAll(t, c.Hubs[0].Topic(set), d.urls, c.Hubs...)); n != len(d.urls) {
			t.Fatalf("%d of %d subscriptions were accepted", n, len(d.urls))
		}
		d.WaitVerified(t, d.urls)
	}
	gone.Kill()

	var publishers []*hubtest.Publisher
	for i, h := range c.Hubs {
		publishers = append(publishers, hubtest.StartPublisher(t, h, set, "hub"+strconv.Itoa(i), true))
	}
	hubtest.WaitPublishing(t, more, publishers...)
	for path, r := range here.Reports(t) {
		if r.Repeats > 0 || len(r.Faults) > 0 {
			t.Errorf("before any kill, %s has %d repeats, and %q", path, r.Repeats, r.Faults)
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
	repeats := here.WaitDelivered(t, good, all)
	t.Logf("%d callbacks took %d changes, and %d deliveries twice", len(good), len(all), repeats)

	// The kills are over, and so are the repeats.
	for i := range more {
		hubtest.Publish(t, c.Hubs[i%3], set, hubtest.Changes("later", 3))
	}
	if n := here.WaitDelivered(t, good, hubtest.ReadMemory(t, c.Hubs[0], set)); n != repeats {
		t.Errorf("%d deliveries were repeated without a kill", n-repeats)
	}

	// What dead ones missed is still there for them. The next change has them
	// tried again soon.
	gone.Start(t)
	hubtest.Publish(t, c.Hubs[0], set, hubtest.Change("last"))
	all = hubtest.ReadMemory(t, c.Hubs[0], set)
	gone.WaitDelivered(t, lost, all)
	here.WaitDelivered(t, good, all)
}

// TestManySubscriptions makes many subscriptions at once at a hub on disk, which
// is killed in the middle, or not: those that were accepted are all verified,
// and get the next change.
func TestManySubscriptions(t *testing.T) {
	const n = 400 // one caller may ask for so many at one host, all at once
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
					_ = trial.Poll(hubtest.Timeout, func() error { // it fails below
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
			t.Logf("%d of %d were accepted", len(accepted), n)
			if len(accepted) < n/8 || !kill && len(accepted) < n {
				t.Fatalf("only %d of %d were accepted", len(accepted), n)
			}
			callbacks = slices.DeleteFunc(callbacks, func(u string) bool { return !accepted[u] })
			d.WaitVerified(t, callbacks)
			if !kill {
				for path, r := range d.Reports(t) {
					if r.Verified != 1 {
						t.Errorf("%s was verified %d times", path, r.Verified)
					}
				}
			}
			hubtest.Until(t, "all are listed", func() error {
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
