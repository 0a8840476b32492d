package callback_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
)

// A told notes what an Activity is told.
type told struct {
	mu        sync.Mutex
	outcomes  []string
	delivered int
}

func (a *told) Called(o callback.Outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outcomes = append(a.outcomes, fmt.Sprintf("%s %s %d %t %q by %s", o.Set, o.Kind, o.Status, o.Final, o.Error, o.By))
}

func (a *told) Delivered(_ string, changes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.delivered += changes
}

// Activity is told what failed and why, whether it is tried again, and when it goes right.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &told{}
		w := newWorld(t, callback.Options{Activity: a})
		check := func(step string, want ...string) {
			t.Helper()
			a.mu.Lock()
			defer a.mu.Unlock()
			if !slices.Equal(a.outcomes, want) {
				t.Errorf("%s: told is\n%q, want\n%q", step, a.outcomes, want)
			}
			a.outcomes = nil
		}
		c := w.listen("refuses.example")
		c.agrees(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "what?") })
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, By: "token bob"})
		check("a wrong challenge", `demo subscribe 200 true "response body: got \"what?\", want the challenge" by token bob`)

		c = w.listen("away.example")
		c.agrees(status(503))
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url})
		check("a callback that is away", `demo subscribe 503 false "response does not confirm: Service Unavailable" by token alice`)
		time.Sleep(time.Minute)
		check("it stays away", `demo subscribe 503 false "response does not confirm: Service Unavailable" by token alice`, `demo subscribe 503 true "response does not confirm: Service Unavailable" by token alice`)

		c = w.listen("good.example")
		w.subscribe(c)
		check("a confirmation", `demo subscribe 200 true "" by token alice`)
		w.published("a", 2)
		check("a delivery")
		c.says(status(500))
		w.published("b", 3)
		check("a delivery that failed", `demo deliver 500 false "unsuccessful response: Internal Server Error" by `)
		if f := w.engine.Following()["demo"]; f.Subscriptions != 1 || f.Failing != 1 || f.Changes != 3 {
			t.Errorf("who follows is %+v", f)
		}
		c.says(status(200))
		time.Sleep(10 * time.Second)
		check("a delivery that went right", `demo deliver 200 false "" by `)
		if a.delivered != 5 {
			t.Errorf("%d changes were delivered, want 5", a.delivered)
		}
		if f := w.engine.Following()["demo"]; f.Subscriptions != 1 || f.Failing != 0 || f.Changes != 0 || f.Lag != 0 {
			t.Errorf("who follows is %+v", f)
		}
	})
}
