package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A reader is a follower that goes to a random hub with its cursor each time, and begins
// anew when it is told that its cursor is gone.
type reader struct {
	*hubtest.Follower
	soak   *soak
	change string // the only kind of change that it follows; empty: all
	manner string // "", slow, restless, sleeping, or called
	r      *rand.Rand

	// Mu guards these.
	skips   [][2]uint64 // what it was told is gone: behind the first, up to the second
	gones   int         // times that it was told so
	overran int         // how many of them because retention had passed its cursor
}

func (r *reader) name() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s of %s %s", r.manner, r.Way, r.Set, r.change))
}

// newReader returns a reader that does nothing yet.
func (s *soak) newReader(way, set, change, manner string) *reader {
	r := &reader{Follower: &hubtest.Follower{Way: way, Set: set, Cursor: "start"}, soak: s, change: change, manner: manner, r: s.of(2000 + len(s.readers))}
	if change != "" {
		r.Query = "&change=" + change
	}
	s.readers = append(s.readers, r)
	return r
}

// read starts a reader that connects.
func (s *soak) read(way, set, change, manner string) {
	r := s.newReader(way, set, change, manner)
	s.work.Go(func() {
		for s.ctx.Err() == nil {
			r.Hub = s.hub(r.r)
			ctx, stop := context.WithCancel(s.ctx)
			switch manner {
			case "slow":
				r.Pace = func() {
					rest(ctx, 5*time.Millisecond)
					if r.r.IntN(100) == 0 {
						rest(ctx, min(s.most, upTo(r.r, 8*time.Second)))
					}
				}
			case "restless":
				time.AfterFunc(100*time.Millisecond+upTo(r.r, 3*time.Second), stop)
			case "sleeping":
				r.sleep()
				r.Pace = stop
			}
			err := r.Connect(ctx)
			stop()
			r.over(err)
			rest(s.ctx, 20*time.Millisecond)
		}
	})
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// position is that of its cursor.
func (r *reader) position() uint64 {
	p, _, _ := hubtest.SplitCursor(r.At()) // 0 at the start
	return p
}

// told counts how often it was told that retention had passed its cursor.
func (r *reader) told() int {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.overran
}

// wrong returns what it has found wrong.
func (r *reader) wrong() error {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if len(r.Faults) > 0 {
		return fmt.Errorf("%s: %q", r.name(), r.Faults)
	}
	return nil
}

// sleep returns when retention has passed its cursor, so that the hub has to tell it so.
func (r *reader) sleep() {
	for at := r.position(); at > 0 && r.soak.ctx.Err() == nil && r.soak.floor(r.Set) <= at; {
		rest(r.soak.ctx, 300*time.Millisecond)
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Entries = nil // nobody compares them: it sleeps through checkpoints
}

// over notes how a connection ended. Gone is right where retention has passed the cursor,
// or where the set is being deleted.
func (r *reader) over(err error) {
	gone := errors.Is(err, hubtest.ErrGone)
	_, deleted := r.soak.ledgers[r.Set].head()
	at, floor := r.position(), uint64(0)
	if gone && !deleted {
		floor = r.soak.floor(r.Set)
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.Ends = append(r.Ends, err.Error()); len(r.Ends) > 3 {
		r.Ends = r.Ends[1:]
	}
	switch {
	case r.soak.ctx.Err() != nil:
	case r.Diverged > 0:
		r.Fault("it was told that the memory diverged")
	case !gone:
	case !deleted && floor <= at:
		r.Fault("its cursor %s is gone, and the floor is %d: %v", r.Cursor, floor, err)
	default:
		if r.gones++; deleted {
			r.skips = nil
		} else {
			r.overran++
			r.skips = append(r.skips, [2]uint64{at, floor})
		}
		r.soak.add("readers told gone", 1)
		r.Cursor, r.Begun = "start", false
	}
}

// floor is the position of a set's floor, as the first hub says it that can.
func (s *soak) floor(set string) (floor uint64) {
	for i := 0; s.ctx.Err() == nil; i++ {
		if v, err := state(s.Hubs[i%len(s.Hubs)], set); err == nil {
			floor, _, _ = hubtest.SplitCursor(v.Floor)
			break
		}
		rest(s.ctx, 100*time.Millisecond)
	}
	return floor
}

// state is what a hub says of a set.
func state(h *hubtest.Hub, set string) (v struct{ Begin, Floor, Head string }, err error) {
	a, err := hubtest.Request(http.MethodGet, h.URL+"/sets/"+set, nil)
	if err == nil && a.Status != http.StatusOK {
		err = fmt.Errorf("%d: %s", a.Status, a.Body)
	}
	if err == nil {
		err = json.Unmarshal(a.Body, &v)
	}
	return v, err
}
