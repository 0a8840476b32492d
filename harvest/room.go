package harvest

import (
	"context"
	"slices"
	"sync"
)

// A room bounds how many fetches are under way, of all lists and of those at one
// place: a machine, or a domain. Who waits comes in in order, but nobody waits
// for a place that is not its own.
type room struct {
	total, perPlace int // set when it is made, never changed

	mu      sync.Mutex
	taken   int
	at      map[string]int // of taken, by place
	waiting []*visitor
}

// A visitor waits for its turn.
type visitor struct {
	place string
	in    chan struct{} // closed when it is in
}

func newRoom(total, perPlace int) *room {
	return &room{total: total, perPlace: perPlace, at: map[string]int{}}
}

// enter waits until there is room for a fetch at a place. It returns false when
// ctx ends before. Who has entered leaves.
func (r *room) enter(ctx context.Context, place string) bool {
	v := &visitor{place: place, in: make(chan struct{})}
	r.mu.Lock()
	r.waiting = append(r.waiting, v)
	r.admitLocked()
	r.mu.Unlock()
	select {
	case <-v.in:
		return true
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.waiting, v); i >= 0 {
		r.waiting = slices.Delete(r.waiting, i, i+1)
		return false
	}
	r.leaveLocked(place) // it came in at the same moment
	return false
}

// leave makes room for another fetch.
func (r *room) leave(place string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaveLocked(place)
}

func (r *room) leaveLocked(place string) {
	r.taken--
	if r.at[place]--; r.at[place] == 0 {
		delete(r.at, place)
	}
	r.admitLocked()
}

// admitLocked lets in those who may enter.
func (r *room) admitLocked() {
	r.waiting = slices.DeleteFunc(r.waiting, func(v *visitor) bool {
		if r.taken >= r.total || r.at[v.place] >= r.perPlace {
			return false
		}
		r.taken++
		r.at[v.place]++
		close(v.in)
		return true
	})
}
