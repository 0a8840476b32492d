package callback

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/memorytest"
)

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
