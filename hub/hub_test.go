package hub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/testutil/memorytest"
	"github.com/rshub/rshub/resourcesync"
)

const base = "https://hub.example.org"

func TestMain(m *testing.M) { memorytest.Main(m) }

// A testLog is a real memory. Its hooks let a test observe, block and fail calls. A nil hook
// does nothing.
type testLog struct {
	changelog.Log

	secret string // of the memory

	mu       sync.Mutex
	onAppend func(ctx context.Context, publishes []changelog.Publish) error
	onSince  func() error
	onSets   func([]feed.State, error) ([]feed.State, error)
	onState  func(set string) error
}

func (l *testLog) Secret() string { return l.secret }

func (l *testLog) Sets(ctx context.Context, names ...string) ([]feed.State, error) {
	l.mu.Lock()
	hook := l.onSets
	l.mu.Unlock()
	states, err := l.Log.Sets(ctx, names...)
	if hook != nil {
		return hook(states, err)
	}
	return states, err
}

func (l *testLog) State(ctx context.Context, set string) (feed.State, error) {
	l.mu.Lock()
	hook := l.onState
	l.mu.Unlock()
	if hook != nil {
		if err := hook(set); err != nil {
			return feed.State{}, err
		}
	}
	return l.Log.State(ctx, set)
}

func (l *testLog) Append(ctx context.Context, set string, publishes ...changelog.Publish) ([]changelog.Appended, error) {
	l.mu.Lock()
	hook := l.onAppend
	l.mu.Unlock()
	if hook != nil {
		if err := hook(ctx, publishes); err != nil {
			return nil, err
		}
	}
	return l.Log.Append(ctx, set, publishes...)
}

func (l *testLog) Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error) {
	l.mu.Lock()
	hook := l.onSince
	l.mu.Unlock()
	if hook != nil {
		if err := hook(); err != nil {
			return nil, err
		}
	}
	return l.Log.Since(ctx, set, after, limit)
}

func openLog(t testing.TB) *testLog {
	t.Helper()
	return &testLog{Log: memorytest.Open(t)}
}

// runHub runs a hub until stop is called.
func runHub(t testing.TB, h *Hub) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); h.Run(ctx) }()
	return func() { cancel(); <-done }
}

