package poll

import (
	"time"

	"github.com/rshub/rshub/internal/outbound"
)

// Every poll starts as a quick one. After quickTime it becomes slow, so that slow sources do not
// delay others. Among the quick polls, and among the slow ones, at most one at a time polls a host,
// and the sets of one creator get only a share.
const (
	quickTime          = 2 * time.Second
	maxQuick           = 4
	maxQuickPerCreator = 2
	maxSlow            = 32
	maxSlowPerCreator  = 8
)

// A limiter bounds the number of concurrent polls.
type limiter struct {
	max, perCreator int
	inUse           int
	hosts           map[string]bool
	creators        map[string]int
}

func newLimiter(most, ofOne int) *limiter {
	return &limiter{max: most, perCreator: ofOne, hosts: map[string]bool{}, creators: map[string]int{}}
}

func hostGroup(s *source) string { return outbound.PlaceOf(outbound.Host(s.url)) }

// acquire takes a slot for a poll and reports whether one was free. A set without a known creator
// is not bound by the share of a creator.
func (r *limiter) acquire(s *source) bool {
	host, creator := hostGroup(s), s.state.By
	if r.inUse == r.max || r.hosts[host] || creator != "" && r.creators[creator] == r.perCreator {
		return false
	}
	r.inUse++
	r.hosts[host] = true
	if creator != "" {
		r.creators[creator]++
	}
	return true
}

// release returns the slot that acquire took.
func (r *limiter) release(s *source) {
	r.inUse--
	delete(r.hosts, hostGroup(s))
	if by := s.state.By; by != "" {
		if r.creators[by]--; r.creators[by] == 0 {
			delete(r.creators, by)
		}
	}
}
