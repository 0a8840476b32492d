// Package conformance checks the built hub against WebSub (W3C Recommendation of 23 January 2018) and
// ResourceSync Change Notification (1.0.1), rule by rule, and walks its documents with a reader that
// implements only the text of ResourceSync core 1.1.
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

// A rule is a requirement for a hub. Its name starts with the section of the standard.
type rule struct {
	name  string
	check func(t *trial.Trial)
}

var webSub = slices.Concat(requests, verifications, renewals, removals, deliveries, signatures)

// TestWebSub checks each rule of WebSub.
func TestWebSub(t *testing.T) { checkRules(t, webSub) }

// TestChangeNotification checks each rule of Change Notification.
func TestChangeNotification(t *testing.T) { checkRules(t, notifications) }

func checkRules(t *testing.T, rules []rule) {
	t.Parallel()
	h := start(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.check(hubtest.NewTrial(t, h))
		})
	}
}

// TestTable checks the lists of rules in docs/conformance.md, and that each rule has a hub that violates it.
func TestTable(t *testing.T) {
	var b strings.Builder
	all := wrongs()
	for i, rules := range [][]rule{webSub, notifications} {
		b.WriteString([]string{"WebSub:\n\n", "\nChange Notification:\n\n"}[i])
		for _, r := range rules {
			if all[r.name].does == "" {
				t.Errorf("rule %q: found no hub that violates it", r.name)
			}
			fmt.Fprintf(&b, "- %s\n", r.name)
		}
	}
	tabletest.Check(t, "../../docs/conformance.md", "rules", b.String())
}

// start starts a hub with a callback timeout of an hour: deliveries that wait for a hanging callback
// do not arrive during the test.
func start(t *testing.T) *hubtest.Hub {
	t.Helper()
	return hubtest.StartWebSub(t, "RSHUB_CALLBACK_TIMEOUT=1h")
}

// wantNoMore waits until a callback gets no more changes, while a witness does.
func wantNoMore(t *trial.Trial, c *trial.Callback, tp *trial.Topic, witness *trial.Callback) {
	t.Helper()
	t.Wait("deliveries stop", func() error {
		for _, mark := range t.PublishRounds(tp, witness, 8) {
			if c.CountDeliveries(mark) > 0 {
				return errors.New("still delivering")
			}
		}
		return nil
	})
}

// wantNone checks that callbacks got no deliveries, while a witness did.
func wantNone(t *trial.Trial, tp *trial.Topic, callbacks ...*trial.Callback) {
	t.Helper()
	witness := t.Callback("")
	t.Subscribe(witness, tp)
	t.PublishRounds(tp, witness, 3)
	for i, c := range callbacks {
		if all := c.Requests(trial.Delivery); len(all) > 0 {
			t.Errorf("callback %d got %d deliveries, want none; first: %s", i+1, len(all), trial.Tail(string(all[0].Body)))
		}
	}
}

// wantOnce checks that callbacks get each change once.
func wantOnce(t *trial.Trial, tp *trial.Topic, callbacks ...*trial.Callback) {
	t.Helper()
	marks := []string{t.Publish(tp), t.Publish(tp), t.Publish(tp)}
	for i, c := range callbacks {
		for _, mark := range marks {
			t.WaitDelivery(c, mark)
		}
		for _, mark := range marks {
			if n := c.CountDeliveries(mark); n != 1 {
				t.Errorf("callback %d got a change %d times, want once", i+1, n)
			}
		}
	}
}

// checkSigned checks that a delivery is signed with a secret, as section 8.3 requires.
func checkSigned(t *trial.Trial, d trial.CallbackRequest, secret string) {
	t.Helper()
	if err := trial.CheckSignature(&d, secret); err != nil {
		t.Error(err)
	}
}
