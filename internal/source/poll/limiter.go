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

func newLimiter(max, perCreator int) *limiter {
	return &limiter{max: max, perCreator: perCreator, hosts: map[string]bool{}, creators: map[string]int{}}
}

func hostGroup(s *source) string { return outbound.OwnerKey(outbound.Host(s.url)) }

// acquire takes a slot of a poll and reports whether one was free. A set without a known creator
// is not bound by the share of a creator.
func (l *limiter) acquire(s *source) bool {
	host, creator := hostGroup(s), s.state.By
	if l.inUse == l.max || l.hosts[host] || creator != "" && l.creators[creator] == l.perCreator {
		return false
	}
	l.inUse++
	l.hosts[host] = true
	if creator != "" {
		l.creators[creator]++
	}
	return true
}

// release returns the slot that acquire took.
func (l *limiter) release(s *source) {
	l.inUse--
	delete(l.hosts, hostGroup(s))
	if by := s.state.By; by != "" {
		if l.creators[by]--; l.creators[by] == 0 {
			delete(l.creators, by)
		}
	}
}
