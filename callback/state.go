package callback

import "time"

// A state is what the Engine's mutex guards: the fields here, and all that is reached by
// them, but what says that it is never changed or has a mutex of its own. Engine.lock
// returns it, so whoever has a state holds the mutex.
//
// Nobody holds the mutex while a request, a Commit or a read of the log blocks. Each of
// them copies what it needs before, and brings back its result after.
type state struct {
	engine *Engine // never changed

	shards   map[int]*shard
	topics   map[string]*topic
	slots    *slots
	schedule schedule
	warned   time.Time // when warnLate last logged
	draining bool      // no task gets a slot any more

	publishes uint64 // how often something new came in any set

	// What is counted, for limits and metrics.
	counts  counts
	stale   int            // subs whose secrets are to be encrypted anew
	missing map[string]int // subs whose secrets need a key that is missing, by its ID
}

// lock locks the mutex and returns what it guards, until unlock.
func (e *Engine) lock() *state {
	e.mu.Lock()
	return &e.state
}

// unlock unlocks the mutex. The caller must not use the state any more.
func (st *state) unlock() { st.engine.mu.Unlock() }
