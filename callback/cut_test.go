package callback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/dialect/atom"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/testutil/memorytest"
	"github.com/rshub/rshub/resourcesync"
)

func body(t testing.TB, c *cut) []byte {
	t.Helper()
	b, err := io.ReadAll(outbound.NewBody(c.body))
	if err != nil || int64(len(b)) != sizeOf(c.body) {
		t.Fatalf("%d bytes of %d: %v", len(b), sizeOf(c.body), err)
	}
	return b
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var everything = &feed.Filter{}

// filled publishes to the set demo. It returns the log, and two hubs that have it: the one
// that published has all in its window, as batches, and the other has nothing in memory.
func filled(t *testing.T, publishes ...[]resourcesync.Change) (log *disklog.Log, window, memory *hub.Hub, batches []*feed.Batch) {
	t.Helper()
	log = memorytest.Open(t)
	window, memory = hub.New(log, hub.Options{}), hub.New(log, hub.Options{})
	t.Cleanup(window.Close)
	t.Cleanup(memory.Close)
	t.Cleanup(window.Retain("demo"))
	var begin feed.Cursor
	for i, changes := range publishes {
		a, err := window.Publish(t.Context(), "demo", changelog.Publish{Changes: changes})
		ok(t, err)
		if i == 0 {
			begin = a.After
		}
	}
	batches, err := window.Next(t.Context(), "demo", begin, 1)
	if err != nil || len(batches) != len(publishes) {
		t.Fatalf("%d batches are in the window: %v", len(batches), err)
	}
	return log, window, memory, batches
}

// cutting returns an engine that cuts what a hub has, within limits.
func cutting(h Follower, changes, bytes int) *Engine {
	return New(nil, nil, nil, h, nil, Options{MaxChanges: changes, MaxBytes: bytes})
}

// AtomFormat is an Atom feed.
var AtomFormat = &outlet.Format{
	Batch: atom.Form.BatchFormat("https://hub.example.org"), Begin: []byte(atom.Form.Begin), End: []byte(atom.Form.End),
	Head: func(b *feed.Batch) []byte {
		return atom.Form.Head(nil, atom.Form.PushedPage("https://hub.example.org", b))
	},
	Tail: atom.Form.Tail(nil, nil),
}

// A cut has the text of a batch with the same entries, wherever they come from.
func TestCutIsTheBatch(t *testing.T) {
	log, window, memory, batches := filled(t, memorytest.Changes("a", 3), memorytest.Changes("b", 2), memorytest.Changes("c", 4))
	begin := batches[0].After
	for name, test := range map[string]struct {
		hub    *hub.Hub
		format *outlet.Format
	}{
		"window":       {window, notification},
		"memory":       {memory, notification},
		"window, Atom": {window, AtomFormat},
		"memory, Atom": {memory, AtomFormat},
	} {
		e, format := cutting(test.hub, 1000, 1<<20), test.format
		all, err := log.Since(t.Context(), "demo", begin, 0)
		ok(t, err)
		cursors := []feed.Cursor{begin}
		for _, e := range all.Entries {
			cursors = append(cursors, e.Cursor)
		}
		for i, after := range cursors[:len(cursors)-1] {
			for _, diverged := range []bool{false, true} {
				at := &point{cursor: after, diverged: diverged}
				c, err := e.cut(t.Context(), "demo", at, format, everything, 1000)
				ok(t, err)
				want := &feed.Batch{Set: "demo", After: after, Cursor: all.Cursor, Entries: all.Entries[i:], Diverged: diverged}
				if got := body(t, c); !bytes.Equal(got, want.Encode(format.Batch)) {
					t.Fatalf("%s after %v:\n%s\nwant\n%s", name, after, got, want.Encode(format.Batch))
				}
				if c.changes != len(all.Entries)-i || c.cursor != all.Cursor || c.from != after {
					t.Errorf("%s after %v: %+v", name, after, c)
				}
			}
		}
		if _, err := e.cut(t.Context(), "demo", &point{cursor: all.Cursor}, notification, everything, 1000); !errors.Is(err, errNothing) {
			t.Errorf("%s: at the head: %v", name, err)
		}
	}
	// Before the set was made: the log began just before its first entry.
	c, err := cutting(memory, 1000, 1<<20).cut(t.Context(), "demo", &point{}, notification, everything, 1000)
	ok(t, err)
	all, _ := log.Since(t.Context(), "demo", feed.Cursor{}, 0)
	if got := body(t, c); !bytes.Equal(got, all.XML()) {
		t.Errorf("from the zero cursor:\n%s\nwant\n%s", got, all.XML())
	}
}

// Cuts follow each other without a hole, and each is within the limits.
func TestCutLimits(t *testing.T) {
	_, window, memory, batches := filled(t, memorytest.Changes("a", 30), memorytest.Changes("b", 1), memorytest.Changes("c", 45))
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
		for name, h := range map[string]*hub.Hub{"window": window, "memory": memory} {
			e := cutting(h, test.changes, test.bytes)
			at := &point{cursor: batches[0].After}
			total := 0
			for {
				c, err := e.cut(t.Context(), "demo", at, notification, everything, test.limit)
				if errors.Is(err, errNothing) {
					break
				}
				ok(t, err)
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
	_, window, _, batches := filled(t, memorytest.Changes("a", 3), memorytest.Changes("b", 2), memorytest.Changes("a", 1), memorytest.Changes("b", 1))
	f := &feed.Filter{Prefix: "https://example.org/b/"}
	e := cutting(window, 2, 1<<20)
	at := &point{cursor: batches[0].After}
	var got []string
	for {
		c, err := e.cut(t.Context(), "demo", at, notification, f, 1000)
		if errors.Is(err, errNothing) {
			break
		}
		ok(t, err)
		if c.changes == 0 {
			at.from, at.cursor = c.from, c.cursor
			continue
		}
		doc, err := resourcesync.ReadXML(bytes.NewReader(body(t, c)), resourcesync.Limits{})
		ok(t, err)
		if len(doc.Items) != c.changes {
			t.Errorf("%d items, %d changes", len(doc.Items), c.changes)
		}
		got = append(got, fmt.Sprint(c.from.Position, "-", c.cursor.Position, ":", len(doc.Items)))
		at = &point{cursor: c.cursor}
	}
	if want := "[0-5:2 5-7:1]"; fmt.Sprint(got) != want {
		t.Errorf("cuts are %v, want %s", got, want)
	}
}

// A retry repeats the cut byte for byte, whatever was published meanwhile and
// wherever it has to be read from by now.
func TestCutAgain(t *testing.T) {
	_, window, memory, batches := filled(t, memorytest.Changes("a", 3), memorytest.Changes("b", 2))
	at := point{cursor: batches[0].After}
	first, err := cutting(window, 1000, 1<<20).cut(t.Context(), "demo", &at, notification, everything, 1000)
	ok(t, err)
	for _, changes := range [][]resourcesync.Change{memorytest.Changes("c", 1), memorytest.Changes("d", 7)} {
		if _, err := window.Publish(t.Context(), "demo", changelog.Publish{Changes: changes}); err != nil {
			t.Fatal(err)
		}
	}
	for name, e := range map[string]*Engine{
		"window":         cutting(window, 1000, 1<<20),
		"memory":         cutting(memory, 1000, 1<<20),
		"smaller limits": cutting(memory, 2, 100),
	} {
		at := point{cursor: batches[0].After, until: first.cursor}
		again, err := e.cut(t.Context(), "demo", &at, notification, everything, 1)
		if err != nil || !bytes.Equal(body(t, again), body(t, first)) {
			t.Errorf("%s: %v:\n%s", name, err, body(t, again))
		}
	}
}

// An entry whose values have the text of the XML around it is cut as any other.
func TestCutBetweenEntries(t *testing.T) {
	changes := memorytest.Changes("a", 3)
	for i := range changes {
		changes[i].Loc += "</url>\n  <url>\n</urlset>\n"
		changes[i].Attrs = []resourcesync.Attr{{Namespace: "urn:x", Name: "y", Value: "</url>\n  <url>"}}
	}
	_, window, _, batches := filled(t, changes)
	e, b := cutting(window, 1000, 1<<20), batches[0]
	for i, at := range []feed.Cursor{b.After, b.Entries[0].Cursor, b.Entries[1].Cursor} {
		c, err := e.cut(t.Context(), "demo", &point{cursor: at}, notification, everything, 1)
		ok(t, err)
		want := &feed.Batch{Set: "demo", After: at, Cursor: b.Entries[i].Cursor, Entries: b.Entries[i : i+1]}
		if got := body(t, c); !bytes.Equal(got, want.XML()) {
			t.Errorf("entry %d:\n%s\nwant\n%s", i, got, want.XML())
		}
	}
}

// A counting counts the reads of a log that found something.
type counting struct {
	changelog.Log
	reads atomic.Int64
}

func (c *counting) Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error) {
	b, err := c.Log.Since(ctx, set, after, limit)
	if err == nil && len(b.Entries) > 0 {
		c.reads.Add(1)
	}
	return b, err
}

// Subscriptions that are behind share what is read and encoded, wherever they begin: their
// cuts soon end where batches do.
func TestCutsShare(t *testing.T) {
	const entries, subs, begins = 7_500, 100, 25
	log := &counting{Log: memorytest.Open(t)}
	h := hub.New(log, hub.Options{})
	t.Cleanup(h.Close)
	for range entries / 500 {
		if _, err := h.Publish(t.Context(), "demo", changelog.Publish{Changes: memorytest.Changes("a", 500)}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := log.Log.Since(t.Context(), "demo", feed.Cursor{}, begins)
	ok(t, err)
	e := cutting(h, 1000, 1<<20)
	texts := make([]map[*byte]bool, subs)
	var wg sync.WaitGroup
	for i := range subs {
		texts[i] = map[*byte]bool{}
		wg.Go(func() {
			for at := (point{cursor: all.Entries[i%begins].Cursor}); ; {
				c, err := e.cut(t.Context(), "demo", &at, notification, everything, 1000)
				if errors.Is(err, errNothing) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				at = point{cursor: c.cursor}
				texts[i][&c.body[0][0]] = true
			}
		})
	}
	wg.Wait()
	shared := 0
	for text := range texts[0] {
		if texts[1][text] {
			shared++
		}
	}
	if shared < entries/1000-1 {
		t.Errorf("two subscriptions share the texts of %d cuts", shared)
	}
	// The first page of each that begins, the whole pages, and the last one, which is not kept.
	if n := log.reads.Load(); n > begins+entries/1000+subs {
		t.Errorf("%d reads", n)
	}
}

func TestCutDivergedAndGone(t *testing.T) {
	_, _, memory, batches := filled(t, memorytest.Changes("a", 3), memorytest.Changes("b", 2))
	e := cutting(memory, 1000, 1<<20)
	other := batches[1].Cursor
	other.Micros -= 7 // the cursor of a log that had another tail
	at := point{cursor: other, from: batches[0].Cursor, until: other}
	c, err := e.cut(t.Context(), "demo", &at, notification, everything, 1000)
	if err != nil || !at.diverged || !at.until.IsZero() || c.from != at.cursor || at.cursor.Position != 0 {
		t.Fatalf("%v, %+v, %+v", err, at, c)
	}
	if !bytes.Contains(body(t, c), []byte(`h:diverged="true"`)) {
		t.Errorf("the body does not say diverged:\n%s", body(t, c))
	}
	at = point{cursor: feed.Cursor{Position: 1, Micros: 5}}
	if _, err := e.cut(t.Context(), "demo", &at, notification, everything, 1000); !errors.Is(err, feed.ErrGone) {
		t.Errorf("%v, want ErrGone", err)
	}
}
