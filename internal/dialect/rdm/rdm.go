// Package rdm implements Resource Description Messages 1.0 (a W3C Note draft of 1996) for a hub:
// clients read what a set holds and what was deleted, and send changes, as SOIF objects.
//
// It parses and answers messages. The sets behind them are an interface, which package
// internal/server implements.
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

// Path is where messages are taken.
const Path = "/rdm/incoming"

// MediaType is that of messages.
const MediaType = "application/x-rdm"

// A Hub is what the package needs of one. Its errors are answered to the client.
type Hub interface {
	// Sets returns the sets that the caller of ctx may follow.
	Sets(ctx context.Context) ([]feed.State, error)

	// Follow calls do if the caller of r may follow a set. The context of do's request ends
	// when the caller may not any more.
	Follow(w http.ResponseWriter, r *http.Request, set string, do func(w http.ResponseWriter, r *http.Request, set string) error) error

	// Publish takes changes as the topic of a set does, if the caller of r may publish to it, and
	// answers with a feed.Receipt.
	Publish(w http.ResponseWriter, r *http.Request, set string) error

	// Held returns what a set holds now.
	Held(ctx context.Context, set string) (*Held, error)

	// Room takes so many bytes of memory for a message or an answer, until release, which may be
	// called again.
	Room(ctx context.Context, bytes int64) (release func(), err error)

	// As those of a changelog.Log.
	State(ctx context.Context, set string) (feed.State, error)
	Seek(ctx context.Context, set string, micros int64) (feed.Cursor, error)
	Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)
}

// Held is what a set holds at a cursor.
type Held struct {
	Cursor  feed.Cursor
	All     func(ctx context.Context) iter.Seq2[*feed.Entry, error] // the newest change of each resource, in the order of loc; valid until the next
	Release func()                                                  // must be called

	// Find calls found with the index of each of some locs, in ascending order, that exists.
	Find func(ctx context.Context, locs []string, found func(i int, e *feed.Entry)) error
}

// A Server takes messages.
type Server struct {
	hub      Hub
	url      string // where messages are taken
	catalogs string // what each Catalog-Service-ID begins with
	base     feed.Base
	maxBody  int64
	log      *slog.Logger
}

// New returns a Server at base. A body has at most maxBody bytes, unpacked; 0: 50 MiB.
func New(hub Hub, base feed.Base, maxBody int64, log *slog.Logger) *Server {
	catalogs := ""
	if u, err := url.Parse(string(base)); err == nil {
		port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
		catalogs = "x-catalog://" + net.JoinHostPort(u.Hostname(), port) + "/"
	}
	return &Server{hub: hub, url: string(base) + Path, catalogs: catalogs, base: base, maxBody: cmp.Or(maxBody, 50<<20), log: log}
}

// Serve answers a message. An error means that nothing was answered; WriteError answers with it.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request) error {
	var m *message
	var in *Reader
	var err error
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		m, err = queryMessage(r.URL.Query())
	case http.MethodPost:
		if r.URL.RawQuery != "" {
			return resourcesync.Invalidf("parameters are for GET: a POST says all in its message")
		}
		release, full := s.hub.Room(r.Context(), 4*maxObject) // for an object and its text
		if full != nil {
			return full
		}
		defer release()
		if in, err = s.open(w, r); err == nil {
			m, err = readMessage(in)
		}
		if err == nil && !m.submits() {
			release() // an answer takes its own
		}
	default:
		err = problem.NotAllowed(r, "GET, HEAD, POST")
	}
	if err != nil {
		return err
	}
	if m.submits() && in == nil {
		return resourcesync.Invalidf("%s is POSTed, as %s", m.kind, MediaType)
	}
	if m.catalog == "" && (m.kind == schemaRequest || m.kind == serverRequest || m.kind == statusRequest) {
		return s.answer(w, r, m, feed.State{})
	}
	set, err := s.set(r.Context(), m.catalog)
	if err != nil {
		return err
	}
	if m.submits() {
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

// answer answers a request about a set that the caller may follow, or about the hub, which has
// the zero State.
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
		o, err = s.described(r.Context(), cmp.Or(catalog, s.url), state.Title)
	case statusRequest:
		writeStatus(w, http.StatusOK, header(statusResponse, catalog, ""), "The hub is ready.")
		return nil
	default:
		return s.serveResults(w, r, m, state)
	}
	if err != nil {
		return err
	}
	asMessage(w.Header())
	_, _ = w.Write(o.Append(header(kind, catalog, "").Append(nil))) // the client may be gone
	return nil
}

