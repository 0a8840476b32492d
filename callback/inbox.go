package callback

import (
	"context"
	"time"

	"github.com/rshub/rshub/callback/subscription"
)

// How often the inboxes are looked at, and how long one look may take.
const (
	inboxEvery = 500 * time.Millisecond
	inboxTime  = time.Second
)

// Most requests of one shard that are taken from the inbox before others are carried
// out, and most that are read at once.
const (
	maxWaiting = subscription.InboxMax
	inboxPage  = 100
)

// watchInboxes looks every inboxEvery whether requests came for the shards of this
// hub: any hub may have sent them. It ends with ctx.
func (e *Engine) watchInboxes(ctx context.Context) {
	tick := time.NewTicker(inboxEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.lookIntoInboxes(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// lookIntoInboxes asks the registry for the newest request of each shard, and fetches
// those that are new.
func (e *Engine) lookIntoInboxes(ctx context.Context) {
	e.mu.Lock()
	var shards []int
	for number, s := range e.shards {
		if s.loaded && !s.leaving {
			shards = append(shards, number)
		}
	}
	e.mu.Unlock()
	if len(shards) == 0 {
		return
	}
	looking, cancel := context.WithTimeout(ctx, inboxTime)
	defer cancel()
	newest, err := e.registry.Newest(looking, shards)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		e.opts.Logger.Warn("callbacks: some requests about subscriptions cannot be read", "err", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, number := range shards {
		if s := e.shards[number]; s != nil {
			s.newest = max(s.newest, newest[i])
			s.fetchLocked()
		}
	}
}

// fetchLocked starts to take requests from the inbox, if there are any and there is
// room for them. One goroutine at a time does so for a shard.
func (s *shard) fetchLocked() {
	if !s.loaded || s.fetching || s.leaving || s.newest <= s.after || s.waiting >= maxWaiting || s.ctx.Err() != nil {
		return
	}
	s.fetching = true
	after, sent := s.after, s.sent
	s.engine.wg.Go(func() {
		requests, err := s.engine.registry.Inbox(s.ctx, s.hold.Shard, after, inboxPage)
		if err != nil && s.ctx.Err() == nil {
			s.engine.opts.Logger.Warn("callbacks: the requests about the subscriptions of a shard cannot be read", "shard", s.hold.Shard, "err", err)
		}
		s.engine.mu.Lock()
		defer s.engine.mu.Unlock()
		s.fetching = false
		if s.ctx.Err() != nil || err != nil {
			return // the next look into the inboxes fetches again
		}
		for _, r := range requests {
			s.after = max(s.after, r.Number)
			if r.Mode == "" {
				s.engine.opts.Logger.Error("callbacks: a request about a subscription cannot be read; it is kept", "shard", s.hold.Shard, "number", r.Number)
				continue
			}
			s.carryLocked(r)
		}
		if len(requests) == 0 {
			s.newest = s.after // the requests left the inbox meanwhile
		}
		if s.sent != sent {
			s.newest = max(s.newest, s.after+1) // a request was sent while the inbox was read
		}
		s.fetchLocked()
		s.engine.fillLocked()
	})
}

// carryLocked adds a request to the errand of its subscription.
func (s *shard) carryLocked(r subscription.Request) {
	id := r.ID()
	x := s.errands[id]
	if x == nil {
		x = &errand{id: id, set: r.Set, by: r.By}
		x.task = task{work: x, host: s.engine.slots.host(r.Callback), shard: s, index: -1}
		s.errands[id] = x
	}
	if r.Mode == subscription.Subscribe && s.subs[id] == nil {
		x.setFreshLocked(true)
	}
	x.addLocked(&pending{Request: r})
}
