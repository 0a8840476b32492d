package hubtest

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/trial"
)

// CallbackEnv are variables that let a hub call this machine and grant short leases.
var CallbackEnv = []string{"RSHUB_CALLBACK_ALLOW=127.0.0.0/8,::1/128", "RSHUB_LEASE_MIN=1s"}

// StartWebSub starts a hub with CallbackEnv.
func StartWebSub(t testing.TB, env ...string) *Hub {
	t.Helper()
	return StartHub(t, append(CallbackEnv[:len(CallbackEnv):len(CallbackEnv)], env...)...)
}

// NewTrial returns a trial of a hub. It lasts as long as the test.
func NewTrial(t testing.TB, h *Hub) *trial.Trial {
	t.Helper()
	tr := trial.New(t, &trial.Hub{URL: h.URL, Client: Client, Timeout: Timeout})
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(tr.Describe())
		}
	})
	return tr
}

// A Subscription is the representation of a subscription at a hub.
type Subscription struct {
	ID, Callback string
	Gaps         int
}

// SubscriptionsOf lists the subscriptions of a set.
func SubscriptionsOf(t testing.TB, h *Hub, set string) (all []Subscription) {
	t.Helper()
	type page struct {
		Subscriptions []Subscription
		Next          string
	}
	for next := h.URL + "/sets/" + set + "/subscriptions?limit=1000"; next != ""; {
		p := Get[page](t, next)
		all, next = append(all, p.Subscriptions...), p.Next
	}
	return all
}
