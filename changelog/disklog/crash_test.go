package disklog

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/resourcesync"
)

// small makes Pebble write tables, rotate logs and compact after a few appends.
func small(o *pebble.Options) {
	o.MemTableSize = 32 << 10
	o.MemTableStopWritesThreshold = 4
	o.L0CompactionThreshold = 2
}

func changes(name string, n int) []resourcesync.Change {
	c := make([]resourcesync.Change, n)
	for i := range c {
		c[i] = resourcesync.Change{Loc: fmt.Sprintf("https://example.org/%s/%d/%d", name, i, n), Change: resourcesync.Created}
	}
	return c
}

func start(t *testing.T, dir string, o Options) *Log {
	t.Helper()
	if o.Fatal == nil {
		o.Fatal = fatal(t)
	}
	l, err := Open(t.Context(), dir, o)
	ok(t, err)
	return l
}

// state returns the state of a set.
func state(t *testing.T, l *Log, set string) feed.State {
	t.Helper()
	s, err := l.State(t.Context(), set)
	ok(t, err)
	return s
}

// add appends n changes to a set in one publish.
func add(t *testing.T, l *Log, set, name string, n int) changelog.Appended {
	t.Helper()
	a, err := l.Append(t.Context(), set, changelog.Publish{Changes: changes(name, n)})
	ok(t, err)
	return a[0]
}

func stop(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// entries returns all entries of a set, and checks that no publish of changes is stored in part.
func entries(t *testing.T, l *Log, set string) []feed.Entry {
	t.Helper()
	s := state(t, l, set)
	var all []feed.Entry
	for c := s.Floor; ; {
		b, err := l.Since(t.Context(), set, c, 0)
		ok(t, err)
		if b.After != c || b.Diverged {
			t.Fatalf("After = %v, Diverged = %t, want %v", b.After, b.Diverged, c)
		}
		if len(b.Entries) == 0 {
			if c != s.Head {
				t.Fatalf("entries end at %v, want the head %v", c, s.Head)
			}
			break
		}
		all = append(all, b.Entries...)
		c = b.Cursor
	}
	last := s.Floor
	for _, e := range all {
		if e.Position != last.Position+1 || e.Micros <= last.Micros {
			t.Fatalf("got entry %v after %v", e.Cursor, last)
		}
		last = e.Cursor
	}
	if n := len(all); n > 0 { // the last publish must be complete
		path := strings.Split(all[n-1].Change.Loc, "/")
		var i, of int
		_, err := fmt.Sscan(path[len(path)-2], &i)
		ok(t, err)
		_, err = fmt.Sscan(path[len(path)-1], &of)
		ok(t, err)
		if i != of-1 {
			t.Fatalf("the log ends in the middle of a publish: %s", all[n-1].Change.Loc)
		}
	}
	return all
}

// TestCrash simulates power failures at random moments while publishers, a reader and retention are
// active.
func TestCrash(t *testing.T) {
	t.Parallel()
	const sets = 3
	rng := testutil.Rand(t)
	fs := vfs.NewCrashableMem()
	var acked, shown [sets]feed.Cursor // entries that must exist
	keys := make(map[string]changelog.Appended)
	id := ""
	for round := range 25 {
		l := start(t, "data", Options{FS: fs, tune: small})
		if id == "" {
			id = l.ID()
		}
		if l.ID() != id {
			t.Fatalf("identity changed from %q to %q", id, l.ID())
		}
		for i := range sets {
			set := fmt.Sprint("set", i)
			ok(t, l.Make(t.Context(), set, feed.Description{}, 50))
			entries(t, l, set)
			for _, c := range []feed.Cursor{acked[i], shown[i]} {
				b, err := l.Since(t.Context(), set, c, 1)
				if errors.Is(err, feed.ErrGone) { // trimmed
					continue
				}
				if err != nil || b.Diverged {
					t.Fatalf("round %d: %s lost %v: %v", round, set, c, err)
				}
			}
		}
		for key, want := range keys {
			a, err := l.Append(t.Context(), "set0", changelog.Publish{Key: key, Changes: changes(key, 1)})
			ok(t, err)
			if want.Replayed = true; !reflect.DeepEqual(a[0], want) {
				t.Fatalf("round %d: key %q has %+v, want %+v", round, key, a[0], want)
			}
		}

		var mu sync.Mutex // guards acked, shown and keys
		var running sync.WaitGroup
		var done atomic.Bool
		left := make(chan struct{}, 1000)
		for range rng.IntN(300) {
			left <- struct{}{}
		}
		close(left)
		for p := range 6 {
			local := rand.New(rand.NewPCG(rng.Uint64(), 0))
			running.Go(func() {
				for range left {
					i := p % sets
					name := fmt.Sprintf("%d-%d-%d", round, p, local.Uint32())
					publish := changelog.Publish{Changes: changes(name, 1+local.IntN(40))}
					if i == 0 && local.IntN(4) == 0 {
						publish = changelog.Publish{Key: name, Changes: changes(name, 1)}
					}
					a, err := l.Append(t.Context(), fmt.Sprint("set", i), publish)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if a[0].Cursor.Position > acked[i].Position {
						acked[i] = a[0].Cursor
					}
					if publish.Key != "" {
						keys[publish.Key] = a[0]
					}
					mu.Unlock()
				}
			})
		}
		var beside sync.WaitGroup
		beside.Go(func() {
			for !done.Load() {
				for i := range sets {
					b, err := l.Since(t.Context(), fmt.Sprint("set", i), shown[i], 100)
					if errors.Is(err, feed.ErrGone) {
						s, err := l.State(t.Context(), fmt.Sprint("set", i))
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						shown[i] = s.Floor
						mu.Unlock()
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					shown[i] = b.Cursor
					mu.Unlock()
				}
				if _, err := l.Trim(t.Context(), "set1", changelog.Retention{Count: 100}); err != nil {
					t.Error(err)
				}
			}
		})
		for range len(left) / 2 { // crash while the others are active
			<-left
		}
		mu.Lock() // everything acknowledged or visible so far must exist after the crash
		wasAcked, wasShown, wasKeys := acked, shown, maps.Clone(keys)
		mu.Unlock()
		crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(3) * 50, RNG: rng})
		running.Wait()
		done.Store(true)
		beside.Wait()
		stop(t, l)
		fs, acked, shown, keys = crashed, wasAcked, wasShown, wasKeys
	}
}

