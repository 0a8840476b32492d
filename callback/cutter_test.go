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

// A counting counts the reads of a log that found something.
type counting struct {
	Log
	mu    sync.Mutex
	reads int
}

func (c *counting) Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error) {
	b, err := c.Log.Since(ctx, set, after, limit)
	if err == nil && len(b.Entries) > 0 {
		c.mu.Lock()
		c.reads++
		c.mu.Unlock()
	}
	return b, err
}

// Subscriptions that are behind share what is read and encoded, wherever they begin.
func TestCutsShare(t *testing.T) {
	log := &counting{Log: memorytest.Open(t)}
	batches := memorytest.Fill(t, log.Log.(*disklog.Log), "demo", memorytest.Changes("a", 50), memorytest.Changes("b", 50), memorytest.Changes("c", 50))
	src := keeping(log, 10, 1<<20, nil)
	var cursors []feed.Cursor
	for _, e := range batches[0].Entries[:25] {
		cursors = append(cursors, e.Cursor)
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			for at := (point{cursor: cursors[i%len(cursors)]}); ; {
				c, err := src.cut(t.Context(), demo, &at, notification, everything, 1000)
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
	if most := len(cursors) + 15; log.reads > most {
		t.Errorf("%d reads, want at most one for each that begins and one for each ten entries: %d", log.reads, most)
	}
}

func TestCutDivergedAndGone(t *testing.T) {
	log := memorytest.Open(t)
	batches := memorytest.Fill(t, log, "demo", memorytest.Changes("a", 3), memorytest.Changes("b", 2))
	src := keeping(log, 1000, 1<<20, nil)
	other := batches[1].Cursor
	other.Micros -= 7 // the cursor of a log that had another tail
	at := point{cursor: other, from: batches[0].Cursor, until: other}
	c, err := src.cut(t.Context(), demo, &at, notification, everything, 1000)
	if err != nil || !at.diverged || !at.until.IsZero() || c.from != at.cursor || at.cursor.Position != 0 {
		t.Fatalf("%v, %+v, %+v", err, at, c)
	}
	if !bytes.Contains(body(t, c), []byte(`h:diverged="true"`)) {
		t.Errorf("the body does not say diverged:\n%s", body(t, c))
	}
	at = point{cursor: feed.Cursor{Position: 1, Micros: 5}}
	if _, err := src.cut(t.Context(), demo, &at, notification, everything, 1000); !errors.Is(err, feed.ErrGone) {
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

// Deliveries from the same point at the same time share one read, and one text.
func TestCutOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := changelog.Appended{After: feed.Cursor{Micros: 1}, Cursor: feed.Cursor{Position: 3, Micros: 9}, Count: 3}
		log := &slowLog{batch: feed.NewBatch("demo", a.After, a.Cursor, memorytest.Changes("a", 3)), may: make(chan struct{})}
		src := keeping(log, 1000, 1<<20, nil)
		cuts := make([]*cut, 10)
		var wg sync.WaitGroup
		for i := range cuts {
			wg.Go(func() {
				var err error
				if cuts[i], err = src.cut(t.Context(), demo, &point{cursor: a.After}, notification, everything, 1000); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(log.may)
		wg.Wait()
		for _, c := range cuts {
			if c == nil || len(c.body) != 1 || &c.body[0][0] != &cuts[0].body[0][0] || c.changes != 3 {
				t.Errorf("got the cut %+v, another %+v", c, cuts[0])
			}
		}
		if log.reads != 1 {
			t.Errorf("%d reads", log.reads)
		}
		// What was read of a log that may be another one by now is not used.
		if _, err := src.cut(t.Context(), view{logKey: logKey{"demo", 1}}, &point{cursor: a.After}, notification, everything, 1000); err != nil || log.reads != 2 {
			t.Errorf("%v, %d reads", err, log.reads)
		}
	})
}

// An emptyLog has nothing.
type emptyLog struct{ Log }

func (emptyLog) Since(context.Context, string, feed.Cursor, int) (*feed.Batch, error) {
	return nil, feed.ErrGone
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
		src := keeping(emptyLog{}, 1000, 1<<20, nil)
		for range 1 + r.IntN(8) {
			from := r.IntN(60)
			to := from + 1 + r.IntN(60-from)
			src.cache.add(demo.logKey, &feed.Batch{Set: "demo", After: cursors[from], Cursor: cursors[to], Entries: whole.Entries[from:to]})
		}
		for i := range cursors {
			next := i
			parts, err := src.parts(t.Context(), demo, &point{cursor: cursors[i]}, 1+r.IntN(60))
			if (err == nil) != (len(parts) > 0) {
				t.Fatalf("%d parts, %v", len(parts), err)
			}
			for _, b := range parts {
				for _, e := range b.Entries[b.first:] {
					if next++; e.Cursor != cursors[next] {
						t.Fatalf("%v comes behind %v", e.Cursor, cursors[next-1])
					}
					found++
				}
			}
		}
		if parts, _ := src.parts(t.Context(), demo, &point{cursor: feed.Cursor{Position: 30, Micros: 1}}, 1); parts != nil {
			t.Fatal("something follows a cursor of another log")
		}
	}
	if found < 10_000 {
		t.Errorf("%d entries were found", found)
	}
}

// What is kept of all sets together is bounded.
func TestCacheIsBounded(t *testing.T) {
	src := keeping(emptyLog{}, 1000, 1<<20, nil)
	for i := range 100 {
		b := feed.NewBatch(fmt.Sprint("set", i), feed.Cursor{}, feed.Cursor{Position: 1, Micros: 1}, memorytest.Changes("a", 1))
		b.Entries[0].Change.Hash = "md5:" + strings.Repeat("0", 1<<19)
		src.cache.add(logKey{set: b.Set}, b)
	}
	for i := range 100 {
		_, err := src.cut(t.Context(), view{logKey: logKey{set: fmt.Sprint("set", i)}}, &point{}, notification, everything, 1000)
		if kept := err == nil; kept != (i >= 69) {
			t.Errorf("set%d is kept: %v", i, kept)
		}
	}
}
