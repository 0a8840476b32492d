package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// A shownSubscription is what the hub shows of one.
type shownSubscription struct {
	ID, Topic, Callback, State, Cursor string
	Prefix                             string `json:"rs.prefix"`
	Signed                             bool
	Failed, Gaps                       int
	Lag                                struct{ Changes uint64 }
	Attempts                           []struct {
		Kind   string
		Status int
		Error  string
	}
}

// subscriptionsOf lists the subscriptions of a set.
func subscriptionsOf(t testing.TB, h *hub, set string) (all []shownSubscription) {
	t.Helper()
	type page struct {
		Subscriptions []shownSubscription
		Next          string
	}
	for next := h.url + "/sets/" + set + "/subscriptions?limit=1000"; next != ""; {
		p := get[page](t, next)
		all, next = append(all, p.Subscriptions...), p.Next
	}
	return all
}

func (t *trial) subscriptions(tp *topic) []shownSubscription {
	return subscriptionsOf(t, t.rshub, tp.set)
}

// listed says whether a subscription is listed, or is not, as it should.
func (t *trial) listed(tp *topic, c *callback, want bool) error {
	if got := t.idOf(tp, c) != ""; got != want {
		return fmt.Errorf("listed: %v", got)
	}
	return nil
}

func (t *trial) idOf(tp *topic, c *callback) string {
	for _, s := range t.subscriptions(tp) {
		if s.Callback == c.url {
			return s.ID
		}
	}
	return ""
}

// hasAll waits until all changes of a topic were delivered, in order, once.
func (t *trial) hasAll(c *callback, tp *topic) { t.hasAllSince(c, tp, 0) }

// hasAllSince leaves out those up to a position.
func (t *trial) hasAllSince(c *callback, tp *topic, position uint64) {
	all := memory(t, t.rshub, tp.set)[position:]
	var got []entry
	t.wait("all changes are delivered", func() error {
		got = nil
		for _, d := range c.got(delivery) {
			if d.status/100 == 2 {
				got = append(got, t.notification(d).entries...)
			}
		}
		if len(got) < len(all) {
			return fmt.Errorf("%d of %d", len(got), len(all))
		}
		return nil
	})
	same(t, "the callback", got, all)
}

// chained checks that what was taken continues without gap or repeat from a
// cursor: RS-Position, RS-Previous and what the document says of it.
func (t *trial) chained(c *callback, from string) {
	at, _, _ := strings.Cut(from, "-")
	for i, d := range c.got(delivery) {
		previous, position := d.header.Get("RS-Previous"), d.header.Get("RS-Position")
		if previous != at {
			t.Errorf("delivery %d: RS-Previous is %s, not %s", i+1, previous, at)
		}
		doc := t.notification(d)
		if a, _, _ := strings.Cut(doc.after, "-"); a != previous {
			t.Errorf("delivery %d: RS-Previous is %s, and h:after %s", i+1, previous, doc.after)
		}
		if a, _, _ := strings.Cut(doc.cursor, "-"); a != position {
			t.Errorf("delivery %d: RS-Position is %s, and h:cursor %s", i+1, position, doc.cursor)
		}
		if d.status/100 == 2 {
			at = position
		}
	}
}

// filtered is a check of a filter. What passes has /yes/ in its loc.
func filtered(param, value, echo string) func(t *trial) {
	return func(t *trial) {
		c, tp := t.callback(""), t.topic()
		v := t.subscribed(c, tp, param, value)
		got := strings.Split(v.param(param), ",")
		slices.Sort(got)
		if strings.Join(got, ",") != echo {
			t.Errorf("%s is told as %q", param, v.param(param))
		}
		at := v.param("rs.since")
		for i := range 10 {
			must(t, http.StatusOK, http.MethodPost, tp.url, []byte(fmt.Sprintf(`{"loc":"https://example.org/no/%d","change":"updated","type":"image/png"}
{"loc":"https://example.org/yes/%[1]d","change":"deleted","type":"text/html"}
`, i)), asNDJSON)
			// These are left out, and the interval goes on over them.
			must(t, http.StatusOK, http.MethodPost, tp.url, []byte(`{"loc":"https://example.org/no/","change":"updated"}`), asNDJSON)
		}
		t.delivered(c, "/yes/9</loc>")
		var locs []string
		for _, d := range c.got(delivery) {
			for _, it := range t.notification(d).Items {
				locs = append(locs, it.Loc)
			}
		}
		if len(locs) != 10 || strings.Contains(strings.Join(locs, " "), "/no/") {
			t.Errorf("what passed is %q", locs)
		}
		t.chained(c, at)
		t.consecutive(c.got(delivery))
	}
}

// retriedAfter is a check that Retry-After is obeyed.
func retriedAfter(code int, after func() string) func(t *trial) {
	return func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp)
		c.on(delivery, func(w http.ResponseWriter, a *arrival, over <-chan struct{}) {
			status(code, "Retry-After: "+after())(w, a, over)
		}, status(200))
		t.publish(tp)
		t.arrives(c, delivery, 1)
		t.publish(tp) // does not bring it forward
		all := t.arrives(c, delivery, 2)
		if took := all[1].at.Sub(all[0].at); took < 2900*time.Millisecond {
			t.Errorf("it came after %v", took)
		}
	}
}
