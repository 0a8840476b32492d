package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/conformance/trial"
	"github.com/rshub/rshub/resourcesync"
)

// hasAll waits until all changes of a topic were delivered, in order, once.
func hasAll(t *trial.Trial, c *trial.Callback, tp *trial.Topic) { hasAllSince(t, c, tp, 0) }

// hasAllSince leaves out those up to a position.
func hasAllSince(t *trial.Trial, c *trial.Callback, tp *trial.Topic, position uint64) {
	all := t.Memory(tp.Set)[position:]
	var got []trial.Entry
	t.Wait("all changes are delivered", func() error {
		got = nil
		for _, d := range c.Got(trial.Delivery) {
			if d.Status/100 == 2 {
				got = append(got, t.Notification(d).Entries...)
			}
		}
		if len(got) < len(all) {
			return fmt.Errorf("%d of %d", len(got), len(all))
		}
		return nil
	})
	if !slices.Equal(got, all) {
		t.Fatalf("the callback has\n%+v, not\n%+v", got, all)
	}
}

// chained checks that what was taken continues without gap or repeat from a
// cursor: RS-Position, RS-Previous and what the document says of it.
func chained(t *trial.Trial, c *trial.Callback, from string) {
	at, _, _ := strings.Cut(from, "-")
	for i, d := range c.Got(trial.Delivery) {
		previous, position := d.Header.Get("RS-Previous"), d.Header.Get("RS-Position")
		if previous != at {
			t.Errorf("delivery %d: RS-Previous is %s, not %s", i+1, previous, at)
		}
		doc := t.Notification(d)
		if a, _, _ := strings.Cut(doc.After, "-"); a != previous {
			t.Errorf("delivery %d: RS-Previous is %s, and h:after %s", i+1, previous, doc.After)
		}
		if a, _, _ := strings.Cut(doc.Cursor, "-"); a != position {
			t.Errorf("delivery %d: RS-Position is %s, and h:cursor %s", i+1, position, doc.Cursor)
		}
		if d.Status/100 == 2 {
			at = position
		}
	}
}

// filtered is a check of a filter. What passes has /yes/ in its loc.
func filtered(param, value, echo string) func(t *trial.Trial) {
	return func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		v := t.Subscribed(c, tp, param, value)
		got := strings.Split(v.Param(param), ",")
		slices.Sort(got)
		if strings.Join(got, ",") != echo {
			t.Errorf("%s is told as %q", param, v.Param(param))
		}
		at := v.Param("rs.since")
		link := func(rel string) []resourcesync.Link {
			return []resourcesync.Link{{Rel: rel, Href: "https://example.org/other"}}
		}
		for i := range 10 {
			no := resourcesync.Change{Loc: fmt.Sprintf("https://example.org/no/%d", i), Change: resourcesync.Updated, Type: "image/png", Links: link("memento")}
			no.SetTags("birds")
			yes := resourcesync.Change{Loc: fmt.Sprintf("https://example.org/yes/%d", i), Change: resourcesync.Deleted, Type: "text/html", Links: link("collection")}
			yes.SetTags("frogs")
			t.PublishAll(tp, []resourcesync.Change{no, yes})
			// These are left out, and the interval goes on over them.
			t.PublishAll(tp, []resourcesync.Change{{Loc: "https://example.org/no/", Change: resourcesync.Updated}})
		}
		t.Delivered(c, "/yes/9</loc>")
		var locs []string
		for _, d := range c.Got(trial.Delivery) {
			for _, it := range t.Notification(d).Items {
				locs = append(locs, it.Loc)
			}
		}
		if len(locs) != 10 || strings.Contains(strings.Join(locs, " "), "/no/") {
			t.Errorf("what passed is %q", locs)
		}
		chained(t, c, at)
		consecutive(t, c.Got(trial.Delivery))
	}
}

// retriedAfter is a check that Retry-After is obeyed.
func retriedAfter(code int, after func() string) func(t *trial.Trial) {
	return func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		c.On(trial.Delivery, func(w http.ResponseWriter, a *trial.Arrival, over <-chan struct{}) {
			trial.Status(code, "Retry-After: "+after())(w, a, over)
		}, trial.Status(200))
		t.Publish(tp)
		t.Arrives(c, trial.Delivery, 1)
		t.Publish(tp) // does not bring it forward
		all := t.Arrives(c, trial.Delivery, 2)
		if took := all[1].At.Sub(all[0].At); took < 2900*time.Millisecond {
			t.Errorf("it came after %v", took)
		}
	}
}

// A countingWriter counts what a callback could send.
type countingWriter struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (w countingWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.n.Add(int64(n))
	return n, err
}