// describedFor is how long a server description is good: sets come and go.
const describedFor = time.Hour

// described describes the hub, or one of its sets.
func (s *Server) described(ctx context.Context, url, title string) (*Object, error) {
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
	o.add("SD-Expires", date(now.Add(describedFor)))
	return o, nil
}

// open returns what reads the body of a message.
func (s *Server) open(w http.ResponseWriter, r *http.Request) (*Reader, error) {
	if mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mediaType != MediaType {
		return nil, unsupported("a message is POSTed as " + MediaType)
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
		return nil, unsupported("the Content-Encoding of a message is gzip or none")
	}
	return NewReader(http.MaxBytesReader(w, body, s.maxBody)), nil
}

func unsupported(detail string) error {
	p := problem.New(http.StatusUnsupportedMediaType, "unsupported", detail)
	p.Header = http.Header{"Accept-Post": {MediaType}, "Accept-Encoding": {"gzip"}}
	return p
}

// set returns the set of a Catalog-Service-ID. Without one it is the only set that the caller of
// ctx may follow.
func (s *Server) set(ctx context.Context, catalog string) (string, error) {
	if catalog == "" {
		sets, err := s.hub.Sets(ctx)
		if err == nil && len(sets) != 1 {
			err = resourcesync.Invalidf("Catalog-Service-ID (csid) is missing, and there are %d sets here that you may follow: send %sSET; GET %s lists the sets", len(sets), s.catalogs, s.base.Sets())
		}
		if err != nil {
			return "", err
		}
		return sets[0].Set, nil
	}
	set, ok := strings.CutPrefix(catalog, s.catalogs)
	if !ok && strings.Contains(catalog, ":") { // the name of a set alone is good, too
		return "", resourcesync.Invalidf("Catalog-Service-ID %q names no set of this hub: send %sSET", resourcesync.Shorten(catalog), s.catalogs)
	}
	return set, feed.CheckSet(set)
}

const statusResponse = "status-response"

// header returns the header of an answer. note is what went wrong.
func header(kind, catalog, note string) *Object {
	o := &Object{Type: "RDMHEADER", URL: "-", Attributes: []Attribute{{"RDM-Version", version}, {"RDM-Type", kind}}}
	o.add("Catalog-Service-ID", catalog)
	o.add("RDM-Error-Message", note)
	return o
}

// asMessage says that an answer is a message.
func asMessage(h http.Header) {
	h.Set("Content-Type", MediaType)
	h.Set("Cache-Control", "no-store")
}

// writeStatus answers with a header, and a status message: a document of HTML 2.0.
func writeStatus(w http.ResponseWriter, status int, header *Object, text string) {
	asMessage(w.Header())
	w.WriteHeader(status)
	const page = "%s<!DOCTYPE HTML PUBLIC \"-//IETF//DTD HTML 2.0//EN\">\n<HTML><HEAD><TITLE>Status</TITLE></HEAD>\n<BODY><P>%s</P></BODY></HTML>\n"
	_, _ = fmt.Fprintf(w, page, header.Append(nil), html.EscapeString(text)) // the client may be gone
}

// WriteError answers a message with err, and returns the problem that it is. Nothing may have been
// answered before.
func WriteError(w http.ResponseWriter, err error) *feed.Problem {
	p := problem.From(err)
	text := cmp.Or(p.Detail, p.Title)
	problem.SetHeader(w.Header(), p)
	w.Header().Del("Last-Modified") // of what was not answered
	o := header(statusResponse, "", text)
	o.add("RDM-Error-Number", strconv.Itoa(p.Status))
	writeStatus(w, p.Status, o, text)
	return p
}