// TestCrashEverywhere simulates a power failure before every single write of a memory, from its
// first opening to its closing.
func TestCrashEverywhere(t *testing.T) {
	t.Parallel()
	base := vfs.NewCrashableMem()
	type crash struct {
		fs   *vfs.MemFS
		head uint64
		made bool
	}
	var mu sync.Mutex
	var crashes []crash
	var head atomic.Uint64 // acknowledged position
	var made, off atomic.Bool
	rng := rand.New(rand.NewPCG(1, 0))
	fs := errorfs.Wrap(base, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && !off.Load() {
			mu.Lock()
			defer mu.Unlock()
			c := crash{head: head.Load(), made: made.Load()}
			c.fs = base.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: len(crashes) % 3 * 50, RNG: rng})
			crashes = append(crashes, c)
		}
		return nil
	}))
	life := func() {
		l := start(t, "a/b/data", Options{FS: fs, tune: small})
		defer stop(t, l)
		ok(t, l.Make(t.Context(), "set", feed.Description{}, 10))
		made.Store(true)
		for i := range 12 {
			a, err := l.Append(t.Context(), "set", changelog.Publish{Changes: changes(fmt.Sprint(i), 25)}, changelog.Publish{Changes: changes(fmt.Sprint(i, "b"), 2)})
			ok(t, err)
			head.Store(a[1].Cursor.Position)
			_, err = l.Trim(t.Context(), "set", changelog.Retention{Count: 100})
			ok(t, err)
			if i == 6 {
				ok(t, l.db.Flush())
			}
		}
	}
	life()
	life() // opens it again
	off.Store(true)
	t.Logf("%d crashes", len(crashes))
	for i, c := range crashes {
		l := start(t, "a/b/data", Options{FS: c.fs})
		if c.made {
			if s := state(t, l, "set"); s.Head.Position < c.head {
				t.Fatalf("crash %d: head = %v, want at least %d as acknowledged", i, s.Head, c.head)
			}
			entries(t, l, "set")
		}
		ok(t, l.Make(t.Context(), "set", feed.Description{}, 10))
		add(t, l, "set", "after", 3)
		stop(t, l)
	}
}
