package server

import (
	"context"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/dialect"
	"github.com/rshub/rshub/dialect/activitystreams"
	"github.com/rshub/rshub/dialect/atom"
	"github.com/rshub/rshub/dialect/changeset"
	"github.com/rshub/rshub/dialect/cloudevents"
	"github.com/rshub/rshub/dialect/indexnow"
	"github.com/rshub/rshub/feed"
)

// dialects returns the forms of other standards in which changes are served.
func dialects() []*dialect.Form {
	return []*dialect.Form{activitystreams.Form, atom.Form, changeset.Form}
}

// outlets are the ways to subscribers: to search engines, and to callbacks.
type outlets struct {
	*websub.Caller
	engines *indexnow.Outlet
}

func (o outlets) Deliver(ctx context.Context, d *outlet.Delivery) outlet.Verdict {
	if d.To.Form == indexnow.Form {
		return o.engines.Deliver(ctx, d)
	}
	return o.Caller.Deliver(ctx, d)
}

func (o outlets) Confirm(ctx context.Context, q *outlet.Question) outlet.Verdict {
	if q.Request.Form == indexnow.Form {
		return o.engines.Confirm(ctx, q)
	}
	return o.Caller.Confirm(ctx, q)
}

func (o outlets) Deny(ctx context.Context, d *outlet.Denial) outlet.Verdict {
	if d.Form == indexnow.Form {
		return o.engines.Deny(ctx, d)
	}
	return o.Caller.Deny(ctx, d)
}

// checkEvents returns what is wrong with how a description says what CloudEvents mean.
func checkEvents(text string) error {
	_, err := cloudevents.ParseMapping(text)
	return err
}

// searchEngines are subscriptions that the descriptions of sets want.
type searchEngines struct {
	engine *callback.Engine
	check  func(name, target string) error
}

// forGood is the lease of such a subscription. It ends when the description says so.
const forGood = 100 * 365 * 24 * time.Hour

// Tell makes the subscription that a description wants, and removes the one before.
func (s searchEngines) Tell(ctx context.Context, is feed.State, set, engine string) error {
	request := subscription.Request{Set: set, Form: indexnow.Form, By: subscription.BySet, At: time.Now().UTC()}
	if engine != "" {
		place, err := indexnow.ParsePlace(engine)
		if err != nil {
			return err
		}
		for _, target := range []string{place.Endpoint, place.KeyLocation} {
			if err := s.check("indexnow", target); err != nil {
				return err
			}
		}
		wanted := request
		wanted.Mode, wanted.Callback, wanted.Lease, wanted.Every = subscription.Subscribe, engine, forGood, indexnow.Every
		wanted.Filter, wanted.Start = feed.Filter{Prefix: place.Prefix}, is.Head
		if err := s.engine.Send(ctx, wanted); err != nil {
			return err
		}
	}
	if is.IndexNow == "" || is.IndexNow == engine {
		return nil
	}
	request.Mode, request.Callback = subscription.Remove, is.IndexNow
	return s.engine.Send(ctx, request)
}

// formats returns those in which callbacks get changes, by the name of their topic in a set.
func formats(base feed.Base) map[string]*outlet.Format {
	all := map[string]*outlet.Format{}
	for _, f := range dialects() {
		if f.Begin == "" {
			continue
		}
		all[f.Newest] = &outlet.Format{
			Batch: f.Batches(base), Begin: []byte(f.Begin), End: []byte(f.End),
			Head: func(b *feed.Batch) []byte { return f.Head(nil, f.Pushed(base, b)) },
			Tail: f.Tail(nil, nil),
		}
	}
	return all
}
