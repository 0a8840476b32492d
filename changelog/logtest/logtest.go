// Package logtest is the contract of changelog.Log as a test suite, which each implementation runs
// in one of its tests.
//
// The tests cover order, cursors, retention, retries with a key, and the results of readers after a
// failover. They do not cover durability after a crash, which packages disklog and redislog test.
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
	// New creates an empty store for one memory, and returns the function that opens it. The suite
	// may close the memory and open it again, which must preserve all data. It is open at most once
	// at a time. The backend must remove the store when the test ends.
	New func(t *testing.T, o Options) (open func() (changelog.Log, error))

	// FakeClock reports that the memory's clock is Options.Now. If it is false, tests that set the
	// clock are skipped.
	FakeClock bool
}

// Options configures a memory under test.
type Options struct {
	Now       func() time.Time // ignored by a memory with its own clock
	ClockSkew time.Duration
}

// skew is the ClockSkew of all tests.
const skew = time.Minute

// Run runs the suite. Every subtest has its own memory.
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
	clock bool // the test needs a clock that can be set
	run   func(m *memory)
}

// A memory is a log under test. Its methods fail the test instead of returning an error.
type memory struct {
	*testing.T
	changelog.Log
	ctx    context.Context
	reopen func() // closes the log and opens it again
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

// now returns the memory's time in microseconds. It is approximate unless the clock is fake.
func (m *memory) now() int64 {
	if m.fake {
		return m.clock.micros.Load()
	}
	return time.Now().UnixMicro()
}

// Set of most tests, and its list size unless the test chooses another one.
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

func (m *memory) wantErr(want, err error) {
	m.Helper()
	if !errors.Is(err, want) {
		m.Fatalf("error = %v, want %v", err, want)
	}
}

func (m *memory) wantEqual(what string, got, want any) {
	m.Helper()
	if !reflect.DeepEqual(got, want) {
		m.Fatalf("%s = \n\t%+v, want\n\t%+v", what, got, want)
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
		m.Fatalf("Append(%d publishes) = %d results", len(p), len(a))
	}
	for i := range a {
		m.checkBlocks(p[i], &a[i])
	}
	return a
}

// checkBlocks checks the blocks of an Appended, if it has any, and removes them from it.
func (m *memory) checkBlocks(p changelog.Publish, a *changelog.Appended) {
	m.Helper()
	var changes []resourcesync.Change
	left := a.Count
	for _, b := range a.Blocks {
		left -= b.Count
		entries, err := b.Block.Entries(feed.Cursor{Position: a.Cursor.Position - uint64(left), Micros: a.Cursor.Micros - int64(left)})
		m.ok(err)
		for _, e := range entries {
			m.wantEqual("position in a block", e.Position, a.After.Position+uint64(len(changes))+1)
			changes = append(changes, e.Change)
		}
	}
	if a.Blocks != nil {
		m.wantEqual("changes in the blocks", changes, p.Changes)
	}
	a.Blocks = nil
}

// readBatch reads one batch, and checks the rules for every batch.
func (m *memory) readBatch(c feed.Cursor, limit int) *feed.Batch {
	m.Helper()
	b, err := m.Since(m.ctx, name, c, limit)
	m.ok(err)
	m.checkBatch(b, limit)
	return b
}

func (m *memory) checkBatch(b *feed.Batch, limit int) {
	m.Helper()
	if limit <= 0 {
		limit = 1000
	}
	if b.Set != name || len(b.Entries) > limit {
		m.Fatalf("got batch of set %q with %d entries, limit %d", b.Set, len(b.Entries), limit)
	}
	last := b.After
	for i := range b.Entries {
		c := b.Entries[i].Cursor
		if c.Position != last.Position+1 || c.Micros <= last.Micros {
			m.Fatalf("got entry %v after %v", c, last)
		}
		last = c
	}
	if b.Cursor != last {
		m.Fatalf("Cursor = %v, want %v", b.Cursor, last)
	}
}

// readAll reads all entries after a cursor.
func (m *memory) readAll(c feed.Cursor) []feed.Entry {
	m.Helper()
	var entries []feed.Entry
	for {
		b := m.readBatch(c, 0)
		if b.Diverged || b.After != c {
			m.Fatalf("After = %v, Diverged = %t, want %v, false", b.After, b.Diverged, c)
		}
		if len(b.Entries) == 0 {
			return entries
		}
		entries = append(entries, b.Entries...)
		c = b.Cursor
	}
}

// changeNumber is the number of the last change, so that each change differs.
var changeNumber atomic.Int64

// publish returns a publish of n changes.
func publish(n int) changelog.Publish {
	p := changelog.Publish{Changes: make([]resourcesync.Change, n)}
	for i := range p.Changes {
		p.Changes[i] = resourcesync.Change{
			Loc:    fmt.Sprintf("https://example.org/resource/%d", changeNumber.Add(1)),
			Change: resourcesync.Updated,
		}
	}
	return p
}

// keyedPublish returns a publish of one change with a key, and a hash that starts with hash.
func keyedPublish(key string, hash byte) changelog.Publish {
	p := publish(1)
	p.Key, p.Hash = key, [32]byte{hash}
	return p
}
