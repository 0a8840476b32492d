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
		t.Fatalf("it is %+v, %v", source, err)
	}
	source.Repository.Loc = "https://a.example/{local}"
	w.open(&relay.State{Source: source})
	if res := w.look("compared 6 0 0"); !res.Complete {
		t.Error("the set is not complete")
	}
	w.clock = w.clock.Add(15 * time.Minute)
	put("a", "g")
	r.Delete("oai:x:b")
	w.clock = w.clock.Add(time.Minute)
	w.hub.fails = 1
	w.look("the answer was lost")
	w.look("changes 0 2 1")
	w.clock = w.clock.Add(time.Minute)
	w.look("changes 0 0 0")
	w.has("a", "c", "d", "e", "f", "g")

	// What vanishes is deleted when two comparisons missed it.
	r.Vanish("oai:x:c")
	w.clock = w.clock.Add(25 * time.Hour)
	if res := w.look("compared 0 0 0"); res.Kept != 1 {
		t.Errorf("the result is %+v", res)
	}
	w.clock = w.clock.Add(time.Hour)
	w.look("changes 0 0 0")
	w.clock = w.clock.Add(25 * time.Hour)
	r.Misbehave(oaitest.Faults{BadRecord: true})
	if res := w.look("compared 0 0 0"); res.Kept != 1 || res.Gaps != 2 || len(w.gaps) != 2 {
		t.Errorf("the result is %+v, the gaps are %q", res, w.gaps)
	}
	r.Misbehave(oaitest.Faults{})
	w.clock = w.clock.Add(25 * time.Hour)
	w.look("compared 0 0 1")
	w.has("a", "d", "e", "f", "g")

	// A comparison that is refused does not keep back what is new, and does not count what only
	// waits.
	if w.opts.MaxDelete, err = reconcile.ParseBound("1"); err != nil {
		t.Fatal(err)
	}
	put("h", "i")
	w.look("changes 0 2 0")
	r.Vanish("oai:x:h")
	r.Vanish("oai:x:i")
	w.clock = w.clock.Add(25 * time.Hour)
	if res := w.look("compared 0 0 0"); res.Kept != 2 {
		t.Errorf("the result is %+v", res)
	}
	w.clock = w.clock.Add(25 * time.Hour)
	put("d")
	w.clock = w.clock.Add(time.Minute)
	if res := w.look("2 of the 7 "); res.Updated != 1 {
		t.Errorf("beside a refused comparison, the result is %+v", res)
	}
	if w.opts.MaxDelete, err = reconcile.ParseBound("2"); err != nil {
		t.Fatal(err)
	}
	w.look("compared 0 0 2")

	// A repository that says for a while that all is deleted.
	w.clock = w.clock.Add(15 * time.Minute)
	for _, id := range []string{"a", "d", "e"} {
		r.Delete("oai:x:" + id)
	}
	w.clock = w.clock.Add(time.Minute)
	w.look("3 more of the 7 known resources would be deleted, after 2 within a day")
	put("a", "d", "e")
	w.clock = w.clock.Add(time.Minute)
	w.look("changes 0 3 0")
	w.has("a", "d", "e", "f", "g")

	// Where only a comparison can tell what is new, one that is refused is not made again.
	for _, id := range []string{"a", "d", "e"} {
		r.Vanish("oai:x:" + id)
	}
	w.clock = w.clock.Add(25 * time.Hour)
	w.look("compared 0 0 0")
	w.clock = w.clock.Add(25 * time.Hour)
	r.Deleted = "transient"
	r.Requests()
	w.look("3 of the 5 ")
	if n := strings.Count(strings.Join(r.Requests(), "\n"), "metadataPrefix="); n != 1 {
		t.Errorf("the records were listed %d times", n)
	}
}

// A record without an identifier may be one that seems to have vanished, but only if it was
// not there before without one. So it does not keep others from being deleted for ever.
func TestRepositoryNameless(t *testing.T) {
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
		if res := w.look(want); res.Gaps != gaps || res.Kept != kept || res.Complete != complete {
			t.Errorf("the result is %+v", res)
		}
		w.clock = w.clock.Add(25 * time.Hour)
	}
	day("compared 4 0 0", 2, 0, false)
	day("compared 0 0 0", 2, 0, true) // there is nothing new without a name
	r.Vanish("oai:x:a")
	day("compared 0 0 0", 2, 1, true)
	day("compared 0 0 1", 2, 0, true)
	w.has("b", "c", "d")

	// They are gone, and come again together with the vanishing of another: it may be one of them.
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
	w.has("b", "d")
	r.Misbehave(oaitest.Faults{})
	day("compared 0 0 1", 0, 0, true)
	w.has("d")
}
