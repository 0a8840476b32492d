package logtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/resourcesync"
)

var modelTests = []test{
	{"random", true, func(m *memory) { m.random(false) }},
	{"random, with a clock that goes wrong", true, func(m *memory) { m.random(true) }},
}

// random compares a memory with the model of it, step by step. With -short it makes one
// run instead of four.
func (m *memory) random(wild bool) {
	was := make(map[string]changelog.Tombstone)
	seed := testutil.Seed(m.T)
	runs := uint64(4)
	if testing.Short() {
		runs = 1
	}
	for i := range runs {
		r := &run{memory: m, Rand: rand.New(rand.NewPCG(seed, i)), sets: make(map[string]*modelSet), was: was, wild: wild}
		for range 1_000 {
			r.step()
		}
		for set := range r.sets {
			r.delete(set)
		}
	}
}

// A modelSet is the expected state of a set.
type modelSet struct {
	feed.State
	entries []feed.Entry // behind the floor
	keys    map[string]changelog.Appended
	hashes  map[string]byte
	unsure  map[string]bool // keys that Trim may have forgotten or not; a clock that is set back does not make them clear
}

// A run drives a memory and the model of it, and compares all answers.
type run struct {
	*memory
	*rand.Rand
	sets map[string]*modelSet
	was  map[string]changelog.Tombstone // by deleted sets
	wild bool                           // the clock goes wrong
	off  time.Duration                  // by how much it is wrong now
}

var modelNames = []string{"a", "a-b", "a.b"}

func (r *run) step() {
	r.Helper()
	set := modelNames[r.IntN(len(modelNames))]
	s := r.sets[set]
	if s == nil {
		r.make(set)
		return
	}
	switch n := r.IntN(100); {
	case n < 35:
		r.append(s)
	case n < 60:
		r.since(s)
	case n < 70:
		r.seek(s)
	case n < 80:
		r.at(s)
	case n < 86:
		r.trim(s)
	case n < 96:
		r.tick()
	case n < 97:
		s.Description = feed.Description{Title: fmt.Sprint(r.Uint32()), ChangeList: fmt.Sprint("https://example.org/", r.Uint32()), NoInventory: r.IntN(2) == 0, Private: r.IntN(2) == 0, Every: time.Duration(r.IntN(2)) * time.Minute}
		r.ok(r.Describe(r.ctx, set, s.Description))
	case n < 98 && r.IntN(4) == 0:
		r.delete(set)
	case n < 99:
		r.reopen()
	}
	r.compare()
}

func (r *run) compare() {
	r.Helper()
	states, err := r.Sets(r.ctx)
	r.ok(err)
	var want []feed.State
	for _, s := range r.sets {
		want = append(want, s.State)
	}
	slices.SortFunc(want, func(a, b feed.State) int { return strings.Compare(a.Set, b.Set) })
	r.same("number of sets", len(states), len(want))
	for i := range want {
		r.same("state", states[i], want[i])
	}
}

func (r *run) make(set string) {
	r.Helper()
	size := 1 + r.IntN(12)
	r.ok(r.Make(r.ctx, set, feed.Description{}, size))
	begin, was := r.now(), r.was[set]
	if was.End <= begin+skew.Microseconds() {
		begin = max(begin, was.End+1)
	}
	if was.Latest < begin {
		was.Latest = 0
	}
	floor := feed.Cursor{Micros: begin}
	r.sets[set] = &modelSet{
		State: feed.State{Set: set, ListSize: size, Begin: begin, PriorMicros: was.Latest, Floor: floor, Head: floor, BeforeLatest: floor},
		keys:  make(map[string]changelog.Appended), hashes: make(map[string]byte), unsure: make(map[string]bool),
	}
}

func (r *run) delete(set string) {
	r.Helper()
	s := r.sets[set]
	r.ok(r.Delete(r.ctx, set))
	left := changelog.Tombstone{End: s.Head.Micros, Latest: max(r.was[set].Latest, s.Head.Micros)}
	if s.Head.Micros > r.now()+skew.Microseconds() {
		left.End = min(s.Head.Micros, max(r.now(), s.Begin))
	}
	r.was[set] = left
	delete(r.sets, set)
}

