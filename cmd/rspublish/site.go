package main

import (
	"context"
	"errors"
	"iter"
	"net/http"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory/audit"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/source/reconcile"
)

// A site is a set of a hub. Its errors have exit codes.
type site struct {
	reconcile.Set
	cfg *config
}

func newSite(c *client.Client, cfg *config, prefix string) *site {
	return &site{reconcile.Set{Client: c, Name: cfg.set, Prefix: prefix, Keys: "sync-"}, cfg}
}

var _ reconcile.Hub = (*site)(nil)

func (s *site) Differences(ctx context.Context, tally reconcile.Tally, own client.Own, look func(audit.Look)) iter.Seq2[audit.Difference, error] {
	return reconcile.Failing(s.Set.Differences(ctx, tally, own, look), s.failed)
}

func (s *site) Publish(ctx context.Context, key string, changes []resourcesync.Change) (feed.Cursor, error) {
	at, err := s.Set.Publish(ctx, key, changes)
	return at, s.failed(err)
}

func (s *site) Holds(ctx context.Context, at feed.Cursor) (bool, error) {
	held, err := s.Set.Holds(ctx, at)
	return held, s.failed(err)
}

func (s *site) Make(ctx context.Context) error { return s.failed(s.Set.Make(ctx)) }

func (s *site) Complete(ctx context.Context) error { return s.failed(s.Set.Complete(ctx)) }

// failed gives an error of the client its exit code, and its advice for the user.
func (s *site) failed(err error) error {
	switch refused, _ := errors.AsType[*client.Refused](err); {
	case err == nil || errors.Is(err, feed.ErrNoSet):
		return err
	case errors.Is(err, feed.ErrNoInventory):
		return fail(exitRefused, "the hub does not keep what the set %s holds, so nothing can be compared with it: PUT /sets/%[1]s {\"inventory\":\"on\"}, or RSHUB_INVENTORY=on at the hub", s.cfg.set)
	case refused != nil && refused.Status == http.StatusForbidden:
		refused.Detail += "; to compare and to publish, a token needs follow:" + s.cfg.set + " and publish:" + s.cfg.set
	}
	if errors.Is(err, feed.ErrGone) {
		return &away{error: fail(exitUnavailable, "the hub's log has gone on too far while it was compared: %w", err)}
	}
	if u, ok := errors.AsType[*client.Unavailable](err); ok {
		return &away{unsent(err, s.cfg), u.Lasting}
	}
	return unsent(err, s.cfg)
}

// An away is the error for a hub that could not be reached, or was not ready, for the
// time of -retry.
type away struct {
	error
	lasting bool // it will not change by itself
}

// Unwrap returns the error.
func (a *away) Unwrap() error { return a.error }
