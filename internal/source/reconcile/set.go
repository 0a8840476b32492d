package reconcile

import (
	"context"
	"iter"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/inventory/auditor"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// A Set is a Hub that uses a client. Its errors are the client's.
type Set struct {
	Client *client.Client
	Name   string
	Prefix string // only resources whose loc has this prefix
	Keys   string // prefix of the keys of publishes, which distinguishes them from other publishers

	body []byte // buffer of Publish
}

var _ Hub = (*Set)(nil)

// Differences audits the set by content.
func (s *Set) Differences(ctx context.Context, tally TallyFunc, own auditor.StateFunc, look func(audit.Summary)) iter.Seq2[audit.Difference, error] {
	return auditor.Audit(ctx, s.Client, s.Name, own, auditor.Options{By: digest.ByContent, Tally: tally, Prefix: s.Prefix, Settle: 1, OnSummary: look})
}

// Publish publishes the changes as one batch of lines.
func (s *Set) Publish(ctx context.Context, key string, changes []resourcesync.Change) (feed.Cursor, error) {
	s.body = s.body[:0]
	for i := range changes {
		s.body = append(s.body, '{')
		s.body = append(resourcesync.AppendJSONMembers(s.body, &changes[i]), '}', '\n')
	}
	receipt, err := s.Client.PublishLines(ctx, s.Name, s.Keys+key, s.body, len(changes))
	if err != nil {
		return feed.Cursor{}, err
	}
	return feed.ParseCursor(receipt.Cursor)
}

// HasCursor reports whether the log has a cursor.
func (s *Set) HasCursor(ctx context.Context, at feed.Cursor) (bool, error) {
	return s.Client.ValidCursor(ctx, s.Name, at)
}

// Create creates the set.
func (s *Set) Create(ctx context.Context) error {
	return s.Client.Describe(ctx, s.Name, feed.Description{})
}

// SetComplete tells the hub that it knows all resources of the set.
func (s *Set) SetComplete(ctx context.Context) error { return s.Client.SetComplete(ctx, s.Name, true) }
