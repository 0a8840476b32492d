package callback

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/dialect/atom"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/memorytest"
	"github.com/rshub/rshub/outbound"
	"github.com/rshub/rshub/resourcesync"
)

func body(t testing.TB, c *cut) []byte {
	t.Helper()
	b, err := io.ReadAll(outbound.NewBody(c.body))
	if err != nil || int64(len(b)) != c.size() {
		t.Fatalf("%d bytes of %d: %v", len(b), c.size(), err)
	}
	return b
}

var everything = filters{}.of(feed.Filter{})

// demo is what a delivery knows of the set demo.
var demo = view{logKey: logKey{set: "demo"}}

// keeping returns a cutter that has batches already.
func keeping(log Log, changes, bytes int, batches []*feed.Batch) *cutter {
	c := &cutter{log: log, changes: changes, bytes: bytes}
	for _, b := range batches {
		c.cache.add(demo.logKey, b)
	}
	return c
}

// atomFormat is an Atom feed.
var atomFormat = &outlet.Format{
	Batch: atom.Form.Batches("https://hub.example.org"), Begin: []byte(atom.Form.Begin), End: []byte(atom.Form.End),
	Head: func(b *feed.Batch) []byte {
		return atom.Form.Head(nil, atom.Form.Pushed("https://hub.example.org", b))
	},
	Tail: atom.Form.Tail(nil, nil),
}

// A cut has the text of a batch with the same entries, wherever they come from.
func TestCutIsTheBatch(t *testing.T) {
	log := memorytest.Open(t)
	batches := memorytest.Fill(t, log, "demo", memorytest.Changes("a", 3), memorytest.Changes("b", 2), memorytest.Changes("c", 4))
	begin := batches[0].After
	for name, test := range map[string]struct {
		src    *cutter
		format *outlet.Format
	}{
		"kept":         {keeping(log, 1000, 1<<20, batches), notification},
		"memory":       {keeping(log, 1000, 1<<20, nil), notification},
		"kept, Atom":   {keeping(log, 1000, 1<<20, batches), atomFormat},
		"memory, Atom": {keeping(log, 1000, 1<<20, nil), atomFormat},
	} {
		src, format := test.src, test.format
		all, err := log.Since(t.Context(), "demo", begin, 0)
		if err != nil {
			t.Fatal(err)
		}
		cursors := []feed.Cursor{begin}
		for _, e := range all.Entries {
			cursors = append(cursors, e.Cursor)
		}
		for i, after := range cursors[:len(cursors)-1] {
			for _, diverged := range []bool{false, true} {
				at := &point{cursor: after, diverged: diverged}
				c, err := src.cut(t.Context(), demo, at, format, everything, 1000)
				if err != nil {
					t.Fatal(err)
				}
				want := &feed.Batch{Set: "demo", After: after, Cursor: all.Cursor, Entries: all.Entries[i:], Diverged: diverged}
				if got := body(t, c); !bytes.Equal(got, want.In(format.Batch)) {
					t.Fatalf("%s after %v:\n%s\nwant\n%s", name, after, got, want.In(format.Batch))
				}
				if c.changes != len(all.Entries)-i || c.cursor != all.Cursor || c.from != after {
					t.Errorf("%s after %v: %+v", name, after, c)
				}
			}
		}
		if _, err := src.cut(t.Context(), demo, &point{cursor: all.Cursor}, notification, everything, 1000); !errors.Is(err, errNothing) {
			t.Errorf("%s: at the head: %v", name, err)
		}
	}
	// Before the set was made: the log began just before its first entry.
	c, err := keeping(log, 1000, 1<<20, nil).cut(t.Context(), demo, &point{}, notification, everything, 1000)
	if err != nil {
		t.Fatal(err)
	}
	all, _ := log.Since(t.Context(), "demo", feed.Cursor{}, 0)
	if got := body(t, c); !bytes.Equal(got, all.XML()) {
		t.Errorf("from the zero cursor:\n%s\nwant\n%s", got, all.XML())
	}
}

// Cuts follow each other without a hole, and each is within the limits.
func TestCutLimits(t *testing.T) {
	log := memorytest.Open(t)
	batches := memorytest.Fill(t, log, "demo", memorytest.Changes("a", 30), memorytest.Changes("b", 1), memorytest.Changes("c", 45))
	one := len(textOf(batches[1]))
	for _, test := range []struct {
		name           string
		changes, bytes int
		limit          int
		most           int
	}{
		{"changes", 7, 1 << 20, 1000, 7},
		{"halved", 1000, 1 << 20, 3, 3},
		{"bytes", 1000, 5*one + 50, 1000, 5},
		{"a single one is always taken", 1000, 1, 1000, 1},
	} {
		for name, src := range map[string]*cutter{"kept": keeping(log, test.changes, test.bytes, batches), "memory": keeping(log, test.changes, test.bytes, nil)} {
			at := &point{cursor: batches[0].After}
			total := 0
			for {
				c, err := src.cut(t.Context(), demo, at, notification, everything, test.limit)
				if errors.Is(err, errNothing) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if c.changes == 0 || c.changes > test.most || c.from != at.cursor || c.cursor.Position != at.cursor.Position+uint64(c.changes) {
					t.Fatalf("%s, %s: %d changes from %v to %v", test.name, name, c.changes, c.from, c.cursor)
				}
				doc, err := resourcesync.ReadXML(bytes.NewReader(body(t, c)), resourcesync.Limits{})
				if err != nil || len(doc.Items) != c.changes || doc.Header.From.UnixMicro() != c.from.Micros || doc.Header.Until.UnixMicro() != c.cursor.Micros {
					t.Fatalf("%s, %s: %v, %+v", test.name, name, err, doc)
				}
				total += c.changes
				at = &point{cursor: c.cursor}
			}
			if total != 76 {
				t.Errorf("%s, %s: %d changes in all", test.name, name, total)
			}
		}
	}
}

