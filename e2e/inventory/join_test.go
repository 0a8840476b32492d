package inventory

import (
	"sync"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestDestinations publishes a whole history while destinations join by a baseline at any
// moment, are killed, and go on. In the end each holds what the fold of all changes does,
// and proves it.
func TestDestinations(t *testing.T) {
	for _, load := range []struct {
		name string
		of   func(*testing.T) *hubtest.Load
	}{
		{"peps", func(t *testing.T) *hubtest.Load { return hubtest.PepsLoad(t) }},
		{"generated", func(t *testing.T) *hubtest.Load { return hubtest.GeneratedLoad(t, 3_000) }},
	} {
		t.Run(load.name, func(t *testing.T) {
			t.Run("a hub on disk", func(t *testing.T) {
				t.Parallel()
				join(t, load.of(t), hubtest.StartHub(t))
			})
			t.Run("two hubs on Redis", func(t *testing.T) {
				t.Parallel()
				l := load.of(t)
				join(t, l, hubtest.StartCluster(t, 2).Hubs...)
			})
		})
	}
}

func join(t *testing.T, l *hubtest.Load, hubs ...*hubtest.Hub) {
	r := hubtest.Random(t)
	s := newSource("joined")
	// Besides the history there are resources that it does not touch: so baselines are long.
	s.publish(t, hubs[0], resources("steady", size(5_000, 50_000)))
	s.complete(t, hubs[0])
	var all []*destination
	for _, way := range []string{byWebSocket, byEvents, byReplica} {
		all = append(all, newDestination(t, way, s.set, hubs))
	}
	for at := 0; at < len(l.Lines); {
		var wg sync.WaitGroup
		for _, h := range hubs { // all at once
			n := min(1+r.IntN(size(400, 60)), len(l.Lines)-at)
			if n == 0 {
				break
			}
			lines := l.Lines[at : at+n]
			at += n
			wg.Go(func() {
				if err := s.send(h, lines); err != nil {
					t.Error(err)
				}
			})
		}
		for _, d := range all {
			d.step(t, r, s)
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		if r.IntN(20) == 0 {
			s.proved(t, hubs[r.IntN(len(hubs))])
		}
	}
	for _, h := range hubs {
		s.proved(t, h)
	}
	for _, d := range all {
		d.inSync(t, s)
	}
}
