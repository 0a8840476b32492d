package callback_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/websub"
)

// A slowLoad is a Registry that calls loaded after it has yielded the records of a shard.
type slowLoad struct {
	subscription.Registry
	loaded func()
}

func (r slowLoad) Load(ctx context.Context, shard int) iter.Seq2[subscription.Record, error] {
	return func(yield func(subscription.Record, error) bool) {
		n := 0
		for record, err := range r.Registry.Load(ctx, shard) {
			if n++; !yield(record, err) {
				return
			}
		}
		if n > 0 {
			r.loaded()
		}
	}
}

// A shard is handed over while its subscriptions are being loaded.
func TestHandOverDuringLoad(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		w.subscribe(w.listen("a.example"))
		w.crash()
		var e *callback.Engine
		shutdown := make(chan struct{})
		registry := slowLoad{w.store, func() {
			go func() {
				defer close(shutdown)
				e.Shutdown(t.Context())
			}()
			time.Sleep(time.Minute)
		}}
		e = callback.New(registry, w.store, w.log, w.hub, websub.NewCaller(w.client, base, websub.CallerOptions{}), callback.Options{
			Clock: func() time.Duration { return time.Duration(w.clock.Load()) },
		})
		e.Run(t.Context())
		<-shutdown
		w.start(callback.Options{})
	})
}
