package callback

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

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

// A cut has the text of a batch with the same entries, wherever they come from.
func TestCutIsTheBatch(t *testing.T) {
	log := memorytest.Open(t)
	batches := memorytest.Fill(t, log, "demo", memorytest.Changes("a", 3), memorytest.Changes("b", 2), memorytest.Changes("c", 4))
	var w spans
	for _, b := range batches {
		w.add(b)
	}
	begin := batches[0].After
	for name, src := range map[string]*source{
		"kept":   newSource(log, "demo", &w, limits{1000, 1 << 20}),
		"memory": newSource(log, "demo", &spans{}, limits{1000, 1 << 20}),
	} {
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
				c, err := src.cut(t.Context(), at, everything, 1000, 0)
				if err != nil {
					t.Fatal(err)
				}
				want := &feed.Batch{Set: "demo", After: after, Cursor: all.Cursor, Entries: all.Entries[i:], Diverged: diverged}
				if got := body(t, c); !bytes.Equal(got, want.XML()) {
					t.Fatalf("%s after %v:\n%s\nwant\n%s", name, after, got, want.XML())
				}
				if c.changes != len(all.Entries)-i || c.cursor != all.Cursor || c.from != after {
					t.Errorf("%s after %v: %+v", name, after, c)
				}
			}
		}
		if _, err := src.cut(t.Context(), &point{cursor: all.Cursor}, everything, 1000, 0); !errors.Is(err, errNothing) {
			t.Errorf("%s: at the head: %v", name, err)
		}
	}
	// Before the set was made: the log began just before its first entry.
	c, err := newSource(log, "demo", &spans{}, limits{1000, 1 << 20}).cut(t.Context(), &point{}, everything, 1000, 0)
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
	var w spans
	for _, b := range batches {
		w.add(b)
	}
	for _, test := range []struct {
		name   string
		limits limits
		limit  int
		most   int
	}{
		{"changes", limits{7, 1 << 20}, 1000, 7},
		{"halved", limits{1000, 1 << 20}, 3, 3},
		{"bytes", limits{1000, 5*one + 50}, 1000, 5},
		{"a single one is always taken", limits{1000, 1}, 1000, 1},
	} {
		for name, src := range map[string]*source{"kept": newSource(log, "demo", &w, test.limits), "memory": newSource(log, "demo", &spans{}, test.limits)} {
			at := &point{cursor: batches[0].After}
			total := 0
			for {
				c, err := src.cut(t.Context(), at, everything, test.limit, 0)
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
	text, _ := newSpan(b).encoded()
	return text
}

// A filter leaves out, moves over what it leaves out, and keeps the intervals
// consecutive.
func TestCutFilter(t *testing.T) {
	log := memorytest.Open(t)
	batches := memorytest.Fill(t, log, "demo", memorytest.Changes("a", 3), memorytest.Changes("b", 2), memorytest.Changes("a", 1), memorytest.Changes("b", 1))
	f := filters{}.of(feed.Filter{Prefix: "https://example.org/b/"})
	var w spans
	for _, b := range batches {
		w.add(b)
	}
	src := newSource(log, "demo", &w, limits{2, 1 << 20})
	at := &point{cursor: batches[0].After}
	var got []string
	for {
		c, err := src.cut(t.Context(), at, f, 1000, 0)
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
	var w spans
	for _, b := range batches {
		w.add(b)
	}
	at := point{cursor: batches[0].After}
	first, err := newSource(log, "demo", &w, limits{1000, 1 << 20}).cut(t.Context(), &at, everything, 1000, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range memorytest.Fill(t, log, "demo", memorytest.Changes("c", 1), memorytest.Changes("d", 7)) {
		w.add(b)
	}
	for name, src := range map[string]*source{
		"kept":           newSource(log, "demo", &w, limits{1000, 1 << 20}),
		"memory":         newSource(log, "demo", &spans{}, limits{1000, 1 << 20}),
		"smaller limits": newSource(log, "demo", &spans{}, limits{2, 100}),
	} {
		at := point{cursor: batches[0].After, until: first.cursor}
		again, err := src.cut(t.Context(), &at, everything, 1, 0)
		if err != nil || !bytes.Equal(body(t, again), body(t, first)) {
			t.Errorf("%s: %v:\n%s", name, err, body(t, again))
		}
	}
}
