package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// TestHubKilledAtEachStep kills a hub with SIGKILL at each step from the answer
// to a subscription to that of the first delivery. After the restart everything
// that was accepted is carried out.
func TestHubKilledAtEachStep(t *testing.T) {
	t.Parallel()
	// What kills the hub: a handler of the callback, once, or the test when the
	// callback has answered.
	for _, step := range []struct {
		name   string
		kind   string // of the arrival that matters; empty: the 202
		within bool   // the hub dies before the answer, else after it
	}{
		{"the request is answered", "", false},
		{"the verification has arrived", verification, true},
		{"the verification is answered", verification, false},
		{"the first delivery has arrived", delivery, true},
		{"the first delivery is answered", delivery, false},
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			h := startWebSub(t)
			tr := trialOf(t, h)
			for i := range 3 { // each restart finds those of the ones before
				c, tp := tr.callback(""), tr.topic()
				at := head(t, h, tp.set)
				asked, dead := make(chan struct{}), make(chan struct{})
				die := func(then reply) reply {
					return hangUntil(asked, first(func() { h.kill(); close(dead) }, then))
				}
				if step.within && step.kind == verification {
					c.on(verification, die(confirm), confirm)
				}
				if step.within && step.kind == delivery {
					c.on(delivery, die(status(http.StatusOK)), status(http.StatusOK))
				}
				tr.accepted("subscribe", c, tp, "hub.secret", "secret "+strconv.Itoa(i))
				var marks []string
				if step.kind == delivery {
					marks = append(marks, tr.publish(tp))
				}
				close(asked) // all answers are there
				if step.kind != "" {
					tr.arrives(c, step.kind, 1)
				}
				if step.within {
					<-dead
				} else {
					if step.kind != "" {
						tr.wait("it is answered", func() error { return answered(c, step.kind, 1) })
					}
					h.kill()
				}
				h.start(t)
				marks = append(marks, tr.publish(tp), tr.publish(tp))
				tr.arrives(c, verification, 1)
				for _, mark := range marks {
					d := tr.delivered(c, mark)
					if err := signedBy(&d, "secret "+strconv.Itoa(i)); err != nil {
						t.Error(err)
					}
				}
				tr.covers(c, at, step.kind == delivery)
			}
		})
	}
}

// covers checks that what was taken goes on from a cursor without a gap. Repeats
// may be there after a kill.
func (t *trial) covers(c *callback, from string, repeats bool) {
	text, _, _ := strings.Cut(from, "-")
	at, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("cursor %q", from)
	}
	for i, d := range c.got(delivery) {
		previous, err1 := strconv.ParseUint(d.header.Get("RS-Previous"), 10, 64)
		position, err2 := strconv.ParseUint(d.header.Get("RS-Position"), 10, 64)
		if err1 != nil || err2 != nil || previous > at || previous < at && !repeats || d.header.Get("RS-Gap") != "" {
			t.Errorf("delivery %d is %q to %q, behind %d; RS-Gap %q", i+1, d.header.Get("RS-Previous"), d.header.Get("RS-Position"), at, d.header.Get("RS-Gap"))
		}
		if d.status/100 == 2 {
			at = max(at, position)
		}
	}
}

// TestHubKilledUnderLoad kills a hub on disk again and again while it delivers.
func TestHubKilledUnderLoad(t *testing.T) {
	const set = "killed-while-calling"
	n, kills := 20, 4
	if full(t) {
		n, kills = 200, 30
	}
	h := startWebSub(t)
	publish(t, h, set, change("first"))
	d := newDestination(t, 10)
	d.start(t)
	callbacks := append(d.urls("/healthy/", n), d.urls("/flaky/", n/4)...)
	if got := len(subscribeAll(t, h.topic(set), callbacks, h)); got != len(callbacks) {
		t.Fatalf("%d of %d subscriptions were accepted", got, len(callbacks))
	}
	d.verified(t, callbacks)
	publishers := []*publisher{publishing(t, h, set, "keyed", true), publishing(t, h, set, "keyless", false)}
	for range kills {
		goesOn(t, 15, publishers[0])
		// The hub is in the middle of its deliveries when one more has come.
		before := d.reports(t)["/healthy/0"].Deliveries
		until(t, "a delivery goes on", func() error {
			if d.reports(t)["/healthy/0"].Deliveries == before {
				return errNotYet
			}
			return nil
		})
		h.kill()
		h.start(t)
	}
	goesOn(t, 15, publishers[0])
	for _, p := range publishers {
		p.finish()
	}
	all := memory(t, h, set)
	for _, p := range publishers {
		p.check(t, all)
	}
	repeats := d.allTook(t, callbacks, all)
	t.Logf("%d callbacks took %d changes, and %d deliveries twice", len(callbacks), len(all), repeats)
	if most := kills * len(callbacks) * 2; repeats > most {
		t.Errorf("%d deliveries were repeated after %d kills", repeats, kills)
	}
}

