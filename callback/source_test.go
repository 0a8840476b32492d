package callback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/memorytest"
)

func newSource(log Log, set string, s *spans, l limits) *source {
	return &source{set: set, log: log, spans: s, limits: l}
}

// A counting counts the reads of a log.
type counting struct {
	Log
	mu     sync.Mutex
	sinces int
}

func (c *counting) Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error) {
	c.mu.Lock()
	c.sinces++
	c.mu.Unlock()
	return c.Log.Since(ctx, set, after, limit)
}

// Subscriptions that are behind by about as much share what is read and encoded.
func TestCutsShare(t *testing.T) {
	log := &counting{Log: memorytest.Open(t)}
	batches := memorytest.Fill(t, log.Log.(*disklog.Log), "demo", memorytest.Changes("a", 50), memorytest.Changes("b", 50), memorytest.Changes("c", 50))
	src := newSource(log, "demo", &spans{}, limits{1000, 1 << 20})
	begin := batches[0].After
	if _, err := src.cut(t.Context(), &point{cursor: begin}, everything, 1000, 0); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			at := point{cursor: feed.Cursor{}}
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
				at = point{cursor: c.cursor}
			}
		})
	}
	wg.Wait()
	// All of it is one span; only the head itself needs another read.
	if src.spans.used.Len() != 1 {
		t.Errorf("%d pages were made", src.spans.used.Len())
	}
	t.Logf("%d reads", log.sinces)
}

func TestCutDivergedAndGone(t *testing.T) {
	log := memorytest.Open(t)
	batches := memorytest.Fill(t, log, "demo", memorytest.Changes("a", 3), memorytest.Changes("b", 2))
	src := newSource(log, "demo", &spans{}, limits{1000, 1 << 20})
	other := batches[1].Cursor
	other.Micros -= 7 // the cursor of a log that had another tail
	at := point{cursor: other, from: batches[0].Cursor, until: other}
	c, err := src.cut(t.Context(), &at, everything, 1000, 0)
	if err != nil || !at.diverged || !at.until.IsZero() || c.from != at.cursor || at.cursor.Position != 0 {
		t.Fatalf("%v, %+v, %+v", err, at, c)
	}
	if !bytes.Contains(body(t, c), []byte(`h:diverged="true"`)) {
		t.Errorf("the body does not say diverged:\n%s", body(t, c))
	}
	at = point{cursor: feed.Cursor{Position: 1, Micros: 5}}
	if _, err := src.cut(t.Context(), &at, everything, 1000, 0); !errors.Is(err, feed.ErrGone) {
		t.Errorf("%v, want ErrGone", err)
	}
}

// A slowLog has one batch, and yields it when it may.
type slowLog struct {
	Log
	batch *feed.Batch
	may   chan struct{}
	reads int
}

func (l *slowLog) Since(context.Context, string, feed.Cursor, int) (*feed.Batch, error) {
	l.reads++
	<-l.may
	return l.batch, nil
}

// Deliveries from the same point at the same time get the same cut.
func TestCutOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := changelog.Appended{After: feed.Cursor{Micros: 1}, Cursor: feed.Cursor{Position: 3, Micros: 9}, Count: 3}
		log := &slowLog{batch: feed.NewBatch("demo", a.After, a.Cursor, memorytest.Changes("a", 3)), may: make(chan struct{})}
		topic := &topic{source: newSource(log, "demo", &spans{}, limits{1000, 1 << 20})}
		cuts := make([]*cut, 10)
		var wg sync.WaitGroup
		for i := range cuts {
			wg.Go(func() {
				var err error
				if cuts[i], err = topic.cut(t.Context(), &point{cursor: a.After}, everything, 1000, 1); err != nil {
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
		// At another version, or from another point, the cut is another one.
		for _, at := range []point{{cursor: a.After}, {cursor: a.After, from: feed.Cursor{Micros: 1}}} {
			if c, err := topic.cut(t.Context(), &at, everything, 1000, 2); err != nil || c == cuts[0] {
				t.Errorf("%v, the cut is an old one", err)
			}
		}
	})
}

// Whatever runs of a log are kept, and however they overlap, the parts behind a cursor are the
// entries that follow it, without a hole.
func TestPartsFollow(t *testing.T) {
	log := memorytest.Open(t)
	begin := memorytest.Fill(t, log, "demo", memorytest.Changes("a", 60))[0].After
	whole, err := log.Since(t.Context(), "demo", begin, 0)
	if err != nil {
		t.Fatal(err)
	}
	cursors := []feed.Cursor{begin}
	for _, e := range whole.Entries {
		cursors = append(cursors, e.Cursor)
	}
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 300 {
		var all spans
		for range 1 + r.IntN(8) {
			from := r.IntN(60)
			to := from + 1 + r.IntN(60-from)
			all.add(&feed.Batch{Set: "demo", After: cursors[from], Cursor: cursors[to], Entries: whole.Entries[from:to]})
		}
		for i := range cursors {
			next := i
			for _, p := range all.behind("demo", cursors[i], 1+r.IntN(60)) {
				for _, e := range p.batch.Entries[p.first:] {
					if next++; e.Cursor != cursors[next] {
						t.Fatalf("%v comes behind %v", e.Cursor, cursors[next-1])
					}
					found++
				}
			}
		}
		if other := (feed.Cursor{Position: 30, Micros: 1}); all.behind("demo", other, 1) != nil {
			t.Fatal("something follows a cursor of another log")
		}
	}
	if found < 10_000 {
		t.Errorf("%d entries were found", found)
	}
}

// The spans of all sets together are bounded, in bytes and in number.
func TestSpansAreBounded(t *testing.T) {
	var all spans
	for i := range 200 {
		b := feed.NewBatch(fmt.Sprint("set", i), feed.Cursor{}, feed.Cursor{Position: 1, Micros: 1}, memorytest.Changes("a", 1))
		b.Entries[0].Change.Hash = "md5:" + strings.Repeat("0", 1<<19)
		all.add(b)
	}
	n := all.used.Len()
	if all.bytes > spansBytes || n < 120 || n >= 200 || len(all.sets) != n {
		t.Errorf("%d bytes, %d spans, %d sets", all.bytes, n, len(all.sets))
	}
	if all.behind("set0", feed.Cursor{}, 1) != nil || len(all.behind("set199", feed.Cursor{}, 1)) != 1 {
		t.Error("the oldest is kept, or the newest is not")
	}
	all.forget("set199")
	if all.behind("set199", feed.Cursor{}, 1) != nil || all.used.Len() != n-1 {
		t.Error("a set is not forgotten")
	}
	b := feed.NewBatch("set", feed.Cursor{}, feed.Cursor{Position: 1, Micros: 1}, memorytest.Changes("a", 1))
	for range mostSpans + 100 {
		all.add(b)
		b = feed.NewBatch("set", b.Cursor, feed.Cursor{Position: b.Cursor.Position + 1, Micros: b.Cursor.Micros + 1}, memorytest.Changes("a", 1))
	}
	if n := all.used.Len(); n != mostSpans || len(all.sets) != 1 {
		t.Errorf("%d spans of %d sets", n, len(all.sets))
	}
}
