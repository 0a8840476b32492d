package indexnow

import (
	"context"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// Subscriptions manages the subscriptions requested by descriptions of sets.
type Subscriptions struct {
	// Send creates or removes a subscription. It is a method of callback.Engine.
	Send func(context.Context, subscription.Request) error
	// Check returns an error if a URL must not be fetched. name is the name of the URL in the
	// error.
	Check func(name, url string) error
}

// unlimitedLease is the lease of these subscriptions. They end when the description no longer
// requests them.
const unlimitedLease = 100 * 365 * 24 * time.Hour

// SetEngine creates the subscription for the search engine at the URL engine, and removes the one
// in state. If engine is empty, it only removes.
func (s Subscriptions) SetEngine(ctx context.Context, state feed.State, set, engine string) error {
	request := subscription.Request{Set: set, Form: Form, By: subscription.BySet, At: time.Now().UTC()}
	if engine != "" {
		place, err := ParseTarget(engine)
		if err != nil {
			return err
		}
		for _, target := range []string{place.Endpoint, place.KeyLocation} {
			if err := s.Check("indexnow", target); err != nil {
				return err
			}
		}
		created := request
		created.Mode, created.Callback, created.Lease, created.Every = subscription.Subscribe, engine, unlimitedLease, MinInterval
		created.Filter, created.Start = feed.Filter{Prefix: place.Prefix}, state.Head
		if err := s.Send(ctx, created); err != nil {
			return err
		}
	}
	if state.IndexNow == "" || state.IndexNow == engine {
		return nil
	}
	request.Mode, request.Callback = subscription.Remove, state.IndexNow
	return s.Send(ctx, request)
}
