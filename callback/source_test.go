package callback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/memorytest"
)

func newSource(log Log, set string, w *window, l limits) *source {
	return &source{set: set, log: log, window: w.behind, readings: &readings{}, limits: l}
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
	src := newSource(log, "demo", &window{}, limits{1000, 1 << 20})
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
	if src.readings.used.Len() != 1 {
		t.Errorf("%d pages were made", src.readings.used.Len())
	}
	t.Logf("%d reads", log.sinces)
}

func TestCutDivergedAndGone(t *testing.T) {
	log := memorytest.Open(t)
	batches := memorytest.Fill(t, log, "demo", memorytest.Changes("a", 3), memorytest.Changes("b", 2))
	src := newSource(log, "demo", &window{}, limits{1000, 1 << 20})
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
	synctest.Test(t, func(t *testing.T) {
		a := changelog.Appended{After: feed.Cursor{Micros: 1}, Cursor: feed.Cursor{Position: 3, Micros: 9}, Count: 3}
		log := &slowLog{batch: feed.NewBatch("demo", a.After, a.Cursor, memorytest.Changes("a", 3)), may: make(chan struct{})}
		topic := &topic{source: newSource(log, "demo", &window{}, limits{1000, 1 << 20})}
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

// The readings of all sets together are bounded.
func TestReadingsAreBounded(t *testing.T) {
	var r readings
	b := &feed.Batch{Set: "x", Cursor: feed.Cursor{Position: 1}, Entries: make([]feed.Entry, 1)}
	b.Entries[0].Cursor = b.Cursor
	for i := range 100 {
		p := newSpan(b)
		p.size = 1 << 20
		r.add(fmt.Sprint("set", i), p)
	}
	if r.bytes > readBytes || r.used.Len() != readBytes>>20 || len(r.sets) != r.used.Len() {
		t.Errorf("%d bytes, %d pages, %d sets", r.bytes, r.used.Len(), len(r.sets))
	}
	r.forget("set99")
	if p, _ := r.behind("set99", feed.Cursor{}); p != nil || r.used.Len() != readBytes>>20-1 {
		t.Error("a set is not forgotten")
	}
}
