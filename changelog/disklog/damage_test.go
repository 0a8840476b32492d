package disklog

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
)

// A disk has the contents of the files of a memory by name.
type disk map[string][]byte

func readDisk(t *testing.T, fs vfs.FS, dir string) disk {
	t.Helper()
	d := disk{}
	names, err := fs.List(dir)
	ok(t, err)
	for _, name := range names {
		f, err := fs.Open(fs.PathJoin(dir, name))
		ok(t, err)
		if d[name], err = io.ReadAll(f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	return d
}

func (d disk) write(t *testing.T, dir string) vfs.FS {
	t.Helper()
	fs := vfs.NewMem()
	ok(t, fs.MkdirAll(dir, 0o755))
	for name, b := range d {
		f, err := fs.Create(fs.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = f.Write(slices.Clone(b)) // a build with the race detector overwrites the written bytes
		}
		if err == nil {
			err = f.Close()
		}
		ok(t, err)
	}
	return fs
}

// A reference is the content of an undamaged memory.
type reference struct {
	id      string
	states  map[string]feed.State
	entries map[string][]feed.Entry
	keys    map[string]changelog.Appended // results of publishes to the set "a" by key
	kept    map[string]string
}

// live creates a memory with tables of several ages and a write-ahead log, and returns its content.
func live(t *testing.T, fs vfs.FS, dir string) (w reference) {
	t.Helper()
	l := start(t, dir, Options{FS: fs, tune: small})
	defer stop(t, l)
	w = reference{id: l.ID(), states: map[string]feed.State{}, entries: map[string][]feed.Entry{}, keys: map[string]changelog.Appended{}, kept: map[string]string{}}
	keep := l.Bucket("test")
	sets := []string{"a", "b"}
	for _, set := range sets {
		ok(t, l.Make(t.Context(), set, feed.Description{Title: "the set " + set, DescribedBy: "https://example.org/" + set}, 10))
	}
	for i := range 24 {
		for _, set := range sets {
			p := changelog.Publish{Changes: changes(fmt.Sprint(set, i), 1+i%7)}
			if set == "a" && i%3 == 0 {
				p.Key = fmt.Sprint("key", i)
			}
			a, err := l.Append(t.Context(), set, p)
			ok(t, err)
			if p.Key != "" {
				w.keys[p.Key] = a[0]
			}
		}
		name, value := fmt.Sprint("name", i), fmt.Sprint("value", i)
		ok(t, keep.Apply(t.Context(), map[string][]byte{name: []byte(value)}, true))
		w.kept[name] = value
		if i == 7 || i == 15 {
			ok(t, l.db.Flush())
		}
	}
	_, err := l.Trim(t.Context(), "b", changelog.Retention{Count: 40})
	ok(t, err)
	for _, set := range sets {
		w.states[set], w.entries[set] = state(t, l, set), entries(t, l, set)
	}
	return w
}

// An effect is what damage does to the memory.
type effect string

const (
	unhurt  effect = "nothing is missing"
	refused effect = "refused"
	named   effect = "named"
	lost    effect = "the newest is lost"
)

// checkDamaged opens a damaged memory and reads all of it. It fails the test if the memory returns
// wrong data, or if data is missing and followers do not notice.
func (w reference) checkDamaged(t *testing.T, what string, fs vfs.FS, dir string) effect {
	t.Helper()
	var log strings.Builder
	ended := ""
	l, err := Open(t.Context(), dir, Options{FS: fs, Logger: slog.New(slog.NewTextHandler(&log, nil)), Fatal: func(msg string, err error) { ended = fmt.Sprint(msg, ": ", err) }})
	if err != nil {
		if !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: error = %v, want the directory in it", what, err)
		}
		return refused
	}
	defer l.Close()
	if l.ID() != w.id {
		t.Errorf("%s: identity = %s, want %s\n%s", what, l.ID(), w.id, &log)
		return lost
	}
	f := unhurt
	bad := func(err error) bool {
		switch {
		case err == nil:
			return false
		case !errors.Is(err, changelog.ErrCorrupt):
			t.Errorf("%s: error = %v, want one of damage", what, err)
		}
		f = named
		return true
	}
	for set, want := range w.states {
		state, err := l.State(t.Context(), set)
		if errors.Is(err, feed.ErrNoSet) {
			if _, err := l.Since(t.Context(), set, want.Head, 0); !errors.Is(err, feed.ErrGone) {
				t.Errorf("%s: set %s is lost, but Since() returns %v", what, set, err)
			}
			f = lost
			continue
		}
		if bad(err) {
			continue
		}
		if state.Begin != want.Begin || state.ListSize != want.ListSize || state.Description != want.Description {
			t.Errorf("%s: state of set %s = %+v, want %+v", what, set, state, want)
		}
		truth := w.entries[set]
		if state.Head != want.Head || state.Floor != want.Floor {
			f = lost
			b, err := l.Since(t.Context(), set, want.Head, 0)
			if state.Head != want.Head && !bad(err) && !b.Diverged {
				t.Errorf("%s: set %s ends at %v, want %v, or a diverged follower", what, set, state.Head, want.Head)
			}
			if state.Head != want.Head && !slices.ContainsFunc(truth, func(e feed.Entry) bool { return e.Cursor == state.Head }) && state.Head.Position > want.Floor.Position {
				t.Errorf("%s: set %s ends at %v, which is not an entry", what, set, state.Head)
			}
		}
		for at := want.Floor; ; {
			b, err := l.Since(t.Context(), set, at, 7)
			if errors.Is(err, feed.ErrGone) && state.Floor != want.Floor || bad(err) {
				break
			}
			if b.Diverged || len(b.Entries) == 0 {
				if !b.Diverged && at != state.Head {
					t.Errorf("%s: no entries of set %s after %v, before its head %v", what, set, at, state.Head)
				}
				break
			}
			for _, e := range b.Entries {
				i := slices.IndexFunc(truth, func(w feed.Entry) bool { return w.Position == e.Position })
				if i >= 0 && !reflect.DeepEqual(e, truth[i]) || i < 0 && e.Position > want.Floor.Position {
					t.Errorf("%s: set %s has unknown entry %+v", what, set, e)
				}
			}
			at = b.Cursor
		}
		for i := 0; i < len(truth); i += 5 {
			e := truth[i]
			if c, err := l.At(t.Context(), set, e.Position); e.Position <= state.Head.Position && e.Position >= state.Floor.Position && !bad(err) && c != e.Cursor {
				t.Errorf("%s: set %s: got %v at position %d, want %v", what, set, c, e.Position, e.Cursor)
			}
		}
	}
	keep := l.Bucket("test")
	for name, want := range w.kept {
		v, err := keep.Get(t.Context(), name)
		if !bad(err) && v != nil && string(v) != want {
			t.Errorf("%s: %s = %q, want %q", what, name, v, want)
		}
		if err == nil && v == nil && f != lost {
			t.Errorf("%s: %s is lost without an error", what, name)
		}
	}
	for key, want := range w.keys {
		v, err := l.get(keyKey("a", key))
		if bad(err) || v == nil && f == lost {
			continue
		}
		if v == nil {
			t.Errorf("%s: key %s is lost without an error", what, key)
			continue
		}
		if r, err := decodeReceipt(v); !bad(err) && r.Cursor != want.Cursor {
			t.Errorf("%s: key %s has %v, want %v", what, key, r.Cursor, want.Cursor)
		}
	}
	if ended != "" && f == unhurt {
		f = named
	}
	return f
}

// lastChunk is an upper bound of the size of the last chunk of the write-ahead log.
const lastChunk = 1024

// TestDamageAtRest flips bytes in every file of a memory, and truncates every file. Then the memory
// or its damaged part must return errors. Only the newest changes may be lost without an error:
// missing data at the end of the write-ahead log looks as if a crash had preceded its write.
// Followers must be notified even then. With RSHUB_PROVE, the test tries every byte.
func TestDamageAtRest(t *testing.T) {
	t.Parallel()
	const dir = "memory"
	fs := vfs.NewMem()
	w := live(t, fs, dir)
	whole := readDisk(t, fs, dir)
	if f := w.checkDamaged(t, "unhurt", whole.write(t, dir), dir); f != unhurt {
		t.Fatalf("undamaged memory: got %s", f)
	}
	rng := testutil.Rand(t)
	fates := map[string]map[effect]int{}
	for _, name := range slices.Sorted(maps.Keys(whole)) {
		b := whole[name]
		try := func(what string, damaged []byte) effect {
			d := maps.Clone(whole)
			d[name] = damaged
			if damaged == nil {
				delete(d, name)
			}
			kind := strings.TrimLeft(strings.SplitN(name, "-", 2)[0], "0123456789.") + " " + strings.Fields(what)[0]
			if fates[kind] == nil {
				fates[kind] = map[effect]int{}
			}
			f := w.checkDamaged(t, name+" "+what, d.write(t, dir), dir)
			fates[kind][f]++
			return f
		}
		for i := range sample(rng, len(b)) {
			flipped := slices.Clone(b)
			flipped[i] ^= byte(1 + rng.IntN(255))
			what := fmt.Sprintf("flipped at %d of %d", i, len(b))
			if f := try(what, flipped); f == lost && i < len(b)-lastChunk {
				t.Errorf("%s %s: changes are lost without an error that names the damage", name, what)
			}
			try(fmt.Sprintf("cut at %d of %d", i, len(b)), slices.Clone(b[:i]))
			page := slices.Clone(b)
			clear(page[i:min(len(b), i+512)])
			try(fmt.Sprintf("zeroed at %d of %d", i, len(b)), page)
		}
		try("missing", nil)
	}
	for _, kind := range slices.Sorted(maps.Keys(fates)) {
		t.Logf("%-20s %v", kind, fates[kind])
		if !strings.HasPrefix(kind, "log ") && fates[kind][lost] > 0 {
			t.Errorf("%s: changes are lost without an error that names the damage", kind)
		}
	}
}

// sample yields some of n places, or all of them with RSHUB_PROVE.
func sample(rng *rand.Rand, n int) func(func(int) bool) {
	most := 25
	if testing.Short() {
		most = 5
	}
	if os.Getenv("RSHUB_PROVE") != "" {
		most = n
	}
	return func(yield func(int) bool) {
		if most >= n {
			for i := range n {
				if !yield(i) {
					return
				}
			}
			return
		}
		for k := range most { // one in each interval
			if !yield(k*n/most + rng.IntN(max(1, n/most))) {
				return
			}
		}
	}
}
