package follow

import (
	"net/http"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestEveryWay publishes a whole history, and looks at it in every way there is.
func TestEveryWay(t *testing.T) {
	t.Parallel()
	l := hubtest.GeneratedLoad(t, 2345)
	h := hubtest.StartHub(t, "RSHUB_CHANGELIST_SIZE=300")
	const set = "history"
	var followers []*hubtest.Follower
	for _, way := range hubtest.AllTransports { // the set is not made yet
		followers = append(followers, hubtest.Follow(t, h, way, set, "start"))
	}
	for _, f := range followers {
		f.WaitStart(t)
	}
	in, feed := hubtest.Feed(t)
	p := hubtest.Start(t, nil, in, hubtest.Rspublish, "-hub", h.URL, "-set", set, "-")
	half := len(l.Lines) / 2
	_, _ = feed.Write(l.NDJSON(0, half)) // if it has ended, what follows says so
	followers[0].WaitEntries(t, half/1000*1000)
	for _, way := range hubtest.AllTransports {
		f := hubtest.Follow(t, h, way, set, "start")
		f.WaitEntries(t, half/1000*1000)
		followers = append(followers, f)
	}
	_, _ = feed.Write(l.NDJSON(half, len(l.Lines)))
	_ = feed.Close()
	if code := p.Wait(); code != 0 {
		t.Fatalf("rspublish ends with %d: %s", code, p.Stderr.String())
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
			t.Errorf("?from=%s has %d documents", all[i].Datetime, n)
		}
	}
	// A datetime is as good as a cursor to follow from.
	got := hubtest.Get[hubtest.Message](t, h.Topic(set)+"?since="+all[half].Datetime+"&limit=1")
	if e, err := trial.ParseEntry(got.Changes[0]); err != nil || e != all[half] {
		t.Errorf("?since=%s begins with %+v: %v", all[half].Datetime, e, err)
	}
}

// TestFromIsCut asks for more changes than a document may hold.
func TestFromIsCut(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	const n = 100_001 // of which two documents with an overlap of one leave two
	r := hubtest.Publish(t, h, "large", hubtest.Changes("large", n), "Idempotency-Key: once")
	if r.Count != n {
		t.Fatalf("%d changes were accepted", r.Count)
	}
	all := hubtest.ReadMemory(t, h, "large")
	got, documents := hubtest.ReadSince(t, h, "large", all[0].Datetime)
	hubtest.WantEntries(t, "?from=", got, all)
	if documents != 3 {
		t.Errorf("%d changes are in %d documents", n, documents)
	}
	hubtest.WantEntries(t, "the walk over all Change Lists", hubtest.WalkChangeLists(t, h, "large"), all)
	hubtest.Must(t, http.StatusBadRequest, http.MethodGet, h.URL+"/sets/large/changelist.xml?from=2999-01-01", nil)
	hubtest.Must(t, http.StatusGone, http.MethodGet, h.URL+"/sets/large/changelist.xml?from=1999-01-01", nil)
}
