// Package sets serves the JSON API of sets: it lists, shows, describes and deletes them.
//
// The description of a set defines its visibility, its source and the form of its documents. Other
// packages act on it: internal/source/poll polls the source, and internal/documents writes the
// documents.
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

// A Memory is the part of changelog.Log with the states of sets.
type Memory interface {
	Sets(ctx context.Context, sets ...string) ([]feed.State, error)
	State(ctx context.Context, set string) (feed.State, error)
	At(ctx context.Context, set string, position uint64) (feed.Cursor, error)
}

// A Hub describes and deletes sets. It is implemented by *hub.Hub.
type Hub interface {
	Describe(ctx context.Context, set string, d feed.Description) error
	Delete(ctx context.Context, set string) error
}

// Options configures a Server.
type Options struct {
	Inventories   Inventories        // nil if the hub has none
	Sources       Sources            // nil if the hub does not poll
	Fetcher       Fetcher            // fetches the lists of sources
	SearchEngines SearchEngines      // notified of changes
	Announcer     Announcer          // announces changes of documents
	Private       Private            // nil without tokens; then no set can be private
	Activity      *activity.Recorder // activity of sets
	Streams       *limit.Budget      // memory for lists until clients have received them

	CheckEvents func(text string) error // checks Description.CloudEvents; nil for no check
}

// Inventories provides information about the resources of sets.
type Inventories interface {
	// Complete sets whether the hub knows all resources of a set, as of the head of its log. The
	// change is durable when Complete returns nil.
	Complete(ctx context.Context, set string, complete bool) error
	// Count returns the number of resources of a set. ok is false if it is unknown.
	Count(ctx context.Context, set string) (n uint64, ok bool)
}

// Sources polls the sources of sets.
type Sources interface {
	// Rescan makes the hub soon poll new sources, because a description was written.
	Rescan()
	// LastPoll returns the result of the last poll of the source of a set, or nil if there was
	// none.
	LastPoll(ctx context.Context, st feed.State) (*LastPoll, error)
}

// A Fetcher fetches URLs in descriptions. It is implemented by *outbound.Client.
type Fetcher interface {
	// Check returns an error if a URL must not be fetched. name is the name of the URL in the
	// error.
	Check(name, url string) error
}

// SearchEngines notifies search engines of changes.
type SearchEngines interface {
	// SetEngine starts notifications of the search engine at the URL engine about future changes of
	// a set, and stops those of the search engine in state. If engine is empty, it only stops.
	// state is zero if the set does not exist yet. The error is a *resourcesync.Error if the URL is
	// not one of a search engine.
	SetEngine(ctx context.Context, state feed.State, set, engine string) error
}

// An Announcer announces changes of the documents of sets.
type Announcer interface {
	// Rescan makes the hub soon check for changes, because a description that may request
	// announcements was written. It does not block.
	Rescan()
}

// Private knows which sets are private.
type Private interface {
	// Rescan makes the hub soon check which sets are private. It does not block.
	Rescan()
}

// A Server serves the URLs that list, show, describe and delete sets.
type Server struct {
	memory Memory
	hub    Hub
	base   feed.Base
	opts   Options
}

// New returns a Server of the sets in a memory. base is the prefix of every URL in responses.
func New(memory Memory, h Hub, base feed.Base, o Options) *Server {
	return &Server{memory: memory, hub: h, base: base, opts: o}
}

// ServeOne shows, describes or deletes one set.
func (s *Server) ServeOne(w http.ResponseWriter, r *http.Request, set string) error {
	ctx := r.Context()
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	newest, err := parseRecent(r)
	if err != nil {
		return err
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		err = access.MayFollow(ctx, set)
	case http.MethodPut:
		trail.FromContext(ctx).SetAction(trail.Describe, set)
		if err = access.MayPublish(ctx, set); err == nil {
			err = withAdvice(s.put(w, r, set), retryDescribe)
		}
	case http.MethodDelete:
		trail.FromContext(ctx).SetAction(trail.Delete, set)
		if err = access.MayOperate(ctx); err == nil {
			err = withAdvice(s.delete(ctx, set), "unknown whether the set was deleted; check with GET, and retry only if the set still exists and was not created again in the meantime")
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
	view, err := s.viewOf(r, set, newest)
	if errors.Is(err, feed.ErrUnavailable) && r.Method == http.MethodPut {
		// The request was executed, so the response must not say that nothing was written.
		err = withAdvice(fmt.Errorf("%w: the request was executed, but then: %v", feed.ErrUnknown, err), retryDescribe)
	}
	if err != nil {
		return err
	}
	problem.WriteJSON(w, http.StatusOK, view)
	return nil
}

// viewOf returns the view of a set that r requests. newest is the parameter recent. After a PUT, it
// notifies the poller of the new description.
func (s *Server) viewOf(r *http.Request, set string, newest uint64) (View, error) {
	ctx := r.Context()
	st, err := s.memory.State(ctx, set)
	if err != nil {
		return View{}, err
	}
	view := s.view(st, access.FromContext(ctx).Rights)
	if view.Recent, err = s.recentCursor(ctx, &st, newest); err != nil {
		return view, err
	}
	if r.URL.Query().Get("details") == "1" {
		s.addDetails(ctx, &view, st.NoInventory)
	}
	if view.Source != "" && s.opts.Sources != nil {
		if r.Method == http.MethodPut {
			s.opts.Sources.Rescan()
		}
		view.LastPoll, err = s.opts.Sources.LastPoll(ctx, st)
	}
	return view, err
}

// delete deletes a set and stops the notifications of its search engine.
func (s *Server) delete(ctx context.Context, set string) error {
	st, err := s.memory.State(ctx, set)
	if err == nil {
		err = s.hub.Delete(ctx, set)
	}
	if err == nil {
		err = s.removeSearchEngine(ctx, &st, "")
	}
	return err
}

// maxRecent is the maximum of the parameter recent.
const maxRecent = 10_000

// parseRecent returns the value of the parameter recent, or 0 if it is absent.
func parseRecent(r *http.Request) (uint64, error) {
	text := r.URL.Query().Get("recent")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < 1 || n > maxRecent {
		return 0, resourcesync.Invalidf("recent: got %.20q, want a number from 1 to %d", text, maxRecent)
	}
	return n, nil
}

// recentCursor returns the cursor before the n newest changes of a set, or before all changes if
// there are fewer. A client that follows from there first gets these changes. It returns "" if n is
// 0.
func (s *Server) recentCursor(ctx context.Context, st *feed.State, n uint64) (string, error) {
	if n == 0 {
		return "", nil
	}
	if st.Head.Position <= st.Floor.Position+n {
		return st.Floor.String(), nil
	}
	at, err := s.memory.At(ctx, st.Set, st.Head.Position-n)
	if errors.Is(err, feed.ErrGone) { // just removed by retention
		return st.Head.String(), nil
	}
	return at.String(), err
}

const retryDescribe = "unknown whether the request was executed; send the same request again, which is harmless if the first one was executed"

// withAdvice sets the detail of feed.ErrUnknown to one for a request without an idempotency key. It
// returns other errors unchanged.
func withAdvice(err error, detail string) error {
	if !errors.Is(err, feed.ErrUnknown) {
		return err
	}
	p := *problem.From(err)
	p.Detail = detail
	return &p
}
