// Package web serves inventories over HTTP: the resources of a set as pages, and the answers of
// audits.
//
// It parses requests and encodes answers. How an inventory is made or stored is behind an
// interface, which package live implements. docs/inventory.md and docs/audit.md describe the API.
package web

import (
	"context"
	"errors"
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

// States are what sets held at cursors. Both methods also return feed.ErrNoSet,
// feed.ErrNoInventory, and errors that say to ask again later.
type States interface {
	// State returns a state at a cursor that is not before from; with the zero cursor,
	// the newest one. It waits for such a state, but no longer than wait. It returns
	// feed.ErrGone if the log does not know from.
	State(ctx context.Context, set string, from feed.Cursor, wait time.Duration) (*inventory.Pinned, error)

	// At returns the state at exactly a cursor, or feed.ErrGone.
	At(ctx context.Context, set string, at feed.Cursor) (*inventory.Pinned, error)
}

// Proofs are told of destinations that are in sync.
type Proofs interface {
	// RecordProof says that a destination has proved with r, under a name of its own, that it holds
	// the same as the hub. Several goroutines may call it. It does not block.
	RecordProof(r *http.Request, name string, p audit.Proof)
}

// Options of a Server. Zero values are the defaults.
type Options struct {
	// Answers bounds the memory of audit answers that are being made; other parts
	// of the hub may share it. Default: 128 MiB for audits alone.
	Answers *limit.Budget

	// Streams bounds the memory of answers that are being sent; other parts of the hub
	// may share it. Default: 256 MiB for this package alone.
	Streams *limit.Budget

	Proofs Proofs // is told of destinations that are in sync; default: nobody is told

	Logger *slog.Logger // default: discard
}

// A Server answers requests about what sets hold. It serves, for each set:
//
//	{base}/sets/{set}/resources   the resources, as pages or as one stream
//	{base}/sets/{set}/audit       what the whole is like (GET), and where another inventory differs (POST)
//
// Its caller has already checked the right to follow the set.
type Server struct {
	states States
	base   feed.Base
	opts   Options
}

// New returns a Server. base begins every URL in its answers.
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

// maxLoc is how many bytes a loc has at most.
const maxLoc = 2_048

// once refuses a parameter that is given twice, because one of the two values would be
// ignored, and one that is too long to be a loc.
func once(q url.Values, names ...string) error {
	for _, name := range names {
		switch v := q[name]; {
		case len(v) > 1:
			return resourcesync.Invalidf("%s: got %d values, want one", name, len(v))
		case len(v) == 1 && len(v[0]) > maxLoc:
			return resourcesync.Invalidf("%s: got %d bytes, want at most %d", name, len(v[0]), maxLoc)
		}
	}
	return nil
}

// cursor reads a parameter that is a cursor. Without it, the cursor is zero.
func cursor(q url.Values, name string) (feed.Cursor, error) {
	if q.Get(name) == "" {
		return feed.Cursor{}, nil
	}
	c, err := feed.ParseCursor(q.Get(name))
	if err != nil {
		return c, resourcesync.Wrap(name, err)
	}
	return c, nil
}

// gone adds to feed.ErrGone what the client can do.
func gone(err error, detail string) error {
	if !errors.Is(err, feed.ErrGone) {
		return err
	}
	p := *problem.From(err)
	p.Detail = detail
	return &p
}
