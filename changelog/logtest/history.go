package logtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A history is the cursors that a set ever had, by set.
type history map[string][]feed.Cursor

func (m *memory) exporter() changelog.Exporter {
	m.Helper()
	log := m.Log
	if c, ok := log.(*closing); ok {
		log = c.Log
	}
	e, ok := log.(changelog.Exporter)
	if !ok {
		m.Skipf("a %T cannot be copied", m.Log)
	}
	return e
}

// copyTo copies m into a store, and closes the store again. If steps is not nil, all steps
// of the copy go through it.
func (m *memory) copyTo(store Store, steps func(changelog.Importer) changelog.Importer) (changelog.Progress, error) {
	m.Helper()
	e := m.exporter()
	if store.Import == nil {
		m.Skip("nothing can be copied to it")
	}
	imp, err := store.Import(m.ID())
	if err != nil {
		return changelog.Progress{}, err
	}
	to := imp
	if steps != nil {
		to = steps(imp)
	}
	p, err := changelog.Copy(m.ctx, e, to, nil, nil)
	m.ok(imp.Close())
	return p, err
}

// opened opens a store; it is closed with the test.
func (m *memory) opened(store Store) *memory {
	m.Helper()
	log, err := store.Open()
	m.ok(err)
	o := *m
	o.Log = &closing{Log: log}
	m.Cleanup(func() { m.ok(o.Close()) })
	return &o
}

// closing is a log that may be closed twice.
type closing struct {
	changelog.Log
	closed bool
}

func (c *closing) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	return c.Log.Close()
}

// eventful makes a memory in which much has happened.
func (m *memory) eventful() history {
	m.Helper()
	h := make(history)
	add := func(set string, p ...changelog.Publish) {
		m.Helper()
		a, err := m.Append(m.ctx, set, p...)
		m.ok(err)
		for _, a := range a {
			for i := range uint64(a.Count) {
				c, err := m.At(m.ctx, set, a.After.Position+1+i)
				m.ok(err)
				h[set] = append(h[set], c)
			}
		}
	}
	trim := func(set string, count uint64) {
		m.Helper()
		n, err := m.Trim(m.ctx, set, changelog.Retention{Count: count})
		m.ok(err)
		if n == 0 {
			m.Fatalf("nothing is trimmed of %q", set)
		}
	}
	m.make("empty", k)
	m.make("trimmed", k) // its newest batch reaches behind the floor
	add("trimmed", publish(95))
	trim("trimmed", 1)
	m.make("to-the-boundary", k)
	add("to-the-boundary", publish(40))
	trim("to-the-boundary", 20)
	m.make("single", 100)
	for i := range 130 {
		add("single", keyed(fmt.Sprint("key", i), byte(i)))
	}
	m.make("mixed", 1500)
	add("mixed", publish(2), publish(1), publish(2500), keyed("last", 1))
	m.ok(m.Describe(m.ctx, "mixed", feed.Description{DescribedBy: "https://example.org/about", ChangeList: "https://example.org/list", ResourceDump: "https://example.org/dump", NoInventory: true, Private: true, WholeSeconds: true, Dumps: true, Events: `{"changes":{"a":"skip"}}`, Shown: `{"begin":1}`, Source: "https://example.org/sitemap.xml", Every: time.Hour, By: "caller"}))
	m.make("large", 7)
	for i, size := range []int{1, 100_000, 256_000, 300_000, 10, 200_000} {
		p := publish(3)
		p.Changes[1].Attrs = []resourcesync.Attr{{Namespace: "urn:x", Name: "big", Value: noise(size, uint32(i))}}
		add("large", p)
	}
	m.make("fields", k)
	add("fields", changelog.Publish{Changes: everyField()})
	for _, set := range []string{"gone", "again"} {
		m.make(set, k)
		add(set, publish(25), keyed("gone", 1))
		m.ok(m.Delete(m.ctx, set))
	}
	m.make("again", k+1)
	add("again", publish(12), keyed("again", 1))
	return h
}

// later is what happens after eventful.
func (m *memory) later(h history) {
	m.Helper()
	for _, set := range []string{"empty", "single", "mixed", "again"} {
		_, err := m.Append(m.ctx, set, publish(1), keyed("later", 1), publish(15))
		m.ok(err)
	}
	_, err := m.Trim(m.ctx, "single", changelog.Retention{Count: 30})
	m.ok(err)
	m.ok(m.Describe(m.ctx, "large", feed.Description{Title: "later"}))
	m.ok(m.Delete(m.ctx, "fields"))
	m.ok(m.Delete(m.ctx, "trimmed"))
	m.ok(m.Delete(m.ctx, "again"))
	m.make("again", k)
	m.make("gone", k)
	m.make("new", k)
	for _, set := range []string{"again", "gone", "new"} {
		_, err := m.Append(m.ctx, set, publish(3), keyed("new", 1))
		m.ok(err)
	}
	states, err := m.Sets(m.ctx)
	m.ok(err)
	for _, s := range states {
		h[s.Set] = append(h[s.Set], s.Floor, s.Head, s.Latest)
	}
}

