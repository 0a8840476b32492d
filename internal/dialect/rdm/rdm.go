// Package rdm implements Resource Description Messages 1.0 (a W3C Note draft of 1996) for a hub:
// clients read the resources and deletions of a set, and publish changes, as SOIF objects.
//
// It parses and answers messages. Access to sets is an interface, which package internal/server
// implements.
package rdm

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"io"
	"iter"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/gunzip"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// Path is the path to which messages are sent.
const Path = "/rdm/incoming"

// MediaType is the media type of messages.
const MediaType = "application/x-rdm"

// A Hub provides access to sets. Its errors are sent to the client.
type Hub interface {
	// Sets returns the sets that the caller in ctx may follow.
	Sets(ctx context.Context) ([]feed.State, error)

	// Follow calls do if the caller of r may follow a set. The context of the request of do is
	// canceled when the caller loses the right.
	Follow(w http.ResponseWriter, r *http.Request, set string, do func(w http.ResponseWriter, r *http.Request, set string) error) error

	// Publish publishes the changes in the body of r, like a POST to the topic of a set. It checks
	// that the caller of r may publish to the set, and responds with a feed.Receipt.
	Publish(w http.ResponseWriter, r *http.Request, set string) error

	// Snapshot returns the current resources of a set.
	Snapshot(ctx context.Context, set string) (*Snapshot, error)

	// ReserveMemory reserves memory for a message or a response until release is called. Further
	// calls of release have no effect.
	ReserveMemory(ctx context.Context, bytes int64) (release func(), err error)

	// The following methods implement changelog.Log.
	State(ctx context.Context, set string) (feed.State, error)
	Seek(ctx context.Context, set string, micros int64) (feed.Cursor, error)
	Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)
}

// A Snapshot is the resources of a set at a cursor.
type Snapshot struct {
	Cursor  feed.Cursor
	All     func(ctx context.Context) iter.Seq2[*feed.Entry, error] // yields the newest change of each resource, sorted by loc; an entry is valid until the next one
	Release func()                                                  // must be called

	// Find calls found for each of locs that exists, with its index. locs must be in ascending
	// order.
	Find func(ctx context.Context, locs []string, found func(i int, e *feed.Entry)) error
}

// A Server answers messages.
type Server struct {
	hub      Hub
	url      string // URL to which messages are sent
	catalogs string // prefix of each Catalog-Service-ID
	base     feed.Base
	maxBody  int64
	log      *slog.Logger
}

// New returns a Server at base. maxBody is the maximum size of an uncompressed body in bytes; 0
// means 50 MiB.
func New(hub Hub, base feed.Base, maxBody int64, log *slog.Logger) *Server {
	catalogs := ""
	if u, err := url.Parse(string(base)); err == nil {
		port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
		catalogs = "x-catalog://" + net.JoinHostPort(u.Hostname(), port) + "/"
	}
	return &Server{hub: hub, url: string(base) + Path, catalogs: catalogs, base: base, maxBody: cmp.Or(maxBody, 50<<20), log: log}
}

// Serve answers a message. If it returns an error, it has not written a response; the caller should
// call WriteError.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request) error {
	var m *message
	var in *Reader
	var err error
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		m, err = queryMessage(r.URL.Query())
	case http.MethodPost:
		if r.URL.RawQuery != "" {
			return resourcesync.Invalidf("query parameters are only for GET; send everything in the message of a POST")
		}
		release, full := s.hub.ReserveMemory(r.Context(), 4*maxObject) // for an object and its text
		if full != nil {
			return full
		}
		defer release()
		if in, err = s.openBody(w, r); err == nil {
			m, err = readMessage(in)
		}
		if err == nil && !m.isSubmission() {
			release() // a response reserves its own memory
		}
	default:
		err = problem.NotAllowed(r, "GET, HEAD, POST")
	}
	if err != nil {
		return err
	}
	if m.isSubmission() && in == nil {
		return resourcesync.Invalidf("%s must be sent by POST, as %s", m.kind, MediaType)
	}
	if m.catalog == "" && (m.kind == schemaRequest || m.kind == serverRequest || m.kind == statusRequest) {
		return s.answer(w, r, m, feed.State{})
	}
	set, err := s.set(r.Context(), m.catalog)
	if err != nil {
		return err
	}
	if m.isSubmission() {
		return s.submit(w, r, m, in, set)
	}
	return s.hub.Follow(w, r, set, func(w http.ResponseWriter, r *http.Request, set string) error {
		state, err := s.hub.State(r.Context(), set)
		if err != nil {
			return err
		}
		return s.answer(w, r, m, state)
	})
}

