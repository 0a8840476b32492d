package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rshub/rshub/feed"
)

// walk reads the archive, and then the Change Lists that begin where it ends, and checks that
// their changes are all that were ever published, without a hole.
func (w *world) walk(want int) {
	w.t.Helper()
	until, got := w.read("changelist-archive.xml").Items[0].From, 0
	follow := func(url string) {
		w.t.Helper()
		doc := w.read(url)
		if !doc.From.Equal(until) {
			w.t.Errorf("%s begins at %v, and the list before it ended at %v", url, doc.From, until)
		}
		until = doc.Until
		got += len(doc.Items)
	}
	for _, it := range w.read("changelist-archive.xml").Items {
		follow(it.Loc)
	}
	for _, it := range w.read("changelist-index.xml").Items {
		if !it.From.Before(until) {
			follow(it.Loc)
		}
	}
	if got != want {
		w.t.Errorf("there are %d changes, want %d", got, want)
	}
}

// A destination that was away for longer than the memory reaches back reads the archive, and goes on with
// the Change Lists.
func TestFarBehind(t *testing.T) {
	w := newWorld(t)
	if rec := w.get("changelist-archive.xml"); rec.Code != http.StatusNotFound {
		t.Errorf("an empty archive: %d", rec.Code)
	}
	for range 5 {
		w.publish(5)
		w.trim() // which comes too early
		w.look()
		w.trim()
	}
	st := w.state()
	if st.Floor.Position == 0 {
		t.Fatal("retention removed nothing")
	}
	w.walk(25)
	doc := w.read("changelist-archive.xml")
	if len(doc.Items) != 6 || doc.Capability != "changelist-archive" || len(doc.Links) != 1 || doc.Links[0].Rel != "up" || doc.Links[0].Href != base.CapabilityList(set) {
		t.Errorf("the archive is %+v", doc)
	}
}

// An archived list has the bytes that the Change List had.
func TestSameBytes(t *testing.T) {
	for _, whole := range []bool{false, true} {
		w := newWorld(t)
		w.ok(w.memory.Describe(t.Context(), set, feed.Description{Archives: true, WholeSeconds: whole}))
		w.publish(9)
		w.look()
		lists, archived := w.read("changelist-index.xml").Items, w.read("changelist-archive.xml").Items
		if len(archived) != 2 || len(lists) != 3 {
			t.Fatalf("%d lists, %d archived", len(lists), len(archived))
		}
		for i := range archived {
			a, b := w.get(archived[i].Loc), w.get(lists[i].Loc)
			if a.Body.String() != b.Body.String() {
				t.Errorf("the archive has\n%s\nand the hub\n%s", a.Body, b.Body)
			}
			if !strings.Contains(a.Header().Get("Cache-Control"), "immutable") || !strings.HasPrefix(a.Header().Get("Repr-Digest"), "sha-256=:") {
				t.Errorf("headers: %v", a.Header())
			}
			if got := w.get(archived[i].Loc, "If-None-Match", a.Header().Get("Etag")); got.Code != http.StatusNotModified {
				t.Errorf("it is asked for again: %d", got.Code)
			}
			if got := w.get(archived[i].Loc, "Range", "bytes=0-4"); got.Code != http.StatusPartialContent || got.Body.String() != "<?xml" {
				t.Errorf("a range: %d %q", got.Code, got.Body)
			}
		}
	}
}

// Retention waits for the place, and goes on when it is there again.
func TestPlaceAway(t *testing.T) {
	w := newWorld(t)
	w.publish(5)
	w.look()
	w.trim()
	w.place.away = true
	w.restart() // which does not remember what the place had
	w.publish(20)
	w.look()
	w.trim()
	if st := w.state(); st.Floor.Position > 4 {
		t.Errorf("retention went to %v", st.Floor)
	}
	if rec := w.get("changelist-archive.xml"); rec.Code != http.StatusServiceUnavailable {
		t.Errorf("without the place: %d", rec.Code)
	}
	if n := testutil.ToFloat64(w.metrics.failed); n != 1 {
		t.Errorf("%v failures are counted", n)
	}
	if n := testutil.ToFloat64(w.metrics.waiting); n == 0 {
		t.Error("no list waits")
	}
	w.place.away = false
	w.restart()
	w.look()
	w.trim()
	if n := testutil.ToFloat64(w.metrics.waiting); n != 0 {
		t.Errorf("%v lists wait", n)
	}
	if st := w.state(); st.Floor.Position < 20 {
		t.Errorf("retention went to %v only", st.Floor)
	}
	w.walk(25)
}