// clear deletes all sets.
func (m *memory) clear() {
	m.Helper()
	states, err := m.Sets(m.ctx)
	m.ok(err)
	for _, s := range states {
		m.ok(m.Delete(m.ctx, s.Set))
	}
}

// twins compares all answers of m with those of a copy of it. Then it adds to both, and
// compares again.
func (m *memory) twins(copied *memory, h history) {
	m.Helper()
	m.same("identity", copied.ID(), m.ID())
	want, err := m.Sets(m.ctx)
	m.ok(err)
	got, err := copied.Sets(m.ctx)
	m.ok(err)
	for i, s := range want {
		if i < len(got) && got[i].Set == s.Set {
			m.sameNames(s, &got[i])
		}
	}
	m.same("states", got, want)
	for _, s := range want {
		entries := m.entries(s)
		m.same("entries of "+s.Set, copied.entries(s), entries)
		few := max(s.Head.Position-s.Floor.Position, 40) / 40 // look at about 40 of many entries
		for p := max(s.Floor.Position, 2) - 2; p <= s.Head.Position+2; p++ {
			if p > s.Floor.Position+2 && p+2 < s.Head.Position && p%few != 0 {
				continue
			}
			m.alike(copied, fmt.Sprint("At of ", s.Set), func(log changelog.Log) (any, error) { return log.At(m.ctx, s.Set, p) })
		}
		cursors := []feed.Cursor{{}, s.Floor, s.Head, s.Latest, {Micros: s.Begin}}
		for i, c := range h[s.Set] {
			if i%(len(h[s.Set])/40+1) == 0 {
				cursors = append(cursors, c)
			}
		}
		for i, e := range entries {
			if uint64(i)%few == 0 {
				cursors = append(cursors, e.Cursor)
			}
		}
		for _, c := range cursors {
			for _, d := range []int64{-1, 0, 1} {
				micros := max(c.Micros+d, 0)
				m.alike(copied, fmt.Sprint("Seek of ", s.Set), func(log changelog.Log) (any, error) { return log.Seek(m.ctx, s.Set, micros) })
				for _, c := range []feed.Cursor{{Position: c.Position, Micros: micros}, {Position: c.Position + uint64(d+1), Micros: c.Micros}} {
					m.alike(copied, fmt.Sprint("Since of ", s.Set), func(log changelog.Log) (any, error) {
						b, err := log.Since(m.ctx, s.Set, c, 1)
						if err != nil {
							return nil, err
						}
						return feed.Batch{Set: b.Set, After: b.After, Cursor: b.Cursor, Entries: b.Entries, Diverged: b.Diverged}, nil
					})
				}
			}
		}
	}
	for _, s := range want {
		m.sameKeys(copied, s)
		for _, mem := range []*memory{m, copied} {
			a, err := mem.Append(m.ctx, s.Set, publish(k+1), keyed("after the copy", 1))
			m.ok(err)
			m.same("after", a[0].After.Position, s.Head.Position)
			m.same("follows", a[0].After, s.Head)
		}
		m.same("known in the copy", copied.known(s.Set, "after the copy"), true)
	}
	left, err := m.exporter().Deleted(m.ctx)
	m.ok(err)
	for set, l := range left {
		copied.make(set, k)
		s, err := copied.State(m.ctx, set)
		m.ok(err)
		if s.Begin <= l.Upto {
			m.Errorf("set %q begins at %d, and before it was deleted it reached to %d", set, s.Begin, l.Upto)
		}
	}
}

// sameNames wants the lists of a copy to have the names that they have in s, except
// those that are open. Then it removes that difference.
func (m *memory) sameNames(s feed.State, copied *feed.State) {
	m.Helper()
	oldest, open := s.Lists()
	for n := oldest; n < open; n++ {
		m.same(fmt.Sprintf("epoch of list %d of %s", n, s.Set), copied.Epochs.Of(n), s.Epochs.Of(n))
	}
	if e := copied.Epochs.Of(open); e == "" || e == s.Epochs.Of(open) {
		m.Fatalf("the open list of %s is of epoch %q in the copy too", s.Set, e)
	}
	copied.Epochs = s.Epochs
}