// textOf returns the entries of a batch as XML.
func textOf(b *feed.Batch) []byte {
	text := b.XML()
	return text[bytes.Index(text, notification.Begin) : len(text)-len(notification.Tail)]
}

// A filter leaves out, moves over what it leaves out, and keeps the intervals
// consecutive.
func TestCutFilter(t *testing.T) {
	log := memorytest.Open(t)
	batches := memorytest.Fill(t, log, "demo", memorytest.Changes("a", 3), memorytest.Changes("b", 2), memorytest.Changes("a", 1), memorytest.Changes("b", 1))
	f := filters{}.of(feed.Filter{Prefix: "https://example.org/b/"})
	src := keeping(log, 2, 1<<20, batches)
	at := &point{cursor: batches[0].After}
	var got []string
	for {
		c, err := src.cut(t.Context(), demo, at, notification, f, 1000)
		if errors.Is(err, errNothing) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if c.changes == 0 {
			at.from, at.cursor = c.from, c.cursor
			continue
		}
		doc, err := resourcesync.ReadXML(bytes.NewReader(body(t, c)), resourcesync.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if len(doc.Items) != c.changes {
			t.Errorf("%d items, %d changes", len(doc.Items), c.changes)
		}
		got = append(got, fmt.Sprint(c.from.Position, "-", c.cursor.Position, ":", len(doc.Items)))
		at = &point{cursor: c.cursor}
	}
	if want := "[0-4:1 4-6:1 6-7:1]"; fmt.Sprint(got) != want {
		t.Errorf("cuts are %v, want %s", got, want)
	}
}

// A retry repeats the cut byte for byte, whatever was published meanwhile and
// wherever it has to be read from by now.
func TestCutAgain(t *testing.T) {
	log := memorytest.Open(t)
	batches := memorytest.Fill(t, log, "demo", memorytest.Changes("a", 3), memorytest.Changes("b", 2))
	at := point{cursor: batches[0].After}
	first, err := keeping(log, 1000, 1<<20, batches).cut(t.Context(), demo, &at, notification, everything, 1000)
	if err != nil {
		t.Fatal(err)
	}
	more := append(batches, memorytest.Fill(t, log, "demo", memorytest.Changes("c", 1), memorytest.Changes("d", 7))...)
	for name, src := range map[string]*cutter{
		"kept":           keeping(log, 1000, 1<<20, more),
		"memory":         keeping(log, 1000, 1<<20, nil),
		"smaller limits": keeping(log, 2, 100, nil),
	} {
		at := point{cursor: batches[0].After, until: first.cursor}
		again, err := src.cut(t.Context(), demo, &at, notification, everything, 1)
		if err != nil || !bytes.Equal(body(t, again), body(t, first)) {
			t.Errorf("%s: %v:\n%s", name, err, body(t, again))
		}
	}
}

// An entry whose values have the text of the XML around it is cut as any other.
func TestCutBetweenEntries(t *testing.T) {
	b := feed.NewBatch("demo", feed.Cursor{Micros: 1}, feed.Cursor{Position: 3, Micros: 9}, memorytest.Changes("a", 3))
	for i := range b.Entries {
		b.Entries[i].Change.Loc += "</url>\n  <url>\n</urlset>\n"
		b.Entries[i].Change.Attrs = []resourcesync.Attr{{Namespace: "urn:x", Name: "y", Value: "</url>\n  <url>"}}
	}
	src := keeping(emptyLog{}, 1000, 1<<20, []*feed.Batch{b})
	for i, at := range []feed.Cursor{b.After, b.Entries[0].Cursor, b.Entries[1].Cursor} {
		c, err := src.cut(t.Context(), demo, &point{cursor: at}, notification, everything, 1)
		if err != nil {
			t.Fatal(err)
		}
		want := &feed.Batch{Set: "demo", After: at, Cursor: b.Entries[i].Cursor, Entries: b.Entries[i : i+1]}
		if got := body(t, c); !bytes.Equal(got, want.XML()) {
			t.Errorf("entry %d:\n%s\nwant\n%s", i, got, want.XML())
		}
	}
}