// tick moves the clock, mostly a little, sometimes far, sometimes back.
func (r *run) tick() {
	if r.wild && r.IntN(20) == 0 {
		off := time.Duration(r.IntN(3)) * 100 * 24 * time.Hour
		r.clock.advance(off - r.off)
		r.off = off
	}
	switch n := r.IntN(20); {
	case n < 10:
		r.clock.advance(time.Duration(r.IntN(200_000)) * time.Microsecond)
	case n < 16:
		r.clock.advance(time.Duration(r.IntN(200)) * time.Second)
	case n < 18:
		r.clock.advance(-time.Duration(r.IntN(40)) * time.Second)
	case n < 19:
		r.clock.advance(-time.Duration(r.IntN(100)) * time.Microsecond)
	default:
		r.clock.advance(time.Duration(r.IntN(30)) * time.Hour)
	}
}

func (r *run) append(s *modelSet) {
	r.Helper()
	publishes := make([]changelog.Publish, 1+r.IntN(3)*r.IntN(2))
	for i := range publishes {
		p := publish(1 + r.IntN(3)*r.IntN(15))
		if r.IntN(3) == 0 {
			p.Key = r.key(s)
			p.Hash[0] = byte(r.IntN(4) / 3)
		}
		if r.IntN(6) == 0 {
			p.Unless = r.key(s)
		}
		publishes[i] = p
	}
	got, err := r.Append(r.ctx, s.Set, publishes...)
	seen := func(key string) bool {
		a, ok := s.keys[key]
		return ok && r.now()-a.Cursor.Micros <= changelog.KeyAge.Microseconds()
	}
	if s.Head.Micros > r.now()+skew.Microseconds() && slices.ContainsFunc(publishes, func(p changelog.Publish) bool { return !seen(p.Key) && !seen(p.Unless) }) {
		r.wants(feed.ErrClock, err)
		return
	}
	r.ok(err)
	for i, p := range publishes {
		known := seen(p.Key)
		barred := !known && seen(p.Unless)
		want := s.keys[p.Key]
		switch {
		case barred, known && s.hashes[p.Key] != p.Hash[0]:
			r.wants(feed.ErrKeyReused, got[i].Err)
			continue
		case known:
			want.Replayed = true
		default:
			want = s.add(p, r.now())
		}
		r.blocks(p, &got[i])
		r.same("answer", got[i], want)
	}
}

// key returns a key, or none if it is unclear whether the set still knows it: the clock
// that the age was or is measured by may differ by the skew.
func (r *run) key(s *modelSet) string {
	key := fmt.Sprint("key", r.IntN(20))
	if s.unsure[key] {
		return ""
	}
	if old, ok := s.keys[key]; ok {
		if age := r.now() - old.Cursor.Micros; max(age, changelog.KeyAge.Microseconds())-min(age, changelog.KeyAge.Microseconds()) < 2*skew.Microseconds() {
			return ""
		}
	}
	return key
}

func (s *modelSet) add(p changelog.Publish, now int64) changelog.Appended {
	a := changelog.Appended{After: s.Head, Count: len(p.Changes)}
	for _, c := range p.Changes {
		s.Head = feed.Cursor{Position: s.Head.Position + 1, Micros: max(now, s.Head.Micros+1)}
		s.entries = append(s.entries, feed.Entry{Cursor: s.Head, Change: c})
	}
	a.Cursor, s.BeforeLatest = s.Head, a.After
	if p.Key != "" {
		s.keys[p.Key], s.hashes[p.Key] = a, p.Hash[0]
	}
	return a
}

// cursor returns a cursor that a destination might have.
func (r *run) cursor(s *modelSet) feed.Cursor {
	c := s.Floor
	switch n := r.IntN(12); {
	case n == 0:
		return feed.Cursor{}
	case n == 1:
		c = s.Head
	case n > 2 && len(s.entries) > 0:
		c = s.entries[r.IntN(len(s.entries))].Cursor
	}
	if r.IntN(3) == 0 {
		c.Position = uint64(max(0, int64(c.Position)+int64(r.IntN(9)-4)))
	}
	if r.IntN(3) == 0 {
		c.Micros += []int64{1, 1000, 1_000_000, 60_000_000, 100_000_000}[r.IntN(5)] * int64(r.IntN(3)-1)
	}
	return c
}

