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
	{"random", true, func(m *memory) { m.compareRandom(false) }},
	{"random, with a clock that goes wrong", true, func(m *memory) { m.compareRandom(true) }},
}

// compareRandom compares a memory with a model of it, after each of many random steps. With -short
// it makes one run instead of four. If wild is true, the clock goes wrong.
func (m *memory) compareRandom(wild bool) {
	tombstones := make(map[string]changelog.Tombstone)
	seed := testutil.Seed(m.T)
	runs := uint64(4)
	if testing.Short() {
		runs = 1
	}
	for i := range runs {
		r := &modelRun{memory: m, Rand: rand.New(rand.NewPCG(seed, i)), sets: make(map[string]*modelSet), tombstones: tombstones, wild: wild}
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
	entries []feed.Entry // entries after the floor
	keys    map[string]changelog.Appended
	hashes  map[string]byte
	unsure  map[string]bool // keys that Trim may have removed or not; setting back the clock does not resolve that
}

// A modelRun executes random steps on a memory and its model, and compares all results.
type modelRun struct {
	*memory
	*rand.Rand
	sets       map[string]*modelSet
	tombstones map[string]changelog.Tombstone // tombstones of deleted sets
	wild       bool                           // whether the clock goes wrong
	off        time.Duration                  // present error of the clock
}

var modelNames = []string{"a", "a-b", "a.b"}

func (r *modelRun) step() {
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

// compare compares the states of all sets.
func (r *modelRun) compare() {
	r.Helper()
	states, err := r.Sets(r.ctx)
	r.ok(err)
	var want []feed.State
	for _, s := range r.sets {
		want = append(want, s.State)
	}
	slices.SortFunc(want, func(a, b feed.State) int { return strings.Compare(a.Set, b.Set) })
	r.wantEqual("number of sets", len(states), len(want))
	for i := range want {
		r.wantEqual("state", states[i], want[i])
	}
}

func (r *modelRun) make(set string) {
	r.Helper()
	size := 1 + r.IntN(12)
	r.ok(r.Make(r.ctx, set, feed.Description{}, size))
	begin, prior := r.now(), r.tombstones[set]
	if prior.End <= begin+skew.Microseconds() {
		begin = max(begin, prior.End+1)
	}
	if prior.Latest < begin {
		prior.Latest = 0
	}
	floor := feed.Cursor{Micros: begin}
	r.sets[set] = &modelSet{
		State: feed.State{Set: set, ListSize: size, Begin: begin, PriorMicros: prior.Latest, Floor: floor, Head: floor, BeforeLatest: floor},
		keys:  make(map[string]changelog.Appended), hashes: make(map[string]byte), unsure: make(map[string]bool),
	}
}

func (r *modelRun) delete(set string) {
	r.Helper()
	s := r.sets[set]
	r.ok(r.Delete(r.ctx, set))
	left := changelog.Tombstone{End: s.Head.Micros, Latest: max(r.tombstones[set].Latest, s.Head.Micros)}
	if s.Head.Micros > r.now()+skew.Microseconds() {
		left.End = min(s.Head.Micros, max(r.now(), s.Begin))
	}
	r.tombstones[set] = left
	delete(r.sets, set)
}

// tick moves the clock, usually a little, sometimes far, sometimes back.
func (r *modelRun) tick() {
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

func (r *modelRun) append(s *modelSet) {
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
		r.wantErr(feed.ErrClock, err)
		return
	}
	r.ok(err)
	for i, p := range publishes {
		known := seen(p.Key)
		barred := !known && seen(p.Unless)
		want := s.keys[p.Key]
		switch {
		case barred, known && s.hashes[p.Key] != p.Hash[0]:
			r.wantErr(feed.ErrKeyReused, got[i].Err)
			continue
		case known:
			want.Replayed = true
		default:
			want = s.add(p, r.now())
		}
		r.checkBlocks(p, &got[i])
		r.wantEqual("Appended", got[i], want)
	}
}

// key returns a key, or "" if it is uncertain whether the set still knows it, because the clock
// that measures its age may differ by the skew.
func (r *modelRun) key(s *modelSet) string {
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

// add appends a publish to the model, and returns the expected result.
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
func (r *modelRun) cursor(s *modelSet) feed.Cursor {
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

func (r *modelRun) since(s *modelSet) {
	r.Helper()
	c, limit := r.cursor(s), 1+r.IntN(40)
	got, err := r.Since(r.ctx, s.Set, c, limit)
	after, diverged, gone := s.verify(c)
	if gone {
		r.wantErr(feed.ErrGone, err)
		return
	}
	r.ok(err)
	r.wantEqual("diverged", got.Diverged, diverged)
	r.wantEqual("after", got.After, after)
	rest := s.entries[s.index(after.Position):]
	if n := len(got.Entries); n > limit || n > len(rest) || n == 0 && len(rest) > 0 {
		r.Fatalf("got %d entries of %d, limit %d", n, len(rest), limit)
	}
	cursor := after
	for i, e := range got.Entries {
		r.wantEqual("entry", e, rest[i])
		cursor = e.Cursor
	}
	r.wantEqual("cursor", got.Cursor, cursor)
}

// index returns the index of the first entry after a position.
func (s *modelSet) index(position uint64) int {
	return int(max(position, s.Floor.Position) - s.Floor.Position)
}

// verify returns the expected result of Since for the cursor c.
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

func (r *modelRun) seek(s *modelSet) {
	r.Helper()
	micros := r.cursor(s).Micros
	got, err := r.Seek(r.ctx, s.Set, micros)
	if micros < s.Floor.Micros || micros == s.Floor.Micros && s.Floor.Position > 0 {
		r.wantErr(feed.ErrGone, err)
		return
	}
	r.ok(err)
	want := s.Floor
	if n := sort.Search(len(s.entries), func(i int) bool { return s.entries[i].Micros >= micros }); n > 0 {
		want = s.entries[n-1].Cursor
	}
	r.wantEqual("cursor", got, want)
}

func (r *modelRun) at(s *modelSet) {
	r.Helper()
	position := r.cursor(s).Position
	got, err := r.At(r.ctx, s.Set, position)
	switch {
	case position < s.Floor.Position:
		r.wantErr(feed.ErrGone, err)
	case position > s.Head.Position:
		r.wantErr(resourcesync.ErrInvalid, err)
	case position == s.Floor.Position:
		r.wantEqual("cursor", got, s.Floor)
	default:
		r.wantEqual("cursor", got, s.entries[s.index(position)-1].Cursor)
	}
	if err != nil && errors.Is(err, feed.ErrGone) == errors.Is(err, resourcesync.ErrInvalid) {
		r.Fatal(err)
	}
}

func (r *modelRun) trim(s *modelSet) {
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
	r.wantEqual("removed", got, removed)
	for key, a := range s.keys {
		age := r.now() - a.Cursor.Micros
		if age > changelog.KeyAge.Microseconds()-2*skew.Microseconds() {
			s.unsure[key] = age < changelog.KeyAge.Microseconds()+2*skew.Microseconds()
			delete(s.keys, key)
		}
	}
}
