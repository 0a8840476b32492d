// Package web serves inventories over HTTP: the resources of sets, and audits. docs/inventory.md and
// docs/audit.md describe the API. Package live implements States.
package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// States provides the states of sets. Both methods also return feed.ErrNoSet, feed.ErrNoInventory, and
// errors that ask the client to retry later.
type States interface {
	// State returns a state at the cursor from or later; for the zero cursor, the newest one. It waits
	// for such a state, but at most for wait. It returns feed.ErrGone if the log does not know from.
	State(ctx context.Context, set string, from feed.Cursor, wait time.Duration) (*inventory.Pinned, error)

	// At returns the state at exactly a cursor, or feed.ErrGone.
	At(ctx context.Context, set string, at feed.Cursor) (*inventory.Pinned, error)
}

// Proofs records destinations that are in sync.
type Proofs interface {
	// RecordProof records that the sender of r, under a name of its choice, has proved to hold the same
	// resources as the hub. It may be called concurrently, and does not block.
	RecordProof(r *http.Request, name string, p audit.Proof)
}

// Options configures a Server. The zero value uses the defaults.
type Options struct {
	// Answers limits the memory of audit answers that are being computed; other parts of the hub may
	// share it. Default: 128 MiB for audits alone.
	Answers *limit.Budget

	// Streams limits the memory of questions that are being received, and of answers that are being sent; other
	// parts of the hub may share it.
	// Default: 256 MiB for this package alone.
	Streams *limit.Budget

	Proofs Proofs       // default: proofs are not recorded
	Logger *slog.Logger // default: discard
}

// A Server answers requests about the resources of sets. For each set, it serves:
//
//	{base}/sets/{set}/resources   the resources, as pages or as one stream
//	{base}/sets/{set}/audit       their summary (GET), and how another inventory differs (POST)
//
// Its caller must check the right to follow the set.
type Server struct {
	states States
	base   feed.Base
	opts   Options
}

// New returns a Server. Every URL in its answers starts with base.
func New(states States, base feed.Base, o Options) *Server {
	if o.Answers == nil {
		o.Answers = limit.NewBudget(128<<20, limit.MemoryTimeout)
	}
	if o.Streams == nil {
		o.Streams = limit.NewBudget(256<<20, limit.MemoryTimeout)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{states: states, base: base, opts: o}
}

const maxLoc = 2_048 // bytes

// parseQuery returns the query of a request. It rejects a parameter that is repeated, because one of
// its values would be ignored, or is too long to be a loc.
func parseQuery(r *http.Request, names ...string) (url.Values, error) {
	q := r.URL.Query()
	for _, name := range names {
		switch v := q[name]; {
		case len(v) > 1:
			return nil, resourcesync.Invalidf("%s: got %d values, want one", name, len(v))
		case len(v) == 1 && len(v[0]) > maxLoc:
			return nil, resourcesync.Invalidf("%s: got %d bytes, want at most %d", name, len(v[0]), maxLoc)
		}
	}
	return q, nil
}

// parseCursor parses a parameter. Without it, the cursor is zero.
func parseCursor(q url.Values, name string) (c feed.Cursor, err error) {
	if v := q.Get(name); v != "" {
		if c, err = feed.ParseCursor(v); err != nil {
			err = resourcesync.Wrap(name, err)
		}
	}
	return c, err
}

// stateAt returns the state at a cursor. If it is gone, the error tells the client what to do next.
func (s *Server) stateAt(ctx context.Context, set string, at feed.Cursor, what, next string) (*inventory.Pinned, error) {
	state, err := s.states.At(ctx, set, at)
	if errors.Is(err, feed.ErrGone) {
		p := *problem.From(err)
		p.Detail = "the hub no longer has the " + what + " at " + at.String() + "; " + next
		return nil, &p
	}
	return state, err
}

// summarize returns the summary of a range of a state.
func summarize(ctx context.Context, set string, state *inventory.Pinned, r inventory.Range) (audit.Summary, error) {
	summary, err := audit.Summarize(ctx, state.State, r)
	if err != nil {
		return summary, fmt.Errorf("summarize set %q: %w", set, err)
	}
	summary.Set, summary.Complete = set, state.Complete
	return summary, nil
}
