package e2e

import (
	"slices"
	"strconv"
	"testing"
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
	c := startCluster(t, 3, append(slices.Clone(callable), "RSHUB_CALLBACK_TIMEOUT=1m")...)
	publish(t, c.hubs[0], set, change("first"))

	here, gone := newDestination(t, 20), newDestination(t, 2)
	here.start(t)
	gone.start(t, "-refuse")
	good := append(here.urls("/healthy/", healthy), here.urls("/flaky/", flaky)...)
	lost := gone.urls("/dead/", dead)
	for _, d := range []struct {
		*destination
		urls []string
	}{{here, good}, {gone, lost}} {
		if n := len(subscribeAll(t, c.hubs[0].topic(set), d.urls, c.hubs...)); n != len(d.urls) {
			t.Fatalf("%d of %d subscriptions were accepted", n, len(d.urls))
		}
		d.verified(t, d.urls)
	}
	gone.kill()

	var publishers []*publisher
	for i, h := range c.hubs {
		publishers = append(publishers, publishing(t, h, set, "hub"+strconv.Itoa(i), true))
	}
	goesOn(t, more, publishers...)
	for path, r := range here.reports(t) {
		if r.Repeats > 0 || len(r.Faults) > 0 {
			t.Errorf("before any kill, %s has %d repeats, and %q", path, r.Repeats, r.Faults)
		}
	}
	for range 2 {
		c.hubs[2].kill()
		goesOn(t, more, publishers[:2]...)
		c.hubs[2].start(t)
		goesOn(t, more, publishers...)
	}
	for _, p := range publishers {
		p.finish()
	}
	all := memory(t, c.hubs[0], set)
	for _, p := range publishers {
		p.check(t, all)
	}
	repeats := here.allTook(t, good, all)
	t.Logf("%d callbacks took %d changes, and %d deliveries twice", len(good), len(all), repeats)

	// The kills are over, and so are the repeats.
	for i := range more {
		publish(t, c.hubs[i%3], set, changes("later", 3))
	}
	if n := here.allTook(t, good, memory(t, c.hubs[0], set)); n != repeats {
		t.Errorf("%d deliveries were repeated without a kill", n-repeats)
	}

	// What dead ones missed is still there for them. The next change has them
	// tried again soon.
	gone.start(t)
	publish(t, c.hubs[0], set, change("last"))
	all = memory(t, c.hubs[0], set)
	gone.allTook(t, lost, all)
	here.allTook(t, good, all)
}

// verified waits until all of the callbacks are.
func (d *destination) verified(t testing.TB, callbacks []string) {
	t.Helper()
	until(t, strconv.Itoa(len(callbacks))+" callbacks are verified", func() error {
		got := d.reports(t)
		for _, u := range callbacks {
			if got[pathOf(u)].Verified == 0 {
				return errNotYet
			}
		}
		return nil
	})
}

// TestManySubscriptions makes many subscriptions at once at a hub on disk, which
// is killed in the middle, or not: those that were accepted are all verified,
// and get the next change. RSHUB_E2E_FULL makes it 10,000.
func TestManySubscriptions(t *testing.T) {
	n := 1000
	if full(t) {
		n = 10_000
	}
	for _, kill := range []bool{false, true} {
		t.Run("killed "+strconv.FormatBool(kill), func(t *testing.T) {
			const set = "sought"
			h := startWebSub(t, "RSHUB_CALLBACK_REQUESTS="+strconv.Itoa(2*n))
			publish(t, h, set, change("first"))
			d := newDestination(t, 20)
			d.start(t)
			callbacks := d.urls("/many/", n)
			killed := make(chan struct{})
			if kill {
				go func() {
					defer close(killed)
					_ = soon(patience, func() error { // it fails below
						if len(d.reports(t)) < n/4 {
							return errNotYet
						}
						return nil
					})
					h.kill()
				}()
			} else {
				close(killed)
			}
			accepted := subscribeAll(t, h.topic(set), callbacks, h)
			<-killed
			if kill {
				h.start(t)
			}
			t.Logf("%d of %d were accepted", len(accepted), n)
			if len(accepted) < n/8 || !kill && len(accepted) < n {
				t.Fatalf("only %d of %d were accepted", len(accepted), n)
			}
			callbacks = slices.DeleteFunc(callbacks, func(u string) bool { return !accepted[u] })
			d.verified(t, callbacks)
			if !kill {
				for path, r := range d.reports(t) {
					if r.Verified != 1 {
						t.Errorf("%s was verified %d times", path, r.Verified)
					}
				}
			}
			until(t, "all are listed", func() error {
				if len(subscriptionsOf(t, h, set)) < len(callbacks) {
					return errNotYet
				}
				return nil
			})
			publish(t, h, set, changes("next", 3))
			d.allTook(t, callbacks, memory(t, h, set))
		})
	}
}
