package callback

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestHubKilledAtEachStep kills a hub with SIGKILL at each step from the response to a
// subscription to the response to the first delivery. After the restart the hub completes every
// accepted request.
func TestHubKilledAtEachStep(t *testing.T) {
	t.Parallel()
	// The hub is killed by a handler of the callback, or by the test after the response of the
	// callback.
	for _, step := range []struct {
		name   string
		kind   string // of the decisive request; empty means the response with status 202
		within bool   // whether the hub dies before the response, otherwise after it
	}{
		{"request accepted", "", false},
		{"verification received", trial.Verification, true},
		{"verification answered", trial.Verification, false},
		{"first delivery received", trial.Delivery, true},
		{"first delivery answered", trial.Delivery, false},
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			h := hubtest.StartWebSub(t)
			tr := hubtest.NewTrial(t, h)
			for i := range 3 { // each restart finds the earlier subscriptions
				c, tp := tr.Callback(""), tr.Topic()
				at := hubtest.Head(t, h, tp.Set)
				asked, dead := make(chan struct{}), make(chan struct{})
				die := func(then trial.Reply) trial.Reply {
					return trial.HangUntil(asked, trial.Before(func() { h.Kill(); close(dead) }, then))
				}
				if step.within && step.kind == trial.Verification {
					c.Respond(trial.Verification, die(trial.Confirm), trial.Confirm)
				}
				if step.within && step.kind == trial.Delivery {
					c.Respond(trial.Delivery, die(trial.Status(http.StatusOK)), trial.Status(http.StatusOK))
				}
				tr.MustAccept("subscribe", c, tp, "hub.secret", "secret "+strconv.Itoa(i))
				var marks []string
				if step.kind == trial.Delivery {
					marks = append(marks, tr.Publish(tp))
				}
				close(asked) // all replies are set
				if step.kind != "" {
					tr.WaitRequests(c, step.kind, 1)
				}
				if step.within {
					<-dead
				} else {
					if step.kind != "" {
						tr.Wait("the request has a response", func() error { return trial.CheckAnswered(c, step.kind, 1) })
					}
					h.Kill()
				}
				h.Start(t)
				marks = append(marks, tr.Publish(tp), tr.Publish(tp))
				tr.WaitRequests(c, trial.Verification, 1)
				for _, mark := range marks {
					d := tr.WaitDelivery(c, mark)
					if err := trial.CheckSignature(&d, "secret "+strconv.Itoa(i)); err != nil {
						t.Error(err)
					}
				}
				checkCoverage(t, c, at, step.kind == trial.Delivery)
			}
		})
	}
}

// checkCoverage checks that the accepted deliveries continue from a cursor without a gap.
// Repeats are allowed after a kill.
func checkCoverage(t testing.TB, c *trial.Callback, from string, repeats bool) {
	text, _, _ := strings.Cut(from, "-")
	at, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("invalid cursor %q", from)
	}
	for i, d := range c.Requests(trial.Delivery) {
		previous, err1 := strconv.ParseUint(d.Header.Get("RS-Previous"), 10, 64)
		position, err2 := strconv.ParseUint(d.Header.Get("RS-Position"), 10, 64)
		if err1 != nil || err2 != nil || previous > at || previous < at && !repeats || d.Header.Get("RS-Gap") != "" {
			t.Errorf("delivery %d is %q to %q, behind %d; RS-Gap %q", i+1, d.Header.Get("RS-Previous"), d.Header.Get("RS-Position"), at, d.Header.Get("RS-Gap"))
		}
		if d.Status/100 == 2 {
			at = max(at, position)
		}
	}
}

// TestHubKilledUnderLoad kills a hub on disk repeatedly while it delivers.
func TestHubKilledUnderLoad(t *testing.T) {
	const set = "killed-while-calling"
	n, kills := 20, 4
	if full(t) {
		n, kills = 200, 30
	}
	h := hubtest.StartWebSub(t)
	hubtest.Publish(t, h, set, hubtest.Change("first"))
	d := hubtest.NewDestination(t, 10)
	d.Start(t)
	callbacks := append(d.URLs("/healthy/", n), d.URLs("/flaky/", n/4)...)
	if got := len(hubtest.SubscribeAll(t, h.Topic(set), callbacks, h)); got != len(callbacks) {
		t.Fatalf("got %d accepted subscriptions, want %d", got, len(callbacks))
	}
	d.WaitVerified(t, callbacks)
	publishers := []*hubtest.Publisher{hubtest.StartPublisher(t, h, set, "keyed", true), hubtest.StartPublisher(t, h, set, "keyless", false)}
	for range kills {
		hubtest.WaitPublishing(t, 15, publishers[0])
		// After one more delivery, the hub is in the middle of its deliveries.
		before := d.Reports(t)["/healthy/0"].Deliveries
		hubtest.Until(t, "another delivery arrives", func() error {
			if d.Reports(t)["/healthy/0"].Deliveries == before {
				return trial.ErrNotYet
			}
			return nil
		})
		h.Kill()
		h.Start(t)
	}
	hubtest.WaitPublishing(t, 15, publishers[0])
	for _, p := range publishers {
		p.Finish()
	}
	all := hubtest.ReadMemory(t, h, set)
	for _, p := range publishers {
		p.Check(t, all)
	}
	repeats := d.WaitDelivered(t, callbacks, all)
	t.Logf("%d callbacks received %d changes, with %d repeated deliveries", len(callbacks), len(all), repeats)
	if limit := kills * len(callbacks) * 2; repeats > limit {
		t.Errorf("got %d repeated deliveries after %d kills, want at most %d", repeats, kills, limit)
	}
}

