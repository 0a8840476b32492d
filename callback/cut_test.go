package callback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/resourcesync"
)

// changes returns n changes whose locs begin with a name.
func changes(name string, n int) []resourcesync.Change {
	cs := make([]resourcesync.Change, n)
	for i := range cs {
		length := int64(i)
		cs[i] = resourcesync.Change{
			Loc: fmt.Sprintf("https://example.org/%s/%d?a&b", name, i), Change: resourcesync.Updated, Length: &length,
			Attrs: []resourcesync.Attr{{Namespace: "http://example.org/ns", Name: "note", Value: "<x>"}},
		}
	}
	return cs
}

func openLog(t testing.TB) *disklog.Log {
	t.Helper()
	log, err := disklog.Open(t.TempDir(), disklog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return log
}

// fill makes a set and appends publishes to it.
func fill(t testing.TB, log changelog.Log, set string, publishes ...[]resourcesync.Change) (batches []*changelog.Batch) {
	t.Helper()
	if err := log.Make(t.Context(), set, changelog.Description{}, 100); err != nil {
		t.Fatal(err)
	}
	for _, p := range publishes {
		a, err := log.Append(t.Context(), set, changelog.Publish{Changes: p})
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, changelog.NewBatch(set, a[0], p))
	}
	return batches
}

func newSource(log Log, set string, w *window, l limits) *source {
	return &source{set: set, log: log, window: w.behind, readings: &readings{}, limits: l}
}

func body(t testing.TB, c *cut) []byte {
	t.Helper()
	b, err := io.ReadAll(c.reader())
	if err != nil || int64(len(b)) != c.size() {
		t.Fatalf("%d bytes of %d: %v", len(b), c.size(), err)
	}
	return b
}

var everything = filters{}.of(changelog.Filter{})

// A cut is what changelog.Batch.XML says of the same entries, wherever they come
// from.
func TestCutIsTheBatch(t *testing.T) {
	log := openLog(t)
	batches := fill(t, log, "demo", changes("a", 3), changes("b", 2), changes("c", 4))
	var w window
	for _, b := range batches {
		w.add(b, windowBytes)
	}
	begin := batches[0].After
	for name, src := range map[string]*source{
		"window": newSource(log, "demo", &w, limits{1000, 1 << 20}),
		"memory": newSource(log, "demo", &window{}, limits{1000, 1 << 20}),
	} {
		all, err := log.Since(t.Context(), "demo", begin, 0)
		if err != nil {
			t.Fatal(err)
		}
		cursors := []changelog.Cursor{begin}
		for _, e := range all.Entries {
			cursors = append(cursors, e.Cursor)
		}
		for i, after := range cursors[:len(cursors)-1] {
			for _, diverged := range []bool{false, true} {
				at := &place{cursor: after, diverged: diverged}
				c, err := src.cut(t.Context(), at, everything, 1000, 0)
				if err != nil {
					t.Fatal(err)
				}
				want := &changelog.Batch{Set: "demo", After: after, Cursor: all.Cursor, Entries: all.Entries[i:], Diverged: diverged}
				if got := body(t, c); !bytes.Equal(got, want.XML()) {
					t.Fatalf("%s after %v:\n%s\nwant\n%s", name, after, got, want.XML())
				}
				if c.changes != len(all.Entries)-i || c.cursor != all.Cursor || c.from != after {
					t.Errorf("%s after %v: %+v", name, after, c)
				}
			}
		}
		if _, err := src.cut(t.Context(), &place{cursor: all.Cursor}, everything, 1000, 0); !errors.Is(err, errNothing) {
			t.Errorf("%s: at the head: %v", name, err)
		}
	}
	// Before the set was made: the log began just before its first entry.
	c, err := newSource(log, "demo", &window{}, limits{1000, 1 << 20}).cut(t.Context(), &place{}, everything, 1000, 0)
	if err != nil {
		t.Fatal(err)
	}
	all, _ := log.Since(t.Context(), "demo", changelog.Cursor{}, 0)
	if got := body(t, c); !bytes.Equal(got, all.XML()) {
		t.Errorf("from the zero cursor:\n%s\nwant\n%s", got, all.XML())
	}
}

// Cuts follow each other without a hole, and each is within the limits.
func TestCutLimits(t *testing.T) {
	log := openLog(t)
	batches := fill(t, log, "demo", changes("a", 30), changes("b", 1), changes("c", 45))
	one := len(pageOf(batches[1]))
	var w window
	for _, b := range batches {
		w.add(b, windowBytes)
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
		for name, src := range map[string]*source{"window": newSource(log, "demo", &w, test.limits), "memory": newSource(log, "demo", &window{}, test.limits)} {
			at := &place{cursor: batches[0].After}
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
				at = &place{cursor: c.cursor}
			}
			if total != 76 {
				t.Errorf("%s, %s: %d changes in all", test.name, name, total)
			}
		}
	}
}