// TestRetentionOverrunsCallback has retention remove what a dead callback has
// not got. It is told so once, goes on with the oldest that is kept, and is
// counted.
func TestRetentionOverrunsCallback(t *testing.T) {
	t.Parallel()
	const listSize = 10
	h := startWebSub(t, "RSHUB_CHANGELIST_SIZE="+strconv.Itoa(listSize), "RSHUB_RETENTION_COUNT=20")
	tr := trialOf(t, h)
	c, other, tp := tr.callback(""), tr.callback(""), tr.topic()
	tr.subscribed(other, tp)
	u := tr.subscribed(c, tp).param("rs.status")
	tr.delivered(c, tr.publish(tp))
	tr.delivered(other, tp.mark())
	c.on(delivery, status(http.StatusServiceUnavailable))
	for range 20 {
		must(t, http.StatusOK, http.MethodPost, tp.url, changes("lost", listSize), asNDJSON)
	}
	tr.delivered(other, "/lost/10</loc>")
	tr.wait("the other has all", func() error {
		if other.times("/lost/10</loc>") < 1 || !atHead(other, head(t, h, tp.set)) {
			return errNotYet
		}
		return nil
	})
	h.stop(t)
	h.start(t) // which applies retention
	type state struct{ Floor, Head string }
	var st state
	until(t, "retention removes changes", func() error {
		if st = get[state](t, h.url+"/sets/"+tp.set); strings.HasPrefix(st.Floor, "0-") {
			return errNotYet
		}
		return nil
	})
	c.on(delivery, status(http.StatusOK))
	failed := len(c.got(delivery))
	last := tr.publish(tp)
	tr.delivered(c, last)
	floor, _, _ := strings.Cut(st.Floor, "-")
	var taken []arrival
	for _, d := range c.got(delivery) {
		if d.status/100 == 2 {
			taken = append(taken, d)
		}
	}
	gap := taken[1] // the first was before
	if got, want := gap.header.Get("RS-Gap"), "3-"+floor; got != want {
		t.Errorf("RS-Gap is %q, not %q", got, want)
	}
	n, err := strconv.ParseUint(floor, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if doc := tr.notification(gap); len(doc.entries) == 0 || doc.entries[0].position != n+1 {
		t.Errorf("behind the gap to %d comes %+v", n, doc.Items[0])
	}
	at := ""
	for i, d := range taken {
		if i > 1 && (d.header.Get("RS-Gap") != "" || d.header.Get("RS-Previous") != at) {
			t.Errorf("delivery %d: RS-Gap %q, RS-Previous %s, not %s", i+1, d.header.Get("RS-Gap"), d.header.Get("RS-Previous"), at)
		}
		at = d.header.Get("RS-Position")
	}
	if now, _, _ := strings.Cut(head(t, h, tp.set), "-"); at != now {
		t.Errorf("it is at %s, and the head at %s", at, now)
	}
	for _, d := range other.got(delivery) {
		if d.header.Get("RS-Gap") != "" {
			t.Errorf("the other is told of a gap: %v", d.header)
		}
	}
	t.Logf("%d attempts failed before; the gap is %s", failed, gap.header.Get("RS-Gap"))
	until(t, "the gap is counted", func() error {
		for _, s := range subscriptionsOf(t, h, tp.set) {
			if want := map[string]int{c.url: 1, other.url: 0}[s.Callback]; s.Gaps != want {
				return fmt.Errorf("%s has %d gaps, not %d", s.Callback, s.Gaps, want)
			}
		}
		return nil
	})
	if s := get[shownSubscription](t, u); s.Gaps != 1 {
		t.Errorf("rs.status shows %d gaps", s.Gaps)
	}
}

// mark is that of the newest change.
func (tp *topic) mark() string {
	return "<loc>https://example.org/" + tp.set + "/" + strconv.Itoa(tp.marks) + "</loc>"
}

// atHead says whether the last delivery that was taken ends at a cursor.
func atHead(c *callback, head string) bool {
	all := c.got(delivery)
	position, _, _ := strings.Cut(head, "-")
	return len(all) > 0 && all[len(all)-1].status/100 == 2 && all[len(all)-1].header.Get("RS-Position") == position
}
