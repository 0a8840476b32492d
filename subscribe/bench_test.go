package subscribe_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/subscribe"
)

// A relay is a follower that has only the newest batch. Who is up to date gets each
// batch.
type relay struct {
	script
	mu    sync.Mutex
	batch *feed.Batch
	moved chan struct{}
}

func (f *relay) publish(b *feed.Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batch = b
	close(f.moved)
	f.moved = make(chan struct{})
}

func (f *relay) Follow(ctx context.Context, _ string, after feed.Cursor) iter.Seq2[[]*feed.Batch, error] {
	return func(yield func([]*feed.Batch, error) bool) {
		for ctx.Err() == nil {
			f.mu.Lock()
			b, moved := f.batch, f.moved
			f.mu.Unlock()
			if b != nil && b.After == after {
				if !yield([]*feed.Batch{b}, nil) {
					return
				}
				after = b.Cursor
				continue
			}
			select {
			case <-moved:
			case <-ctx.Done():
			}
		}
	}
}

// BenchmarkDelivery measures what it costs to bring a batch of one change to
// the connections of a group. The memory is left out; the clients' own reading
// is in it.
func BenchmarkDelivery(b *testing.B) {
	for _, conns := range []int{1, 100, 1000} {
		for _, query := range []string{"", "?prefix=https:"} {
			b.Run(fmt.Sprintf("conns=%d/filter=%v", conns, query != ""), func(b *testing.B) {
				f := &relay{script: script{head: run(0, 0, 0).Cursor}, moved: make(chan struct{})}
				s := newSite(b, settings{
					Options:  subscribe.Options{Heartbeat: time.Hour},
					follower: func(subscribe.Follower) subscribe.Follower { return f },
					memory:   func(subscribe.Memory) subscribe.Memory { return f },
				})
				var got sync.WaitGroup
				for range conns {
					c := s.dial(query, dialer{})
					c.next()
					go func() {
						for {
							if _, _, err := c.ws.NextReader(); err != nil {
								return
							}
							got.Done()
						}
					}()
				}
				eventually(b, "all are in their groups", func() bool { return !strings.Contains(stacks(), "subscribe.(*conn).follow") })
				position := uint64(0)
				b.ReportAllocs()
				for b.Loop() {
					got.Add(conns)
					f.publish(run(0, position, position+1))
					got.Wait()
					position++
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(conns), "ns/delivery")
			})
		}
	}
}
