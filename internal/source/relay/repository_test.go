package relay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/internal/source/relay"
	"github.com/rshub/rshub/internal/testutil/oaitest"
)

func TestRepository(t *testing.T) {
	r := new(oaitest.Repository)
	w := newWorld(t, r)
	r.Now = func() time.Time { return w.clock }
	put := func(ids ...string) {
		for _, id := range ids {
			r.Put("oai:x:"+id, "https://a.example/"+id, "")
		}
	}
	put("a", "b", "c", "d", "e", "f")
	w.clock = w.clock.Add(time.Hour)
	source, err := relay.Find(t.Context(), w.getter(), w.url)
	if err != nil || source.Repository == nil {
		t.Fatalf("Find() = %+v, %v, want a repository", source, err)
	}
	source.Repository.Loc = "https://a.example/{local}"
	w.open(&relay.State{Source: source})
	if res := w.pollWant("compared 6 0 0"); !res.Complete {
		t.Error("set is not complete")
	}
	w.clock = w.clock.Add(15 * time.Minute)
	put("a", "g")
	r.Delete("oai:x:b")
	w.clock = w.clock.Add(time.Minute)
	w.hub.fails = 1
	w.pollWant("the answer was lost")
	w.pollWant("changes 0 2 1")
	w.clock = w.clock.Add(time.Minute)
	w.pollWant("changes 0 0 0")
	w.wantLocs("a", "c", "d", "e", "f", "g")

	// A vanished resource is deleted after two comparisons missed it.
	r.Vanish("oai:x:c")
	w.clock = w.clock.Add(25 * time.Hour)
	if res := w.pollWant("compared 0 0 0"); res.Kept != 1 {
		t.Errorf("Poll() = %+v, want one resource kept", res)
	}
	w.clock = w.clock.Add(time.Hour)
	w.pollWant("changes 0 0 0")
	w.clock = w.clock.Add(25 * time.Hour)
	r.Misbehave(oaitest.Faults{BadRecord: true})
	if res := w.pollWant("compared 0 0 0"); res.Kept != 1 || res.Gaps != 2 || len(w.gaps) != 2 {
		t.Errorf("Poll() = %+v with gaps %q, want one resource kept, and two gaps", res, w.gaps)
	}
	r.Misbehave(oaitest.Faults{})
	w.clock = w.clock.Add(25 * time.Hour)
	w.pollWant("compared 0 0 1")
	w.wantLocs("a", "d", "e", "f", "g")

	// A refused comparison does not hold back new changes, and does not count resources that only
	// wait for deletion.
	if w.opts.MaxDelete, err = reconcile.ParseBound("1"); err != nil {
		t.Fatal(err)
	}
	put("h", "i")
	w.pollWant("changes 0 2 0")
	r.Vanish("oai:x:h")
	r.Vanish("oai:x:i")
	w.clock = w.clock.Add(25 * time.Hour)
	if res := w.pollWant("compared 0 0 0"); res.Kept != 2 {
		t.Errorf("Poll() = %+v, want two resources kept", res)
	}
	w.clock = w.clock.Add(25 * time.Hour)
	put("d")
	w.clock = w.clock.Add(time.Minute)
	if res := w.pollWant("2 of the 7 "); res.Updated != 1 {
		t.Errorf("Poll() with a refused comparison = %+v, want one updated resource", res)
	}
	if w.opts.MaxDelete, err = reconcile.ParseBound("2"); err != nil {
		t.Fatal(err)
	}
	w.pollWant("compared 0 0 2")

	// A repository reports for a while that everything is deleted.
	w.clock = w.clock.Add(15 * time.Minute)
	for _, id := range []string{"a", "d", "e"} {
		r.Delete("oai:x:" + id)
	}
	w.clock = w.clock.Add(time.Minute)
	w.pollWant("3 more of the 7 known resources would be deleted, after 2 within a day")
	put("a", "d", "e")
	w.clock = w.clock.Add(time.Minute)
	w.pollWant("changes 0 3 0")
	w.wantLocs("a", "d", "e", "f", "g")

	// If only a comparison can find changes, a refused one is not repeated.
	for _, id := range []string{"a", "d", "e"} {
		r.Vanish("oai:x:" + id)
	}
	w.clock = w.clock.Add(25 * time.Hour)
	w.pollWant("compared 0 0 0")
	w.clock = w.clock.Add(25 * time.Hour)
	r.Deleted = "transient"
	r.Requests()
	w.pollWant("3 of the 5 ")
	if n := strings.Count(strings.Join(r.Requests(), "\n"), "metadataPrefix="); n != 1 {
		t.Errorf("records were listed %d times", n)
	}
}

// A record without an identifier may be one that seems to have vanished, but only if it was not
// listed before. So it does not prevent the deletion of others forever.
func TestRepositoryNamelessRecords(t *testing.T) {
	r := new(oaitest.Repository)
	w := newWorld(t, r)
	r.Now = func() time.Time { return w.clock }
	for _, id := range []string{"a", "b", "c", "d"} {
		r.Put("oai:x:"+id, "", "")
	}
	r.Misbehave(oaitest.Faults{BadRecord: true})
	w.clock = w.clock.Add(time.Hour)
	w.open(&relay.State{Source: relay.Source{Repository: &relay.Repository{URL: w.url, Loc: "https://a.example/{local}"}}})
	day := func(want string, gaps, kept int, complete bool) {
		t.Helper()
		if res := w.pollWant(want); res.Gaps != gaps || res.Kept != kept || res.Complete != complete {
			t.Errorf("Poll() = %+v, want %d gaps, %d resources kept and complete %t", res, gaps, kept, complete)
		}
		w.clock = w.clock.Add(25 * time.Hour)
	}
	day("compared 4 0 0", 2, 0, false)
	day("compared 0 0 0", 2, 0, true) // there is no new record without an identifier
	r.Vanish("oai:x:a")
	day("compared 0 0 0", 2, 1, true)
	day("compared 0 0 1", 2, 0, true)
	w.wantLocs("b", "c", "d")

	// They vanish, and reappear when another one vanishes: it may be one of them.
	r.Misbehave(oaitest.Faults{})
	day("compared 0 0 0", 0, 0, true)
	r.Misbehave(oaitest.Faults{BadRecord: true})
	r.Vanish("oai:x:b")
	day("compared 0 0 0", 2, 1, true)
	for range 3 {
		day("compared 0 0 0", 2, 1, true)
	}
	r.Vanish("oai:x:c") // but this one is not
	day("compared 0 0 0", 2, 2, true)
	day("compared 0 0 1", 2, 1, true)
	w.wantLocs("b", "d")
	r.Misbehave(oaitest.Faults{})
	day("compared 0 0 1", 0, 0, true)
	w.wantLocs("d")
}
