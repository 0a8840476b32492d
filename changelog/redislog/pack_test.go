package redislog

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// lengths returns the number of packed and live blocks.
func lengths(t *testing.T, l *Log) (packed, live int64) {
	t.Helper()
	admin, keys := shared.admin(t), l.keys("set")
	return admin.HLen(t.Context(), keys[1]).Val(), admin.HLen(t.Context(), keys[2]).Val()
}

// singles adds n publishes of one change, several per call.
func singles(t *testing.T, l *Log, what string, n int) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	for n > 0 {
		p := make([]changelog.Publish, min(n, 1+random.IntN(20)))
		for i := range p {
			p[i].Changes = changes(fmt.Sprint(what, n-i), 1)
		}
		_, err := l.Append(t.Context(), "set", p...)
		ok(t, err)
		n -= len(p)
	}
}

// views returns the results of all reads of a log.
func views(t *testing.T, l *Log, entries []feed.Entry) []any {
	t.Helper()
	ctx := t.Context()
	views := []any{state(t, l), all(t, l, feed.Cursor{})}
	if len(views[1].([]feed.Entry)) != len(entries) {
		t.Fatal("entries are missing")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < len(entries); i += 1 + random.IntN(2)*len(entries)/100 {
		c := entries[i].Cursor
		at, err := l.At(ctx, "set", c.Position)
		ok(t, err)
		seek, err := l.Seek(ctx, "set", c.Micros)
		ok(t, err)
		if at != c || seek.Position != c.Position-1 {
			t.Fatalf("At(%v) = %v, Seek() of its datetime = %v, want the cursor and the previous position", c, at, seek)
		}
		for _, c := range []feed.Cursor{c, {Position: c.Position, Micros: c.Micros + 1}} {
			b, err := l.Since(ctx, "set", c, 3)
			ok(t, err)
			after := int(b.After.Position)
			want := entries[after:min(after+3, len(entries))]
			if len(b.Entries) < len(want) { // a read may end early, but not empty
				want = want[:max(1, len(b.Entries))]
			}
			if b.Diverged != (c != entries[i].Cursor) || !slices.EqualFunc(b.Entries, want, same) {
				t.Fatalf("Since(%v) = %v, Diverged = %t; want %v", c, b.Entries, b.Diverged, want)
			}
		}
	}
	return views
}

func same(a, b feed.Entry) bool { return reflect.DeepEqual(a, b) }

func TestPack(t *testing.T) {
	t.Parallel()
	for i, listSize := range []int{1, 7, 100, 10_000} {
		if testing.Short() && i%2 == 0 {
			continue
		}
		t.Run(fmt.Sprint("lists of ", listSize), func(t *testing.T) {
			t.Parallel()
			l := startSet(t, shared, listSize, Options{})
			singles(t, l, "a", 1100)
			add(t, l, "b", 950)
			add(t, l, "c", 900)
			add(t, l, "d", 1000)
			singles(t, l, "e", 1300)
			entries := all(t, l, feed.Cursor{})
			before := views(t, l, entries)
			moved, err := l.Pack(t.Context(), "set")
			ok(t, err)
			if !reflect.DeepEqual(views(t, l, entries), before) {
				t.Error("log changed by packing")
			}
			packed, live := lengths(t, l)
			t.Logf("got %d entries in %d packed blocks, %d live blocks", moved, packed, live)
			if moved < 4000 || listSize > 1 && packed > int64(moved/min(listSize, 400)+1) {
				t.Errorf("got %d entries in %d blocks", moved, packed)
			}
			if moved, err := l.Pack(t.Context(), "set"); moved != 0 || err != nil {
				t.Errorf("second Pack() = %d, %v, want 0, nil", moved, err)
			}
			// Appends continue, and retention removes from both stores.
			singles(t, l, "f", 50)
			if n := len(all(t, l, feed.Cursor{})); n != len(entries)+50 {
				t.Errorf("got %d entries", n)
			}
			for _, keep := range []uint64{4000, 1000, 1} {
				trim(t, l, keep)
				s := state(t, l)
				if n := uint64(len(all(t, l, s.Floor))); n != s.Head.Position-s.Floor.Position || n >= keep+2*uint64(listSize) {
					t.Errorf("got %d entries from %v to %v, want %d", n, s.Floor, s.Head, keep)
				}
			}
		})
	}
}

// TestTrimPacks checks that Trim packs a set only if that saves much memory.
func TestTrimPacks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		listSize, publishes, each int
		packs                     bool
	}{
		{10_000, 1500, 1, true}, {10_000, 130, 10, true}, {10_000, 20, 100, false}, {1, 50, 1, false}, {20, 500, 1, true},
	} {
		l := startSet(t, shared, test.listSize, Options{})
		p := make([]changelog.Publish, test.publishes)
		for i := range p {
			p[i].Changes = changes("a", test.each)
		}
		_, err := l.Append(t.Context(), "set", p...)
		ok(t, err)
		trim(t, l, 0)
		if packed, live := lengths(t, l); packed > 0 != test.packs {
			t.Errorf("%+v: got %d packed and %d live blocks", test, packed, live)
		}
	}
}

// TestPackOvertaken changes the set between the read and the swap.
func TestPackOvertaken(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(*testing.T, *Log){
		"by another":   pack,
		"by retention": func(t *testing.T, l *Log) { trim(t, l, 20) },
		"by a new set": func(t *testing.T, l *Log) {
			ok(t, l.Delete(t.Context(), "set"))
			makeSet(t, l, 10)
			singles(t, l, "new", 100)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Prefix: prefix()}
			l, other := start(t, shared.url(), o), start(t, shared.url(), o)
			makeSet(t, l, 10)
			singles(t, l, "a", 100)
			reply, err := l.readOldest(t.Context(), "set")
			ok(t, err)
			meanwhile(t, other)
			want := state(t, l)
			moved, err := l.swapBlocks(t.Context(), "set", reply)
			if moved != 0 || err != nil {
				t.Errorf("Pack() = %d, %v, want 0, nil", moved, err)
			}
			if got := state(t, l); got != want {
				t.Errorf("state = %v, want %v", got, want)
			}
			s := state(t, l)
			if n := uint64(len(all(t, l, s.Floor))); n != s.Head.Position-s.Floor.Position {
				t.Errorf("got %d entries from %v to %v", n, s.Floor, s.Head)
			}
		})
	}
}

// TestPackFullRedis checks that a full Redis can be packed, because that frees memory. If Trim
// failed, retention would stop after a few sets.
func TestPackFullRedis(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	l := startSet(t, s, 1000, Options{})
	publishes := make([]changelog.Publish, 1200)
	for i := range publishes {
		publishes[i].Changes = changes("a", 1)
	}
	_, err := l.Append(t.Context(), "set", publishes...)
	ok(t, err)
	ok(t, s.admin(t).ConfigSet(t.Context(), "maxmemory", "1000000").Err())
	_, err = l.Append(t.Context(), "set", publishes...)
	wantErr(t, feed.ErrFull, err)
	_, err = l.Trim(t.Context(), "set", changelog.Retention{})
	ok(t, err)
	if n := s.admin(t).HLen(t.Context(), l.keys("set")[2]).Val(); n != 200 {
		t.Errorf("got %d live blocks", n)
	}
	if n := len(all(t, l, feed.Cursor{})); n != 1200 {
		t.Errorf("got %d entries", n)
	}
}
