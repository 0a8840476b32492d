package poll

import (
	"time"

	"github.com/rshub/rshub/outbound"
)

// Looks begin as quick ones. A look that lasts longer than quickTime moves to the slow ones, so
// that sources which let the hub wait keep no others waiting. Of either, there is one at a
// time for one place, and a share for the sets of one maker.
const (
	quickTime  = 2 * time.Second
	quickLooks = 4
	quickOfOne = 2
	slowLooks  = 32
	slowOfOne  = 8
)

// A room is for so many looks at once.
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

// enter reports whether there is room for a look, and then takes it. Where nobody knows who
// made a set, there is no share.
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
