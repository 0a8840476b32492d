// Package storetest is the contract of inventory.Store as a test suite, and a comparison of inventories with
// plain maps.
//
// Each store runs both in tests of its own: diskpages, disklog, redislog, and inventory.Memory.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/resourcesync"
)

// An Env is an empty store, and the log of its sets.
type Env struct {
	Store inventory.Store
	Log   Log
}

// A Log is the part of changelog.Log that the tests need.
type Log interface {
	Make(ctx context.Context, set string, d feed.Description, listSize int) error
	Delete(ctx context.Context, set string) error
	State(ctx context.Context, set string) (feed.State, error)
	Append(ctx context.Context, set string, publishes ...changelog.Publish) ([]changelog.Appended, error)
}

// Store runs the contract of a Store. open returns a new Env for each test, and releases it at the end of the
// test.
func Store(t *testing.T, open func(t *testing.T) Env) {
	for _, test := range []struct {
		name string
		run  func(s *store)
	}{
		{"missing set", testMissingSet},
		{"record", testRecord},
		{"condition on the log", testCondition},
		{"wrong begin", testWrongBegin},
		{"put and get", testPutAndGet},
		{"largest put", testLargestPut},
		{"terms", testTerms},
		{"remove", testRemove},
		{"recreated set", testRecreatedSet},
		{"two sets", testTwoSets},
		{"concurrent updates", testConcurrentUpdates},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(&store{t, t.Context(), open(t)}) })
	}
}

// A store is a Store under test.
type store struct {
	*testing.T
	ctx context.Context
	Env
}

func (s *store) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// fails checks that an error is one of those wanted.
func (s *store) fails(got error, want ...error) {
	s.Helper()
	if !slices.ContainsFunc(want, func(w error) bool { return errors.Is(got, w) }) {
		s.Fatalf("got error %v, want %v", got, want)
	}
}

// create creates a set, and returns when its log began.
func (s *store) create(set string) int64 {
	s.Helper()
	s.ok(s.Log.Make(s.ctx, set, feed.Description{}, 100))
	return s.load(set).Log.Begin
}

func (s *store) load(set string) inventory.Record {
	s.Helper()
	r, err := s.Store.Load(s.ctx, set)
	s.ok(err)
	return r
}

// createWithTerm creates a set whose record has the term 7, and returns when its log began.
func (s *store) createWithTerm() int64 {
	s.Helper()
	begin := s.create("set")
	s.set("set", "head", 7)
	return begin
}

// set sets the head and the term of a record.
func (s *store) set(set, head string, term uint64) {
	s.Helper()
	s.ok(s.Store.Update(s.ctx, set, update(head, term)))
}

// update returns an Update that sets the head and the term.
func update(head string, term uint64) inventory.Update {
	return inventory.Update{Change: func(r *inventory.Record) error {
		r.Term, r.Head = term, []byte(head)
		return nil
	}}
}

// hasRecord checks the record of a set.
func (s *store) hasRecord(set, head string, term uint64) {
	s.Helper()
	if r := s.load(set); string(r.Head) != head || r.Term != term {
		s.Fatalf("record: got head %.40q and term %d, want %.40q and %d", r.Head, r.Term, head, term)
	}
}

func (s *store) append(set string, n int) changelog.Appended {
	s.Helper()
	changes := make([]resourcesync.Change, n)
	for i := range changes {
		changes[i] = resourcesync.Change{Loc: fmt.Sprintf("https://example.org/%d", i), Change: resourcesync.Created}
	}
	a, err := s.Log.Append(s.ctx, set, changelog.Publish{Changes: changes})
	s.ok(err)
	return a[0]
}

// hasPages checks the bytes of pages. The text "-" means that the page is missing.
func (s *store) hasPages(set string, begin int64, numbers []uint64, want ...string) {
	s.Helper()
	pages, err := s.Store.Get(s.ctx, set, begin, numbers)
	s.ok(err)
	var got []string
	for _, p := range pages {
		text := "-"
		if p != nil {
			text = string(p)
		}
		got = append(got, text)
	}
	if !slices.Equal(got, want) {
		s.Fatalf("pages %d: got %q, want %q", numbers, got, want)
	}
}

// hasNumbers checks which pages a set has.
func (s *store) hasNumbers(set string, begin int64, want ...uint64) {
	s.Helper()
	got := numbers(s.T, s.Store, set, begin)
	if !slices.Equal(got, want) {
		s.Fatalf("numbers of pages: got %v, want %v", got, want)
	}
}

// pages returns pages with the numbers from 1.
func pages(texts ...string) []inventory.Page {
	var all []inventory.Page
	for i, text := range texts {
		all = append(all, inventory.Page{Number: uint64(i) + 1, Bytes: []byte(text)})
	}
	return all
}

func testMissingSet(s *store) {
	_, err := s.Store.Load(s.ctx, "none")
	s.fails(err, feed.ErrNoSet)
	s.fails(s.Store.Update(s.ctx, "none", update("head", 1)), feed.ErrNoSet)
	s.fails(s.Store.Put(s.ctx, "none", 1, 1, pages("page")), feed.ErrNoSet, inventory.ErrLog)
}

