package indexnow

import (
	"context"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// Subscriptions are the subscriptions that the descriptions of sets want.
type Subscriptions struct {
	// Send makes or removes a subscription. It is that of a callback.Engine.
	Send func(context.Context, subscription.Request) error
	// Check returns an error, which says what a URL is by name, if it would not be fetched.
	Check func(name, url string) error
}

// forGood is the lease of such a subscription. It ends when the description says so.
const forGood = 100 * 365 * 24 * time.Hour

// Tell makes the subscription that a description wants, and removes the one before.
func (s Subscriptions) Tell(ctx context.Context, is feed.State, set, engine string) error {
	request := subscription.Request{Set: set, Form: Form, By: subscription.BySet, At: time.Now().UTC()}
	if engine != "" {
		place, err := ParsePlace(engine)
		if err != nil {
			return err
		}
		for _, target := range []string{place.Endpoint, place.KeyLocation} {
			if err := s.Check("indexnow", target); err != nil {
				return err
			}
		}
		wanted := request
		wanted.Mode, wanted.Callback, wanted.Lease, wanted.Every = subscription.Subscribe, engine, forGood, Every
		wanted.Filter, wanted.Start = feed.Filter{Prefix: place.Prefix}, is.Head
		if err := s.Send(ctx, wanted); err != nil {
			return err
		}
	}
	if is.IndexNow == "" || is.IndexNow == engine {
		return nil
	}
	request.Mode, request.Callback = subscription.Remove, is.IndexNow
	return s.Send(ctx, request)
}
