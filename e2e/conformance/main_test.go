// Package conformance holds the built hub against WebSub (W3C Recommendation of 23
// January 2018) and ResourceSync Change Notification (1.0.1), rule by rule, and walks its
// documents with a reader that knows only the text of ResourceSync core 1.1.
package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
	"github.com/rshub/rshub/internal/testutil/tabletest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

// A rule is one thing that a hub has to do. Its name begins with the section of the
// standard.
type rule struct {
	name string
	hold func(t *trial.Trial)
}

var webSub = slices.Concat(requests, verifications, renewals, removals, deliveries, signatures)

// TestWebSub holds the hub against each rule of WebSub.
func TestWebSub(t *testing.T) { holds(t, webSub) }

// TestChangeNotification holds the hub against each rule of Change Notification.
func TestChangeNotification(t *testing.T) { holds(t, notifications) }

func holds(t *testing.T, rules []rule) {
	t.Parallel()
	h := start(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.hold(hubtest.NewTrial(t, h))
		})
	}
}

// TestTable checks the lists of rules in docs/conformance.md. Each rule has a hub that breaks it.
func TestTable(t *testing.T) {
	var b strings.Builder
	all := wrongs()
	for i, rules := range [][]rule{webSub, notifications} {
		b.WriteString([]string{"WebSub:\n\n", "\nChange Notification:\n\n"}[i])
		for _, r := range rules {
			if all[r.name].does == "" {
				t.Errorf("rule %q: got no hub that breaks it, want one", r.name)
			}
			fmt.Fprintf(&b, "- %s\n", r.name)
		}
	}
	tabletest.Check(t, "../../docs/conformance.md", "rules", b.String())
}

// start starts a hub that waits an hour for a callback's answer: who is held up by a
// callback that hangs gets nothing while the test lasts.
func start(t *testing.T) *hubtest.Hub {
	t.Helper()
	return hubtest.StartWebSub(t, "RSHUB_CALLBACK_TIMEOUT=1h")
}

// nothing checks that a callback gets no changes any more, soon or at once, which a
// witness gets.
func nothing(t *trial.Trial, c *trial.Callback, tp *trial.Topic, witness *trial.Callback) {
	t.Helper()
	t.Wait("nothing is delivered any more", func() error {
		for _, mark := range t.PublishRounds(tp, witness, 8) {
			if c.CountDeliveries(mark) > 0 {
				return errors.New("changes are delivered")
			}
		}
		return nil
	})
}

// never checks that callbacks never got anything delivered, while another did.
func never(t *trial.Trial, tp *trial.Topic, callbacks ...*trial.Callback) {
	t.Helper()
	witness := t.Callback("")
	t.Subscribe(witness, tp)
	t.PublishRounds(tp, witness, 3)
	for i, c := range callbacks {
		if all := c.Requests(trial.Delivery); len(all) > 0 {
			t.Errorf("callback %d got %d deliveries, the first: %s", i+1, len(all), trial.Tail(string(all[0].Body)))
		}
	}
}

// gets checks that callbacks get changes, each once.
func gets(t *trial.Trial, tp *trial.Topic, callbacks ...*trial.Callback) {
	t.Helper()
	marks := []string{t.Publish(tp), t.Publish(tp), t.Publish(tp)}
	for i, c := range callbacks {
		for _, mark := range marks {
			t.WaitDelivery(c, mark)
		}
		for _, mark := range marks {
			if n := c.CountDeliveries(mark); n != 1 {
				t.Errorf("callback %d got a change %d times", i+1, n)
			}
		}
	}
}

// signed checks that a delivery is signed with a secret, as 8.3 wants it.
func signed(t *trial.Trial, d trial.CallbackRequest, secret string) {
	t.Helper()
	if err := trial.CheckSignature(&d, secret); err != nil {
		t.Error(err)
	}
}