// sameKeys publishes with all keys of a set again, and with new keys.
func (m *memory) sameKeys(copied *memory, s feed.State) {
	m.Helper()
	keys := []string{"gone", "again", "last", "later", "new", "never"}
	for i := range 130 {
		keys = append(keys, fmt.Sprint("key", i))
	}
	for _, key := range keys {
		if m.known(s.Set, key) != copied.known(s.Set, key) {
			m.Errorf("set %q knows the key %q, or its copy does", s.Set, key)
			continue
		}
		for hash := range 3 {
			if m.known(s.Set, key) {
				p := keyed(key, byte(hash))
				m.alike(copied, "Append to "+s.Set, func(log changelog.Log) (any, error) { return log.Append(m.ctx, s.Set, p) })
			}
		}
	}
}

// known reports whether a set knows a key.
func (m *memory) known(set, key string) bool {
	m.Helper()
	for k, err := range m.exporter().Keys(m.ctx, set) {
		m.ok(err)
		if k.Key == key {
			return true
		}
	}
	return false
}

// entries reads a set.
func (m *memory) entries(s feed.State) []feed.Entry {
	m.Helper()
	var entries []feed.Entry
	for c := s.Floor; c != s.Head; {
		b, err := m.Since(m.ctx, s.Set, c, 0)
		m.ok(err)
		if b.Diverged || b.After != c || len(b.Entries) == 0 {
			m.Fatalf("set %q after %v: after %v, %d entries, diverged %t", s.Set, c, b.After, len(b.Entries), b.Diverged)
		}
		entries = append(entries, b.Entries...)
		c = b.Cursor
	}
	return entries
}

// alike asks m and its copy the same question, and wants the same answer.
func (m *memory) alike(copied *memory, what string, ask func(changelog.Log) (any, error)) {
	m.Helper()
	want, wantErr := ask(m.Log)
	got, err := ask(copied.Log)
	for _, kind := range []error{nil, feed.ErrGone, feed.ErrNoSet, resourcesync.ErrInvalid} {
		if errors.Is(err, kind) != errors.Is(wantErr, kind) {
			m.Fatalf("%s: %v, want %v", what, err, wantErr)
		}
	}
	m.same(what, got, want)
}

// isMoment wants a set of a copy to be whole, and to be as the set was at one moment.
func (m *memory) isMoment(copied *memory, s feed.State, cursors []feed.Cursor) {
	m.Helper()
	copied.entries(s)
	for k, err := range copied.exporter().Keys(m.ctx, s.Set) {
		m.ok(err)
		if k.Cursor.Position > s.Head.Position {
			m.Fatalf("set %q ends at %v and knows what was published up to %v", s.Set, s.Head, k.Cursor)
		}
	}
	for _, c := range cursors {
		if c == s.Head {
			return
		}
	}
	if s.Head != s.Floor { // of an empty set nothing else can be wrong
		m.Fatalf("set %q ends at %v, which it never did: %v", s.Set, s.Head, cursors)
	}
}

// long skips a test with -short and the race detector, if it takes long and is not about
// races.
func (m *memory) long() {
	if testing.Short() {
		m.Skip("a long test of copying")
	}
}

var errInterrupted = errors.New("interrupted")

// failing interrupts a copy at its nth step: before the step, or after it.
func failing(n int, done bool) func(changelog.Importer) changelog.Importer {
	return func(imp changelog.Importer) changelog.Importer {
		return &stepping{imp, func(_ string, do func() error) error {
			if n--; n != 0 {
				return do()
			}
			if done {
				return errors.Join(do(), errInterrupted)
			}
			return errInterrupted
		}}
	}
}

// stepping is an importer whose steps go through a function.
type stepping struct {
	changelog.Importer
	step func(name string, do func() error) error
}

func (i *stepping) Begin(ctx context.Context, s feed.State, after feed.Cursor) error {
	return i.step("begin", func() error { return i.Importer.Begin(ctx, s, after) })
}

func (i *stepping) Add(ctx context.Context, set string, after feed.Cursor, blocks []changelog.PlacedBlock) error {
	return i.step("add", func() error { return i.Importer.Add(ctx, set, after, blocks) })
}

func (i *stepping) AddKeys(ctx context.Context, set string, keys []changelog.Known) error {
	return i.step("keys", func() error { return i.Importer.AddKeys(ctx, set, keys) })
}

func (i *stepping) Deleted(ctx context.Context, set string, left changelog.Left) error {
	return i.step("deleted", func() error { return i.Importer.Deleted(ctx, set, left) })
}

func (i *stepping) Finish(ctx context.Context) error {
	return i.step("finish", func() error { return i.Importer.Finish(ctx) })
}