// mustState returns the state of an existing set.
func mustState(t testing.TB, log changelog.Log, set string) feed.State {
	t.Helper()
	st, err := log.State(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// newHub returns a hub with its own memory. The test fails if a queue or a tail of the hub
// remains when it ends.
func newHub(t testing.TB, o Options) (*Hub, *testLog) {
	t.Helper()
	log := openLog(t)
	o.Base = base
	h := New(log, o)
	t.Cleanup(func() {
		h.Close()
		if len(h.queues) > 0 || len(h.tails) > 0 {
			t.Errorf("%d queues and %d tails remain after Close", len(h.queues), len(h.tails))
		}
	})
	return h, log
}

// changes returns n changes whose locs begin with a name.
func changes(name string, n int) []resourcesync.Change {
	cs := make([]resourcesync.Change, n)
	for i := range cs {
		cs[i] = resourcesync.Change{Loc: fmt.Sprintf("https://example.org/%s/%d", name, i), Change: resourcesync.Updated}
	}
	return cs
}

func mustPublish(t testing.TB, h *Hub, set string, cs []resourcesync.Change) changelog.Appended {
	t.Helper()
	a, err := h.Publish(t.Context(), set, changelog.Publish{Changes: cs})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// locs returns the locs of all entries in a set's log.
func locs(t testing.TB, log changelog.Log, set string) []string {
	t.Helper()
	st, err := log.State(t.Context(), set)
	if errors.Is(err, feed.ErrNoSet) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for cur := st.Floor; cur != st.Head; {
		b, err := log.Since(t.Context(), set, cur, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range b.Entries {
			all = append(all, e.Change.Loc)
		}
		cur = b.Cursor
	}
	return all
}

func TestPublish(t *testing.T) {
	long := changelog.Publish{Changes: changes("a", 1), Key: string(make([]byte, changelog.MaxKey+1))}
	for _, test := range []struct {
		name    string
		sets    []string
		set     string
		publish changelog.Publish
		want    error
	}{
		{"a first publish makes the set", nil, "demo", changelog.Publish{Changes: changes("a", 2)}, nil},
		{"a configured set", []string{"demo"}, "demo", changelog.Publish{Changes: changes("a", 2)}, nil},
		{"no configured set", []string{"other"}, "demo", changelog.Publish{Changes: changes("a", 2)}, feed.ErrNoSet},
		{"no name of a set", nil, "De/mo", changelog.Publish{Changes: changes("a", 2)}, resourcesync.ErrInvalid},
		{"no change", nil, "demo", changelog.Publish{}, resourcesync.ErrInvalid},
		{"most changes", nil, "demo", changelog.Publish{Changes: changes("a", changelog.MaxBatch)}, nil},
		{"too many changes", nil, "demo", changelog.Publish{Changes: changes("a", changelog.MaxBatch+1)}, resourcesync.ErrTooLarge},
		{"a long key", nil, "demo", long, resourcesync.ErrInvalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, log := newHub(t, Options{Sets: test.sets})
			log.onAppend = func(context.Context, []changelog.Publish) error {
				if test.want != nil {
					t.Error("Append was called; it would also refuse the publishes gathered with this one")
				}
				return nil
			}
			a, err := h.Publish(t.Context(), test.set, test.publish)
			if !errors.Is(err, test.want) {
				t.Fatalf("Publish() = %v, want %v", err, test.want)
			}
			n := 0
			if err == nil {
				n = len(test.publish.Changes)
			}
			if got := len(locs(t, log, "demo")); got != n || a.Count != n {
				t.Errorf("the log has %d changes and Publish returned %d, want %d", got, a.Count, n)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	for _, test := range []struct {
		name  string
		sets  []string
		first bool // something was published before
		want  error
	}{
		{"makes the set", nil, false, nil},
		{"keeps the log", nil, true, nil},
		{"makes a configured set", []string{"demo"}, false, nil},
		{"no configured set", []string{"other"}, false, feed.ErrNoSet},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, log := newHub(t, Options{Sets: test.sets})
			var before uint64
			if test.first {
				before = mustPublish(t, h, "demo", changes("a", 2)).Cursor.Position
			}
			d := feed.Description{Title: "A demo", DescribedBy: "https://example.org/about"}
			if err := h.Describe(t.Context(), "demo", d); !errors.Is(err, test.want) {
				t.Fatalf("Describe() = %v, want %v", err, test.want)
			}
			if test.want != nil {
				return
			}
			if st := mustState(t, log, "demo"); st.Description != d || st.Head.Position != before {
				t.Errorf("state = %+v", st)
			}
		})
	}
}

// A set belongs to the caller that created it, by a publish or by a description. A later
// description by another caller does not change that.
func TestSetCreatorIsRecorded(t *testing.T) {
	h, log := newHub(t, Options{})
	by := func(name string) context.Context { return access.NewContext(t.Context(), access.Caller{Name: name}) }
	if _, err := h.Publish(by("alice"), "published", changelog.Publish{Changes: changes("a", 1)}); err != nil {
		t.Fatal(err)
	}
	for _, describe := range []struct{ name, set string }{{"bob", "described"}, {"", "open"}, {"carol", "described"}, {"carol", "published"}, {"carol", "open"}} {
		if err := h.Describe(by(describe.name), describe.set, feed.Description{Title: "by " + describe.name}); err != nil {
			t.Fatal(err)
		}
	}
	for set, want := range map[string]string{"published": "alice", "described": "bob", "open": ""} {
		if st := mustState(t, log, set); st.By != want || st.Title != "by carol" {
			t.Errorf("%s: %+v", set, st)
		}
	}
}

// Configured sets exist from the start, and are created again after a deletion. A set that
// cannot be created does not affect the others.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, log := newHub(t, Options{Sets: []string{"b", "not a name/", "a"}, ListSize: 7})
		stop := runHub(t, h)
		names := func() (names string) {
			states, err := log.Sets(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, st := range states {
				names += st.Set
			}
			return names
		}
		<-time.After(time.Second) // fake time
		if got := names(); got != "ab" {
			t.Errorf("sets = %q, want \"ab\"", got)
		}
		if err := h.Delete(t.Context(), "a"); err != nil || names() != "b" {
			t.Errorf("after Delete (%v), sets = %q, want \"b\"", err, names())
		}
		<-time.After(time.Minute)
		if got := names(); got != "ab" {
			t.Errorf("a minute later, sets = %q, want \"ab\"", got)
		}
		stop()
	})
}

func TestCloseRefuses(t *testing.T) {
	h, log := newHub(t, Options{})
	mustPublish(t, h, "demo", changes("a", 1))
	h.Close()
	if _, err := h.Publish(t.Context(), "demo", changelog.Publish{Changes: changes("b", 1)}); !errors.Is(err, feed.ErrUnavailable) {
		t.Errorf("Publish() after Close = %v, want ErrUnavailable", err)
	}
	if n := len(locs(t, log, "demo")); n != 1 {
		t.Errorf("%d changes, want 1", n)
	}
}
