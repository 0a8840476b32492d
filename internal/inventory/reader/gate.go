package reader

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/internal/limit"
)

// A gate limits the baselines or the states in progress. One user gets at most half of them, because its connections may be slow.
type gate struct {
	max            int
	begun, refused prometheus.Counter
	inProgress     prometheus.Gauge

	mu     sync.Mutex
	n      int                 // in progress
	byUser map[*limit.User]int // the same by user, without zeros; nil is the hub itself, and callers without limits
}

// enter counts one in progress until the caller calls leave. It returns ErrTooMany if the maximum is reached.
func (g *gate) enter(user *limit.User) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n >= g.max || user != nil && g.byUser[user] >= (g.max+1)/2 {
		g.refused.Inc()
		return nil, ErrTooMany
	}
	g.begun.Inc()
	g.inProgress.Inc()
	g.n++
	g.byUser[user]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.n--
		g.inProgress.Dec()
		if g.byUser[user]--; g.byUser[user] == 0 {
			delete(g.byUser, user)
		}
	}, nil
}
