package disklog

import (
	"bytes"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rshub/rshub/changelog"
)

// newHeldDisk returns a disk on which syncs of the write-ahead log block between hold and release.
func newHeldDisk() (fs vfs.FS, hold, release func()) {
	var held atomic.Bool
	released := make(chan struct{})
	fs = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if held.Load() && strings.HasSuffix(op.Path, ".log") {
				<-released
			}
		}
		return nil
	}))
	return fs, func() { held.Store(true) }, func() { close(released) }
}

// TestNotDurableYet stops the disk in the middle of an append. No reader may see the entries of the
// append, and a publisher that retries it must not get an answer, either.
func TestNotDurableYet(t *testing.T) {
	ctx := t.Context()
	var released atomic.Bool
	fs, hold, release := newHeldDisk()
	var asked atomic.Int64 // number of calls of Now
	l := filled(t, "data", Options{FS: fs, Now: func() time.Time {
		asked.Add(1)
		return time.Now()
	}})
	defer stop(t, l)
	before := state(t, l, "set")
	hold()
	s := l.find("set")
	var running sync.WaitGroup
	answers := make(chan changelog.Appended, 2)
	for range 2 {
		n := asked.Load()
		running.Go(func() {
			a, err := l.Append(ctx, "set", changelog.Publish{Key: "key", Changes: changes("x", 1)})
			if err != nil || !released.Load() {
				t.Errorf("Append() = %+v, %v with released = %t, want it to wait for the release", a, err, released.Load())
				a = make([]changelog.Appended, 1)
			}
			answers <- a[0]
		})
		for asked.Load() == n {
			runtime.Gosched()
		}
		s.write.Lock() // Now was called under the lock, so the append is applied now
		if s.tip.Head.Position != before.Head.Position+1 {
			t.Errorf("got tip at %v", s.tip.Head)
		}
		s.write.Unlock()
		for range 100 {
			runtime.Gosched() // give a wrong implementation the chance to answer too early
		}
		if now := state(t, l, "set"); now != before {
			t.Errorf("state = %+v, want %+v", now, before)
		}
		if b, err := l.Since(ctx, "set", before.BeforeLatest, 0); err != nil || b.Cursor != before.Head {
			t.Errorf("Since() reads to %v, %v; want %v", b.Cursor, err, before.Head)
		}
		if _, err := l.At(ctx, "set", before.Head.Position+1); err == nil {
			t.Error("At() found an entry that is not durable")
		}
		if c, err := l.Seek(ctx, "set", before.Head.Micros+time.Hour.Microseconds()); err != nil || c != before.Head {
			t.Errorf("Seek() = %v, %v; want %v", c, err, before.Head)
		}
	}
	released.Store(true)
	release()
	running.Wait()
	a, b := <-answers, <-answers
	if a.Cursor != b.Cursor || a.Replayed == b.Replayed {
		t.Errorf("Append() = %+v and %+v, want one cursor, replayed once", a, b)
	}
	if now := state(t, l, "set"); now.Head != a.Cursor {
		t.Errorf("head = %v, want %v", now.Head, a.Cursor)
	}
}

// TestBlocksStayWithinLists appends blocks that were encoded for other positions than they got.
// They must not cross the boundary of a list, either.
func TestBlocksStayWithinLists(t *testing.T) {
	l := filled(t, "data", Options{FS: vfs.NewMem()}) // lists of 10
	defer stop(t, l)
	first := changelog.Publish{Key: "key", Changes: changes("first", 3)}
	for range 3 {
		_, err := l.Append(t.Context(), "set", first, changelog.Publish{Changes: changes("x", 18)})
		ok(t, err)
	}
	var before uint64
	for _, key := range keysOf(t, l, "log/") {
		last := number(key)
		if before/10 != (last-1)/10 {
			t.Errorf("block of positions %d to %d crosses a boundary", before+1, last)
		}
		before = last
	}
	if before != 157 {
		t.Errorf("blocks end at %d", before)
	}
}

// keysOf returns the keys of the set that start with a prefix.
func keysOf(t *testing.T, l *Log, prefix string) (keys [][]byte) {
	t.Helper()
	from, to := bounds(prefix, "set")
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	ok(t, err)
	for it.First(); it.Valid(); it.Next() {
		keys = append(keys, bytes.Clone(it.Key()))
	}
	ok(t, it.Close())
	return keys
}
