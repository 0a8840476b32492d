package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A reader is a follower that goes to a random hub with its cursor each time,
// and begins anew when it is told that its cursor is gone.
type reader struct {
	*hubtest.Follower
	change  string // the only kind of change that it follows; empty: all
	manner  string // "", slow, restless or sleeping
	rand    *rand.Rand
	cancel  context.CancelFunc
	done    chan struct{}
	skips   [][2]uint64 // what it was told is gone: behind the first, up to the second. mu guards it
	gones   int         // times that it was told so. mu guards it
	overran int         // how many of them because retention had passed its cursor. mu guards it
	total   int         // entries that were compared

	// mu guards these.
	awaited uint64    // the position that it is awaited at
	there   time.Time // when it got there
}

func (r *reader) name() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s of %s %s", r.manner, r.Way, r.Set, r.change))
}

// await has the reader note when it gets to a position.
func (r *reader) await(position uint64) {
	r.Mu.Lock()
	r.awaited, r.there = position, time.Time{}
	r.Mu.Unlock()
	r.look()
}

// look notes when the reader is where it is awaited.
func (r *reader) look() {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if p, _, err := hubtest.SplitCursor(r.Cursor); r.there.IsZero() && (r.awaited == 0 || err == nil && p >= r.awaited) {
		r.there = time.Now()
	}
}

// arrived says when the reader got to where it is awaited.
func (r *reader) arrived() (time.Time, error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.there.IsZero() {
		return r.there, fmt.Errorf("it is at %s, not at %d; ends %q", r.Cursor, r.awaited, r.Ends)
	}
	return r.there, nil
}

// told counts how often it was told that retention had passed its cursor.
func (r *reader) told() int {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.overran
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (s *soak) read(way, set, change, manner string) {
	f := &hubtest.Follower{Way: way, Set: set, Cursor: "start"}
	if change != "" {
		f.Query = "&change=" + change
	}
	r := &reader{Follower: f, change: change, manner: manner, rand: rand.New(rand.NewPCG(s.seed, uint64(2000+len(s.readers)))), done: make(chan struct{})}
	s.readers = append(s.readers, r)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() {
		defer close(r.done)
		for ctx.Err() == nil {
			f.Hub = s.c.Hubs[r.rand.IntN(3)]
			some, stop := context.WithCancel(ctx)
			switch manner {
			case "":
				f.Pace = r.look
			case "slow":
				f.Pace = func() {
					rest(ctx, 5*time.Millisecond)
					if r.rand.IntN(100) == 0 {
						rest(ctx, min(s.most, time.Duration(r.rand.IntN(8000))*time.Millisecond))
					}
				}
			case "restless":
				time.AfterFunc(time.Duration(100+r.rand.IntN(3000))*time.Millisecond, stop)
			case "sleeping":
				s.sleep(ctx, r)
				f.Pace = stop
			}
			err := f.Connect(some)
			stop()
			if ctx.Err() == nil {
				s.over(ctx, r, err)
			}
			rest(ctx, 20*time.Millisecond)
		}
	}()
}

// floor is the position of a set's floor, as the first hub says it that can.
func (s *soak) floor(ctx context.Context, set string) (floor uint64) {
	for i := 0; ctx.Err() == nil; i++ {
		if v, err := state(s.c.Hubs[i%3], set); err == nil {
			floor, _, _ = hubtest.SplitCursor(v.Floor)
			break
		}
		rest(ctx, 100*time.Millisecond)
	}
	return floor
}

// sleep returns when retention has passed the reader's cursor, so that the hub
// has to tell it so.
func (s *soak) sleep(ctx context.Context, r *reader) {
	at, _, _ := hubtest.SplitCursor(r.At())
	for at > 0 && ctx.Err() == nil && s.floor(ctx, r.Set) <= at {
		rest(ctx, 300*time.Millisecond)
	}
	r.Mu.Lock()
	r.Entries = nil // nobody compares them: it sleeps through checkpoints
	r.Mu.Unlock()
}

// over notes how a connection ended. Gone is right where retention has passed
// the cursor, or where the set is being deleted.
func (s *soak) over(ctx context.Context, r *reader, err error) {
	gone := strings.HasPrefix(err.Error(), hubtest.ErrGone.Error())
	l := s.ledgers[r.Set]
	l.mu.Lock()
	deleted := l.deleted
	l.mu.Unlock()
	at, _, _ := hubtest.SplitCursor(r.At())
	var floor uint64
	if gone && !deleted {
		floor = s.floor(ctx, r.Set)
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.Ends = append(r.Ends, err.Error()); len(r.Ends) > 3 {
		r.Ends = r.Ends[1:]
	}
	switch {
	case ctx.Err() != nil:
	case r.Diverged > 0:
		r.Fault("it was told that the memory diverged")
	case !gone:
	case !deleted && floor <= at:
		r.Fault("its cursor %s is gone, and the floor is %d: %v", r.Cursor, floor, err)
	default:
		if r.gones++; !deleted {
			r.overran++
			r.skips = append(r.skips, [2]uint64{at, floor})
		} else {
			r.skips = nil
		}
		r.Cursor, r.Begun = "start", false
	}
}
