package e2e

import (
	"net/http"
	"testing"
)

// TestPeps publishes a whole history, and looks at it in every way there is.
func TestPeps(t *testing.T) {
	t.Run("peps", func(t *testing.T) {
		t.Parallel()
		everyWay(t, pepsLoad(t))
	})
	t.Run("generated", func(t *testing.T) {
		t.Parallel()
		everyWay(t, generatedLoad(t, 2345), "RSHUB_CHANGELIST_SIZE=300")
	})
}

func everyWay(t *testing.T, l *load, env ...string) {
	h := startHub(t, env...)
	const set = "peps"
	var followers []*follower
	for _, way := range allWays { // the set is not made yet
		followers = append(followers, follow(t, h, way, set, "start"))
	}
	for _, f := range followers {
		f.begins(t)
	}
	in, feed := feed(t)
	p := start(t, nil, in, rspublishBin, "-hub", h.url, "-set", set, "-")
	half := len(l.lines) / 2
	_, _ = feed.Write(l.ndjson(0, half)) // if it has ended, what follows says so
	followers[0].has(t, half/1000*1000)
	for _, way := range allWays {
		f := follow(t, h, way, set, "start")
		f.has(t, half/1000*1000)
		followers = append(followers, f)
	}
	_, _ = feed.Write(l.ndjson(half, len(l.lines)))
	_ = feed.Close()
	if code := p.wait(); code != 0 {
		t.Fatalf("rspublish ends with %d: %s", code, p.stderr.String())
	}

	all := memory(t, h, set)
	sameTexts(t, "the memory", all, l.texts)
	for _, f := range followers {
		f.has(t, len(all))
		same(t, "the "+f.way, f.seen(), all)
	}
	same(t, "the walk over all Change Lists", walk(t, h, set), all)
	for _, i := range []int{0, 1, half, len(all) - 1} {
		got, n := since(t, h, set, all[i].datetime)
		same(t, "?from="+all[i].datetime, got, all[i:])
		if n != 1 {
			t.Errorf("?from=%s has %d documents", all[i].datetime, n)
		}
	}
	// A datetime is as good as a cursor to follow from.
	got := get[message](t, h.topic(set)+"?since="+all[half].datetime+"&limit=1")
	if e, err := parseEntry(got.Changes[0]); err != nil || e != all[half] {
		t.Errorf("?since=%s begins with %+v: %v", all[half].datetime, e, err)
	}
}

// TestFromIsCut asks for more changes than a document may hold.
func TestFromIsCut(t *testing.T) {
	t.Parallel()
	h := startHub(t)
	const n = 100_001 // of which two documents with an overlap of one leave two
	r := publish(t, h, "large", changes("large", n), "Idempotency-Key: once")
	if r.Count != n {
		t.Fatalf("%d changes were accepted", r.Count)
	}
	all := memory(t, h, "large")
	got, documents := since(t, h, "large", all[0].datetime)
	same(t, "?from=", got, all)
	if documents != 3 {
		t.Errorf("%d changes are in %d documents", n, documents)
	}
	same(t, "the walk over all Change Lists", walk(t, h, "large"), all)
	must(t, http.StatusBadRequest, http.MethodGet, h.url+"/sets/large/changelist.xml?from=2999-01-01", nil)
	must(t, http.StatusGone, http.MethodGet, h.url+"/sets/large/changelist.xml?from=1999-01-01", nil)
}