// A hub that is killed between a list and the record leaves an archive without that list, and
// the next hub copies it again. So does one that is killed in the middle of a list.
func TestKilled(t *testing.T) {
	w := newWorld(t)
	w.publish(9)
	lists := 0
	w.place.fail = func(name string) error {
		if strings.HasSuffix(name, recordName) {
			return errAway
		}
		lists++
		return nil
	}
	w.look()
	if rec := w.get("changelist-archive.xml"); rec.Code != http.StatusNotFound || lists != 1 {
		t.Errorf("%d lists are there, and the archive says %d", lists, rec.Code)
	}
	w.trim()
	if st := w.state(); st.Floor.Position != 0 {
		t.Errorf("retention went to %v", st.Floor)
	}
	w.place.fail = nil
	write := w.opts.Write
	w.opts.Write = func(ctx context.Context, out io.Writer, st feed.State, n uint64) error {
		_, _ = io.WriteString(out, "<urlset>")
		return errors.New("the hub was killed")
	}
	w.restart()
	w.look()
	if rec := w.get("changelist-archive.xml"); rec.Code != http.StatusNotFound {
		t.Errorf("half a list: %d", rec.Code)
	}
	w.opts.Write = write
	w.restart()
	w.look()
	w.trim()
	w.walk(9)
}

// A hub that lost its claim may replace a newer record by an older one. The lists are found again.
func TestOldRecord(t *testing.T) {
	w := newWorld(t)
	w.publish(5)
	w.look()
	old, err := readRecord(t.Context(), w.place, set)
	w.ok(err)
	w.publish(20)
	w.look()
	w.trim()
	w.ok(writeRecord(t.Context(), w.place, set, old))
	w.restart()
	w.publish(4)
	w.look()
	w.walk(29)
	if n := testutil.ToFloat64(w.metrics.holes); n != 0 {
		t.Errorf("there are %v holes", n)
	}
}

// A hub whose claim is gone writes no record.
func TestNotMine(t *testing.T) {
	w := newWorld(t)
	mine := true
	w.opts.Mine = func(string) bool { return mine }
	w.opts.Write = func(ctx context.Context, out io.Writer, st feed.State, n uint64) error {
		mine = false // meanwhile
		return w.docs.WriteClosed(ctx, out, st, n)
	}
	w.restart()
	w.publish(9)
	w.look()
	w.look()
	if rec := w.get("changelist-archive.xml"); rec.Code != http.StatusNotFound {
		t.Errorf("the archive: %d", rec.Code)
	}
}

// If the memory has no room, retention does not wait, and the archive names the hole.
func TestHole(t *testing.T) {
	w := newWorld(t)
	w.publish(5)
	w.look()
	w.place.away = true
	scarce := true
	w.opts.Scarce = func(context.Context) bool { return scarce }
	w.restart()
	w.publish(20)
	w.look()
	w.trim()
	floor := w.state().Floor.Position
	if floor <= 4 || testutil.ToFloat64(w.metrics.unheld) == 0 {
		t.Fatalf("retention went to %d", floor)
	}
	w.place.away = false
	w.restart()
	w.publish(4)
	w.look()
	if n := testutil.ToFloat64(w.metrics.holes); n != 1 {
		t.Errorf("%v holes are counted", n)
	}
	if text := w.get("changelist-archive.xml").Body.String(); strings.Count(text, fmt.Sprintf(`h:missing="%d"`, floor-4)) != 1 {
		t.Errorf("the hole is not named: %s", text)
	}
}

