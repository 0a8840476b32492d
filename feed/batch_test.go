package feed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// noon is 2026-01-02T03:04:05Z in microseconds.
const noon = 1767323045000000

func twoEntries() *Batch {
	length := int64(0)
	return NewBatch("a.set", Cursor{6, noon - 2_500_000}, Cursor{8, noon + 1}, []resourcesync.Change{
		{Loc: "https://example.org/a?b=c&d", Change: resourcesync.Created, Length: &length,
			Datetime: time.Date(2020, 2, 3, 4, 5, 6, 7, time.UTC)},
		{Loc: `https://example.org/"ü"`, Change: resourcesync.Deleted},
	})
}

func TestNewBatch(t *testing.T) {
	changes := newChanges(5)
	b := NewBatch("set", Cursor{7, 40}, Cursor{12, 104}, changes)
	if b.Set != "set" || b.After != (Cursor{7, 40}) || b.Cursor != (Cursor{12, 104}) || b.Diverged {
		t.Errorf("NewBatch() = %+v, want set %q after {7 40} up to {12 104}", b, "set")
	}
	for i, want := range []Cursor{{8, 100}, {9, 101}, {10, 102}, {11, 103}, {12, 104}} {
		if b.Entries[i].Cursor != want || !reflect.DeepEqual(b.Entries[i].Change, changes[i]) {
			t.Errorf("entry %d = %+v, want cursor %v", i, b.Entries[i], want)
		}
	}
}

// checkParts reports an error unless the parts are consecutive and together equal b.
func checkParts(t *testing.T, b *Batch, parts []*Batch) {
	t.Helper()
	after := b.After
	var entries []Entry
	for i, p := range parts {
		if p.Set != b.Set || p.After != after {
			t.Errorf("part %d of set %q starts after %v, want %v", i, p.Set, p.After, after)
		}
		if p.Diverged != (b.Diverged && i == 0) {
			t.Errorf("part %d: got diverged %t, want %t", i, p.Diverged, b.Diverged && i == 0)
		}
		after = p.Cursor
		entries = append(entries, p.Entries...)
	}
	if after != b.Cursor {
		t.Errorf("parts end at %v, want %v", after, b.Cursor)
	}
	if len(entries) != len(b.Entries) || len(entries) > 0 && !reflect.DeepEqual(entries, b.Entries) {
		t.Error("the entries of the parts differ from the batch's")
	}
}

func TestSplit(t *testing.T) {
	for _, tt := range []struct {
		name string
		n    int
		hash int // bytes of the hash of each entry
		omit int // number of entries at the end that a filter omits
		most int // maximum number of entries in a part
	}{
		{"none", 0, 0, 0, 0},
		{"one", 1, 0, 0, 1},
		{"one large", 1, 2 * splitBytes, 0, 1},
		{"block", splitEntries, 0, 0, splitEntries},
		{"block and one", splitEntries + 1, 0, 0, splitEntries},
		{"many", 2*splitEntries + 345, 0, 0, splitEntries},
		{"large", 10, 200_000, 0, 2},
		{"filtered", 2*splitEntries + 345, 0, 10, splitEntries},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changes := newChanges(tt.n)
			for i := range changes {
				changes[i].Hash = strings.Repeat("x", tt.hash)
			}
			b := NewBatch("set", Cursor{6, 50}, Cursor{6 + uint64(tt.n), 100_000}, changes)
			b.Entries, b.Diverged = b.Entries[:tt.n-tt.omit], true
			parts := b.Split()
			checkParts(t, b, parts)
			for _, p := range parts {
				if len(p.Entries) > tt.most || len(p.Entries) == 0 && tt.n > 0 {
					t.Errorf("got a part of %d entries, want 1 to %d", len(p.Entries), tt.most)
				}
			}
			if len(parts) == 1 && parts[0] != b {
				t.Error("Split() of a batch with one part copies it, want the batch itself")
			}
		})
	}
}

func TestJSON(t *testing.T) {
	b := twoEntries()
	const want = `{"set":"a.set","after":"6-1767323042500000","from":"2026-01-02T03:04:02.500000Z","until":"2026-01-02T03:04:05.000001Z","cursor":"8-1767323045000001","changes":[` +
		`{"position":7,"datetime":"2026-01-02T03:04:05.000000Z","sourceDatetime":"2020-02-03T04:05:06.000000007Z","loc":"https://example.org/a?b=c&d","change":"created","length":0},` +
		`{"position":8,"datetime":"2026-01-02T03:04:05.000001Z","loc":"https://example.org/\"ü\"","change":"deleted"}]}`
	if got := string(b.JSON()); got != want {
		t.Errorf("JSON() =\n%s, want\n%s", got, want)
	}
	if first, again := b.JSON(), b.JSON(); &first[0] != &again[0] {
		t.Error("JSON() encodes the batch twice, want a cached encoding")
	}
	if b.Entries[0].Change.Datetime.IsZero() {
		t.Error("JSON() modifies the entry")
	}
	if got := JSON.Append([]byte("x"), b, ""); string(got) != "x"+want {
		t.Errorf("JSON.Append(%q) = %s, want %[1]q and the JSON", "x", got)
	}
	next := string(JSON.Append([]byte("x"), b, "https://example.org/?since=8-1&limit=2"))
	if want := `","next":"https://example.org/?since=8-1&limit=2","changes":[`; !strings.Contains(next, want) || next[0] != 'x' || !strings.HasSuffix(next, "]}\n") {
		t.Errorf("JSON.Append() = %s, want a page with next", next)
	}
	b.Diverged = true
	if got := JSON.Append(nil, b, ""); !bytes.Contains(got, []byte(`,"diverged":true,`)) || !json.Valid(got) {
		t.Errorf("JSON.Append() = %s, want diverged", got)
	}
}

