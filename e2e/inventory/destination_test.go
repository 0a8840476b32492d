package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/inventory/audit"
	"github.com/rshub/rshub/inventory/digest"
	"github.com/rshub/rshub/inventory/diskpages"
	"github.com/rshub/rshub/resourcesync"
)

// A destination joins a set by a baseline, and is killed and goes on.
type destination struct {
	way, set, dir string
	hubs          []*hubtest.Hub
	process       *hubtest.Process // nil: it does not run
	lives         int
	journal       *journal
}

func newDestination(t *testing.T, way, set string, hubs []*hubtest.Hub) *destination {
	return &destination{way: way, set: set, dir: t.TempDir(), hubs: hubs, journal: &journal{held: fold{}}}
}

// live starts the process at a hub. It kills itself after so many messages, see dieAfter.
func (d *destination) live(t *testing.T, h *hubtest.Hub, die int) {
	t.Helper()
	d.lives++
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d.process = hubtest.Start(t, []string{
		asDestination + "=" + d.way, ofHub + "=" + h.URL, ofSet + "=" + d.set, inDirectory + "=" + d.dir, fmt.Sprint(dieAfter, "=", die),
	}, nil, self)
}

// read reads on in the journal.
func (d *destination) read(t *testing.T) *journal {
	t.Helper()
	if err := d.journal.read(d.dir); err != nil {
		t.Fatal(err)
	}
	return d.journal
}

func (d *destination) kill() {
	d.process.Kill()
	d.process = nil
}

// step does something at random to a destination: it joins, or goes on, or is killed at
// once, or as soon as it has got some messages, or all that there are.
func (d *destination) step(t *testing.T, r *rand.Rand, s *source) {
	t.Helper()
	switch n := r.IntN(6); {
	case d.process != nil && d.process.Ended():
		if code := d.process.Cmd.ProcessState.ExitCode(); code != -1 {
			t.Fatalf("the %s ends with %d: %s", d.way, code, d.process.Stderr)
		}
		d.process = nil
	case d.process == nil && n < 3:
		die := 0
		if r.IntN(2) == 0 {
			die = r.IntN(25) - 12
		}
		d.live(t, d.hubs[r.IntN(len(d.hubs))], die)
	case d.process != nil && n == 0:
		d.kill()
	case d.process != nil && n == 1:
		before, more := d.read(t).messages, 1+r.IntN(4)
		hubtest.Until(t, "the "+d.way+" gets a message or dies", func() error {
			j := d.read(t)
			if d.process.Ended() || j.messages >= before+more || j.cursor == s.newestCursor() {
				return nil
			}
			return errors.New("neither")
		})
		d.kill()
	}
}

// reaches lets the destination run until it has got a cursor, and ends it.
func (d *destination) reaches(t *testing.T, cursor string) *journal {
	t.Helper()
	if d.process == nil || d.process.Ended() {
		d.live(t, d.hubs[0], 0)
	}
	j := d.journal
	hubtest.Until(t, fmt.Sprintf("the %s reaches %s", d.way, cursor), func() error {
		if d.process.Ended() { // it was to kill itself
			d.live(t, d.hubs[0], 0)
		}
		if d.read(t); !j.whole || j.reading() || j.cursor != cursor {
			return fmt.Errorf("it is at %s", cmp.Or(j.cursor, "not a cursor"))
		}
		return nil
	})
	d.process.Signal(syscall.SIGTERM)
	if code := d.process.Wait(); code > 0 {
		t.Errorf("the %s ends with %d: %s", d.way, code, d.process.Stderr)
	}
	d.process = nil
	return j
}

// inSync proves that the destination is equal to the fold of all changes, and that an
// audit by each of the hubs finds that, too.
func (d *destination) inSync(t *testing.T, s *source) { d.proves(t, s, false) }

// proves is inSync. If leftovers are allowed, the destination may also hold resources of
// an earlier life of the set: it has joined again before the hub said that it knows all
// resources. Then audits have to name these, and nothing else.
func (d *destination) proves(t *testing.T, s *source, leftovers bool) {
	t.Helper()
	cursor, want := s.newest(t)
	j := d.reaches(t, cursor)
	held, extra := j.held, map[string]audit.Kind{}
	if leftovers {
		held = maps.Clone(held)
		maps.DeleteFunc(held, func(loc string, _ line) bool {
			if _, exists := want[loc]; !exists {
				extra[loc] = audit.Extra
			}
			return extra[loc] != ""
		})
	}
	same(t, "the "+d.way, held, want)
	var store *diskpages.Store
	var state *inventory.State
	if d.way == byReplica {
		var err error
		if store, err = diskpages.Open(filepath.Join(d.dir, "pages"), diskpages.Options{}); err != nil {
			t.Fatal(err)
		}
		defer store.Close()
	} else {
		state = stateOf(t, j.held, cursor)
	}
	for _, h := range d.hubs {
		c := newClient(t, h)
		for _, o := range []client.AuditOptions{{By: digest.ByPosition}, {By: digest.ByContent}} {
			if d.way != byReplica {
				names(t, d.way, c.Audit(t.Context(), d.set, client.Always(state), o), extra)
				continue
			}
			r, err := c.OpenReplica(t.Context(), d.set, store, client.ReplicaOptions{MaxDelete: -1})
			if err != nil {
				t.Fatal(err)
			}
			names(t, d.way, r.Audit(t.Context(), o), extra)
		}
	}
	t.Logf("the %s in %d lives: %d messages, %d baselines to their end, %d went on in the middle, %d began anew, %d times it was gone", d.way, d.lives, j.messages, j.baselines, j.resumed, j.restarts, j.rejoined)
	if leftovers {
		t.Logf("the %s holds %d resources of earlier lives, and audits name them", d.way, len(extra))
	}
}

// newClient returns a client that does not wait for long.
func newClient(t testing.TB, h *hubtest.Hub) *client.Client {
	t.Helper()
	c, err := client.New(h.URL, client.Options{Sleep: soon, HTTP: hubtest.Client})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// stateOf returns resources as a state at a cursor.
func stateOf(t testing.TB, f fold, cursor string) *inventory.State {
	t.Helper()
	at, err := feed.ParseCursor(cursor)
	if err != nil {
		t.Fatal(err)
	}
	entries := make([]feed.Entry, 0, len(f))
	for _, l := range f {
		entries = append(entries, entryOf(t, l))
	}
	slices.SortFunc(entries, byLoc)
	v := inventory.New(inventory.NewMemory(nil), "own", inventory.Options{Cache: inventory.NewCache(1 << 20)})
	root, err := v.Commit(context.Background(), inventory.Changes{To: at, Sorted: pointers(entries)})
	if err != nil {
		t.Fatal(err)
	}
	return v.Tree(root).State()
}

func byLoc(a, b feed.Entry) int { return cmp.Compare(a.Change.Loc, b.Change.Loc) }

func pointers(entries []feed.Entry) iter.Seq[*feed.Entry] {
	return func(yield func(*feed.Entry) bool) {
		for i := range entries {
			if !yield(&entries[i]) {
				return
			}
		}
	}
}

func entryOf(t testing.TB, l line) feed.Entry {
	t.Helper()
	c := resourcesync.Change{Loc: l.Loc, Change: resourcesync.ChangeType(l.Change), Hash: l.Hash, Length: l.Length}
	if l.Lastmod != "" {
		at, err := resourcesync.ParseTime(l.Lastmod)
		if err != nil {
			t.Fatal(err)
		}
		c.Lastmod = at
	}
	return feed.Entry{Cursor: feed.Cursor{Position: l.Position, Micros: 1}, Change: c}
}
