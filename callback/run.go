package callback

import (
	"context"
	"sync"
	"time"
)

// leaveTime bounds how long the claims may take to be given up. It is long, because
// other things end the wait: Shutdown has the caller's deadline, and claims that cannot
// be renewed end by themselves.
const leaveTime = time.Hour

// Run gains claims and works on their shards, until ctx is done or Shutdown is called.
// It owns every goroutine of the Engine and waits for them. When ctx ends without
// Shutdown, the requests under way are cancelled, and another hub sends them again. Run
// may be called once.
func (e *Engine) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { e.ringLoop(e.ctx) })
	wg.Go(func() { e.saveLoop(e.ctx) })
	wg.Go(func() { e.watchInboxes(e.ctx) })
	wg.Go(func() { e.watchRights(e.ctx) })
	wg.Go(func() {
		defer close(e.released)
		e.claims.Run(e.working, leaveTime)
	})
	select {
	case <-ctx.Done():
		e.Shutdown(ctx)
	case <-e.released:
	}
	e.cancel()
	wg.Wait()
	e.wg.Wait()
	return nil
}

// Shutdown hands the work over to other hubs. It starts no more requests and waits for
// those that are under way; when ctx is done it cancels them. It saves their results, and
// gives the claims up. When Shutdown returns, that is done, and Run returns soon. Run
// must have been called.
func (e *Engine) Shutdown(ctx context.Context) {
	e.mu.Lock()
	e.draining = true
	e.mu.Unlock()
	e.stop()
	select {
	case <-e.released:
		return
	case <-ctx.Done():
	}
	e.mu.Lock()
	for _, s := range e.shards {
		s.cancel()
	}
	e.mu.Unlock()
	<-e.released
}