// TestRetentionOverrunsCallback has retention remove changes that a callback which is down has
// not received. The next delivery starts at the oldest remaining change and names the gap, which
// is counted.
func TestRetentionOverrunsCallback(t *testing.T) {
	t.Parallel()
	const listSize = 10
	h := hubtest.StartWebSub(t, "RSHUB_CHANGELIST_SIZE="+strconv.Itoa(listSize), "RSHUB_RETENTION_COUNT=20",
		"RSHUB_INVENTORY=off") // otherwise retention waits for the inventory, and runs again after a minute
	tr := hubtest.NewTrial(t, h)
	c, other, tp := tr.Callback(""), tr.Callback(""), tr.Topic()
	tr.Subscribe(other, tp)
	u := tr.Subscribe(c, tp).Param("rs.status")
	tr.WaitDelivery(c, tr.Publish(tp))
	tr.WaitDelivery(other, tp.Mark())
	c.Respond(trial.Delivery, trial.Status(http.StatusServiceUnavailable))
	for range 20 {
		hubtest.Must(t, http.StatusOK, http.MethodPost, tp.URL, hubtest.Changes("lost", listSize), hubtest.AsNDJSON)
	}
	tr.WaitDelivery(other, "/lost/10</loc>")
	tr.Wait("the other callback has all changes", func() error {
		if other.CountDeliveries("/lost/10</loc>") < 1 || !atHead(other, hubtest.Head(t, h, tp.Set)) {
			return trial.ErrNotYet
		}
		return nil
	})
	h.Stop(t)
	h.Start(t) // applies retention
	type state struct{ Floor, Head string }
	var st state
	hubtest.Until(t, "retention removes changes", func() error {
		if st = hubtest.Get[state](t, h.URL+"/sets/"+tp.Set); strings.HasPrefix(st.Floor, "0-") {
			return trial.ErrNotYet
		}
		return nil
	})
	c.Respond(trial.Delivery, trial.Status(http.StatusOK))
	failed := len(c.Requests(trial.Delivery))
	last := tr.Publish(tp)
	tr.WaitDelivery(c, last)
	floor, _, _ := strings.Cut(st.Floor, "-")
	var accepted []trial.CallbackRequest
	for _, d := range c.Requests(trial.Delivery) {
		if d.Status/100 == 2 {
			accepted = append(accepted, d)
		}
	}
	gap := accepted[1] // the first one was before the outage
	if got, want := gap.Header.Get("RS-Gap"), "3-"+floor; got != want {
		t.Errorf("RS-Gap = %q, want %q", got, want)
	}
	n, err := strconv.ParseUint(floor, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if doc := tr.Notification(gap); len(doc.Entries) == 0 || doc.Entries[0].Position != n+1 {
		t.Errorf("first entry after the gap to %d = %+v", n, doc.Items[0])
	}
	at := ""
	for i, d := range accepted {
		if i > 1 && (d.Header.Get("RS-Gap") != "" || d.Header.Get("RS-Previous") != at) {
			t.Errorf("delivery %d: got RS-Gap %q, RS-Previous %s, want none, %s", i+1, d.Header.Get("RS-Gap"), d.Header.Get("RS-Previous"), at)
		}
		at = d.Header.Get("RS-Position")
	}
	if now, _, _ := strings.Cut(hubtest.Head(t, h, tp.Set), "-"); at != now {
		t.Errorf("position of the last delivery = %s, want the head %s", at, now)
	}
	for _, d := range other.Requests(trial.Delivery) {
		if d.Header.Get("RS-Gap") != "" {
			t.Errorf("delivery to the other callback has a gap: %v", d.Header)
		}
	}
	t.Logf("%d failed attempts, gap %s", failed, gap.Header.Get("RS-Gap"))
	hubtest.Until(t, "the gap is counted", func() error {
		for _, s := range hubtest.SubscriptionsOf(t, h, tp.Set) {
			if want := map[string]int{c.URL: 1, other.URL: 0}[s.Callback]; s.Gaps != want {
				return fmt.Errorf("%s has %d gaps, want %d", s.Callback, s.Gaps, want)
			}
		}
		return nil
	})
	if s := hubtest.Get[hubtest.Subscription](t, u); s.Gaps != 1 {
		t.Errorf("rs.status has %d gaps, want 1", s.Gaps)
	}
}

// atHead reports whether the last accepted delivery ends at a cursor.
func atHead(c *trial.Callback, head string) bool {
	all := c.Requests(trial.Delivery)
	position, _, _ := strings.Cut(head, "-")
	return len(all) > 0 && all[len(all)-1].Status/100 == 2 && all[len(all)-1].Header.Get("RS-Position") == position
}
