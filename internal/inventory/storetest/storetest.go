// Package storetest is the contract of inventory.Store as a test suite, and a comparison of
// inventories on it with a plain map.
//
// Each store runs both in tests of its own: diskpages, disklog, redislog, and inventory.Memory.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/resourcesync"
)

// An Env is an empty store, and the log beside which it keeps its pages.
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

// Store runs the contract of a Store. Every test has an Env of its own, which open makes
// and cleans up when the test ends.
func Store(t *testing.T, open func(t *testing.T) Env) {
	for _, test := range []struct {
		name string
		run  func(s *store)
	}{
		{"no set", noSet},
		{"a record", record},
		{"a large head", largeHead},
		{"another log", anotherLog},
		{"what the log holds", holds},
		{"put and get", putAndGet},
		{"many pages", manyPages},
		{"a large page", largePage},
		{"only the attempt puts", onlyTheAttempt},
		{"remove", remove},
		{"a set made anew", madeAnew},
		{"two sets", twoSets},
		{"swaps at once", swapsAtOnce},
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

func (s *store) fails(err error, want ...error) {
	s.Helper()
	for _, w := range want {
		if errors.Is(err, w) {
			return
		}
	}
	s.Fatalf("error %v, want %v", err, want)
}

func (s *store) make(set string) int64 {
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

// swap swaps the head and the attempt of the record that is there.
func (s *store) swap(set, head string, attempt uint64) {
	s.Helper()
	r := s.load(set)
	s.ok(s.Store.Swap(s.ctx, set, inventory.Swap{Begin: r.Log.Begin, Version: r.Version, Attempt: attempt, Head: []byte(head)}))
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

// get returns pages as text, and "-" for a page that is not there.
func (s *store) get(set string, begin int64, numbers ...uint64) []string {
	s.Helper()
	pages, err := s.Store.Get(s.ctx, set, begin, numbers)
	s.ok(err)
	if len(pages) != len(numbers) {
		s.Fatalf("Get returned %d pages for %d numbers", len(pages), len(numbers))
	}
	var texts []string
	for _, p := range pages {
		text := "-"
		if p != nil {
			text = string(p)
		}
		texts = append(texts, text)
	}
	return texts
}

func (s *store) holds(set string, begin int64, want ...uint64) {
	s.Helper()
	var got []uint64
	for n, err := range s.Store.Numbers(s.ctx, set, begin) {
		s.ok(err)
		got = append(got, n)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		s.Fatalf("the store has pages %v, want %v", got, want)
	}
}

func pages(texts ...string) []inventory.Page {
	var all []inventory.Page
	for i, text := range texts {
		all = append(all, inventory.Page{Number: uint64(i) + 1, Bytes: []byte(text)})
	}
	return all
}

func noSet(s *store) {
	_, err := s.Store.Load(s.ctx, "none")
	s.fails(err, feed.ErrNoSet)
	s.fails(s.Store.Swap(s.ctx, "none", inventory.Swap{Begin: 1, Attempt: 1, Head: []byte("head")}), feed.ErrNoSet, inventory.ErrLog)
	s.fails(s.Store.Put(s.ctx, "none", 1, 1, pages("page")), feed.ErrNoSet, inventory.ErrRaced)
}

func record(s *store) {
	s.make("set")
	state, err := s.Log.State(s.ctx, "set")
	s.ok(err)
	r := s.load("set")
	if r.Version != 0 || r.Attempt != 0 || len(r.Head) != 0 || r.Log.Begin != state.Begin || r.Log.Set != "set" {
		s.Fatalf("the record of a set without an inventory is %+v", r)
	}
	if state.Begin == 0 || r.Now < state.Begin {
		s.Fatalf("the clock of the store says %d, and the log began at %d", r.Now, state.Begin)
	}
	first := inventory.Swap{Begin: r.Log.Begin, Attempt: 7, Head: []byte("one")}
	s.ok(s.Store.Swap(s.ctx, "set", first))
	one := s.load("set")
	if one.Version == 0 || one.Attempt != 7 || string(one.Head) != "one" {
		s.Fatalf("after the first swap the record is %+v", one)
	}
	s.fails(s.Store.Swap(s.ctx, "set", first), inventory.ErrRaced)
	second := inventory.Swap{Begin: r.Log.Begin, Version: one.Version, Head: []byte("\x00two\xff\"\r\n"), Durable: true}
	s.ok(s.Store.Swap(s.ctx, "set", second))
	two := s.load("set")
	if two.Version == one.Version || two.Version == 0 || two.Attempt != 0 || !bytes.Equal(two.Head, second.Head) {
		s.Fatalf("after the second swap the record is %+v", two)
	}
	s.fails(s.Store.Swap(s.ctx, "set", second), inventory.ErrRaced)
	s.append("set", 3)
	if r := s.load("set"); r.Log.Head.Position != 3 || r.Version != two.Version || r.Now < r.Log.Begin {
		s.Fatalf("after an append the record is %+v", r)
	}
}

func largeHead(s *store) {
	s.make("set")
	head := string(bytes.Repeat([]byte("0123456\xff"), inventory.MaxHead/8))
	s.swap("set", head, 1<<53-1)
	if r := s.load("set"); string(r.Head) != head || r.Attempt != 1<<53-1 {
		s.Fatalf("a head of %d bytes came back with %d, and the attempt %d", len(head), len(r.Head), r.Attempt)
	}
}

func anotherLog(s *store) {
	begin := s.make("set")
	s.fails(s.Store.Swap(s.ctx, "set", inventory.Swap{Begin: begin + 1, Head: []byte("head")}), inventory.ErrLog)
	s.swap("set", "head", 7)
	version := s.load("set").Version
	s.fails(s.Store.Swap(s.ctx, "set", inventory.Swap{Begin: begin - 1, Version: version, Head: []byte("other")}), inventory.ErrLog)
	if r := s.load("set"); string(r.Head) != "head" || r.Version != version {
		s.Fatalf("the record is %+v", r)
	}
	s.ok(s.Store.Put(s.ctx, "set", begin, 7, pages("page")))
	s.fails(s.Store.Put(s.ctx, "set", begin+1, 7, pages("other")), inventory.ErrRaced, inventory.ErrLog)
	s.ok(s.Store.Remove(s.ctx, "set", begin+1, []uint64{1}))
	if got := s.get("set", begin+1, 1); got[0] != "-" {
		s.Fatalf("another log has the page %q", got)
	}
	s.holds("set", begin+1)
	s.holds("set", begin, 1)
}

func holds(s *store) {
	begin := s.make("set")
	swap := func(at feed.Cursor) error {
		return s.Store.Swap(s.ctx, "set", inventory.Swap{Begin: begin, Version: s.load("set").Version, At: at, Head: []byte("head")})
	}
	floor := feed.Cursor{Micros: begin}
	s.ok(swap(feed.Cursor{}))
	s.ok(swap(floor))
	a := s.append("set", 5)
	middle := feed.Cursor{Position: a.Cursor.Position - 2, Micros: a.Cursor.Micros - 2}
	s.ok(swap(a.Cursor))
	s.ok(swap(middle))
	s.ok(swap(floor))
	for _, at := range []feed.Cursor{
		{Position: a.Cursor.Position + 1, Micros: a.Cursor.Micros + 1},
		{Position: a.Cursor.Position, Micros: a.Cursor.Micros + 1},
		{Position: middle.Position, Micros: middle.Micros - 1},
		{Micros: begin - 1},
	} {
		version := s.load("set").Version
		if err := swap(at); !errors.Is(err, inventory.ErrLog) {
			s.Errorf("swap at %v, which is not in the log: %v", at, err)
		}
		if s.load("set").Version != version {
			s.Errorf("the swap at %v was done", at)
		}
	}
}

func putAndGet(s *store) {
	begin := s.make("set")
	s.swap("set", "head", 7)
	bytes := []byte("\x00binary\xff\r\n")
	s.ok(s.Store.Put(s.ctx, "set", begin, 7, []inventory.Page{{Number: 5, Bytes: bytes}, {Number: 1<<53 - 1, Bytes: []byte("last")}, {Number: 3, Bytes: []byte("three")}}))
	clear(bytes) // Put does not keep them
	if got := s.get("set", begin, 3, 4, 1<<53-1, 5, 3); !slices.Equal(got, []string{"three", "-", "last", "\x00binary\xff\r\n", "three"}) {
		s.Fatalf("the pages are %q", got)
	}
	s.ok(s.Store.Put(s.ctx, "set", begin, 7, []inventory.Page{{Number: 3, Bytes: []byte("three")}})) // again
	s.ok(s.Store.Put(s.ctx, "set", begin, 7, nil))
	s.holds("set", begin, 3, 5, 1<<53-1)
	if got := s.get("set", begin); len(got) != 0 {
		s.Fatalf("no number got %q", got)
	}
}

func manyPages(s *store) {
	begin := s.make("set")
	s.swap("set", "head", 7)
	var all []inventory.Page
	var numbers []uint64
	for i := range inventory.MaxNumbers {
		n := uint64(1_700_000_000_000_000 + i)
		all = append(all, inventory.Page{Number: n, Bytes: fmt.Appendf(nil, "page %d %01000d", n, i)})
		numbers = append(numbers, n)
	}
	s.ok(s.Store.Put(s.ctx, "set", begin, 7, all))
	got := s.get("set", begin, numbers...)
	for i := range got {
		if got[i] != string(all[i].Bytes) {
			s.Fatalf("page %d is %.30q", numbers[i], got[i])
		}
	}
	s.holds("set", begin, numbers...)
	s.ok(s.Store.Remove(s.ctx, "set", begin, numbers))
	s.holds("set", begin)
}

func largePage(s *store) {
	begin := s.make("set")
	s.swap("set", "head", 7)
	page := bytes.Repeat([]byte("0123456\xff"), 2*inventory.MaxPut/8)
	s.ok(s.Store.Put(s.ctx, "set", begin, 7, []inventory.Page{{Number: 9, Bytes: page}}))
	if got := s.get("set", begin, 9); got[0] != string(page) {
		s.Fatalf("a page of %d bytes came back with %d", len(page), len(got[0]))
	}
}

func onlyTheAttempt(s *store) {
	begin := s.make("set")
	refused := func(attempt uint64) {
		s.Helper()
		s.fails(s.Store.Put(s.ctx, "set", begin, attempt, pages("late")), inventory.ErrRaced)
		s.holds("set", begin)
	}
	refused(0)
	refused(7)
	s.swap("set", "head", 7)
	refused(8)
	refused(0)
	s.swap("set", "head", 8)
	refused(7)
	s.swap("set", "head", 0)
	refused(8)
	refused(0)
}

func remove(s *store) {
	begin := s.make("set")
	s.ok(s.Store.Remove(s.ctx, "set", begin, []uint64{1, 2, 3}))
	s.swap("set", "head", 7)
	s.ok(s.Store.Put(s.ctx, "set", begin, 7, pages("1", "2", "3", "4")))
	s.ok(s.Store.Remove(s.ctx, "set", begin, []uint64{2, 9, 4}))
	s.ok(s.Store.Remove(s.ctx, "set", begin, []uint64{4, 2}))
	s.ok(s.Store.Remove(s.ctx, "set", begin, nil))
	if got := s.get("set", begin, 1, 2, 3, 4); !slices.Equal(got, []string{"1", "-", "3", "-"}) {
		s.Fatalf("the pages are %q", got)
	}
	s.holds("set", begin, 1, 3)
}

func madeAnew(s *store) {
	old := s.make("set")
	s.swap("set", "head", 7)
	s.ok(s.Store.Put(s.ctx, "set", old, 7, pages("1", "2")))
	s.ok(s.Log.Delete(s.ctx, "set"))
	_, err := s.Store.Load(s.ctx, "set")
	s.fails(err, feed.ErrNoSet)
	begin := s.make("set")
	if begin <= old {
		s.Fatalf("the set made anew began at %d, and the one before at %d", begin, old)
	}
	if r := s.load("set"); r.Version != 0 || r.Attempt != 0 || len(r.Head) != 0 {
		s.Fatalf("the record of the set made anew is %+v", r)
	}
	for _, b := range []int64{old, begin} {
		s.fails(s.Store.Put(s.ctx, "set", b, 7, pages("late")), inventory.ErrRaced, inventory.ErrLog)
		if got := s.get("set", b, 1, 2); !slices.Equal(got, []string{"-", "-"}) {
			s.Fatalf("the set made anew has the pages %q", got)
		}
	}
	s.fails(s.Store.Swap(s.ctx, "set", inventory.Swap{Begin: old, Head: []byte("late")}), inventory.ErrLog)
	s.swap("set", "anew", 8)
	s.ok(s.Store.Remove(s.ctx, "set", old, []uint64{1, 2}))
	s.ok(s.Store.Put(s.ctx, "set", begin, 8, pages("one")))
	s.ok(s.Store.Remove(s.ctx, "set", old, []uint64{1}))
	if got := s.get("set", begin, 1, 2); !slices.Equal(got, []string{"one", "-"}) {
		s.Fatalf("the set made anew has the pages %q", got)
	}
	s.holds("set", begin, 1)
}

func twoSets(s *store) {
	one, two := s.make("one"), s.make("one.two")
	s.swap("one", "head of one", 7)
	s.swap("one.two", "head of two", 7)
	s.ok(s.Store.Put(s.ctx, "one", one, 7, pages("1")))
	s.ok(s.Store.Put(s.ctx, "one.two", two, 7, pages("2", "3")))
	s.ok(s.Log.Delete(s.ctx, "one"))
	if r := s.load("one.two"); string(r.Head) != "head of two" {
		s.Fatalf("the record is %+v", r)
	}
	s.holds("one.two", two, 1, 2)
	if got := s.get("one.two", two, 1); got[0] != "2" {
		s.Fatalf("the page is %q", got)
	}
}

// swapsAtOnce makes several swaps of the same record at once. Only one may
// succeed.
func swapsAtOnce(s *store) {
	begin := s.make("set")
	const hubs, times = 4, 20
	for round := range times {
		r := s.load("set")
		errs := make([]error, hubs)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				errs[i] = s.Store.Swap(s.ctx, "set", inventory.Swap{Begin: begin, Version: r.Version, Head: append(slices.Clip(r.Head), byte('0'+i))})
			})
		}
		wg.Wait()
		done := -1
		for i, err := range errs {
			switch {
			case err == nil && done >= 0:
				s.Fatalf("round %d: hubs %d and %d both swapped the same record", round, done, i)
			case err == nil:
				done = i
			default:
				s.fails(err, inventory.ErrRaced)
			}
		}
		if done < 0 {
			s.Fatalf("round %d: nobody swapped the record", round)
		}
		if head := s.load("set").Head; len(head) != round+1 || head[round] != byte('0'+done) {
			s.Fatalf("round %d: the head is %q, and hub %d swapped it", round, head, done)
		}
	}
}