// The archive goes when it is turned off, and begins anew with another log.
func TestTurnedOff(t *testing.T) {
	w := newWorld(t)
	w.publish(9)
	w.look()
	url := w.read("changelist-archive.xml").Items[0].Loc
	w.ok(w.memory.Describe(t.Context(), set, feed.Description{}))
	w.look()
	if n := w.files(); n != 0 || w.get("changelist-archive.xml").Code != http.StatusNotFound {
		t.Errorf("%d files are left", n)
	}
	if _, ok := w.Hold(t.Context(), set); ok {
		t.Error("retention waits still")
	}
	w.ok(w.memory.Describe(t.Context(), set, feed.Description{Archives: true}))
	w.look()
	w.walk(9)
	w.ok(w.memory.Delete(t.Context(), set))
	w.look()
	w.ok(w.memory.Make(t.Context(), set, feed.Description{Archives: true}, listSize))
	if w.get(url).Code != http.StatusNotFound || w.get("changelist-archive.xml").Code != http.StatusNotFound {
		t.Error("a list of the deleted set is served")
	}
	w.publish(5)
	w.look()
	w.walk(5)
}

// The files of sets that are gone are removed at the second look.
func TestClean(t *testing.T) {
	w := newWorld(t)
	w.opts.Grace = 1
	w.restart()
	w.publish(9)
	w.look()
	w.ok(w.memory.Delete(t.Context(), set))
	w.look()
	if n := w.files(); n != 3 {
		t.Errorf("at the first look there are %d files", n)
	}
	w.look()
	if n := w.files(); n != 0 {
		t.Errorf("%d files are left", n)
	}
}

// What is void in a state, and what is not.
func TestFits(t *testing.T) {
	st := feed.State{Begin: 17, ListSize: 10, Floor: feed.Cursor{Position: 30}, Head: feed.Cursor{Position: 75}, Epochs: "5-new"}
	rec := &record{Begin: 17}
	for n, log := range []string{"17", "17.gone", "17", "17", "17.new", "17.new", "17", "17.new"} {
		rec.Lists = append(rec.Lists, kept{Number: uint64(n + 1), Log: log})
	}
	for _, c := range []struct {
		change func(*feed.State)
		want   int
	}{
		{func(*feed.State) {}, 6},
		{func(s *feed.State) { s.Begin++ }, 0},
		{func(s *feed.State) { s.Epochs = "5-other" }, 4},
		{func(s *feed.State) { s.Head.Position = 59 }, 5},
	} {
		now := st
		c.change(&now)
		if got := rec.fits(&now); len(got.Lists) != c.want || got.Begin != now.Begin {
			t.Errorf("%+v: %d lists, want %d", now, len(got.Lists), c.want)
		}
	}
}

func FuzzParseName(f *testing.F) {
	k := kept{Number: 7, Log: "17.ab", From: feed.Cursor{Position: 60, Micros: 5}, At: feed.Cursor{Position: 70, Micros: 6}, Whole: true}
	f.Add(k.name())
	f.Add("changelist-archive-17-1.xml")
	f.Fuzz(func(t *testing.T, name string) {
		if k, ok := parseName(name); ok && k.name() != name {
			t.Errorf("%q is read as %+v", name, k)
		}
	})
	if got, ok := parseName(k.name()); !ok || got != k {
		f.Errorf("%s is read as %+v", k.name(), got)
	}
}

// A record finds what it names, and nothing else.
func TestFind(t *testing.T) {
	rec := &record{}
	for n := range uint64(9) {
		rec = rec.with(kept{Number: 2*n + 1, Log: "17", From: feed.Cursor{Position: n, Micros: 1}, At: feed.Cursor{Position: n + 1, Micros: 2}})
	}
	for i := range rec.Lists {
		k := rec.Lists[i]
		if got, ok := rec.find(k.name()); !ok || got != k {
			t.Errorf("%s is %+v", k.name(), got)
		}
		for _, change := range []func(*kept){func(k *kept) { k.Number++ }, func(k *kept) { k.Log = "18" }, func(k *kept) { k.At.Micros++ }, func(k *kept) { k.Whole = true }} {
			other := k
			change(&other)
			if _, ok := rec.find(other.name()); ok {
				t.Errorf("%s is there", other.name())
			}
		}
	}
	if slices.IsSortedFunc(rec.Lists, func(a, b kept) int { return int(a.Number) - int(b.Number) }) == false {
		t.Error("the lists are not sorted")
	}
}
