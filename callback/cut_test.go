package callback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/dialect/atom"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/testutil/memorytest"
	"github.com/rshub/rshub/resourcesync"
)

// A source is the set demo at two hubs: the one that published it has all of it in its window, the other
// has to read the log.
type source struct {
	log            changelog.Log
	window, memory *hub.Hub
	batches        []*feed.Batch
	begin          feed.Cursor // before the first entry
}

func newSource(t *testing.T, publishes ...[]resourcesync.Change) source {
	t.Helper()
	log := memorytest.Open(t)
	s := source{log: log, window: hub.New(log, hub.Options{}), memory: hub.New(log, hub.Options{})}
	t.Cleanup(s.window.Close)
	t.Cleanup(s.memory.Close)
	t.Cleanup(s.window.Retain("demo"))
	for i, changes := range publishes {
		if a := publishChanges(t, s.window, changes); i == 0 {
			s.begin = a.After
		}
	}
	var err error
	if s.batches, err = s.window.Next(t.Context(), "demo", s.begin, 1); err != nil || len(s.batches) != len(publishes) {
		t.Fatalf("Next(%v) = %d batches, %v; want %d", s.begin, len(s.batches), err, len(publishes))
	}
	return s
}

func publishChanges(t *testing.T, h *hub.Hub, changes []resourcesync.Change) changelog.Appended {
	t.Helper()
	a, err := h.Publish(t.Context(), "demo", changelog.Publish{Changes: changes})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// all returns all entries of the set as a batch.
func (s *source) all(t *testing.T) *feed.Batch {
	t.Helper()
	b, err := s.log.Since(t.Context(), "demo", feed.Cursor{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A cutter cuts what a hub has, within the limits of an engine and of a subscription.
type cutter struct {
	hub                   Follower
	changes, bytes, limit int            // default: no limit
	filter                feed.Filter    // default: everything
	format                *outlet.Format // default: notification
}

func (c cutter) cut(t *testing.T, at *point) (*cut, error) {
	e := New(nil, nil, nil, c.hub, nil, Options{MaxChanges: c.changes, MaxBytes: c.bytes})
	if c.format == nil {
		c.format = notification
	}
	if c.limit == 0 {
		c.limit = 1000
	}
	return e.cut(t.Context(), "demo", at, c.format, &c.filter, c.limit)
}

// mustCut returns the cut after a point, and its body.
func (c cutter) mustCut(t *testing.T, at *point) (*cut, []byte) {
	t.Helper()
	x, err := c.cut(t, at)
	if err != nil {
		t.Fatalf("cut(%+v): %v", *at, err)
	}
	return x, bodyOf(t, x)
}

// cuts returns all cuts after a cursor, including those without a change.
func (c cutter) cuts(t *testing.T, after feed.Cursor) iter.Seq[*cut] {
	return func(yield func(*cut) bool) {
		for at := (point{cursor: after}); ; {
			x, err := c.cut(t, &at)
			if errors.Is(err, errNothing) {
				return
			}
			if err != nil {
				t.Errorf("cut(%+v): %v", at, err)
				return
			}
			if at = (point{cursor: x.cursor}); x.changes == 0 {
				at.from = x.from
			}
			if !yield(x) {
				return
			}
		}
	}
}

func bodyOf(t *testing.T, c *cut) []byte {
	t.Helper()
	b, err := io.ReadAll(outbound.NewBody(c.body))
	if err != nil || int64(len(b)) != sizeOf(c.body) {
		t.Fatalf("read body: got %d bytes, %v; want %d", len(b), err, sizeOf(c.body))
	}
	return b
}

func readXML(t *testing.T, body []byte) *resourcesync.Document {
	t.Helper()
	doc, err := resourcesync.ReadXML(bytes.NewReader(body), resourcesync.Limits{})
	if err != nil {
		t.Fatalf("%v:\n%s", err, body)
	}
	return doc
}

// AtomFormat is an Atom feed.
var AtomFormat = &outlet.Format{
	Batch: atom.Form.BatchFormat("https://hub.example.org"), Begin: []byte(atom.Form.Begin), End: []byte(atom.Form.End),
	Head: func(b *feed.Batch) []byte {
		return atom.Form.Head(nil, atom.Form.PushedPage("https://hub.example.org", b))
	},
	Tail: atom.Form.Tail(nil, nil),
}

// A cut has the text of a batch with the same entries, wherever they are read from.
func TestCutIsTheBatch(t *testing.T) {
	s := newSource(t, memorytest.Changes("a", 3), memorytest.Changes("b", 2), memorytest.Changes("c", 4))
	all := s.all(t)
	cursors := []feed.Cursor{s.begin}
	for _, e := range all.Entries {
		cursors = append(cursors, e.Cursor)
	}
	for _, tt := range []struct {
		name   string
		hub    *hub.Hub
		format *outlet.Format
	}{
		{"window", s.window, notification},
		{"memory", s.memory, notification},
		{"window, Atom", s.window, AtomFormat},
		{"memory, Atom", s.memory, AtomFormat},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := cutter{hub: tt.hub, format: tt.format}
			for i, after := range cursors[:len(cursors)-1] {
				for _, diverged := range []bool{false, true} {
					got, body := c.mustCut(t, &point{cursor: after, diverged: diverged})
					want := &feed.Batch{Set: "demo", After: after, Cursor: all.Cursor, Entries: all.Entries[i:], Diverged: diverged}
					if text := want.Encode(tt.format.Batch); !bytes.Equal(body, text) {
						t.Fatalf("cut after %v:\n%s\nwant\n%s", after, body, text)
					}
					if got.changes != len(all.Entries)-i || got.cursor != all.Cursor || got.from != after {
						t.Errorf("cut after %v = %d changes from %v to %v, want %d to %v", after, got.changes, got.from, got.cursor, len(all.Entries)-i, all.Cursor)
					}
				}
			}
			if _, err := c.cut(t, &point{cursor: all.Cursor}); !errors.Is(err, errNothing) {
				t.Errorf("cut at the head: %v, want %v", err, errNothing)
			}
		})
	}
	t.Run("zero cursor", func(t *testing.T) { // the log started just before its first entry
		if _, body := (cutter{hub: s.memory}).mustCut(t, &point{}); !bytes.Equal(body, all.XML()) {
			t.Errorf("got\n%s\nwant\n%s", body, all.XML())
		}
	})
}

// Cuts are consecutive, and each is within the limits.
func TestCutLimits(t *testing.T) {
	s := newSource(t, memorytest.Changes("a", 30), memorytest.Changes("b", 1), memorytest.Changes("c", 45))
	text := s.batches[1].XML()
	one := len(text) - bytes.Index(text, notification.Begin) - len(notification.Tail) // bytes of an entry
	for _, tt := range []struct {
		name string
		cutter
		most int
	}{
		{"changes", cutter{changes: 7}, 7},
		{"halved", cutter{limit: 3}, 3},
		{"bytes", cutter{bytes: 5*one + 50}, 5},
		{"one change is over the limit", cutter{bytes: 1}, 1},
	} {
		for name, h := range map[string]*hub.Hub{"window": s.window, "memory": s.memory} {
			t.Run(tt.name+", "+name, func(t *testing.T) {
				c, cursor := tt.cutter, s.begin
				c.hub = h
				for x := range c.cuts(t, cursor) {
					n := x.cursor.Position - cursor.Position
					if n == 0 || n > uint64(tt.most) || x.changes != int(n) || x.from != cursor {
						t.Fatalf("cut after %v = %d changes from %v to %v, want at most %d", cursor, x.changes, x.from, x.cursor, tt.most)
					}
					doc := readXML(t, bodyOf(t, x))
					if len(doc.Items) != x.changes || doc.Header.From.UnixMicro() != x.from.Micros || doc.Header.Until.UnixMicro() != x.cursor.Micros {
						t.Fatalf("body has %d changes from %v to %v, want %d from %v to %v", len(doc.Items), doc.Header.From, doc.Header.Until, x.changes, x.from, x.cursor)
					}
					cursor = x.cursor
				}
				if got := cursor.Position - s.begin.Position; got != 76 {
					t.Errorf("got %d changes, want 76", got)
				}
			})
		}
	}
}

// The interval of a cut includes what the filter skipped before it.
func TestCutFilter(t *testing.T) {
	s := newSource(t, memorytest.Changes("a", 3), memorytest.Changes("b", 2), memorytest.Changes("a", 1), memorytest.Changes("b", 1))
	c := cutter{hub: s.window, changes: 2, filter: feed.Filter{Prefix: "https://example.org/b/"}}
	var got []string
	for x := range c.cuts(t, s.begin) {
		if x.changes == 0 {
			continue
		}
		doc := readXML(t, bodyOf(t, x))
		if len(doc.Items) != x.changes {
			t.Errorf("body has %d changes, want %d", len(doc.Items), x.changes)
		}
		got = append(got, fmt.Sprintf("%d-%d:%d", x.from.Position, x.cursor.Position, x.changes))
	}
	if want := []string{"0-5:2", "5-7:1"}; !slices.Equal(got, want) {
		t.Errorf("got cuts %v, want %v", got, want)
	}
}

// A retry repeats the cut byte for byte, whatever was published since, and wherever it is read from.
func TestCutAgain(t *testing.T) {
	s := newSource(t, memorytest.Changes("a", 3), memorytest.Changes("b", 2))
	first, want := cutter{hub: s.window}.mustCut(t, &point{cursor: s.begin})
	publishChanges(t, s.window, memorytest.Changes("c", 1))
	publishChanges(t, s.window, memorytest.Changes("d", 7))
	for name, c := range map[string]cutter{
		"window":         {hub: s.window, limit: 1},
		"memory":         {hub: s.memory, limit: 1},
		"smaller limits": {hub: s.memory, limit: 1, changes: 2, bytes: 100},
	} {
		if _, got := c.mustCut(t, &point{cursor: s.begin, until: first.cursor}); !bytes.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

// An entry whose values have the text of the XML around it is cut like any other.
func TestCutBetweenEntries(t *testing.T) {
	changes := memorytest.Changes("a", 3)
	for i := range changes {
		changes[i].Loc += "</url>\n  <url>\n</urlset>\n"
		changes[i].Attrs = []resourcesync.Attr{{Namespace: "urn:x", Name: "y", Value: "</url>\n  <url>"}}
	}
	s := newSource(t, changes)
	at, entries := s.begin, s.batches[0].Entries
	for i := range entries {
		want := &feed.Batch{Set: "demo", After: at, Cursor: entries[i].Cursor, Entries: entries[i : i+1]}
		if _, got := (cutter{hub: s.window, limit: 1}).mustCut(t, &point{cursor: at}); !bytes.Equal(got, want.XML()) {
			t.Errorf("entry %d: got\n%s\nwant\n%s", i, got, want.XML())
		}
		at = entries[i].Cursor
	}
}

// A countingLog counts the reads that found something.
type countingLog struct {
	changelog.Log
	reads atomic.Int64
}

func (l *countingLog) Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error) {
	b, err := l.Log.Since(ctx, set, after, limit)
	if err == nil && len(b.Entries) > 0 {
		l.reads.Add(1)
	}
	return b, err
}

// Subscriptions that are behind share what is read and encoded, wherever they start, because their cuts
// soon end where batches do.
func TestCutsShare(t *testing.T) {
	const entries, subs, starts = 7_500, 100, 25
	log := &countingLog{Log: memorytest.Open(t)}
	h := hub.New(log, hub.Options{})
	t.Cleanup(h.Close)
	for range entries / 500 {
		publishChanges(t, h, memorytest.Changes("a", 500))
	}
	firsts, err := log.Log.Since(t.Context(), "demo", feed.Cursor{}, starts)
	if err != nil {
		t.Fatal(err)
	}
	texts := make([]map[*byte]bool, subs)
	var wg sync.WaitGroup
	for i := range subs {
		texts[i] = map[*byte]bool{}
		wg.Go(func() {
			for c := range (cutter{hub: h}).cuts(t, firsts.Entries[i%starts].Cursor) {
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
		t.Errorf("two subscriptions share the texts of %d cuts, want at least %d", shared, entries/1000-1)
	}
	// The first page of each start, the whole pages, and the last one, which is not cached.
	if n, most := log.reads.Load(), int64(starts+entries/1000+subs); n > most {
		t.Errorf("got %d reads, want at most %d", n, most)
	}
}

func TestCutDivergedAndGone(t *testing.T) {
	s := newSource(t, memorytest.Changes("a", 3), memorytest.Changes("b", 2))
	other := s.batches[1].Cursor
	other.Micros -= 7 // of a log that had another tail
	at := point{cursor: other, from: s.batches[0].Cursor, until: other}
	c, body := cutter{hub: s.memory}.mustCut(t, &at)
	if want := (point{cursor: s.begin, diverged: true}); at.cursor.Position != 0 || !at.diverged || !at.until.IsZero() || c.from != at.cursor {
		t.Fatalf("cut of a log without its tail is from %v and sets the point to %+v, want %+v", c.from, at, want)
	}
	if !bytes.Contains(body, []byte(`h:diverged="true"`)) {
		t.Errorf("body has no h:diverged:\n%s", body)
	}
	at = point{cursor: feed.Cursor{Position: 1, Micros: 5}}
	if _, err := (cutter{hub: s.memory}).cut(t, &at); !errors.Is(err, feed.ErrGone) {
		t.Errorf("cut(%+v): %v, want %v", at, err, feed.ErrGone)
	}
}
