package subscribe

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// The audiences that want something of a batch, and what they get, is what each filter alone
// says.
func TestWanting(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	loc := func() string { return "https://example.org/abcab"[:20+r.IntN(6)] + fmt.Sprint(r.IntN(3)) }
	types := []resourcesync.ChangeType{resourcesync.Created, resourcesync.Updated, resourcesync.Deleted}
	filter := func() (f feed.Filter) {
		if r.IntN(4) > 0 {
			l := loc()
			f.Prefix = l[:r.IntN(len(l)+1)]
		}
		if r.IntN(3) == 0 {
			f.Changes = types[r.IntN(3):]
		}
		if r.IntN(4) == 0 {
			f.Types = []string{"text/*"}
		}
		return f
	}
	for range 200 {
		var as audiences
		var conns []*conn
		for range r.IntN(40) {
			c := &conn{filter: filter()}
			as.add(c)
			conns = append(conns, c)
		}
		for range r.IntN(5) {
			for range r.IntN(len(conns) + 1) {
				i := r.IntN(len(conns))
				as.remove(conns[i])
				conns = slices.Delete(conns, i, i+1)
			}
			b := &feed.Batch{Set: "a", After: feed.Cursor{Position: 1, Micros: 1}, Diverged: r.IntN(5) == 0}
			for i := range r.IntN(20) {
				c := resourcesync.Change{Loc: loc(), Change: types[r.IntN(3)], Type: []string{"text/html", "image/png"}[r.IntN(2)]}
				b.Entries = append(b.Entries, feed.Entry{Cursor: feed.Cursor{Position: uint64(2 + i), Micros: int64(2 + i)}, Change: c})
				b.Cursor = b.Entries[i].Cursor
			}
			want := map[*audience][]feed.Entry{}
			for _, c := range conns {
				passed := c.filter.Apply(b)
				if !c.filter.IsZero() && (len(passed.Entries) > 0 || b.Diverged) {
					want[c.audience] = passed.Entries
				}
			}
			got := map[*audience][]feed.Entry{}
			for a, entries := range as.wanting(b) {
				if _, twice := got[a]; twice {
					t.Fatalf("filter %q is served twice", a.filter.Key())
				}
				got[a] = entries
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%d audiences want something, want %d: %v, %v", len(got), len(want), got, want)
			}
		}
		for _, c := range conns {
			as.remove(c)
		}
		if len(as.byFilter) > 0 || len(as.byPrefix) > 0 || len(as.lengths) > 0 || len(as.ofLength) > 0 {
			t.Fatalf("of no connections is left %+v", as)
		}
	}
}

// A connection that wants nothing of a batch is past it all the same, without being touched.
func TestPassedOver(t *testing.T) {
	s := New(nil, nil, Options{})
	at := func(p uint64) feed.Cursor { return feed.Cursor{Position: p, Micros: int64(p)} }
	batch := func(from, to uint64, diverged bool) *feed.Batch {
		b := &feed.Batch{Set: "a", After: at(from), Cursor: at(to), Diverged: diverged}
		for p := from + 1; p <= to; p++ {
			b.Entries = append(b.Entries, feed.Entry{Cursor: at(p), Change: resourcesync.Change{Loc: "https://example.org/a", Change: resourcesync.Updated}})
		}
		return b
	}
	c, ahead := testConn(t, s, 5), testConn(t, s, 9)
	g := &group{key: groupKey{wire: wire{format: feed.JSON}}, cursor: at(5), cancel: func() {}, delivered: func(*tally) {}}
	for _, c := range []*conn{c, ahead} {
		c.filter = feed.Filter{Prefix: "https://example.org/b"}
		if joined, _ := g.join(c); !joined {
			t.Fatal("not joined")
		}
	}
	for _, b := range []*feed.Batch{batch(5, 7, false), batch(7, 8, false)} {
		g.begin([]*feed.Batch{b})
		g.deliverFiltered(b)
	}
	for _, test := range []struct {
		c    *conn
		want feed.Cursor
	}{{c, at(8)}, {ahead, at(9)}} {
		test.c.mu.Lock()
		test.c.passLocked()
		if test.c.cursor != test.want || test.c.told == test.want && test.c == c {
			t.Errorf("it is at %v, and was told %v; want %v", test.c.cursor, test.c.told, test.want)
		}
		test.c.mu.Unlock()
	}
	late := testConn(t, s, 7)
	late.filter = c.filter
	if joined, _ := g.join(late); joined {
		t.Error("a connection joined that lacks a batch")
	}
	if joined, _ := g.join(func() *conn { n := testConn(t, s, 8); n.filter = c.filter; return n }()); !joined {
		t.Error("a connection did not join that lacks nothing")
	}
}
