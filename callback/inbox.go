package callback

import (
	"context"
	"time"

	"github.com/rshub/rshub/callback/subscription"
)

const (
	inboxEvery = 500 * time.Millisecond // interval of checks of the inboxes
	inboxTime  = time.Second            // longest time of a check
	inboxPage  = 100                    // most requests that are read at once

	// maxWaiting is the most requests of a shard that are read and not executed: all that an inbox can
	// have, with the room for operators.
	maxWaiting = subscription.InboxMax + subscription.InboxMax/10 + 1
)

// Send adds a request to the inbox of its shard. The request is durable when Send returns nil, and the
// hub that has the shard executes it soon. For errors, see Registry.Send.
func (e *Engine) Send(ctx context.Context, r subscription.Request) error {
	if err := e.registry.Send(ctx, r); err != nil {
		return err
	}
	if sh := e.shard(r.ID().Shard()); sh != nil { // the request need not wait for the next check
		sh.mu.Lock()
		defer sh.mu.Unlock()
		sh.sent++
		sh.newest = max(sh.newest, sh.after+1)
		sh.fetchLocked()
	}
	return nil
}

// checkInboxes reads new requests in the inboxes, which any hub may have sent.
func (e *Engine) checkInboxes(ctx context.Context) {
	var shards []*shard
	var numbers []int
	for _, sh := range e.allShards() {
		sh.mu.Lock()
		if sh.loaded && !sh.leaving {
			shards, numbers = append(shards, sh), append(numbers, sh.claim.Shard)
		}
		sh.mu.Unlock()
	}
	if len(shards) == 0 {
		return
	}
	checking, cancel := context.WithTimeout(ctx, inboxTime)
	defer cancel()
	newest, err := e.registry.Newest(checking, numbers)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		e.opts.Logger.Warn("callbacks: check of inboxes failed", "err", err)
	}
	for i, sh := range shards {
		sh.mu.Lock()
		sh.newest = max(sh.newest, newest[i])
		sh.fetchLocked()
		sh.mu.Unlock()
	}
}

// fetchLocked starts to read the inbox if it may have new requests. The caller holds mu.
func (sh *shard) fetchLocked() {
	if !sh.loaded || sh.fetching || sh.leaving || sh.newest <= sh.after || sh.waiting >= maxWaiting || sh.ctx.Err() != nil {
		return
	}
	sh.fetching = true
	after, sent := sh.after, sh.sent
	sh.engine.wg.Go(func() {
		requests, err := sh.engine.registry.Inbox(sh.ctx, sh.claim.Shard, after, inboxPage)
		sh.mu.Lock()
		defer sh.mu.Unlock()
		sh.fetching = false
		switch {
		case sh.ctx.Err() != nil:
			return
		case err != nil: // the next check reads it again
			sh.engine.opts.Logger.Warn("callbacks: read of an inbox failed", "shard", sh.claim.Shard, "err", err)
			return
		}
		for _, r := range requests {
			sh.after = max(sh.after, r.Number)
			if r.Mode == "" {
				sh.engine.opts.Logger.Error("callbacks: invalid request left in the inbox", "shard", sh.claim.Shard, "number", r.Number)
				continue
			}
			sh.addRequest(r)
		}
		if len(requests) == 0 {
			sh.newest = sh.after // the requests have left the inbox
		}
		if sh.sent != sent { // while the inbox was read
			sh.newest = max(sh.newest, sh.after+1)
		}
		sh.fetchLocked()
	})
}

// addRequest adds a request to the commands of its sub. The caller holds mu.
func (sh *shard) addRequest(r subscription.Request) {
	e, id, c := sh.engine, r.ID(), &command{Request: r}
	s := sh.subs[id]
	if s == nil {
		s = &sub{id: id, shard: sh, host: e.queue.host(r.Callback), standing: untried}
		sh.subs[id] = s
	}
	before := len(s.commands)
	sh.writer.complete(s.commands.add(c)...)
	sh.waiting += len(s.commands) - before
	if r.Mode == subscription.Subscribe && !s.active() && s.fresh == nil {
		s.setFreshLocked(&countKey{fresh: true, host: s.host.name, set: r.Set, owner: r.By})
	}
	if c.Mode.ByOperator() { // waits neither for a call nor for the permits of a subscriber
		if s.cancel != nil {
			s.cancel()
		}
		if s.stage == queued && e.queue.remove(s) {
			s.stage = idle
		}
	}
	s.wakeLocked()
}
