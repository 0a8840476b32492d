package callback

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/claim"
)

// How late progress is stored. After a crash, the next hub repeats deliveries whose progress was not
// stored.
const (
	saveEvery   = 100 * time.Millisecond // after a delivery
	skipEvery   = time.Minute            // after a filter matched no entry
	saveRetry   = time.Second            // after a commit that failed
	commitTime  = 5 * time.Second        // longest time of a commit
	commitRetry = time.Second            // wait before the changes of a request are committed again
)

// A writer commits all changes to a shard, one commit at a time: the changes of a request immediately,
// progress and completed requests in batches.
type writer struct {
	shard  *shard
	commit chan struct{} // has an element during a commit

	mu       sync.Mutex
	progress map[subscription.ID]progress // to be stored
	done     []uint64                     // numbers of completed requests
	running  bool                         // whether run will store them
}

// A progress is a subscription.Progress in little memory.
type progress struct {
	subscription.Progress         // without Last
	history               history // instead of Last
}

// stored returns the progress as the registry is to store it.
func (p *progress) stored() subscription.Progress {
	stored := p.Progress
	stored.Last = p.history.attempts()
	return stored
}

func newWriter(sh *shard) *writer {
	return &writer{shard: sh, commit: make(chan struct{}, 1), progress: map[subscription.ID]progress{}}
}

// saveProgress has the progress of a subscription stored soon.
func (w *writer) saveProgress(id subscription.ID, p progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress[id] = p
	w.startLocked()
}

// complete has requests removed from the inbox soon.
func (w *writer) complete(numbers ...uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = append(w.done, numbers...)
	w.startLocked()
}

// startLocked starts run if there is something to store. The caller holds mu.
func (w *writer) startLocked() {
	if !w.running && len(w.progress)+len(w.done) > 0 {
		w.running = true
		w.shard.engine.wg.Go(w.run)
	}
}

// run stores progress and completed requests until nothing is left or the shard ends.
func (w *writer) run() {
	for wait := saveEvery; backoff.Sleep(w.shard.ctx, wait) == nil; {
		wait = saveEvery
		if !w.save() {
			wait = saveRetry
		}
		w.mu.Lock()
		w.running = len(w.progress)+len(w.done) > 0
		running := w.running
		w.mu.Unlock()
		if !running {
			return
		}
	}
}

// save stores progress and completed requests. It reports whether that succeeded, or the shard has ended.
func (w *writer) save() bool {
	err := w.commitAll(subscription.Changes{}, true)
	if err != nil && w.shard.ctx.Err() == nil {
		w.shard.engine.opts.Logger.Warn("callbacks: save of progress failed; retrying", "shard", w.shard.claim.Shard, "err", err)
		return false
	}
	return true
}

// commitAll commits changes together with the requests that were completed before: after a crash, they
// would be executed after the changes. With all, it commits progress, too. It blocks until that is
// durable.
func (w *writer) commitAll(changes subscription.Changes, all bool) error {
	w.commit <- struct{}{}
	defer func() { <-w.commit }()
	w.mu.Lock()
	done, saved := w.done, map[subscription.ID]progress(nil)
	w.done = nil
	if all {
		saved, w.progress = w.progress, map[subscription.ID]progress{}
	}
	w.mu.Unlock()
	changes.Done = append(changes.Done, done...)
	changes.Progress = make(map[subscription.ID]subscription.Progress, len(saved))
	for id, p := range saved {
		changes.Progress[id] = p.stored()
	}
	err := w.store(changes)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.done = append(w.done, done...)
		for id, p := range saved {
			if _, newer := w.progress[id]; !newer {
				w.progress[id] = p
			}
		}
		w.startLocked()
		return err
	}
	// Progress of before the commit must not be stored after it.
	for i := range changes.Put {
		delete(w.progress, changes.Put[i].ID())
	}
	for _, id := range changes.Delete {
		delete(w.progress, id)
	}
	return nil
}

// store commits changes. If the claim was lost, the shard ends.
func (w *writer) store(changes subscription.Changes) error {
	if len(changes.Put)+len(changes.Progress)+len(changes.Delete)+len(changes.Done) == 0 {
		return nil
	}
	// Progress is worth storing even if the shard is about to end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.shard.ctx), commitTime)
	defer cancel()
	err := w.shard.engine.registry.Commit(ctx, w.shard.claim.Claim, changes)
	if errors.Is(err, claim.ErrLost) {
		w.shard.lose()
	}
	return err
}

// saveSkipped has the cursors stored of an even part of the shards: each shard once in skipEvery.
func (e *Engine) saveSkipped(context.Context) {
	part := int(time.Now().Unix()) % int(skipEvery/time.Second)
	for _, sh := range e.allShards() {
		if sh.claim.Shard%int(skipEvery/time.Second) == part {
			sh.saveSkipped()
		}
	}
}

// saveSkipped has the cursors stored that have moved past entries which their filters did not match. A
// stored cursor that stays behind would be overrun by retention.
func (sh *shard) saveSkipped() {
	sh.mu.Lock()
	subs := slices.Collect(maps.Values(sh.subs))
	sh.mu.Unlock()
	for _, s := range subs {
		s.saveSkipped()
	}
}

func (s *sub) saveSkipped() {
	s.shard.mu.Lock()
	t := s.topic
	s.shard.mu.Unlock()
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	if s.stage != idle || s.topic != t {
		return // its owner will store it, or the next call
	}
	if s.pool == &s.audience.Members {
		s.catchUp(nil)
		s.moveTo(&s.audience.Members)
	}
	if s.saved != s.Cursor {
		s.save()
	}
}
