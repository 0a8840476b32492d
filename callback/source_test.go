package callback

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/memorytest"
)

func newSource(log Log, set string, w *window, l limits) *source {
	return &source{set: set, log: log, format: outlet.Notifications, window: w.behind, readings: &readings{}, limits: l}
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
