package subscribe

import (
	"sync"

	"github.com/rshub/rshub/feed"
)

// A progress says how far a long poll has been served. The goroutine of the request moves
// it, and the gauges read it. For others who follow, their conn says the same.
type progress struct {
	set string

	mu     sync.Mutex
	cursor feed.Cursor // of the last entry that was looked at
}

func (p *progress) moveTo(cursor feed.Cursor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cursor = cursor
}

func (p *progress) at() feed.Cursor {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cursor
}

// enter counts a long poll that is at a cursor. The caller calls leave when it ends.
func (s *Server) enter(set string, cursor feed.Cursor) (p *progress, leave func()) {
	p = &progress{set: set, cursor: cursor}
	s.mu.Lock()
	s.progress[p] = struct{}{}
	s.mu.Unlock()
	return p, func() {
		s.mu.Lock()
		delete(s.progress, p)
		s.mu.Unlock()
	}
}