func pageOf(b *changelog.Batch) []byte {
	text, _ := newPage(b).encoded()
	return text
}

// A filter leaves out, moves over what it leaves out, and keeps the intervals
// consecutive.
func TestCutFilter(t *testing.T) {
	log := openLog(t)
	batches := fill(t, log, "demo", changes("a", 3), changes("b", 2), changes("a", 1), changes("b", 1))
	f := filters{}.of(changelog.Filter{Prefix: "https://example.org/b/"})
	var w window
	for _, b := range batches {
		w.add(b, windowBytes)
	}
	src := newSource(log, "demo", &w, limits{2, 1 << 20})
	at := &place{cursor: batches[0].After}
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
		at = &place{cursor: c.cursor}
	}
	if want := "[0-4:1 4-6:1 6-7:1]"; fmt.Sprint(got) != want {
		t.Errorf("cuts are %v, want %s", got, want)
	}
}

// A retry repeats the cut byte for byte, whatever was published meanwhile and
// wherever it has to be read from by now.
func TestCutAgain(t *testing.T) {
	log := openLog(t)
	batches := fill(t, log, "demo", changes("a", 3), changes("b", 2))
	var w window
	for _, b := range batches {
		w.add(b, windowBytes)
	}
	at := place{cursor: batches[0].After}
	first, err := newSource(log, "demo", &w, limits{1000, 1 << 20}).cut(t.Context(), &at, everything, 1000, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range fill(t, log, "demo", changes("c", 1), changes("d", 7)) {
		w.add(b, windowBytes)
	}
	for name, src := range map[string]*source{
		"window":         newSource(log, "demo", &w, limits{1000, 1 << 20}),
		"memory":         newSource(log, "demo", &window{}, limits{1000, 1 << 20}),
		"smaller limits": newSource(log, "demo", &window{}, limits{2, 100}),
	} {
		at := place{cursor: batches[0].After, until: first.cursor}
		again, err := src.cut(t.Context(), &at, everything, 1, 0)
		if err != nil || !bytes.Equal(body(t, again), body(t, first)) {
			t.Errorf("%s: %v:\n%s", name, err, body(t, again))
		}
	}
}

// counting counts what is asked of a memory.
type counting struct {
	Log
	mu     sync.Mutex
	sinces int
}

func (c *counting) Since(ctx context.Context, set string, after changelog.Cursor, limit int) (*changelog.Batch, error) {
	c.mu.Lock()
	c.sinces++
	c.mu.Unlock()
	return c.Log.Since(ctx, set, after, limit)
}

// Those who are behind by about as much share what is read and encoded.
func TestCutsShare(t *testing.T) {
	log := &counting{Log: openLog(t)}
	batches := fill(t, log.Log.(*disklog.Log), "demo", changes("a", 50), changes("b", 50), changes("c", 50))
	src := newSource(log, "demo", &window{}, limits{1000, 1 << 20})
	begin := batches[0].After
	if _, err := src.cut(t.Context(), &place{cursor: begin}, everything, 1000, 0); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			at := place{cursor: changelog.Cursor{}}
			if i%2 == 0 {
				at.cursor = batches[i%3].Cursor
			} else {
				at.cursor = begin
			}
			for {
				c, err := src.cut(t.Context(), &at, everything, 10, 0)
				if errors.Is(err, errNothing) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				at = place{cursor: c.cursor}
			}
		})
	}
	wg.Wait()
	// All of it is one page; only the head itself has to be asked about.
	if src.readings.used.Len() != 1 {
		t.Errorf("%d pages were made", src.readings.used.Len())
	}
	t.Logf("%d reads", log.sinces)
}

func TestCutDivergedAndGone(t *testing.T) {
	log := openLog(t)
	batches := fill(t, log, "demo", changes("a", 3), changes("b", 2))
	src := newSource(log, "demo", &window{}, limits{1000, 1 << 20})
	other := batches[1].Cursor
	other.Micros -= 7 // of a log that had another tail
	at := place{cursor: other, from: batches[0].Cursor, until: other}
	c, err := src.cut(t.Context(), &at, everything, 1000, 0)
	if err != nil || !at.diverged || !at.until.IsZero() || c.from != at.cursor || at.cursor.Position != 0 {
		t.Fatalf("%v, %+v, %+v", err, at, c)
	}
	if !bytes.Contains(body(t, c), []byte(`h:diverged="true"`)) {
		t.Errorf("the body does not say diverged:\n%s", body(t, c))
	}
	at = place{cursor: changelog.Cursor{Position: 1, Micros: 5}}
	if _, err := src.cut(t.Context(), &at, everything, 1000, 0); !errors.Is(err, changelog.ErrGone) {
		t.Errorf("%v, want ErrGone", err)
	}
}

