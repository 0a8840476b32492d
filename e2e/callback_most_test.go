package e2e

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestMostCallbacks fills a host at one hub up to what it may have, all at once:
// then new ones are refused, and renewals are not. RSHUB_E2E_FULL makes it 10,000.
func TestMostCallbacks(t *testing.T) {
	n := 1500
	if full(t) {
		n = 10_000
	}
	const set = "popular"
	more := strconv.Itoa(2 * n)
	h := startWebSub(t, "RSHUB_CALLBACK_REQUESTS="+more, "RSHUB_CALLBACK_MAX_UNVERIFIED="+more, "RSHUB_CALLBACK_MAX_PER_HOST="+strconv.Itoa(n))
	publish(t, h, set, change("first"))
	d := newDestination(t, 1)
	d.start(t)
	urls := d.urls("/most/", n+1)
	if accepted := len(subscribeAll(t, h.topic(set), urls[:n], h)); accepted != n {
		t.Fatalf("%d of %d were accepted", accepted, n)
	}
	d.verified(t, urls[:n])
	ask := func(callback string, status int) {
		t.Helper()
		a, err := request(http.MethodPost, h.url+"/hub", strings.NewReader(form("subscribe", callback, h.topic(set)).Encode()), asForm)
		if err != nil || a.status != status {
			t.Errorf("%s is answered %d, %v: %s", callback, a.status, err, a.body)
		}
		if status == http.StatusForbidden && !strings.Contains(string(a.body), "at most "+strconv.Itoa(n)+" subscriptions") {
			t.Errorf("the limit is not named: %s", a.body)
		}
	}
	ask(urls[n], http.StatusForbidden)
	ask(urls[0], http.StatusAccepted)
	d.allTook(t, urls[:n], memory(t, h, set))
}

// TestMostCallbacksTogether fills a host at two hubs, of which each knows about
// half: they refuse at about what is set.
func TestMostCallbacksTogether(t *testing.T) {
	t.Parallel()
	const set, most = "popular", 400
	c := startCluster(t, 2, append(slices.Clone(callable), "RSHUB_CALLBACK_MAX_PER_HOST="+strconv.Itoa(most), "RSHUB_CALLBACK_REQUESTS=5000")...)
	publish(t, c.hubs[0], set, change("first"))
	d := newDestination(t, 1)
	d.start(t)
	urls := d.urls("/most/", 2*most)
	var accepted []string
	for i, u := range urls {
		h := c.hubs[i%2]
		a, err := request(http.MethodPost, h.url+"/hub", strings.NewReader(form("subscribe", u, c.hubs[0].topic(set), "rs.since", "start").Encode()), asForm)
		if err != nil || a.status != http.StatusAccepted && a.status != http.StatusForbidden {
			t.Fatalf("%s is answered %d, %v: %s", u, a.status, err, a.body)
		}
		if a.status == http.StatusAccepted {
			accepted = append(accepted, u)
		}
		if i%50 == 49 { // what is asked for at one hub is known to the other a moment later
			d.verified(t, accepted)
		}
	}
	t.Logf("%d of %d were accepted, with a limit of %d", len(accepted), len(urls), most)
	if n := len(accepted); n < most*8/10 || n > most*14/10 {
		t.Errorf("%d were accepted, with a limit of %d", n, most)
	}
	d.allTook(t, accepted, memory(t, c.hubs[1], set))
}
