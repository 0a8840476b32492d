package poll

import (
	"time"

	"github.com/rshub/rshub/internal/outbound"
)

// Every look begins as a quick one. A look that lasts longer than quickTime becomes a
// slow one, so that slow sources do not delay the others. Of each kind, there is only one
// look at a time at one place, and the sets of one maker have only a share.
const (
	quickTime  = 2 * time.Second
	quickLooks = 4
	quickOfOne = 2
	slowLooks  = 32
	slowOfOne  = 8
)

// A room bounds how many looks are under way at once.
type room struct {
	most, ofOne int
	taken       int
	places      map[string]bool
	makers      map[string]int
}

func newRoom(most, ofOne int) *room {
	return &room{most: most, ofOne: ofOne, places: map[string]bool{}, makers: map[string]int{}}
}

func place(s *source) string { return outbound.PlaceOf(outbound.Host(s.url)) }

// enter takes room for a look, and reports whether there was any. A set without a known
// maker is not bound by a share.
func (r *room) enter(s *source) bool {
	at, by := place(s), s.state.By
	if r.taken == r.most || r.places[at] || by != "" && r.makers[by] == r.ofOne {
		return false
	}
	r.taken++
	r.places[at] = true
	if by != "" {
		r.makers[by]++
	}
	return true
}

// leave gives back what enter took.
func (r *room) leave(s *source) {
	r.taken--
	delete(r.places, place(s))
	if by := s.state.By; by != "" {
		if r.makers[by]--; r.makers[by] == 0 {
			delete(r.makers, by)
		}
	}
}
