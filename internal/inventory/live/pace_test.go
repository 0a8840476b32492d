package live

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
)

// TestPace shows how much of the time the maker works: all of it while nothing changes, a
// quarter while changes come. It sees both in the midst of work.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		head, rate := 1_000_000.0, 0.0 // of changes, and how many come each second
		last := time.Now()
		p := &pace{}
		p.look = func(context.Context) {
			head, last = head+time.Since(last).Seconds()*rate, time.Now()
			p.saw([]feed.State{{Set: "a", Begin: 1, Head: feed.Cursor{Position: uint64(head)}}}, true)
		}
		// works returns which part of the time the pace works, once it is used to it.
		works := func() float64 {
			share := 0.0
			for range 2 {
				p.begin()
				worked, begin := 0.0, time.Now()
				for time.Since(begin) < 2*busyFor {
					time.Sleep(time.Millisecond) // work
					worked++
					for range stepSize {
						if err := p.step(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
				}
				share = worked / float64(time.Since(begin).Milliseconds())
			}
			return share
		}
		p.look(t.Context())
		for _, test := range []struct {
			name        string
			rate        float64
			least, most float64
		}{
			{"no changes", 0, 1, 1},
			{"changes come", 1000, .2, .3},
			{"many come", 500_000, .2, .3},
			{"nothing changes any more", 0, 1, 1},
		} {
			rate = test.rate
			if got := works(); got < test.least || got > test.most {
				t.Errorf("%s: it works %.3f of the time, want %v to %v", test.name, got, test.least, test.most)
			}
		}

		// It does not work for long at full speed on a set that it has not seen before.
		rate = 0
		p = &pace{look: p.look}
		p.look(t.Context())
		rate = 1000
		p.begin()
		begin := time.Now()
		for p.moved.IsZero() && time.Since(begin) < time.Minute {
			time.Sleep(slice)
			p.breathe(t.Context())
		}
		if took := time.Since(begin); took > 2*lookEvery {
			t.Errorf("it worked without a rest for %v", took)
		}
	})
}
