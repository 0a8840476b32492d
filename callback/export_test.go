package callback

import (
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// Remains returns how many topics, hosts, groups, semaphores and counts the engine has. It is zero without
// subscriptions and requests.
func (e *Engine) Remains() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(e.topics) + len(e.queue.hosts) + len(e.queue.groups) + len(e.queue.semaphores) + len(e.counts.numbers)
	for _, sh := range e.shards {
		n += len(sh.subs) + len(sh.timers)
	}
	return n
}

// Cursor returns the cursor of a subscription in memory, which may be ahead of the stored one.
func (e *Engine) Cursor(id subscription.ID) feed.Cursor {
	sh := e.shard(id.Shard())
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.subs[id].Cursor
}
