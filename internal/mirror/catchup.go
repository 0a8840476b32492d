package mirror

import (
	"context"
	"errors"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/source/discovery"
)

// SetSource replaces the source, which was discovered again. It must not be called during Run,
// CatchUp, ApplyBatch or Audit.
func (m *Mirror) SetSource(s *discovery.Source) { m.source = *s }

// A Position is how far a mirror has followed its source.
type Position struct {
	Cursor    feed.Cursor // in the hub's log; zero for a source whose lists are polled
	Leftovers bool        // whether only CatchUp can find out that some resources no longer exist, see client.Replica.HasLeftovers
}

// CatchUp passes to the sink what the source has now, and returns the position that the mirror has
// reached. Like Run with once it gives up on an unresponsive source after SourceTimeout, but it
// retries no failures of the sink and serves no copies.
func (m *Mirror) CatchUp(ctx context.Context) (Position, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m.position = Position{}
	err := m.follow(ctx, cancel, true)
	if cause := context.Cause(ctx); cause != nil && (err == nil || errors.Is(err, context.Canceled)) {
		err = cause
	}
	return m.position, err
}

// ApplyBatch passes the changes of a batch of client.FollowAll to the sink, without a request to the
// source. The batch must have all changes with the Prefix. ApplyBatch returns false, and does
// nothing, if the batch does not continue the mirror; then the mirror must CatchUp.
func (m *Mirror) ApplyBatch(ctx context.Context, b *feed.Batch) (applied bool, err error) {
	hub, set, ok := m.source.RSHub()
	var st listState
	if _, err := m.home.Ledger.Meta("looks", &st); err != nil || !ok || !st.Pushed || st.After != "" || st.Again {
		return false, err
	}
	c, err := client.New(hub, m.opts.Hub)
	if err != nil {
		return false, &SourceError{err}
	}
	r, closed, err := m.openReplica(ctx, c, set)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, closed()) }()
	if !r.Continues(b) {
		return false, nil
	}
	for u, err := range r.ApplyBatch(ctx, b) {
		if err != nil {
			return false, err
		}
		if err := m.applyUpdate(ctx, r, u); err != nil {
			return false, err
		}
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return true, r.Flush(ctx)
}
