// Package logtest is the contract of changelog.Log as a test suite. Each implementation runs it in
// a test of its own.
//
// The tests cover order, cursors, retention, retries with a key, and what a reader is told after a
// failover. They do not cover durability after a crash: that is tested in packages disklog and
// redislog.
package logtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A Backend is a kind of change memory.
type Backend struct {
	// New makes an empty store for one memory, and returns the function that opens it.
	// The suite may close the memory and open it again; it must then still hold
	// everything. It is open at most once at a time. The backend removes the store when
	// the test ends.
	New func(t *testing.T, o Options) (open func() (changelog.Log, error))

	// FakeClock says that the memory's clock is Options.Now. Otherwise the tests
	// that set the clock are skipped.
	FakeClock bool
}

// Options are what a memory under test is configured with.
type Options struct {
	Now       func() time.Time // a memory with a clock of its own ignores it
	ClockSkew time.Duration
}

// skew is the ClockSkew of all tests.
const skew = time.Minute

// Run runs the suite. Every subtest has a memory of its own.
func Run(t *testing.T, b Backend) {
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"sets", setTests},
		{"append", appendTests},
		{"keys", keyTests},
		{"since", sinceTests},
		{"seek", seekTests},
		{"trim", trimTests},
		{"clock", clockTests},
		{"together", togetherTests},
		{"model", modelTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) {
					if test.clock && !b.FakeClock {
						t.Skip("needs to set the memory's clock")
					}
					test.run(b.open(t))
				})
			}
		})
	}
}

type test struct {
	name  string
	clock bool // it needs a clock that can be set
	run   func(m *memory)
}

// A memory is a log under test. Its steps fail the test instead of returning an
// error.
type memory struct {
	*testing.T
	changelog.Log
	ctx    context.Context
	reopen func() // closes and opens again
	clock  *clock
	fake   bool
}

func (b Backend) open(t *testing.T) *memory {
	m := &memory{T: t, ctx: t.Context(), clock: new(clock), fake: b.FakeClock}
	m.clock.set(time.Date(2026, 3, 4, 5, 6, 7, 89_000, time.UTC))
	open := b.New(t, Options{Now: m.clock.now, ClockSkew: skew})
	start := func() {
		log, err := open()
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		m.Log = log
	}
	m.reopen = func() {
		t.Helper()
		if err := m.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
		start()
	}
	start()
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return m
}

// A clock stands still until it is set.
type clock struct{ micros atomic.Int64 }

func (c *clock) now() time.Time          { return time.UnixMicro(c.micros.Load()).UTC() }
func (c *clock) set(t time.Time)         { c.micros.Store(t.UnixMicro()) }
func (c *clock) advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

// now is the memory's time in microseconds, as far as the test knows it.
func (m *memory) now() int64 {
	if m.fake {
		return m.clock.micros.Load()
	}
	return time.Now().UnixMicro()
}

// The set that most tests use, and its list size where they do not say.
const (
	name = "set"
	k    = 10
)

func (m *memory) make(set string, listSize int) {
	m.Helper()
	m.ok(m.Make(m.ctx, set, feed.Description{Title: "Title of " + set}, listSize))
}

func (m *memory) ok(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

func (m *memory) wants(want, err error) {
	m.Helper()
	if !errors.Is(err, want) {
		m.Fatalf("error is %v, want %v", err, want)
	}
}

func (m *memory) same(what string, got, want any) {
	m.Helper()
	if !reflect.DeepEqual(got, want) {
		m.Fatalf("%s is\n\t%+v, want\n\t%+v", what, got, want)
	}
}

func (m *memory) state() feed.State {
	m.Helper()
	s, err := m.State(m.ctx, name)
	m.ok(err)
	return s
}

// add appends one publish of n changes.
func (m *memory) add(n int) changelog.Appended {
	m.Helper()
	return m.publish(publish(n))[0]
}

func (m *memory) publish(p ...changelog.Publish) []changelog.Appended {
	m.Helper()
	a, err := m.Append(m.ctx, name, p...)
	m.ok(err)
	if len(a) != len(p) {
		m.Fatalf("%d publishes have %d answers", len(p), len(a))
	}
	for i := range a {
		m.blocks(p[i], &a[i])
	}
	return a
}

// blocks checks the blocks of an Appended, if it has any, and removes them from it.
func (m *memory) blocks(p changelog.Publish, a *changelog.Appended) {
	m.Helper()
	var changes []resourcesync.Change
	left := a.Count
	for _, b := range a.Blocks {
		left -= b.Count
		entries, err := b.Block.Entries(feed.Cursor{Position: a.Cursor.Position - uint64(left), Micros: a.Cursor.Micros - int64(left)})
		m.ok(err)
		for _, e := range entries {
			m.same("position in a block", e.Position, a.After.Position+uint64(len(changes))+1)
			changes = append(changes, e.Change)
		}
	}
	if a.Blocks != nil {
		m.same("changes in the blocks", changes, p.Changes)
	}
	a.Blocks = nil
}

// after reads one batch, and checks the rules for every batch.
func (m *memory) after(c feed.Cursor, limit int) *feed.Batch {
	m.Helper()
	b, err := m.Since(m.ctx, name, c, limit)
	m.ok(err)
	m.consistent(b, limit)
	return b
}

func (m *memory) consistent(b *feed.Batch, limit int) {
	m.Helper()
	if limit <= 0 {
		limit = 1000
	}
	if b.Set != name || len(b.Entries) > limit {
		m.Fatalf("batch of set %q with %d entries, limit %d", b.Set, len(b.Entries), limit)
	}
	last := b.After
	for i := range b.Entries {
		c := b.Entries[i].Cursor
		if c.Position != last.Position+1 || c.Micros <= last.Micros {
			m.Fatalf("entry %v follows %v", c, last)
		}
		last = c
	}
	if b.Cursor != last {
		m.Fatalf("cursor is %v, want %v", b.Cursor, last)
	}
}

// all reads everything after a cursor.
func (m *memory) all(c feed.Cursor) []feed.Entry {
	m.Helper()
	var entries []feed.Entry
	for {
		b := m.after(c, 0)
		if b.Diverged || b.After != c {
			m.Fatalf("batch after %v, diverged %t, want after %v", b.After, b.Diverged, c)
		}
		if len(b.Entries) == 0 {
			return entries
		}
		entries = append(entries, b.Entries...)
		c = b.Cursor
	}
}

// numbered counts the changes that were made, so that each differs.
var numbered atomic.Int64

func publish(n int) changelog.Publish {
	p := changelog.Publish{Changes: make([]resourcesync.Change, n)}
	for i := range p.Changes {
		p.Changes[i] = resourcesync.Change{
			Loc:    fmt.Sprintf("https://example.org/resource/%d", numbered.Add(1)),
			Change: resourcesync.Updated,
		}
	}
	return p
}

// keyed is a publish of one change with a key, and a hash that begins with hash.
func keyed(key string, hash byte) changelog.Publish {
	p := publish(1)
	p.Key, p.Hash = key, [32]byte{hash}
	return p
}
