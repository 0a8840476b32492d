// Package rdm lets programs that speak Resource Description Messages 1.0 (a W3C note of
// 1996) use a hub. A catalogue is a set, and a resource description (RD) is the newest
// change of a resource. RDs are answered out of the inventory of a set, deleted ones out of
// its log; RDs that are sent to the hub are a publish like any other. Package rdm/soif is
// the format of the messages. The package knows no store, and nothing of how a hub
// publishes: Hub is all that it needs.
package rdm

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/budget"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/problem"
)

// Path is where a hub takes messages, over GET and POST.
const Path = "/rdm/incoming"

// Parameters are those of the URL of a message that is sent by GET.
var Parameters = []string{"csid", "ql", "scope", "type", "view-attributes", "view-hits", "view-order"}

// mediaType is that of a message.
const mediaType = "application/x-rdm"

// A Held is what a set held at one cursor, for one reader until Release.
type Held struct {
	*inventory.State
	Complete bool // the hub knew all resources of the set
	Release  func()
}

// A Hub is what messages are about. The caller of a request is in its context.
type Hub interface {
	// Enter checks that the caller may follow a set. The context that it returns ends when
	// the caller may not any more; its cause is then why. leave must be called.
	Enter(ctx context.Context, set string) (in context.Context, leave func(), err error)

	// Sets returns the sets that the caller may follow, sorted by name.
	Sets(ctx context.Context) ([]feed.State, error)

	// State returns a set as it is. feed.ErrNoSet.
	State(ctx context.Context, set string) (feed.State, error)

	// Hold returns what a set holds now. feed.ErrNoSet, feed.ErrNoInventory, and errors
	// that say to ask again later.
	Hold(ctx context.Context, set string) (*Held, error)

	// Seek and Since are those of changelog.Log.
	Seek(ctx context.Context, set string, micros int64) (feed.Cursor, error)
	Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)

	// Publish publishes the body of r, a document of JSON, to a set, if the caller may. It
	// is a publish as it comes to the topic of the set, with all its limits. The receipt
	// says that the change memory holds the whole of it.
	Publish(w http.ResponseWriter, r *http.Request, set string) (*feed.Receipt, error)
}

// Options of a Server. Zero values are the defaults.
type Options struct {
	Set     string         // that RDs are about whose message names no catalogue; default: none
	Version string         // of the program, which a server description names
	Streams *budget.Budget // what answers take room in while clients take them; default: 64 MiB for this package alone
	Logger  *slog.Logger   // default: discard
}

// A Server answers messages.
type Server struct {
	hub  Hub
	base feed.Base
	opts Options
}

// New returns a Server. base is the URL of the hub, whose host and port are in the names
// of its catalogues.
func New(hub Hub, base feed.Base, o Options) *Server {
	if o.Streams == nil {
		o.Streams = budget.New(64<<20, budget.Patience)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{hub: hub, base: base, opts: o}
}

// Serve answers GET, HEAD and POST of Path. An error means that nothing was answered;
// WriteError answers with it.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request) error {
	var m *message
	var err error
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		m, err = readURL(r.URL.Query())
	case http.MethodPost:
		m, err = readBody(r)
	default:
		return problem.NotAllowed(r, "GET, HEAD, POST")
	}
	if err == nil {
		err = s.answer(w, r, m)
	}
	if err != nil && m != nil {
		return &failure{replies[m.kind], err}
	}
	return err
}

// answer answers a message.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, m *message) error {
	set, err := s.catalogue(r, m.csid)
	if err != nil {
		return err
	}
	switch m.kind {
	case rdResponse, rdResponseDeleted:
		return s.submit(w, r, m, cmp.Or(set, s.opts.Set))
	case rdRequest, rdRequestDeleted:
		set = cmp.Or(set, s.opts.Set)
	}
	ctx := r.Context()
	if set != "" {
		in, leave, err := s.hub.Enter(ctx, set)
		if err != nil {
			return err
		}
		defer leave()
		ctx = in
	}
	err = s.reply(ctx, w, r, m, set)
	if why, ok := context.Cause(ctx).(*problem.Problem); ok && err != nil {
		return why
	}
	return err
}

// reply answers a request about a set, or about the whole hub if set is empty.
func (s *Server) reply(ctx context.Context, w http.ResponseWriter, r *http.Request, m *message, set string) error {
	switch m.kind {
	case statusRequest:
		return s.status(ctx, w, r, m, set)
	case serverRequest:
		return s.describe(ctx, w, r, m, set)
	case schemaRequest:
		return s.schema(ctx, w, r, m, set)
	case taxonomyRequest:
		return s.taxonomy(ctx, w, r, m, set)
	}
	return s.descriptions(ctx, w, r, m, set)
}

// A failure is an error whose answer is of the type that the client waits for.
type failure struct {
	reply string
	err   error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// WriteError answers a request to Path with a message of an error, and returns the problem
// that it tells. Nothing may have been answered before.
func WriteError(w http.ResponseWriter, r *http.Request, err error) *problem.Problem {
	reply := statusResponse
	if f, ok := errors.AsType[*failure](err); ok {
		reply = f.reply
	}
	p := problem.From(err)
	p.SetHeader(w.Header())
	send(w, r, p.Status, errorMessage(reply, p))
	return p
}