func testRecord(s *store) {
	s.create("set")
	state, err := s.Log.State(s.ctx, "set")
	s.ok(err)
	s.hasRecord("set", "", 0)
	r := s.load("set")
	if r.Log.Begin != state.Begin || r.Log.Set != "set" || state.Begin == 0 || r.Now < state.Begin {
		s.Fatalf("record of a new set: got log %+v and clock %d, want %+v and a later time", r.Log, r.Now, state)
	}
	s.set("set", "one", 7)
	s.hasRecord("set", "one", 7)
	const binary = "\x00two\xff\"\r\n"
	second := update(binary, 8)
	second.Durable = true
	s.ok(s.Store.Update(s.ctx, "set", second))
	s.append("set", 3)
	s.hasRecord("set", binary, 8)
	if r := s.load("set"); r.Log.Head.Position != 3 {
		s.Fatalf("record after an append: got head %v, want position 3", r.Log.Head)
	}
	refused := errors.New("refused")
	other := update("other", 9)
	s.fails(s.Store.Update(s.ctx, "set", inventory.Update{Change: func(r *inventory.Record) error {
		if string(r.Head) != binary || r.Term != 8 {
			s.Errorf("record in Change: got head %q and term %d", r.Head, r.Term)
		}
		return errors.Join(other.Change(r), refused)
	}}), refused)
	s.hasRecord("set", binary, 8)
	largest := strings.Repeat("0123456\xff", inventory.MaxHead/8)
	s.set("set", largest, feed.MaxNumber)
	s.hasRecord("set", largest, feed.MaxNumber)
}

// An Update with a cursor requires that the log has it.
func testCondition(s *store) {
	begin := s.create("set")
	floor := feed.Cursor{Micros: begin}
	a := s.append("set", 5)
	middle := feed.Cursor{Position: a.Cursor.Position - 2, Micros: a.Cursor.Micros - 2}
	for i, at := range []feed.Cursor{{}, floor, middle, a.Cursor} {
		u := update(strconv.Itoa(i), 7)
		u.At = at
		s.ok(s.Store.Update(s.ctx, "set", u))
		s.hasRecord("set", strconv.Itoa(i), 7)
	}
	for _, at := range []feed.Cursor{
		{Position: a.Cursor.Position + 1, Micros: a.Cursor.Micros + 1},
		{Position: a.Cursor.Position, Micros: a.Cursor.Micros + 1},
		{Position: middle.Position, Micros: middle.Micros - 1},
		{Micros: begin - 1},
	} {
		u := update("other", 8)
		u.At = at
		s.fails(s.Store.Update(s.ctx, "set", u), inventory.ErrLog)
		s.hasRecord("set", "3", 7)
	}
}

func testWrongBegin(s *store) {
	begin := s.createWithTerm()
	s.ok(s.Store.Put(s.ctx, "set", begin, 7, pages("page")))
	s.fails(s.Store.Put(s.ctx, "set", begin+1, 7, pages("other")), inventory.ErrLog)
	s.ok(s.Store.Remove(s.ctx, "set", begin+1, 7, []uint64{1}))
	s.hasPages("set", begin+1, []uint64{1}, "-")
	s.hasNumbers("set", begin+1)
	s.hasNumbers("set", begin, 1)
}

func testPutAndGet(s *store) {
	begin := s.createWithTerm()
	binary := []byte("\x00binary\xff\r\n")
	s.ok(s.Store.Put(s.ctx, "set", begin, 7, []inventory.Page{{Number: 5, Bytes: binary}, {Number: 1<<53 - 1, Bytes: []byte("last")}, {Number: 3, Bytes: []byte("three")}}))
	clear(binary) // Put does not retain the bytes
	s.hasPages("set", begin, []uint64{3, 4, 1<<53 - 1, 5, 3}, "three", "-", "last", "\x00binary\xff\r\n", "three")
	s.hasPages("set", begin, nil)
	s.ok(s.Store.Put(s.ctx, "set", begin, 7, []inventory.Page{{Number: 3, Bytes: []byte("three")}})) // again
	s.ok(s.Store.Put(s.ctx, "set", begin, 7, nil))
	s.hasNumbers("set", begin, 3, 5, 1<<53-1)
}

func testLargestPut(s *store) {
	begin := s.createWithTerm()
	var all []inventory.Page
	var numbers []uint64
	var texts []string
	for i := range inventory.MaxNumbers {
		n := uint64(1_700_000_000_000_000 + i)
		text := fmt.Sprintf("page %d %01000d", n, i)
		all = append(all, inventory.Page{Number: n, Bytes: []byte(text)})
		numbers, texts = append(numbers, n), append(texts, text)
	}
	s.ok(s.Store.Put(s.ctx, "set", begin, 7, all))
	s.hasPages("set", begin, numbers, texts...)
	s.hasNumbers("set", begin, numbers...)
	s.ok(s.Store.Remove(s.ctx, "set", begin, 7, numbers))
	s.hasNumbers("set", begin)
	page := strings.Repeat("0123456\xff", 2*inventory.MaxPut/8)
	s.ok(s.Store.Put(s.ctx, "set", begin, 7, []inventory.Page{{Number: 9, Bytes: []byte(page)}}))
	s.hasPages("set", begin, []uint64{9}, page)
}

