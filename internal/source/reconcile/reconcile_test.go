package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/inventory/auditor"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// A memoryHub is a hub with one set, in memory. It compares with package audit, as a hub does.
type memoryHub struct {
	t         *testing.T
	exists    bool
	resources map[string]feed.Entry
	keys      map[string]feed.Cursor
	head      feed.Cursor
	complete  bool
	published []string // "created LOC"
	batches   int
	lose      int // number of the batch that is accepted, but whose response is lost
}

var errLost = errors.New("the answer is lost")

func newHub(t *testing.T) *memoryHub {
	return &memoryHub{t: t, resources: map[string]feed.Entry{}, keys: map[string]feed.Cursor{}}
}

func (h *memoryHub) Differences(ctx context.Context, tally TallyFunc, own auditor.StateFunc, look func(audit.Summary)) iter.Seq2[audit.Difference, error] {
	return func(yield func(audit.Difference, error) bool) {
		if !h.exists {
			yield(audit.Difference{}, feed.ErrNoSet)
			return
		}
		theirs, err := inventory.Collect(ctx, inventory.NewMemory(), "hub", func(yield func(*feed.Entry, error) bool) {
			for _, e := range h.resources {
				if !yield(&e, nil) {
					return
				}
			}
		})
		if err != nil {
			h.t.Fatal(err)
		}
		l, err := audit.Summarize(ctx, theirs, inventory.Range{})
		if err != nil {
			h.t.Fatal(err)
		}
		l.Set, l.Cursor, l.Complete = "demo", h.head, h.complete
		look(l)
		if t, err := tally(ctx); err != nil || t.Count == l.Count && t.Digest(digest.ByContent) == l.Content {
			if err != nil {
				yield(audit.Difference{}, err)
			}
			return
		}
		state, err := own(ctx)
		if err != nil {
			yield(audit.Difference{}, err)
			return
		}
		ask := func(ctx context.Context, q audit.Question) (audit.Reply, error) {
			r, err := audit.Answer(ctx, theirs, q)
			r.Set, r.Cursor = "demo", h.head
			return r, err
		}
		for d, err := range audit.Compare(ctx, state, digest.ByContent, inventory.Range{}, ask) {
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

func (h *memoryHub) Publish(_ context.Context, key string, changes []resourcesync.Change) (feed.Cursor, error) {
	if at, ok := h.keys[key]; ok {
		return at, nil
	}
	h.exists = true
	h.batches++
	for i := range changes {
		c := changes[i]
		if err := c.Validate(); err != nil {
			return feed.Cursor{}, err
		}
		h.head.Position++
		h.head.Micros++
		h.published = append(h.published, string(c.Change)+" "+c.Loc)
		if c.Change == resourcesync.Deleted {
			delete(h.resources, c.Loc)
		} else {
			h.resources[c.Loc] = feed.Entry{Cursor: h.head, Change: c}
		}
	}
	h.keys[key] = h.head
	if h.batches == h.lose {
		return feed.Cursor{}, errLost
	}
	return h.head, nil
}

func (h *memoryHub) HasCursor(_ context.Context, at feed.Cursor) (bool, error) {
	return at.Position <= h.head.Position, nil
}

func (h *memoryHub) Create(context.Context) error      { h.exists = true; return nil }
func (h *memoryHub) SetComplete(context.Context) error { h.complete = true; return nil }

// A list is a source: resources by name, with their content.
type list map[string]string

func loc(name string) string { return "https://example.org/" + name }

func entry(name, text string) *feed.Entry {
	return &feed.Entry{Change: resourcesync.Change{Loc: loc(name), Hash: fmt.Sprintf("md5:%032x", text)}}
}

// listing lists the resources, with an error at the end.
func (l list) listing(errs ...error) Listing {
	return func(context.Context) iter.Seq2[*feed.Entry, error] {
		return func(yield func(*feed.Entry, error) bool) {
			for name, text := range l {
				if !yield(entry(name, text), nil) {
					return
				}
			}
			for _, err := range errs {
				if !yield(nil, err) {
					return
				}
			}
		}
	}
}

// of lists entries.
func of(entries ...*feed.Entry) Listing {
	return func(context.Context) iter.Seq2[*feed.Entry, error] {
		return func(yield func(*feed.Entry, error) bool) {
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

func numbered(n int) list {
	l := list{}
	for i := range n {
		l[fmt.Sprintf("%05d", i)] = "1"
	}
	return l
}

// sync syncs once, and returns the published changes.
func (h *memoryHub) sync(l Listing, o Options) (Result, []string, error) {
	h.t.Helper()
	h.published = nil
	o.Dir = h.t.TempDir()
	s := New(h, l, o)
	r, err := s.Sync(h.t.Context())
	if e := s.Close(); e != nil {
		h.t.Error(e)
	}
	if err == nil && o.DryRun == nil && r.Changes() != len(h.published) {
		h.t.Errorf("published %d changes, but Sync() = %+v, want as many", len(h.published), r)
	}
	return r, h.published, err
}

func (h *memoryHub) wantEqual(l list) {
	h.t.Helper()
	if len(h.resources) != len(l) {
		h.t.Errorf("hub has %d resources, want %d", len(h.resources), len(l))
	}
	for name, text := range l {
		if e := h.resources[loc(name)]; e.Change.Hash != entry(name, text).Change.Hash {
			h.t.Errorf("resource %s = %+v", name, e)
		}
	}
}

func TestSync(t *testing.T) {
	h := newHub(t)
	l := numbered(2_500)
	if r, _, err := h.sync(l.listing(), Options{}); err != nil || r.Created != 2_500 || !r.Complete || !h.complete || h.batches != 3 {
		t.Fatalf("Sync() = %+v, %v in %d batches, want 2,500 created resources in 3 batches", r, err, h.batches)
	}
	h.wantEqual(l)
	if r, got, err := h.sync(l.listing(), Options{}); err != nil || len(got) > 0 || r.Held != 2_500 || r.Listed != 2_500 {
		t.Errorf("Sync() = %+v, published %v, %v, want nothing published", r, got, err)
	}
	delete(l, "00007")
	l["00003"], l["x"], l["a"] = "2", "1", "1"
	want := []string{"updated " + loc("00003"), "created " + loc("a"), "created " + loc("x"), "deleted " + loc("00007")}
	var dry []string
	o := Options{DryRun: func(c *resourcesync.Change) error {
		dry = append(dry, string(c.Change)+" "+c.Loc)
		return nil
	}}
	if _, got, err := h.sync(l.listing(), o); err != nil || len(got) > 0 || !slices.Equal(dry, want) {
		t.Errorf("DryRun got %v, Sync() error %v; published %v", dry, err, got)
	}
	if _, got, err := h.sync(l.listing(), Options{}); err != nil || !slices.Equal(got, want) {
		t.Errorf("Sync() published %v, %v", got, err)
	}
	h.wantEqual(l)
}

// An empty source creates an empty set, which is complete.
func TestSyncEmptySource(t *testing.T) {
	h := newHub(t)
	if r, _, err := h.sync(list{}.listing(), Options{}); err != nil || !h.exists || !h.complete || !r.Complete {
		t.Errorf("Sync() = %+v, %v, want a complete, empty set", r, err)
	}
}

// A run that was interrupted after any batch, before or after its response, is completed by the
// next one, and nothing is published twice.
func TestInterruptedSync(t *testing.T) {
	for lose := 1; lose <= 3; lose++ {
		h := newHub(t)
		h.lose = lose
		l := numbered(2_500)
		if _, _, err := h.sync(l.listing(), Options{}); !errors.Is(err, errLost) || h.complete {
			t.Fatal(err)
		}
		if _, _, err := h.sync(l.listing(), Options{}); err != nil || h.head.Position != 2_500 || !h.complete {
			t.Errorf("Sync() = %v with head %v, want position 2,500 and a complete set", err, h.head)
		}
		h.wantEqual(l)
	}
}

// A batch that is sent again because its response was lost has the same key. A resource that
// returns to an earlier state is published again.
func TestPublishKeys(t *testing.T) {
	h := newHub(t)
	for i, text := range []string{"1", "2", "1", "2"} {
		l := list{"a": text}
		if _, got, err := h.sync(l.listing(), Options{}); err != nil || len(got) != 1 {
			t.Errorf("Sync() %d published %v, %v", i, got, err)
		}
		h.wantEqual(l)
	}
	if len(h.keys) != 4 {
		t.Errorf("got %d keys", len(h.keys))
	}
}

func TestBrokenList(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		name    string
		listing Listing
		o       Options
	}{
		{"an error at the end", list{"a": "2", "b": "1"}.listing(broken), Options{MaxDelete: Bound{all: true}}},
		{"a bad loc", of(&feed.Entry{Change: resourcesync.Change{Loc: "/a"}}), Options{}},
		{"twice", of(entry("a", "2"), entry("a", "3")), Options{}},
		{"outside of the prefix", list{"a": "2"}.listing(), Options{Prefix: loc("b")}},
		{"no resource", list{}.listing(), Options{}},
		{"too few resources", list{"00000": "1"}.listing(), Options{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHub(t)
			l := numbered(12)
			if _, _, err := h.sync(l.listing(), Options{}); err != nil {
				t.Fatal(err)
			}
			if _, got, err := h.sync(test.listing, test.o); err == nil || len(got) > 0 || strings.Contains(err.Error(), "collect") && test.name != "twice" {
				t.Errorf("Sync() published %v, %v", got, err)
			}
			h.wantEqual(l)
		})
	}
	h := newHub(t)
	twice := of(entry("a", "2"), entry("b", "1"), entry("a", "3"))
	if r, _, err := h.sync(twice, Options{AllowDuplicates: true}); err != nil || r.Listed != 2 {
		t.Errorf("Sync() = %+v, %v, want two listed resources", r, err)
	}
	h.wantEqual(list{"a": "3", "b": "1"})
}

// A list that ends with a deletion may have the tally of the hub, if neither has more of the
// resource than its loc. It is deleted anyway.
func TestDeletionWithoutContent(t *testing.T) {
	h := newHub(t)
	bare := func(change resourcesync.ChangeType) Listing {
		return of(entry("a", "1"), &feed.Entry{Change: resourcesync.Change{Loc: loc("b"), Change: change}})
	}
	o := Options{AllowDuplicates: true}
	if _, got, err := h.sync(bare(resourcesync.Updated), o); err != nil || len(got) != 2 {
		t.Fatalf("Sync() published %v, %v", got, err)
	}
	if _, got, err := h.sync(bare(resourcesync.Deleted), o); err != nil || !slices.Equal(got, []string{"deleted " + loc("b")}) {
		t.Errorf("Sync() published %v, %v", got, err)
	}
	h.wantEqual(list{"a": "1"})
}

// Resources in a gap are not deleted.
func TestGaps(t *testing.T) {
	h := newHub(t)
	if _, _, err := h.sync(list{"a": "1", "b": "1", "c": "1"}.listing(), Options{}); err != nil {
		t.Fatal(err)
	}
	h.complete = false
	some := list{"a": "2"}
	gap := &Gap{Loc: loc("b"), Err: errors.New("unreadable")}
	everywhere := &Gap{Err: errors.New("an unreadable directory")}
	told := 0
	o := Options{Gap: func(*Gap) { told++ }}
	r, got, err := h.sync(some.listing(everywhere, gap), o)
	if err != nil || !slices.Equal(got, []string{"updated " + loc("a")}) || r.Kept != 2 || r.Gaps != 2 || told != 2 || r.Complete || h.complete {
		t.Errorf("Sync() = %+v, published %v, %v, want one update, two resources kept, two gaps", r, got, err)
	}
	r, got, err = h.sync(some.listing(gap), Options{})
	if err != nil || !slices.Equal(got, []string{"deleted " + loc("c")}) || r.Kept != 1 || h.complete {
		t.Errorf("Sync() = %+v, published %v, %v, want one deletion, one resource kept", r, got, err)
	}
	h.wantEqual(list{"a": "2", "b": "1"})
}

// Resources kept because of a gap use no memory: a whole hub may be in an unreadable directory.
func TestKeptUsesNoMemory(t *testing.T) {
	const n = 2_000
	h := newHub(t)
	h.exists = true
	for i := range n {
		e := entry(fmt.Sprint(i), "1")
		h.resources[e.Change.Loc] = *e
	}
	s := New(h, list{}.listing(&Gap{Err: errors.New("an unreadable directory")}), Options{Dir: t.TempDir()})
	defer s.Close()
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	r, err := s.Sync(t.Context())
	if err != nil || r.Kept != n {
		t.Fatalf("Sync() = %+v, %v", r, err)
	}
	if took := heap() - before; took > n*1_000 {
		t.Errorf("got %d bytes of memory per resource", took/n)
	}
	// The next Update knows them.
	gone := []Observation{{Loc: loc("7")}, {Loc: loc("8"), Entry: entry("8", "1")}, {Loc: loc("9"), Entry: entry("9", "2")}}
	if _, err := s.Update(t.Context(), gone); err != nil || !slices.Equal(h.published, []string{"updated " + loc("9"), "deleted " + loc("7")}) {
		t.Errorf("Update() published %v, %v", h.published, err)
	}
}

func TestUnknown(t *testing.T) {
	h := newHub(t)
	if _, _, err := h.sync(list{"a": "1"}.listing(), Options{}); err != nil {
		t.Fatal(err)
	}
	length := int64(3)
	bare := of(&feed.Entry{Change: resourcesync.Change{Loc: loc("a"), Length: &length}})
	if r, got, err := h.sync(bare, Options{}); err != nil || len(got) > 0 || r.Unknown != 1 {
		t.Errorf("Sync() = %+v, published %v, %v, want one unknown resource, nothing published", r, got, err)
	}
	if r, got, err := h.sync(bare, Options{PublishUnknown: true}); err != nil || len(got) != 1 || r.Updated != 1 {
		t.Errorf("Sync() = %+v, published %v, %v, want one update", r, got, err)
	}
}

func TestUpdate(t *testing.T) {
	h := newHub(t)
	l := numbered(100)
	l["d/1"], l["d/2"], l["d"] = "1", "1", "1"
	s := New(h, l.listing(&Gap{Loc: loc("busy"), Err: errors.New("busy")}), Options{Dir: t.TempDir()})
	defer s.Close()
	if _, err := s.Update(t.Context(), nil); !errors.Is(err, ErrNeedsSync) {
		t.Errorf("Update() before Sync() = %v, want ErrNeedsSync", err)
	}
	h.exists, h.resources[loc("busy")] = true, *entry("busy", "0")
	if _, err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		sights []Observation
		want   []string
	}{
		{[]Observation{{Loc: loc("00001"), Entry: entry("00001", "1")}, {Loc: loc("nothing")}}, nil},
		{[]Observation{{Loc: loc("00001"), Entry: entry("00001", "2")}, {Loc: loc("new"), Entry: entry("new", "1")}}, []string{"updated " + loc("00001"), "created " + loc("new")}},
		{[]Observation{{Loc: loc("00001"), Entry: entry("00001", "2")}, {Loc: loc("new")}}, []string{"deleted " + loc("new")}},
		{[]Observation{{Loc: loc("new"), Entry: entry("new", "1")}}, []string{"created " + loc("new")}},
		{[]Observation{{Loc: loc("busy"), Entry: entry("busy", "1")}}, []string{"updated " + loc("busy")}},
		{[]Observation{{Loc: loc("d"), Entry: entry("d", "1"), Prefix: loc("d/")}, {Loc: loc("d/1"), Prefix: loc("d/1/")}}, []string{"deleted " + loc("d/1"), "deleted " + loc("d/2")}},
		{[]Observation{{Loc: loc("d"), Prefix: loc("d/")}}, []string{"deleted " + loc("d")}},
	} {
		h.published = nil
		if _, err := s.Update(t.Context(), step.sights); err != nil || !slices.Equal(h.published, step.want) {
			t.Errorf("step %d: Update() published %v, %v", i, h.published, err)
		}
	}
	// Deletions of one day count together: 4 so far, of 103.
	h.published = nil
	for i := range 20 {
		name := fmt.Sprintf("%05d", i)
		_, err := s.Update(t.Context(), []Observation{{Loc: loc(name), Prefix: loc(name + "/")}})
		if many, ok := errors.AsType[*TooManyDeletions](err); ok {
			if i != 6 || many.Total() != 11 || len(h.published) != 6 {
				t.Errorf("deletion %d: %v, want an error at the sixth with 6 of 11 published", i, err)
			}
			break
		}
		if err != nil || i > 6 {
			t.Fatalf("deletion %d: %v", i, err)
		}
	}
	// The hub lost its tail: the Source no longer knows its state.
	l["new"] = "1"
	if _, err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.head = feed.Cursor{Position: 3, Micros: 3}
	if _, err := s.Update(t.Context(), []Observation{{Loc: loc("later"), Entry: entry("later", "1")}}); !errors.Is(err, ErrNeedsSync) {
		t.Errorf("Update() after the hub lost its tail = %v, want ErrNeedsSync", err)
	}
}

// A list that equals the hub's state is not sorted before there is an update.
func TestUpdateAfterUnchangedSync(t *testing.T) {
	h := newHub(t)
	l := numbered(30)
	if _, _, err := h.sync(l.listing(), Options{}); err != nil {
		t.Fatal(err)
	}
	h.published = nil
	dir := t.TempDir()
	s := New(h, l.listing(&Gap{Loc: loc("busy"), Err: errors.New("busy")}), Options{Dir: dir})
	defer s.Close()
	if r, err := s.Sync(t.Context()); err != nil || r.Listed != 30 || r.Held != 30 || r.Gaps != 1 || !r.Complete || r.Cursor != h.head {
		t.Fatalf("Sync() = %+v, %v, want 30 resources and one gap", r, err)
	}
	if stores, err := filepath.Glob(filepath.Join(dir, "pages-*", "pages")); err != nil || len(stores) > 0 {
		t.Errorf("got sorted list %v, %v, want none", stores, err)
	}
	for range 2 {
		if _, err := s.Update(t.Context(), []Observation{{Loc: loc("00001"), Entry: entry("00001", "2")}, {Loc: loc("00002")}}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"updated " + loc("00001"), "deleted " + loc("00002")}; !slices.Equal(h.published, want) {
		t.Errorf("Update() published %v", h.published)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("after Close(): got files %v, %v, want none", left, err)
	}
}

// A spool returns the entries of the list with their properties and positions.
func TestSpool(t *testing.T) {
	length := int64(3)
	entries := []feed.Entry{
		{Cursor: feed.Cursor{Position: 3}, Change: resourcesync.Change{Loc: loc("b"), Change: resourcesync.Updated, Lastmod: time.Date(2024, 2, 29, 1, 2, 3, 456_789_001, time.UTC), Length: &length,
			Links: []resourcesync.Link{{Rel: "duplicate", Href: loc("c"), Pri: 2}}, Attrs: []resourcesync.Attr{{Namespace: "urn:x", Name: "y", Value: "a\n\"b\""}}}},
		{Cursor: feed.Cursor{Position: 9}, Change: resourcesync.Change{Loc: loc("a"), Change: resourcesync.Updated, Hash: "md5:00 sha-256:11", Type: "text/plain", Changefreq: "daily"}},
	}
	s, err := newSpool(t.TempDir(), &diskSpace{reserve: func(int64) error { return nil }}, func(add func(*feed.Entry) error) error {
		return errors.Join(add(&entries[0]), add(&entries[1]))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for range 2 {
		var got []feed.Entry
		for e, err := range s.resources() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, *e)
		}
		if !reflect.DeepEqual(got, entries) {
			t.Errorf("read %+v, want %+v", got, entries)
		}
	}
}

// The Bound applies to a day, also over several runs.
func TestDeletionsOfADay(t *testing.T) {
	h := newHub(t)
	l := numbered(200)
	if _, _, err := h.sync(l.listing(), Options{}); err != nil {
		t.Fatal(err)
	}
	var toll Deletions
	kept := 0
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	some, err := ParseBound("30")
	if err != nil {
		t.Fatal(err)
	}
	gone := 0
	run := func(n int, b Bound, want string) {
		t.Helper()
		for range n {
			delete(l, fmt.Sprintf("%05d", gone))
			gone++
		}
		_, _, err := h.sync(l.listing(), Options{MaxDelete: b, Deletions: &toll, SaveDeletions: func() error { kept++; return nil }, Now: func() time.Time { return now }})
		if got := fmt.Sprint(err); got != want {
			t.Errorf("Sync() error = %s, want %s", got, want)
		}
	}
	run(12, Bound{}, "<nil>")
	now = now.Add(23 * time.Hour)
	run(8, Bound{}, "<nil>")
	run(4, Bound{}, "4 more of the 200 known resources would be deleted, after 20 within a day")
	if kept != 2 {
		t.Errorf("SaveDeletions was called %d times", kept)
	}
	run(0, some, "<nil>") // an operator allows it: later deletions are counted from zero without that bound
	run(9, some, "9 more of the 200 known resources would be deleted, after 24 within a day")
	run(0, Bound{}, "<nil>")
	now = now.Add(25 * time.Hour)
	run(10, Bound{}, "<nil>")
	h.wantEqual(l)
}

// Runs end between a publish and its response, or before the publish. The next run has only the
// stored Deletions.
func TestDeletionsAfterCrash(t *testing.T) {
	errCrash := errors.New("the publisher crashes")
	for _, tt := range []struct {
		name      string
		published bool // before the crash
		want      string
	}{
		{"published", true, "15 more of the 200 known resources would be deleted, after 15 within a day"},
		{"not published", false, "30 of the 200 known resources would be deleted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHub(t)
			l := numbered(200)
			if _, _, err := h.sync(l.listing(), Options{}); err != nil {
				t.Fatal(err)
			}
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			stored, crash := []byte("{}"), false
			run := func(from, to int) error {
				t.Helper()
				for i := from; i < to; i++ {
					delete(l, fmt.Sprintf("%05d", i))
				}
				var toll Deletions
				if err := json.Unmarshal(stored, &toll); err != nil {
					t.Fatal(err)
				}
				_, _, err := h.sync(l.listing(), Options{Deletions: &toll, Now: func() time.Time { return now }, SaveDeletions: func() (err error) {
					stored, err = json.Marshal(&toll)
					if err == nil && crash {
						err = errCrash
					}
					return err
				}})
				return err
			}
			if tt.published {
				h.lose = h.batches + 1
			} else {
				crash = true
			}
			if err := run(0, 15); !errors.Is(err, errLost) && !errors.Is(err, errCrash) {
				t.Fatalf("Sync() = %v, want a crash", err)
			}
			crash = false
			if err := run(15, 30); fmt.Sprint(err) != tt.want {
				t.Errorf("Sync() of 15 more = %v, want %s", err, tt.want)
			}
			for i := 15; i < 30; i++ { // they come back
				l[fmt.Sprintf("%05d", i)] = "1"
			}
			if err := run(0, 15); err != nil { // they may be deleted, once
				t.Errorf("Sync() of the same = %v, want nil", err)
			}
			h.wantEqual(l)
			if err := run(15, 21); err == nil {
				t.Error("Sync() of 6 more succeeds, want an error")
			}
		})
	}
}

func TestBound(t *testing.T) {
	for _, test := range []struct {
		bound                 string
		deleted, held, listed uint64
		want                  bool
	}{
		{"", 0, 0, 0, true}, {"", 10, 12, 2, true}, {"", 11, 12, 1, false}, {"", 11, 110, 99, true}, {"", 12, 110, 98, false}, {"", 1, 1, 0, false}, {"", 0, 5, 0, true},
		{"0", 1, 100, 99, false}, {"0", 0, 100, 100, true}, {"5", 5, 5, 0, true}, {"5", 6, 100, 94, false},
		{"50%", 50, 100, 50, true}, {"50%", 51, 100, 49, false}, {"0.5%", 1, 100, 99, false}, {"100%", 7, 7, 0, true},
		{"all", 1_000_000, 1_000_000, 0, true},
	} {
		t.Run(fmt.Sprintf("%s of %d", test.bound, test.held), func(t *testing.T) {
			b := Bound{}
			if test.bound != "" {
				var err error
				if b, err = ParseBound(test.bound); err != nil {
					t.Fatal(err)
				}
			}
			if got := b.Allows(test.deleted, test.held, test.listed); got != test.want {
				t.Errorf("Bound %q: Allows(%d, %d, %d) = %v, want %v", test.bound, test.deleted, test.held, test.listed, got, test.want)
			}
		})
	}
	for _, bad := range []string{"", "-1", "101%", "x", "%", "NaN%", "1e3", "All"} {
		if _, err := ParseBound(bad); err == nil {
			t.Errorf("ParseBound(%q) succeeded, want an error", bad)
		}
	}
}
