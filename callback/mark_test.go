package callback_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
)

// A destination that drops repeats as docs/callbacks.md says loses nothing when positions
// begin anew, or when the log has lost its tail.
func TestMark(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		w.publish("a", 4)
		c := w.listen("a.example")
		c.says(status(500)) // so that something is delivered twice
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url})
		c.says(nil)
		time.Sleep(time.Minute)
		ok(t, w.hub.Delete(t.Context(), "demo"))
		w.publish("b", 1)
		time.Sleep(time.Minute)
		w.published("c", 2)
		lost := w.head()
		lost.Micros++ // the subscription has seen another last entry
		w.sent(subscription.Request{Mode: subscription.Move, Callback: c.url, Start: lost})
		w.published("d", 3)

		mark := uint64(0)
		seen := map[string]bool{}
		for i, d := range c.tries {
			previous, err := strconv.ParseUint(d.header.Get("RS-Previous"), 10, 64)
			ok(t, err)
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
