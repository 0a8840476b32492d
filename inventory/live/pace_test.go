package live

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
)

// TestPace shows how long the maker rests: not while nothing changes, for long while more
// changes come than it can take, and that it sees both in the midst of work.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		head, other := uint64(1_000_000), uint64(0)
		rate, elsewhere := 0.0, 0.0 // changes a second
		last := time.Now()
		p := &pace{}
		p.look = func(context.Context) {
			took := time.Since(last).Seconds()
			head, other, last = head+uint64(took*rate), other+uint64(took*elsewhere), time.Now()
			p.saw([]feed.State{
				{Set: "mine", Begin: 1, Head: feed.Cursor{Position: head}},
				{Set: "other", Begin: 1, Head: feed.Cursor{Position: other}},
			}, true, func(set string) bool { return set == "mine" })
		}
		// works returns which part of the time the pace works, once it is used to it.
		works := func(asked bool) float64 {
			share := 0.0
			for range 2 {
				p.begin(asked)
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
			name            string
			rate, elsewhere float64
			asked           bool
			least, most     float64
		}{
			{"nothing changes", 0, 0, false, 1, 1},
			{"changes come", 1000, 0, false, .2, .3},
			{"changes come to another hub's set", 0, 500_000, false, .2, .3},
			{"too many come", 500_000, 0, false, .02, .03},
			{"too many come, and a reader waits", 500_000, 0, true, .2, .3},
			{"nothing changes any more", 0, 0, false, 1, 1},
		} {
			rate, elsewhere = test.rate, test.elsewhere
			if got := works(test.asked); got < test.least || got > test.most {
				t.Errorf("%s: it works %.3f of the time, want %v to %v", test.name, got, test.least, test.most)
			}
		}

		// What is made of a set that was not seen before is not made at full speed for long,
		// if changes pour in.
		rate, head = 0, 0
		p = &pace{look: p.look}
		p.look(t.Context())
		rate = 500_000
		p.begin(false)
		begin := time.Now()
		for p.rests(time.Now()) == 0 && time.Since(begin) < time.Second {
			time.Sleep(slice)
			p.breathe(t.Context())
		}
		if took := time.Since(begin); took > 2*lookSoon+maxRest {
			t.Errorf("it worked without a rest for %v", took)
		}
	})
}
