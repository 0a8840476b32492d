package server

import (
	"context"
	"net/http"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/trail"
	"github.com/rshub/rshub/inventory/live"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/rdm"
)

// wireRDM returns what answers Resource Description Messages; nil if the hub takes none.
func (s *Server) wireRDM(base feed.Base, sets *sets, p *parts) *rdm.Server {
	if !s.config.RDM {
		return nil
	}
	catalogues := &catalogues{sets: sets, hub: p.hub, live: p.live, follows: s.callers.follows}
	return rdm.New(catalogues, base, rdm.Options{Set: s.config.RDMSet, Version: s.config.Version, Streams: p.streams, Logger: s.log})
}

// writeRDMError answers requests to the URL of such messages with a message of an error, if
// their method is one by which messages come.
func writeRDMError(w http.ResponseWriter, r *http.Request, err error) *problem.Problem {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
	default:
		return nil
	}
	if r.URL.Path != rdm.Path {
		return nil
	}
	return rdm.WriteError(w, r, err)
}

// catalogues shows package rdm the sets of a hub.
type catalogues struct {
	sets    *sets
	hub     *hub.Hub
	live    *live.Live // nil: the hub keeps no inventories
	follows func(ctx context.Context, set string, end func(error)) (release func())
}

// Enter checks that the caller may follow a set, and has the context end when that is over.
func (c *catalogues) Enter(ctx context.Context, set string) (context.Context, func(), error) {
	if err := access.MayFollow(ctx, set); err != nil {
		return nil, nil, err
	}
	in, cancel := context.WithCancelCause(ctx)
	release := c.follows(in, set, func(why error) { cancel(problem.From(why)) })
	return in, func() { release(); cancel(nil) }, nil
}

// Sets returns the sets that the caller may follow, sorted by name.
func (c *catalogues) Sets(ctx context.Context) ([]feed.State, error) { return c.sets.visible(ctx) }

// State returns a set as it is.
func (c *catalogues) State(ctx context.Context, set string) (feed.State, error) {
	return c.sets.memory.State(ctx, set)
}

// Hold returns what a set holds now.
func (c *catalogues) Hold(ctx context.Context, set string) (*rdm.Held, error) {
	if c.live == nil {
		return nil, feed.ErrNoInventory
	}
	h, err := c.live.State(ctx, set, feed.Cursor{}, 0)
	if err != nil {
		return nil, err
	}
	return &rdm.Held{State: h.State, Complete: h.Complete, Release: h.Release}, nil
}

// Seek and Since read the log of a set.
func (c *catalogues) Seek(ctx context.Context, set string, micros int64) (feed.Cursor, error) {
	return c.sets.memory.Seek(ctx, set, micros)
}

func (c *catalogues) Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error) {
	return c.sets.memory.Since(ctx, set, after, limit)
}

// Publish publishes a document to a set, if the caller may.
func (c *catalogues) Publish(w http.ResponseWriter, r *http.Request, set string) (*feed.Receipt, error) {
	trail.From(r.Context()).Begin(trail.Publish, set)
	if err := access.MayPublish(r.Context(), set); err != nil {
		return nil, err
	}
	return c.hub.Receive(w, r, set)
}