// answer answers a request about a set that the caller may follow, or about the hub, for which
// state is zero.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, m *message, state feed.State) error {
	catalog := ""
	if state.Set != "" {
		catalog = s.catalogs + state.Set
	}
	var kind string
	var o *Object
	var err error
	switch m.kind {
	case schemaRequest:
		kind = "schema-description-response"
		o, err = s.schemaOf(m.scope, &m.view)
	case serverRequest:
		kind = "server-description-response"
		o, err = s.serverDescription(r.Context(), cmp.Or(catalog, s.url), state.Title)
	case statusRequest:
		writeStatus(w, http.StatusOK, header(statusResponse, catalog, ""), "The hub is ready.")
		return nil
	default:
		return s.serveResults(w, r, m, state)
	}
	if err != nil {
		return err
	}
	setMessageHeader(w.Header())
	_, _ = w.Write(o.Append(header(kind, catalog, "").Append(nil))) // the client may have disconnected
	return nil
}

// descriptionLifetime is the lifetime of a server description. It is limited because sets are
// created and deleted.
const descriptionLifetime = time.Hour

// serverDescription returns the description of the hub or of one of its sets.
func (s *Server) serverDescription(ctx context.Context, url, title string) (*Object, error) {
	sets, err := s.hub.Sets(ctx)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, st := range sets {
		ids = append(ids, s.catalogs+st.Set)
	}
	o, now := &Object{Type: "RDMSERVER", URL: url}, time.Now()
	o.add("Description", title)
	o.add("Supported-RDM-Type", strings.Join(types, ","))
	o.add("Supported-RDM-Query-Language", gatherer+","+schema)
	o.add("Supported-Catalog-Service-ID", strings.Join(ids, ","))
	o.add("SD-Last-Modified", date(now))
	o.add("SD-Expires", date(now.Add(descriptionLifetime)))
	return o, nil
}

// openBody returns a Reader of the uncompressed body of a message.
func (s *Server) openBody(w http.ResponseWriter, r *http.Request) (*Reader, error) {
	if mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mediaType != MediaType {
		return nil, unsupported("unsupported media type; want " + MediaType)
	}
	body := r.Body
	switch strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))) {
	case "", "identity":
	case "gzip", "x-gzip":
		z, err := gunzip.NewReader(body)
		if err != nil {
			return nil, problem.BodyError(err)
		}
		body = io.NopCloser(z)
	default:
		return nil, unsupported("unsupported Content-Encoding; want gzip or none")
	}
	return NewReader(http.MaxBytesReader(w, body, s.maxBody)), nil
}

func unsupported(detail string) error {
	p := problem.New(http.StatusUnsupportedMediaType, "unsupported", detail)
	p.Header = http.Header{"Accept-Post": {MediaType}, "Accept-Encoding": {"gzip"}}
	return p
}

// set returns the set with a Catalog-Service-ID. If that is empty, it returns the only set that the
// caller in ctx may follow.
func (s *Server) set(ctx context.Context, catalog string) (string, error) {
	if catalog == "" {
		sets, err := s.hub.Sets(ctx)
		if err == nil && len(sets) != 1 {
			err = resourcesync.Invalidf("Catalog-Service-ID (csid) is missing, and you may follow %d sets; send %sSET, and see the list of sets at %s", len(sets), s.catalogs, s.base.Sets())
		}
		if err != nil {
			return "", err
		}
		return sets[0].Set, nil
	}
	set, ok := strings.CutPrefix(catalog, s.catalogs)
	if !ok && strings.Contains(catalog, ":") { // the bare name of a set is accepted, too
		return "", resourcesync.Invalidf("Catalog-Service-ID %q is not a set of this hub; send %sSET", resourcesync.Shorten(catalog), s.catalogs)
	}
	return set, feed.CheckSet(set)
}

const statusResponse = "status-response"

// header returns the header of a response. note is an error message, or empty.
func header(kind, catalog, note string) *Object {
	o := &Object{Type: "RDMHEADER", URL: "-", Attributes: []Attribute{{"RDM-Version", version}, {"RDM-Type", kind}}}
	o.add("Catalog-Service-ID", catalog)
	o.add("RDM-Error-Message", note)
	return o
}

// setMessageHeader sets the HTTP header of a response that is a message.
func setMessageHeader(h http.Header) {
	h.Set("Content-Type", MediaType)
	h.Set("Cache-Control", "no-store")
}

// writeStatus writes a header and a status message, which is an HTML 2.0 document.
func writeStatus(w http.ResponseWriter, status int, header *Object, text string) {
	setMessageHeader(w.Header())
	w.WriteHeader(status)
	const page = "%s<!DOCTYPE HTML PUBLIC \"-//IETF//DTD HTML 2.0//EN\">\n<HTML><HEAD><TITLE>Status</TITLE></HEAD>\n<BODY><P>%s</P></BODY></HTML>\n"
	_, _ = fmt.Fprintf(w, page, header.Append(nil), html.EscapeString(text)) // the client may have disconnected
}

// WriteError writes the response for an error, and returns its problem. No response may have been
// written before.
func WriteError(w http.ResponseWriter, err error) *feed.Problem {
	p := problem.From(err)
	text := cmp.Or(p.Detail, p.Title)
	problem.SetHeader(w.Header(), p)
	w.Header().Del("Last-Modified") // set for the response that is not sent
	o := header(statusResponse, "", text)
	o.add("RDM-Error-Number", strconv.Itoa(p.Status))
	writeStatus(w, p.Status, o, text)
	return p
}
