package subscribe

import (
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

// A setWatch tells sessions which sets were created, deleted, or became private or public. It compares
// the states of all sets now and then, while there are sessions.
type setWatch struct {
	server *Server
	wakeup backoff.Wakeup // requests a comparison

	mu       sync.Mutex
	sessions map[*session]bool // whether the next comparison tells a session about all sets
	running  bool              // whether run runs
}

// A setState is the state of a set, or the absence of a set.
type setState struct {
	feed.State
	exists bool // if not, only State.Set is set
}

// Intervals between two comparisons of all sets. Without requests they take at most 1/scanShare of the
// time, and with requests at most 1/requestShare.
const (
	scanInterval    = 2 * time.Second
	maxScanInterval = 6 * time.Second
	scanShare       = 200
	requestShare    = 10
)

// add adds a session. The caller holds Server.mu and has checked that the server is not closing.
func (w *setWatch) add(c *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sessions[c] = false
	if !w.running {
		w.running = true
		w.server.wg.Go(w.run)
	}
}

func (w *setWatch) remove(c *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(w.sessions, c); len(w.sessions) == 0 {
		w.wakeup.Wake()
	}
}

// tellAll makes the next comparison tell a session about all sets. A session that has read the state of
// a set may not notice otherwise that the state returns to what the last comparison found.
func (w *setWatch) tellAll(c *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.sessions[c]; ok { // otherwise it has ended
		w.sessions[c] = true
	}
}

// takeRequests returns the sessions that must be told about all sets.
func (w *setWatch) takeRequests() (sessions []*session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, tellAll := range w.sessions {
		if tellAll {
			sessions = append(sessions, c)
			w.sessions[c] = false
		}
	}
	return sessions
}

// run compares the sets until there are no sessions.
func (w *setWatch) run() {
	defer w.server.follower.WatchSets(w.wakeup.Wake)()
	var known map[string]setSummary
	for {
		w.mu.Lock()
		if w.running = len(w.sessions) > 0; !w.running {
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		begin := time.Now()
		known = w.compare(known)
		took := time.Since(begin)
		if backoff.Sleep(w.server.ctx, min(requestShare*took, scanInterval)) != nil {
			return
		}
		interval := min(max(scanInterval, scanShare*took), maxScanInterval)
		if backoff.SleepOrWake(w.server.ctx, interval, w.wakeup) != nil {
			return
		}
	}
}

// A setSummary has the properties of a set that sessions must know.
type setSummary struct {
	begin   int64
	private bool
}

// compare tells the sessions what has changed since known, and returns the new summaries. At first,
// when known is nil, it tells them about all sets.
func (w *setWatch) compare(known map[string]setSummary) map[string]setSummary {
	requests := w.takeRequests() // before the states are read; see tellAll
	states, err := w.server.memory.Sets(w.server.ctx)
	now := make(map[string]setSummary, len(states))
	var changed, all []setState
	for _, st := range states {
		if len(requests) > 0 {
			all = append(all, setState{st, true})
		}
		s := setSummary{begin: st.Begin, private: st.Private}
		if before, ok := known[st.Set]; !ok || before != s {
			changed = append(changed, setState{st, true})
		}
		now[st.Set] = s
	}
	for set, before := range known {
		if _, ok := now[set]; ok {
			continue
		}
		if err != nil { // perhaps the set could not be read
			now[set] = before
			continue
		}
		changed = append(changed, setState{State: feed.State{Set: set}})
	}
	for _, c := range requests {
		c.addNews(all)
	}
	if len(changed) == 0 {
		return now
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.sessions {
		c.addNews(changed)
	}
	return now
}
