package main

import (
	"context"
	"errors"
	"iter"
	"net/http"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory/audit"
	"github.com/rshub/rshub/inventory/digest"
	"github.com/rshub/rshub/reconcile"
	"github.com/rshub/rshub/resourcesync"
)

// A site is a set of a hub: a reconcile.Hub.
type site struct {
	client *client.Client
	cfg    *config
	prefix string // only resources whose loc begins with it
	body   []byte // of a publish
}

var _ reconcile.Hub = (*site)(nil)

// Differences audits the set by content.
func (s *site) Differences(ctx context.Context, tally reconcile.Tally, own reconcile.Own, look func(audit.Look)) iter.Seq2[audit.Difference, error] {
	differences := s.client.Audit(ctx, s.cfg.set, client.Own(own), client.AuditOptions{By: digest.ByContent, Tally: tally, Prefix: s.prefix, Settle: 1, Look: look})
	return func(yield func(audit.Difference, error) bool) {
		for d, err := range differences {
			if !yield(d, s.failed(err)) || err != nil {
				return
			}
		}
	}
}

// Publish publishes the changes as one batch of lines.
func (s *site) Publish(ctx context.Context, key string, changes []resourcesync.Change) (feed.Cursor, error) {
	s.body = s.body[:0]
	for i := range changes {
		s.body = append(s.body, '{')
		s.body = append(resourcesync.AppendJSONMembers(s.body, &changes[i]), '}', '\n')
	}
	receipt, err := s.client.PublishLines(ctx, s.cfg.set, "sync-"+key, s.body, len(changes))
	if err != nil {
		return feed.Cursor{}, s.failed(err)
	}
	return feed.ParseCursor(receipt.Cursor)
}

// Make makes the set.
func (s *site) Make(ctx context.Context) error {
	return s.failed(s.client.Describe(ctx, s.cfg.set, feed.Description{}))
}

// Complete says that the hub knows all resources of the set.
func (s *site) Complete(ctx context.Context) error {
	return s.failed(s.client.Complete(ctx, s.cfg.set, true))
}

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

// An away is the error for a hub that was not there or not ready for as long as -retry says.
type away struct {
	error
	lasting bool // that will not change by itself
}

// Unwrap returns the error.
func (a *away) Unwrap() error { return a.error }
