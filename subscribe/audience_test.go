package subscribe

import (
	"reflect"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// TestMatchingAudiences checks that each audience with a matching filter gets its entries of a batch
// once, and that all audiences get a batch that diverged.
func TestMatchingAudiences(t *testing.T) {
	var as audiences
	for _, prefix := range []string{"", "https://example.org/a", "https://example.org/b", "https://example.org/a", "https://example.net/"} {
		as.add(&conn{filter: feed.Filter{Prefix: prefix}})
	}
	b := &feed.Batch{Set: "a"}
	for i, name := range []string{"a1", "b", "a2", "c"} {
		at := feed.Cursor{Position: uint64(i + 1), Micros: int64(i + 1)}
		b.Entries, b.Cursor = append(b.Entries, feed.Entry{Cursor: at, Change: resourcesync.Change{Loc: "https://example.org/" + name, Change: resourcesync.Updated}}), at
	}
	a, single, none := []feed.Entry{b.Entries[0], b.Entries[2]}, b.Entries[1:2], []feed.Entry(nil)
	for _, tt := range []struct {
		diverged bool
		want     map[string][]feed.Entry
	}{
		{false, map[string][]feed.Entry{"https://example.org/a": a, "https://example.org/b": single}},
		{true, map[string][]feed.Entry{"https://example.org/a": a, "https://example.org/b": single, "https://example.net/": none}},
	} {
		b.Diverged = tt.diverged
		got := map[string][]feed.Entry{}
		for a, entries := range as.matching(b) {
			if _, twice := got[a.Filter.Prefix]; twice {
				t.Fatalf("matching: got filter %q twice", a.Key)
			}
			got[a.Filter.Prefix] = entries
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("matching with diverged=%v = %v, want %v", tt.diverged, got, tt.want)
		}
	}
}

// TestFilteredBatchAdvancesCursor checks that a batch without matching changes advances the cursor
// of a connection, although nothing is written to it.
func TestFilteredBatchAdvancesCursor(t *testing.T) {
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
	g := &group{key: groupKey{wire: wire{format: feed.JSON}}, cursor: at(5), cancel: func() {}, server: s}
	for _, c := range []*conn{c, ahead} {
		c.filter = feed.Filter{Prefix: "https://example.org/b"}
		if joined, _ := g.join(c); !joined {
			t.Fatal("join = false, want true")
		}
	}
	for _, b := range []*feed.Batch{batch(5, 7, false), batch(7, 8, false)} {
		g.startDelivery([]*feed.Batch{b})
		g.deliverFiltered(b)
	}
	for _, test := range []struct {
		c    *conn
		want feed.Cursor
	}{{c, at(8)}, {ahead, at(9)}} {
		test.c.mu.Lock()
		test.c.passLocked()
		if test.c.cursor != test.want || test.c.lastSent == test.want && test.c == c {
			t.Errorf("got cursor %v and lastSent %v, want cursor %v", test.c.cursor, test.c.lastSent, test.want)
		}
		test.c.mu.Unlock()
	}
	late := testConn(t, s, 7)
	late.filter = c.filter
	if joined, _ := g.join(late); joined {
		t.Error("join of a connection that lacks a batch = true, want false")
	}
	if joined, _ := g.join(func() *conn { n := testConn(t, s, 8); n.filter = c.filter; return n }()); !joined {
		t.Error("join of an up-to-date connection = false, want true")
	}
}
