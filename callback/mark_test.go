package callback

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/callback/subscription"
)

// A destination that drops repeats as docs/callbacks.md says loses nothing when positions
// begin anew, or when the log has lost its tail.
func TestMark(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		w.publish("a", 4)
		c := w.listen("a.example")
		c.says(status(500)) // so that something is delivered twice
		w.send(subscription.Request{Mode: subscription.Subscribe, Callback: c.url})
		w.settled()
		c.says(nil)
		time.Sleep(time.Minute)
		if err := w.hub.Delete(t.Context(), "demo"); err != nil {
			t.Fatal(err)
		}
		w.publish("b", 1)
		time.Sleep(time.Minute)
		w.publish("c", 2)
		w.settled()
		lost := w.head()
		lost.Micros++ // the subscription has seen another last entry
		w.send(subscription.Request{Mode: subscription.Move, Callback: c.url, Start: lost})
		w.settled()
		w.publish("d", 3)
		w.settled()

		mark := uint64(0)
		seen := map[string]bool{}
		for i, d := range c.tries {
			previous, err := strconv.ParseUint(d.header.Get("RS-Previous"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if d.header.Get("RS-Gap")+d.header.Get("RS-Diverged") != "" {
				mark = previous
			}
			if previous > mark {
				t.Errorf("delivery %d is behind %d, with the mark at %d", i, previous, mark)
			}
			for n, p := range positions.FindAllSubmatch(d.body, -1) {
				if at, _ := strconv.ParseUint(string(p[1]), 10, 64); at > mark {
					mark = at
					seen[strings.TrimPrefix(d.doc.Items[n].Loc, "https://example.org/")] = true
				}
			}
		}
		if len(seen) != 4+1+2+3 {
			t.Errorf("processed are %v", seen)
		}
	})
}
