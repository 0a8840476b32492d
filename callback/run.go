package callback

import (
	"context"
	"sync"
)

// Run works until ctx is done, or until Shutdown is through. It owns every
// goroutine of the Engine and waits for them. When ctx ends first, what is under
// way is cancelled and nothing more is saved, as in a crash: some deliveries
// will be repeated. Run may be called once.
func (e *Engine) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, e.cancel)()
	var wg sync.WaitGroup
	wg.Go(func() { e.ringLoop(e.ctx) })
	wg.Go(func() { e.saveLoop(e.ctx) })
	<-e.ctx.Done()
	wg.Wait()
	e.mu.Lock()
	e.draining = true
	for _, s := range e.shards {
		e.drop(s)
	}
	e.mu.Unlock()
	e.wg.Wait()
	e.client.CloseIdleConnections()
	return nil
}

// Shutdown hands the work over to other hubs: it begins nothing new, waits until
// ctx is done for the requests that are under way, saves what came of them, and
// gives the claims up. Then Run returns.
func (e *Engine) Shutdown(ctx context.Context) {
	defer e.cancel()
	e.mu.Lock()
	e.draining = true
	var claims []Claim
	for _, s := range e.shards {
		claims = append(claims, s.claim)
	}
	e.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range claims {
		wg.Go(func() { e.yield(ctx, c.Shard) })
	}
	wg.Wait()
}