func (r *run) since(s *modelSet) {
	r.Helper()
	c, limit := r.cursor(s), 1+r.IntN(40)
	got, err := r.Since(r.ctx, s.Set, c, limit)
	after, diverged, gone := s.verify(c)
	if gone {
		r.wants(feed.ErrGone, err)
		return
	}
	r.ok(err)
	r.same("diverged", got.Diverged, diverged)
	r.same("after", got.After, after)
	rest := s.entries[s.index(after.Position):]
	if n := len(got.Entries); n > limit || n > len(rest) || n == 0 && len(rest) > 0 {
		r.Fatalf("%d entries of %d, limit %d", n, len(rest), limit)
	}
	cursor := after
	for i, e := range got.Entries {
		r.same("entry", e, rest[i])
		cursor = e.Cursor
	}
	r.same("cursor", got.Cursor, cursor)
}

// index is where the entries after a position begin.
func (s *modelSet) index(position uint64) int {
	return int(max(position, s.Floor.Position) - s.Floor.Position)
}

func (s *modelSet) verify(c feed.Cursor) (after feed.Cursor, diverged, gone bool) {
	if c == s.Floor || c.IsZero() && s.Floor.Position == 0 {
		return c, false, false
	}
	for _, e := range s.entries {
		if e.Cursor == c {
			return c, false, false
		}
	}
	if c.Micros < s.Floor.Micros || c.Micros <= s.PriorMicros {
		return c, false, true
	}
	after = s.Floor
	for _, e := range s.entries {
		if e.Position < c.Position && e.Micros <= c.Micros-skew.Microseconds() {
			after = e.Cursor
		}
	}
	return after, true, false
}

func (r *run) seek(s *modelSet) {
	r.Helper()
	micros := r.cursor(s).Micros
	got, err := r.Seek(r.ctx, s.Set, micros)
	if micros < s.Floor.Micros || micros == s.Floor.Micros && s.Floor.Position > 0 {
		r.wants(feed.ErrGone, err)
		return
	}
	r.ok(err)
	want := s.Floor
	if n := sort.Search(len(s.entries), func(i int) bool { return s.entries[i].Micros >= micros }); n > 0 {
		want = s.entries[n-1].Cursor
	}
	r.same("cursor", got, want)
}

func (r *run) at(s *modelSet) {
	r.Helper()
	position := r.cursor(s).Position
	got, err := r.At(r.ctx, s.Set, position)
	switch {
	case position < s.Floor.Position:
		r.wants(feed.ErrGone, err)
	case position > s.Head.Position:
		r.wants(resourcesync.ErrInvalid, err)
	case position == s.Floor.Position:
		r.same("cursor", got, s.Floor)
	default:
		r.same("cursor", got, s.entries[s.index(position)-1].Cursor)
	}
	if err != nil && errors.Is(err, feed.ErrGone) == errors.Is(err, resourcesync.ErrInvalid) {
		r.Fatal(err)
	}
}

func (r *run) trim(s *modelSet) {
	r.Helper()
	var ret changelog.Retention
	if r.IntN(2) == 0 {
		ret.Age = time.Duration(r.IntN(2000)) * time.Second
	}
	if r.IntN(2) == 0 {
		ret.Count = uint64(r.IntN(60))
	}
	if r.IntN(4) == 0 {
		ret.Unread = &feed.Cursor{Position: uint64(r.IntN(1 + int(s.Head.Position)))}
	}
	removed := 0
	k := uint64(s.ListSize)
	for {
		oldest, open := s.Lists()
		if oldest+1 >= open {
			break
		}
		last := s.entries[k-1]
		old := ret.Age > 0 && last.Micros < r.now()-ret.Age.Microseconds()
		many := ret.Count > 0 && s.Head.Position-last.Position >= ret.Count
		if !old && !many || ret.Unread != nil && last.Position > ret.Unread.Position {
			break
		}
		s.Floor = last.Cursor
		s.entries = s.entries[k:]
		removed += int(k)
	}
	got, err := r.Trim(r.ctx, s.Set, ret)
	r.ok(err)
	r.same("removed", got, removed)
	for key, a := range s.keys {
		age := r.now() - a.Cursor.Micros
		if age > changelog.KeyAge.Microseconds()-2*skew.Microseconds() {
			s.unsure[key] = age < changelog.KeyAge.Microseconds()+2*skew.Microseconds()
			delete(s.keys, key)
		}
	}
}