func TestJSONWithoutEntries(t *testing.T) {
	for name, tt := range map[string]struct {
		batch *Batch
		want  string
	}{
		"no log": {&Batch{Set: "s"}, `{"set":"s","after":"0-0","cursor":"0-0","changes":[]}`},
		"no progress": {&Batch{Set: "s", After: Cursor{3, noon}, Cursor: Cursor{3, noon}},
			`{"set":"s","after":"3-1767323045000000","from":"2026-01-02T03:04:05.000000Z","until":"2026-01-02T03:04:05.000000Z","cursor":"3-1767323045000000","changes":[]}`},
		"all omitted": {&Batch{Set: "s", After: Cursor{3, noon - 1}, Cursor: Cursor{5, noon}},
			`{"set":"s","after":"3-1767323044999999","from":"2026-01-02T03:04:04.999999Z","until":"2026-01-02T03:04:05.000000Z","cursor":"5-1767323045000000","changes":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(tt.batch.JSON()); got != tt.want {
				t.Errorf("JSON() =\n%s, want\n%s", got, tt.want)
			}
		})
	}
	// The zero cursor has no datetime; the interval starts just before the first entry.
	b := NewBatch("s", Cursor{}, Cursor{2, noon}, newChanges(2))
	if got := string(b.JSON()); !strings.Contains(got, `"after":"0-0","from":"2026-01-02T03:04:04.999998Z","until":"2026-01-02T03:04:05.000000Z"`) {
		t.Errorf("JSON() = %s, want from just before the first entry", got)
	}
}

// TestXML checks that ReadXML reads what Batch.XML writes.
func TestXML(t *testing.T) {
	b := twoEntries()
	b.Diverged = true
	x := b.XML()
	doc, err := resourcesync.ReadXML(bytes.NewReader(x), resourcesync.Limits{})
	if err != nil {
		t.Fatalf("ReadXML: %v in\n%s", err, x)
	}
	if doc.Capability != resourcesync.ChangeNotification {
		t.Errorf("capability = %q, want %q", doc.Capability, resourcesync.ChangeNotification)
	}
	if !doc.From.Equal(b.After.Time()) || !doc.Until.Equal(b.Cursor.Time()) {
		t.Errorf("interval = %v to %v, want %v to %v", doc.From, doc.Until, b.After.Time(), b.Cursor.Time())
	}
	for i, item := range doc.Items {
		e := b.Entries[i]
		if item.Loc != e.Change.Loc || item.Change.Change != e.Change.Change || !item.Datetime.Equal(e.Time()) {
			t.Errorf("item %d = %+v, want %+v", i, item, e)
		}
	}
	for _, want := range []string{
		`h:after="6-1767323042500000"`, `h:cursor="8-1767323045000001"`, `h:diverged="true"`,
		`h:position="7"`, `h:position="8"`, `h:sourceDatetime="2020-02-03T04:05:06.000000007Z"`, `length="0"`,
	} {
		if strings.Count(string(x), want) != 1 {
			t.Errorf("got %s %d times, want once, in\n%s", want, strings.Count(string(x), want), x)
		}
	}
	if &x[0] != &b.XML()[0] {
		t.Error("XML() encodes the batch twice, want a cached encoding")
	}
	if _, err := resourcesync.ReadXML(bytes.NewReader((&Batch{Set: "s"}).XML()), resourcesync.Limits{}); err != nil {
		t.Errorf("ReadXML(empty batch): %v", err)
	}
}

// newChanges returns n changes with few members.
func newChanges(n int) []resourcesync.Change {
	c := make([]resourcesync.Change, n)
	for i := range c {
		c[i] = resourcesync.Change{Loc: fmt.Sprintf("https://example.org/%d", i), Change: resourcesync.Updated}
	}
	return c
}

// TestSingles checks that each batch has at most one entry, and that a follower can resume after
// each of them.
func TestSingles(t *testing.T) {
	b := NewBatch("set", Cursor{6, 50}, Cursor{9, 102}, newChanges(3))
	for _, diverged := range []bool{false, true} {
		b.Diverged = diverged
		after, entries := b.After, 0
		for one := range b.Singles() {
			if one.Set != b.Set || one.After != after || one.Diverged != (diverged && entries == 0 && len(one.Entries) == 0) {
				t.Errorf("got %+[2]v, want a batch after %[1]v, with diverged only in a first one without entries", after, one)
			}
			if after = one.Cursor; len(one.Entries) > 1 || len(one.Entries) == 1 && one.Entries[0].Cursor != after {
				t.Errorf("got %+[2]v, want one entry at %[1]v", after, one)
			}
			entries += len(one.Entries)
		}
		if entries != 3 || after != b.Cursor {
			t.Errorf("diverged %t: got %d entries up to %v, want 3 up to %v", diverged, entries, after, b.Cursor)
		}
	}
	none := &Batch{Set: "set", After: Cursor{6, 50}, Cursor: Cursor{9, 102}}
	for one := range none.Singles() {
		if one != none {
			t.Errorf("Singles() of a batch without entries yields %+v, want the batch itself", one)
		}
	}
	for range b.Singles() {
		break // must not panic
	}
}
