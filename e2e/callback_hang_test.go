package e2e

import (
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestCallbacksWhileRedisHangs stops Redis without ending it: who asks for something is told
// soon that it cannot be had now, and nothing of it is done later.
func TestCallbacksWhileRedisHangs(t *testing.T) {
	t.Parallel()
	const set = "hangs"
	const timeout = time.Second
	c := startCluster(t, 1, append(slices.Clone(callable), "RSHUB_REDIS_TIMEOUT="+timeout.String())...)
	h := c.hubs[0]
	publish(t, h, set, change("first"))
	d := newDestination(t, 1)
	d.start(t)
	urls := d.urls("/hung/", 2)
	topic := h.topic(set)
	if n := len(subscribeAll(t, topic, urls[:1], h)); n != 1 {
		t.Fatal("the subscription is not accepted")
	}
	d.verified(t, urls[:1])
	c.redis.signal(syscall.SIGSTOP)
	for range 2 { // with connections from before, and without
		for what, ask := range map[string]struct{ method, url, body string }{
			"subscribe":           {http.MethodPost, h.url + "/hub", form("subscribe", urls[1], topic).Encode()},
			"subscribe, no topic": {http.MethodPost, h.url + "/hub", "callbackURI=" + urls[1]},
			"unsubscribe":         {http.MethodPost, h.url + "/hub", form("unsubscribe", urls[0], topic).Encode()},
			"list":                {http.MethodGet, h.url + "/sets/" + set + "/subscriptions", ""},
			"remove":              {http.MethodDelete, h.url + "/sets/" + set + "/subscriptions/" + strings.Repeat("0", 32), ""},
			"status":              {http.MethodGet, h.url + "/subscriptions/" + strings.Repeat("0", 32) + ".x", ""},
		} {
			begin := time.Now()
			a, err := request(ask.method, ask.url, strings.NewReader(ask.body), asForm)
			took := time.Since(begin)
			if err != nil || a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
				t.Errorf("%s is answered %d, %v: %s", what, a.status, err, a.body)
			}
			if took > 2*timeout+time.Second { // the second is the machine's
				t.Errorf("%s takes %v", what, took)
			}
			t.Logf("%s: %v", what, took.Round(time.Millisecond))
		}
	}
	c.redis.signal(syscall.SIGCONT)
	publish(t, h, set, change("second"))
	d.allTook(t, urls[:1], memory(t, h, set))
	if n := len(subscriptionsOf(t, h, set)); n != 1 {
		t.Errorf("there are %d subscriptions", n)
	}
}