// Pages are written and removed only under the term of the record.
func testTerms(s *store) {
	begin := s.create("set")
	refused := func(term uint64, numbers ...uint64) {
		s.Helper()
		s.fails(s.Store.Put(s.ctx, "set", begin, term, []inventory.Page{{Number: 9, Bytes: []byte("late")}}), inventory.ErrFenced)
		s.fails(s.Store.Remove(s.ctx, "set", begin, term, []uint64{1}), inventory.ErrFenced)
		s.hasNumbers("set", begin, numbers...)
	}
	refused(0)
	refused(7)
	s.set("set", "head", 7)
	s.ok(s.Store.Put(s.ctx, "set", begin, 7, pages("page")))
	refused(8, 1)
	refused(0, 1)
	s.set("set", "head", 8)
	refused(7, 1)
	s.set("set", "head", 0)
	refused(8, 1)
	refused(0, 1)
}

func testRemove(s *store) {
	begin := s.createWithTerm()
	s.ok(s.Store.Remove(s.ctx, "set", begin, 7, []uint64{1, 2, 3}))
	s.ok(s.Store.Put(s.ctx, "set", begin, 7, pages("1", "2", "3", "4")))
	s.ok(s.Store.Remove(s.ctx, "set", begin, 7, []uint64{2, 9, 4}))
	s.ok(s.Store.Remove(s.ctx, "set", begin, 7, []uint64{4, 2}))
	s.ok(s.Store.Remove(s.ctx, "set", begin, 7, nil))
	s.hasPages("set", begin, []uint64{1, 2, 3, 4}, "1", "-", "3", "-")
	s.hasNumbers("set", begin, 1, 3)
}

// A set that was deleted and created again has nothing of the set before.
func testRecreatedSet(s *store) {
	old := s.create("set")
	s.set("set", "head", 7)
	s.ok(s.Store.Put(s.ctx, "set", old, 7, pages("1", "2")))
	s.ok(s.Log.Delete(s.ctx, "set"))
	_, err := s.Store.Load(s.ctx, "set")
	s.fails(err, feed.ErrNoSet)
	begin := s.create("set")
	if begin <= old {
		s.Fatalf("begin of the new log: got %d, want more than %d", begin, old)
	}
	s.hasRecord("set", "", 0)
	for _, b := range []int64{old, begin} {
		s.fails(s.Store.Put(s.ctx, "set", b, 7, pages("late")), inventory.ErrFenced, inventory.ErrLog)
		s.hasPages("set", b, []uint64{1, 2}, "-", "-")
	}
	s.set("set", "new", 8)
	s.ok(s.Store.Remove(s.ctx, "set", old, 7, []uint64{1, 2}))
	s.ok(s.Store.Put(s.ctx, "set", begin, 8, pages("one")))
	s.ok(s.Store.Remove(s.ctx, "set", old, 8, []uint64{1}))
	s.hasPages("set", begin, []uint64{1, 2}, "one", "-")
	s.hasNumbers("set", begin, 1)
}

func testTwoSets(s *store) {
	one, two := s.create("one"), s.create("one.two")
	s.set("one", "head of one", 7)
	s.set("one.two", "head of two", 7)
	s.ok(s.Store.Put(s.ctx, "one", one, 7, pages("1")))
	s.ok(s.Store.Put(s.ctx, "one.two", two, 7, pages("2", "3")))
	s.ok(s.Log.Delete(s.ctx, "one"))
	s.hasRecord("one.two", "head of two", 7)
	s.hasNumbers("one.two", two, 1, 2)
	s.hasPages("one.two", two, []uint64{1}, "2")
}

// No concurrent update is lost.
func testConcurrentUpdates(s *store) {
	s.create("set")
	const hubs, times = 4, 20
	var wg sync.WaitGroup
	for hub := range hubs {
		wg.Go(func() {
			for range times {
				if err := s.Store.Update(s.ctx, "set", inventory.Update{Change: func(r *inventory.Record) error {
					r.Head = append(slices.Clip(r.Head), byte('0'+hub))
					r.Term++
					return nil
				}}); err != nil {
					s.Error(err)
				}
			}
		})
	}
	wg.Wait()
	r := s.load("set")
	for hub := range hubs {
		if n := bytes.Count(r.Head, []byte{byte('0' + hub)}); n != times || r.Term != hubs*times {
			s.Errorf("updates of hub %d: got %d, want %d; term: got %d, want %d", hub, n, times, r.Term, hubs*times)
		}
	}
}
