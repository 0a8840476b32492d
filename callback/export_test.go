package callback

import (
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// Remains returns how many topics, hosts, timers and counts the engine holds, besides one timer for
// each of its shards. It is zero without subscriptions and requests.
func (e *Engine) Remains() int {
	st := e.lock()
	defer st.unlock()
	return len(st.topics) + len(st.slots.hosts) + len(st.schedule) - len(st.shards) + len(st.counts)
}

// Cursor returns the cursor of a subscription in memory, which may be ahead of the stored one.
func (e *Engine) Cursor(id subscription.ID) feed.Cursor {
	st := e.lock()
	defer st.unlock()
	return st.shards[id.Shard()].subs[id].Cursor
}
