package writer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
)

// A publisher publishes to one set at a rate, for a pacer.
type publisher struct {
	rate   float64 // changes per second
	newest time.Time
	pacer  *pacer
}

func newPublisher() *publisher {
	p := &publisher{newest: time.Now(), pacer: &pacer{}}
	p.pacer.poll = func(context.Context) {
		if time.Since(p.newest).Seconds()*p.rate >= 1 {
			p.newest = time.Now()
		}
		p.pacer.observe([]feed.State{{Set: "a", Head: feed.Cursor{Micros: p.newest.UnixMicro()}}})
	}
	p.pacer.poll(context.Background())
	return p
}

// workShare works for some time, and returns the share of the time in which the pacer let it work.
func (p *publisher) workShare(t *testing.T) float64 {
	p.pacer.startSlice()
	worked, start := 0.0, time.Now()
	for time.Since(start) < 2*busyFor {
		time.Sleep(time.Millisecond) // work, in fake time
		worked++
		for range stepsPerRead {
			if err := p.pacer.step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	return worked / float64(time.Since(start).Milliseconds())
}

func TestPacer(t *testing.T) {
	for _, tt := range []struct {
		name        string
		rates       []float64 // one after another
		least, most float64
	}{
		{"no changes", []float64{0}, 1, 1},
		{"changes", []float64{1000}, .2, .3},
		{"many changes", []float64{500_000}, .2, .3},
		{"changes stop", []float64{1000, 0}, 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPublisher()
				share := 0.0
				for _, p.rate = range tt.rates {
					p.workShare(t) // until the pacer has observed the rate
					share = p.workShare(t)
				}
				if share < tt.least || share > tt.most {
					t.Errorf("worked %.3f of the time, want %v to %v", share, tt.least, tt.most)
				}
			})
		})
	}
}

// TestPacerFirstChange starts to publish while updates work at full speed.
func TestPacerFirstChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPublisher()
		p.rate = 1000
		p.pacer.startSlice()
		start := time.Now()
		for p.pacer.changed.IsZero() && time.Since(start) < time.Minute {
			time.Sleep(slice)
			p.pacer.sleepIfDue(t.Context())
		}
		if d := time.Since(start); d > 2*pollInterval {
			t.Errorf("worked %v without sleeping, want at most %v", d, 2*pollInterval)
		}
	})
}
