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

// TestCallbacksWhileRedisHangs stops Redis without ending it: who asks for something is told
// soon that it cannot be had now, and nothing of it is done later.
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
		t.Fatal("the subscription is not accepted")
	}
	d.WaitVerified(t, urls[:1])
	c.Redis.Signal(syscall.SIGSTOP)
	for range 2 { // with connections from before, and without
		for what, ask := range map[string]struct{ method, url, body string }{
			"subscribe":           {http.MethodPost, h.URL + "/hub", trial.Form("subscribe", urls[1], topic).Encode()},
			"subscribe, no topic": {http.MethodPost, h.URL + "/hub", "callbackURI=" + urls[1]},
			"unsubscribe":         {http.MethodPost, h.URL + "/hub", trial.Form("unsubscribe", urls[0], topic).Encode()},
			"list":                {http.MethodGet, h.URL + "/sets/" + set + "/subscriptions", ""},
			"remove":              {http.MethodDelete, h.URL + "/sets/" + set + "/subscriptions/" + strings.Repeat("0", 32), ""},
			"status":              {http.MethodGet, h.URL + "/subscriptions/" + strings.Repeat("0", 32) + ".x", ""},
		} {
			begin := time.Now()
			a, err := hubtest.Request(ask.method, ask.url, strings.NewReader(ask.body), trial.AsForm)
			took := time.Since(begin)
			if err != nil || a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
				t.Errorf("%s is answered %d, %v: %s", what, a.Status, err, a.Body)
			}
			if took > 2*timeout+time.Second { // the second is the machine's
				t.Errorf("%s takes %v", what, took)
			}
			t.Logf("%s: %v", what, took.Round(time.Millisecond))
		}
	}
	c.Redis.Signal(syscall.SIGCONT)
	hubtest.Publish(t, h, set, hubtest.Change("second"))
	d.WaitDelivered(t, urls[:1], hubtest.ReadMemory(t, h, set))
	if n := len(hubtest.SubscriptionsOf(t, h, set)); n != 1 {
		t.Errorf("there are %d subscriptions", n)
	}
}
