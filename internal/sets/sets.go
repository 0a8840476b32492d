// Package sets serves the JSON API of sets: it lists, shows, describes and deletes them.
//
// The description of a set says who may see it, where its source is, and how its documents look.
// Other parts act on it: package internal/source/poll polls the source, and package
// internal/documents writes the documents.
package sets

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/activity"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/trail"
	"github.com/rshub/rshub/resourcesync"
)

// A Memory is the part of changelog.Log that knows which sets there are.
type Memory interface {
	Sets(ctx context.Context, sets ...string) ([]feed.State, error)
	State(ctx context.Context, set string) (feed.State, error)
	At(ctx context.Context, set string, position uint64) (feed.Cursor, error)
}

// A Hub describes and deletes sets. It is a *hub.Hub.
type Hub interface {
	Describe(ctx context.Context, set string, d feed.Description) error
	Delete(ctx context.Context, set string) error
}

// Options of a Server.
type Options struct {
	Inventories   Inventories        // nil: the hub keeps none
	Sources       Sources            // nil: the hub polls none
	Fetcher       Fetcher            // what fetches the lists that sources have
	SearchEngines SearchEngines      // are told of changes
	Announcer     Announcer          // announces what changes in documents
	Private       Private            // nil: there are no tokens, so no set can be private
	Activity      *activity.Recorder // what happens in sets
	Streams       *limit.Budget      // for lists that are held while clients take them

	CheckEvents func(text string) error // returns what is wrong with Description.CloudEvents; nil: nothing is
}

// Inventories know what sets hold.
type Inventories interface {
	// Complete says that the hub knows all resources of a set, as of the head of its
	// log, or that it does not. It is durable when Complete returns nil.
	Complete(ctx context.Context, set string, complete bool) error
	// Count returns how many resources a set has; ok is false if that is not known.
	Count(ctx context.Context, set string) (n uint64, ok bool)
}

// Sources are polled by the hub.
type Sources interface {
	// Described says that a description was written, which may name a source.
	Described()
	// Looked returns the result of the last look at the source of a set; nil if there was none.
	Looked(ctx context.Context, st feed.State) (*Looked, error)
}

// A Fetcher fetches what a description names. It is an *outbound.Client.
type Fetcher interface {
	// Check returns an error, which says what the URL is by name, if it would not be fetched.
	Check(name, url string) error
}

// SearchEngines are told of changes.
type SearchEngines interface {
	// Tell makes the search engine at a URL be told of what changes in a set from now on, and no
	// other one; empty: none. is is the set as it is, or the zero State if it is not made yet.
	// An error is a *resourcesync.Error if the URL is none of a search engine.
	Tell(ctx context.Context, is feed.State, set, engine string) error
}

// An Announcer announces what changes in the documents of sets.
type Announcer interface {
	// Described says that a description was written, which may ask for announcements. It does
	// not block.
	Described()
}

// Private knows which sets are private.
type Private interface {
	// Look makes the hub look soon at which sets are private. It does not block.
	Look()
}

// A Server serves the URLs that list, show, describe and delete sets.
type Server struct {
	memory Memory
	hub    Hub
	base   feed.Base
	opts   Options
}

// New returns a Server of the sets in a memory. base begins every URL that it shows.
func New(memory Memory, h Hub, base feed.Base, o Options) *Server {
	return &Server{memory: memory, hub: h, base: base, opts: o}
}

// ServeOne shows, describes or deletes one set.
func (s *Server) ServeOne(w http.ResponseWriter, r *http.Request, set string) error {
	ctx := r.Context()
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	newest, err := newestOf(r)
	if err != nil {
		return err
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		err = access.MayFollow(ctx, set)
	case http.MethodPut:
		trail.FromContext(ctx).SetAction(trail.Describe, set)
		if err = access.MayPublish(ctx, set); err == nil {
			err = advise(s.put(w, r, set), describeAgain)
		}
	case http.MethodDelete:
		trail.FromContext(ctx).SetAction(trail.Delete, set)
		if err = access.MayOperate(ctx); err == nil {
			err = advise(s.delete(ctx, set), "unknown whether the set was deleted: look at it first (GET), and send the request again only if the set is there and nobody has made it anew since")
		}
		if err == nil {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
	default:
		err = problem.NotAllowed(r, "DELETE, GET, HEAD, PUT")
	}
	if err != nil {
		return err
	}
	view, err := s.look(r, set, newest)
	if errors.Is(err, feed.ErrUnavailable) && r.Method == http.MethodPut {
		// The request is carried out. Nobody must be told that nothing was written.
		err = advise(fmt.Errorf("%w: it was carried out, and then: %v", feed.ErrUnknown, err), describeAgain)
	}
	if err != nil {
		return err
	}
	problem.WriteJSON(w, http.StatusOK, view)
	return nil
}

// look returns the view of a set, as r asks for it.
func (s *Server) look(r *http.Request, set string, newest uint64) (View, error) {
	ctx := r.Context()
	st, err := s.memory.State(ctx, set)
	if err != nil {
		return View{}, err
	}
	view := s.view(st, access.FromContext(ctx).Rights)
	if view.Recent, err = s.recent(ctx, &st, newest); err != nil {
		return view, err
	}
	if r.URL.Query().Get("details") == "1" {
		s.details(ctx, &view, st.NoInventory)
	}
	if view.Source != "" && s.opts.Sources != nil {
		if r.Method == http.MethodPut {
			s.opts.Sources.Described()
		}
		view.Looked, err = s.opts.Sources.Looked(ctx, st)
	}
	return view, err
}

// delete deletes a set.
func (s *Server) delete(ctx context.Context, set string) error {
	st, err := s.memory.State(ctx, set)
	if err == nil {
		err = s.hub.Delete(ctx, set)
	}
	if err == nil {
		err = s.untell(ctx, &st, "")
	}
	return err
}

// mostRecent bounds the parameter recent.
const mostRecent = 10_000

// newestOf returns the number in the parameter recent; 0: there is none.
func newestOf(r *http.Request) (uint64, error) {
	text := r.URL.Query().Get("recent")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < 1 || n > mostRecent {
		return 0, resourcesync.Invalidf("recent=%.20s: it is a number from 1 to %d", text, mostRecent)
	}
	return n, nil
}

// recent returns the cursor before the n newest changes of a set, or before all that there are.
// Who follows from there sees these changes first. It is empty for 0.
func (s *Server) recent(ctx context.Context, st *feed.State, n uint64) (string, error) {
	if n == 0 {
		return "", nil
	}
	if st.Head.Position <= st.Floor.Position+n {
		return st.Floor.String(), nil
	}
	at, err := s.memory.At(ctx, st.Set, st.Head.Position-n)
	if errors.Is(err, feed.ErrGone) { // retention has just removed it
		return st.Head.String(), nil
	}
	return at.String(), err
}

const describeAgain = "unknown whether the request was carried out: send the same request again; it does no harm if the first one was carried out after all"

// advise gives feed.ErrUnknown the detail that is right for a request without an
// idempotency key. Other errors stay as they are.
func advise(err error, detail string) error {
	if !errors.Is(err, feed.ErrUnknown) {
		return err
	}
	p := *problem.From(err)
	p.Detail = detail
	return &p
}
