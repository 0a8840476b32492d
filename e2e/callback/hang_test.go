package callback

import (
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestCallbacksWhileRedisHangs suspends Redis. Requests soon get status 503, and none of them is
// executed later.
func TestCallbacksWhileRedisHangs(t *testing.T) {
	t.Parallel()
	const set = "hangs"
	const timeout = time.Second
	c := hubtest.StartCluster(t, 1, append(slices.Clone(hubtest.CallbackEnv), "RSHUB_REDIS_TIMEOUT="+timeout.String())...)
	h := c.Hubs[0]
	hubtest.Publish(t, h, set, hubtest.Change("first"))
	d := hubtest.NewDestination(t, 1)
	d.Start(t)
	urls := d.URLs("/hung/", 2)
	topic := h.Topic(set)
	if n := len(hubtest.SubscribeAll(t, topic, urls[:1], h)); n != 1 {
		t.Fatal("the subscription was not accepted")
	}
	d.WaitVerified(t, urls[:1])
	c.Redis.Signal(syscall.SIGSTOP)
	for range 2 { // with existing connections, then with new ones
		for what, ask := range map[string]struct{ method, url, body string }{
			"subscribe":           {http.MethodPost, h.URL + "/hub", trial.Form("subscribe", urls[1], topic).Encode()},
			"subscribe, no topic": {http.MethodPost, h.URL + "/hub", "callbackURI=" + urls[1]},
			"unsubscribe":         {http.MethodPost, h.URL + "/hub", trial.Form("unsubscribe", urls[0], topic).Encode()},
			"list":                {http.MethodGet, h.URL + "/sets/" + set + "/subscriptions", ""},
			"remove":              {http.MethodDelete, h.URL + "/sets/" + set + "/subscriptions/" + strings.Repeat("0", 32), ""},
			"status":              {http.MethodGet, h.URL + "/subscriptions/" + strings.Repeat("0", 32) + ".x", ""},
		} {
			start := time.Now()
			a, err := hubtest.Request(ask.method, ask.url, strings.NewReader(ask.body), trial.AsForm)
			took := time.Since(start)
			if err != nil || a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
				t.Errorf("%s = %d, %v, want 503 with Retry-After: %s", what, a.Status, err, a.Body)
			}
			if took > 2*timeout+time.Second { // a second for a slow machine
				t.Errorf("%s took %v, want at most %v", what, took, 2*timeout+time.Second)
			}
			t.Logf("%s: %v", what, took.Round(time.Millisecond))
		}
	}
	c.Redis.Signal(syscall.SIGCONT)
	hubtest.Publish(t, h, set, hubtest.Change("second"))
	d.WaitDelivered(t, urls[:1], hubtest.ReadMemory(t, h, set))
	if n := len(hubtest.SubscriptionsOf(t, h, set)); n != 1 {
		t.Errorf("got %d subscriptions, want 1", n)
	}
}
