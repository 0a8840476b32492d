package callback

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
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
	h := hubtest.StartWebSub(t, "RSHUB_CALLBACK_REQUESTS="+more, "RSHUB_CALLBACK_MAX_UNVERIFIED="+more, "RSHUB_CALLBACK_MAX_PER_HOST="+strconv.Itoa(n))
	hubtest.Publish(t, h, set, hubtest.Change("first"))
	d := hubtest.NewDestination(t, 1)
	d.Start(t)
	urls := d.URLs("/most/", n+1)
	if accepted := len(hubtest.SubscribeAll(t, h.Topic(set), urls[:n], h)); accepted != n {
		t.Fatalf("%d of %d were accepted", accepted, n)
	}
	d.Verified(t, urls[:n])
	ask := func(callback string, status int) {
		t.Helper()
		a, err := hubtest.Request(http.MethodPost, h.URL+"/hub", strings.NewReader(trial.Form("subscribe", callback, h.Topic(set)).Encode()), trial.AsForm)
		if err != nil || a.Status != status {
			t.Errorf("%s is answered %d, %v: %s", callback, a.Status, err, a.Body)
		}
		if status == http.StatusForbidden && !strings.Contains(string(a.Body), "at most "+strconv.Itoa(n)+" subscriptions") {
			t.Errorf("the limit is not named: %s", a.Body)
		}
	}
	ask(urls[n], http.StatusForbidden)
	ask(urls[0], http.StatusAccepted)
	d.AllTook(t, urls[:n], hubtest.Memory(t, h, set))
}

// TestMostCallbacksTogether fills a host at two hubs, of which each knows about
// half: they refuse at about what is set.
func TestMostCallbacksTogether(t *testing.T) {
	t.Parallel()
	const set, most = "popular", 400
	c := hubtest.StartCluster(t, 2, append(slices.Clone(hubtest.Callable), "RSHUB_CALLBACK_MAX_PER_HOST="+strconv.Itoa(most), "RSHUB_CALLBACK_REQUESTS=5000")...)
	hubtest.Publish(t, c.Hubs[0], set, hubtest.Change("first"))
	d := hubtest.NewDestination(t, 1)
	d.Start(t)
	urls := d.URLs("/most/", 2*most)
	var accepted []string
	for i, u := range urls {
		h := c.Hubs[i%2]
		a, err := hubtest.Request(http.MethodPost, h.URL+"/hub", strings.NewReader(trial.Form("subscribe", u, c.Hubs[0].Topic(set), "rs.since", "start").Encode()), trial.AsForm)
		if err != nil || a.Status != http.StatusAccepted && a.Status != http.StatusForbidden {
			t.Fatalf("%s is answered %d, %v: %s", u, a.Status, err, a.Body)
		}
		if a.Status == http.StatusAccepted {
			accepted = append(accepted, u)
		}
		if i%50 == 49 { // what is asked for at one hub is known to the other a moment later
			d.Verified(t, accepted)
		}
	}
	t.Logf("%d of %d were accepted, with a limit of %d", len(accepted), len(urls), most)
	if n := len(accepted); n < most*8/10 || n > most*14/10 {
		t.Errorf("%d were accepted, with a limit of %d", n, most)
	}
	d.AllTook(t, accepted, hubtest.Memory(t, c.Hubs[1], set))
}
