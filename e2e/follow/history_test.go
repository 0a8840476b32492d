package follow

import (
	"net/http"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestAllTransports publishes a history, and reads it with every transport and document.
func TestAllTransports(t *testing.T) {
	t.Parallel()
	l := hubtest.GeneratedLoad(t, 2345)
	h := hubtest.StartHub(t, "RSHUB_CHANGELIST_SIZE=300")
	const set = "history"
	var followers []*hubtest.Follower
	for _, way := range hubtest.AllTransports { // the set does not exist yet
		followers = append(followers, hubtest.Follow(t, h, way, set, "start"))
	}
	for _, f := range followers {
		f.WaitStart(t)
	}
	in, feed := hubtest.Feed(t)
	p := hubtest.Start(t, nil, in, hubtest.Rspublish, "-hub", h.URL, "-set", set, "-")
	half := len(l.Lines) / 2
	_, _ = feed.Write(l.NDJSON(0, half)) // an early exit fails the test below
	followers[0].WaitEntries(t, half/1000*1000)
	for _, way := range hubtest.AllTransports {
		f := hubtest.Follow(t, h, way, set, "start")
		f.WaitEntries(t, half/1000*1000)
		followers = append(followers, f)
	}
	_, _ = feed.Write(l.NDJSON(half, len(l.Lines)))
	_ = feed.Close()
	if code := p.Wait(); code != 0 {
		t.Fatalf("rspublish exited with %d: %s", code, p.Stderr.String())
	}

	all := hubtest.ReadMemory(t, h, set)
	hubtest.WantTexts(t, "the memory", all, l.Texts)
	for _, f := range followers {
		f.WaitEntries(t, len(all))
		hubtest.WantEntries(t, "the "+f.Transport, f.Snapshot(), all)
	}
	hubtest.WantEntries(t, "the walk over all Change Lists", hubtest.WalkChangeLists(t, h, set), all)
	for _, i := range []int{0, 1, half, len(all) - 1} {
		got, n := hubtest.ReadSince(t, h, set, all[i].Datetime)
		hubtest.WantEntries(t, "?from="+all[i].Datetime, got, all[i:])
		if n != 1 {
			t.Errorf("?from=%s: got %d documents, want 1", all[i].Datetime, n)
		}
	}
	// A datetime works like a cursor.
	got := hubtest.Get[hubtest.Message](t, h.Topic(set)+"?since="+all[half].Datetime+"&limit=1")
	if e, err := trial.ParseEntry(got.Changes[0]); err != nil || e != all[half] {
		t.Errorf("first entry of ?since=%s = %+v, %v, want %+v", all[half].Datetime, e, err, all[half])
	}
}

// TestFromIsSplit requests more changes than fit into a document.
func TestFromIsSplit(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	const n = 100_001 // two more than in two documents with an overlap of one
	r := hubtest.Publish(t, h, "large", hubtest.Changes("large", n), "Idempotency-Key: once")
	if r.Count != n {
		t.Fatalf("got %d accepted changes, want %d", r.Count, n)
	}
	all := hubtest.ReadMemory(t, h, "large")
	got, documents := hubtest.ReadSince(t, h, "large", all[0].Datetime)
	hubtest.WantEntries(t, "?from=", got, all)
	if documents != 3 {
		t.Errorf("got %d documents for %d changes, want 3", documents, n)
	}
	hubtest.WantEntries(t, "the walk over all Change Lists", hubtest.WalkChangeLists(t, h, "large"), all)
	hubtest.Must(t, http.StatusBadRequest, http.MethodGet, h.URL+"/sets/large/changelist.xml?from=2999-01-01", nil)
	hubtest.Must(t, http.StatusGone, http.MethodGet, h.URL+"/sets/large/changelist.xml?from=1999-01-01", nil)
}
