package disklog

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
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
	"github.com/rshub/rshub/internal/chancetest"
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
	l, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func stop(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// entries returns all that a set holds, and checks that no publish of changes
// is there in part.
func entries(t *testing.T, l *Log, set string) []feed.Entry {
	t.Helper()
	s, err := l.State(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	var all []feed.Entry
	for c := s.Floor; ; {
		b, err := l.Since(t.Context(), set, c, 0)
		if err != nil {
			t.Fatal(err)
		}
		if b.After != c || b.Diverged {
			t.Fatalf("after %v, diverged %t, want %v", b.After, b.Diverged, c)
		}
		if len(b.Entries) == 0 {
			if c != s.Head {
				t.Fatalf("entries end at %v, the head is %v", c, s.Head)
			}
			break
		}
		all = append(all, b.Entries...)
		c = b.Cursor
	}
	last := s.Floor
	for _, e := range all {
		if e.Position != last.Position+1 || e.Micros <= last.Micros {
			t.Fatalf("%v follows %v", e.Cursor, last)
		}
		last = e.Cursor
	}
	if n := len(all); n > 0 { // the last publish must be whole
		path := strings.Split(all[n-1].Change.Loc, "/")
		var i, of int
		if _, err := fmt.Sscan(path[len(path)-2], &i); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(path[len(path)-1], &of); err != nil {
			t.Fatal(err)
		}
		if i != of-1 {
			t.Fatalf("the log ends in the middle of a publish: %s", all[n-1].Change.Loc)
		}
	}
	return all
}

// TestCrash lets the machine lose its power at random moments, again and again,
// while publishers, a reader and retention are at work.
func TestCrash(t *testing.T) {
	t.Parallel()
	const sets = 3
	rng := chancetest.New(t)
	fs := vfs.NewCrashableMem()
	var acked, shown [sets]feed.Cursor // what must be there
	keys := make(map[string]changelog.Appended)
	id := ""
	for round := range 25 {
		l := start(t, "data", Options{FS: fs, tune: small})
		if id == "" {
			id = l.ID()
		}
		if l.ID() != id {
			t.Fatalf("identity %q became %q", id, l.ID())
		}
		for i := range sets {
			set := fmt.Sprint("set", i)
			if err := l.Make(t.Context(), set, feed.Description{}, 50); err != nil {
				t.Fatal(err)
			}
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
			if err != nil {
				t.Fatal(err)
			}
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
				for n := range left {
					_ = n
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
		for range len(left) / 2 { // crash in their midst
			<-left
		}
		mu.Lock() // everything that is acknowledged or shown so far must be there after the crash
		wasAcked, wasShown, wasKeys := acked, shown, make(map[string]changelog.Appended)
		for k, a := range keys {
			wasKeys[k] = a
		}
		mu.Unlock()
		crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(3) * 50, RNG: rng})
		running.Wait()
		done.Store(true)
		beside.Wait()
		stop(t, l)
		fs, acked, shown, keys = crashed, wasAcked, wasShown, wasKeys
	}
}

// TestCrashEverywhere lets the power fail before every single write of a life
// of a memory, from its first opening to its closing.
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
	var head atomic.Uint64 // as acknowledged
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
		if err := l.Make(t.Context(), "set", feed.Description{}, 10); err != nil {
			t.Fatal(err)
		}
		made.Store(true)
		for i := range 12 {
			a, err := l.Append(t.Context(), "set", changelog.Publish{Changes: changes(fmt.Sprint(i), 25)}, changelog.Publish{Changes: changes(fmt.Sprint(i, "b"), 2)})
			if err != nil {
				t.Fatal(err)
			}
			head.Store(a[1].Cursor.Position)
			if _, err := l.Trim(t.Context(), "set", changelog.Retention{Count: 100}); err != nil {
				t.Fatal(err)
			}
			if i == 6 {
				if err := l.db.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	life()
	life() // opened again
	off.Store(true)
	t.Logf("%d crashes", len(crashes))
	for i, c := range crashes {
		l := start(t, "a/b/data", Options{FS: c.fs})
		if c.made {
			if s, err := l.State(t.Context(), "set"); err != nil || s.Head.Position < c.head {
				t.Fatalf("crash %d: head is %v, acknowledged was %d, %v", i, s.Head, c.head, err)
			}
			entries(t, l, "set")
		}
		if err := l.Make(t.Context(), "set", feed.Description{}, 10); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append(t.Context(), "set", changelog.Publish{Changes: changes("after", 3)}); err != nil {
			t.Fatal(err)
		}
		stop(t, l)
	}
}

// TestKill ends a process that publishes with SIGKILL.
func TestKill(t *testing.T) {
	if dir := os.Getenv("DISKLOG_TEST_KILL"); dir != "" {
		publishUntilKilled(t, dir)
	}
	t.Parallel()
	dir := t.TempDir()
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKill$")
		cmd.Env = append(os.Environ(), "DISKLOG_TEST_KILL="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var position uint64
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var p uint64
			if _, err := fmt.Sscanf(lines.Text(), "acknowledged %d", &p); err != nil {
				t.Fatalf("%q: %v", lines.Text(), err)
			}
			if position = max(position, p); position%1000 > 800 {
				break
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		l := start(t, dir, Options{})
		if n := uint64(len(entries(t, l, "set"))); n < position || position == 0 {
			t.Errorf("%d entries after %d were acknowledged", n, position)
		}
		stop(t, l)
	}
}

func publishUntilKilled(t *testing.T, dir string) {
	l, err := Open(dir, Options{tune: small})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Make(t.Context(), "set", feed.Description{}, 1000); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for {
				a, err := l.Append(t.Context(), "set", changelog.Publish{Changes: changes("x", 7)})
				if err != nil {
					t.Error(err)
					return
				}
				fmt.Printf("acknowledged %d\n", a[0].Cursor.Position)
			}
		})
	}
	running.Wait()
}