// What is kept of old pages is bounded over all sets.
func TestReadingsAreBounded(t *testing.T) {
	var r readings
	b := &changelog.Batch{Set: "x", Cursor: changelog.Cursor{Position: 1}, Entries: make([]changelog.Entry, 1)}
	b.Entries[0].Cursor = b.Cursor
	for i := range 100 {
		p := newPage(b)
		p.size = 1 << 20
		r.add(fmt.Sprint("set", i), p)
	}
	if r.bytes > readBytes || r.used.Len() != readBytes>>20 || len(r.sets) != r.used.Len() {
		t.Errorf("%d bytes, %d pages, %d sets", r.bytes, r.used.Len(), len(r.sets))
	}
	r.forget("set99")
	if p, _ := r.behind("set99", changelog.Cursor{}); p != nil || r.used.Len() != readBytes>>20-1 {
		t.Error("a set is not forgotten")
	}
}

// A page is encoded by who comes first, and waited for by the others.
func TestPageOnce(t *testing.T) {
	a := changelog.Appended{After: changelog.Cursor{Micros: 1}, Cursor: changelog.Cursor{Position: 3, Micros: time.Now().UnixMicro()}}
	p := newPage(changelog.NewBatch("demo", a, changes("a", 3)))
	var wg sync.WaitGroup
	var first [16]*byte
	for i := range first {
		wg.Go(func() {
			text, _ := p.encoded()
			first[i] = &text[0]
		})
	}
	wg.Wait()
	for i := range first {
		if first[i] != first[0] {
			t.Fatal("it was encoded twice")
		}
	}
}

// A slowLog has one batch, and gives it when it may.
type slowLog struct {
	Log
	batch *changelog.Batch
	may   chan struct{}
	reads int
}

func (l *slowLog) Since(context.Context, string, changelog.Cursor, int) (*changelog.Batch, error) {
	l.reads++
	<-l.may
	return l.batch, nil
}

// Those that are at the same place at the same time get the same cut.
func TestCutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := changelog.Appended{After: changelog.Cursor{Micros: 1}, Cursor: changelog.Cursor{Position: 3, Micros: 9}, Count: 3}
		log := &slowLog{batch: changelog.NewBatch("demo", a, changes("a", 3)), may: make(chan struct{})}
		topic := &topic{source: newSource(log, "demo", &window{}, limits{1000, 1 << 20})}
		cuts := make([]*cut, 10)
		var wg sync.WaitGroup
		for i := range cuts {
			wg.Go(func() {
				var err error
				if cuts[i], err = topic.cut(t.Context(), &place{cursor: a.After}, everything, 1000, 1); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(log.may)
		wg.Wait()
		for _, c := range cuts {
			if c == nil || c != cuts[0] || c.changes != 3 {
				t.Errorf("got the cut %p, another %p", c, cuts[0])
			}
		}
		if log.reads != 1 {
			t.Errorf("%d reads", log.reads)
		}
		// Of another version, and of another place, it is another.
		for _, at := range []place{{cursor: a.After}, {cursor: a.After, from: changelog.Cursor{Micros: 1}}} {
			if c, err := topic.cut(t.Context(), &at, everything, 1000, 2); err != nil || c == cuts[0] {
				t.Errorf("%v, the cut is an old one", err)
			}
		}
	})
}

// What everybody has got is kept in memory for nobody.
func TestWindowIsForThoseBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		c := w.listen("a.example")
		w.subscribe(c)
		kept := func() int {
			w.engine.mu.Lock()
			defer w.engine.mu.Unlock()
			return w.engine.topics["demo"].window.bytes
		}
		c.says(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) })
		w.publish("a", 5)
		w.settled()
		if kept() == 0 {
			t.Error("nothing is kept for who is behind")
		}
		time.Sleep(2 * time.Second)
		w.settled()
		if n := kept(); n != 0 {
			t.Errorf("%d bytes are kept", n)
		}
		c.check(0, 5)
	})
}

// What comes for a set of which the last subscription has just left is for nobody.
func TestPublishToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		e := w.engine
		e.mu.Lock()
		topic := e.topic("demo")
		e.forsake(topic)
		e.mu.Unlock()
		before := w.head()
		w.publish("a", 1)
		batch, err := w.log.Since(t.Context(), "demo", before, 0)
		if err != nil {
			t.Fatal(err)
		}
		e.publish(topic, []*changelog.Batch{batch})
		if n := topic.window.bytes; n != 0 {
			t.Errorf("%d bytes are kept", n)
		}
	})
}
