// Package subscribe is for destinations that hold a connection. It lets them
// follow a set over WebSocket, as an event stream, and page by page with a long
// poll, from wherever they stopped.
package subscribe

import (
	"context"
	"iter"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/changelog"
)

// A Follower yields what follows a cursor in a set's log, all that waits at a
// time, and waits for more until ctx is done. The batches are shared and
// read-only. An error, changelog.ErrGone above all, ends the sequence.
type Follower interface {
	Follow(ctx context.Context, set string, after changelog.Cursor) iter.Seq2[[]*changelog.Batch, error]
}

// A Memory is the part of changelog.Log that finds where to start.
type Memory interface {
	State(ctx context.Context, set string) (changelog.State, error)
	Since(ctx context.Context, set string, after changelog.Cursor, limit int) (*changelog.Batch, error)
	Seek(ctx context.Context, set string, micros int64) (changelog.Cursor, error)
}

// Options of a Server. Zero values are the defaults.
type Options struct {
	BaseURL      string                     // the hub's own, for Link headers; without a slash at the end
	Waits        func(set string) bool      // whether a set that is not made can be followed; default: none
	CheckOrigin  func(r *http.Request) bool // whether a browser's page may connect; default: its own origin only
	Heartbeat    time.Duration              // between pings; default 30 s. Silent for 2.5 of them, a WebSocket is closed
	WriteTimeout time.Duration              // a follower that takes nothing for so long is too slow; default 15 s
	ClockSkew    time.Duration              // by how much a datetime may lie in the future; default 1 minute
	Now          func() time.Time           // default time.Now
	Logger       *slog.Logger               // default: discard
	Metrics      prometheus.Registerer      // where the server's metrics are registered, one server in each; default: nowhere

	// Behind says for the metrics how far who follows a set, and has got what comes
	// up to a cursor, is behind: by how many changes, and the datetime of the oldest
	// of them in microseconds. It does not block. Default: nobody is.
	Behind func(set string, after changelog.Cursor) (changes uint64, oldest int64)
}

// A Server serves the following of sets. Shutdown ends its connections.
type Server struct {
	follower Follower
	memory   Memory
	begin    changelog.Start
	opts     Options
	metrics  *metrics
	upgrader websocket.Upgrader

	begun    time.Time
	ctx      context.Context // of all following
	stop     context.CancelFunc
	wg       sync.WaitGroup // of all goroutines
	requests sync.WaitGroup // that are under way

	mu      sync.Mutex
	closing bool
	groups  map[groupKey]*group
	wheel   [wheelSlots]map[*conn]struct{}
	places  map[*place]struct{} // of the other followers
	next    int                 // slot and shard of the next connection
}

// New returns a Server. Run must run beside it.
func New(f Follower, m Memory, o Options) *Server {
	if o.Waits == nil {
		o.Waits = func(string) bool { return false }
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 30 * time.Second
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 15 * time.Second
	}
	if o.ClockSkew == 0 {
		o.ClockSkew = time.Minute
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Behind == nil {
		o.Behind = func(string, changelog.Cursor) (uint64, int64) { return 0, 0 }
	}
	s := &Server{follower: f, memory: m, opts: o, metrics: newMetrics(o.Metrics), begun: time.Now(), groups: map[groupKey]*group{}, places: map[*place]struct{}{}}
	if o.Metrics != nil {
		o.Metrics.MustRegister(newGauges(s))
	}
	s.begin = changelog.Start{Log: m, Parameter: "since", Waits: o.Waits, Now: o.Now, ClockSkew: o.ClockSkew}
	s.ctx, s.stop = context.WithCancel(context.Background())
	for i := range s.wheel {
		s.wheel[i] = map[*conn]struct{}{}
	}
	s.upgrader = websocket.Upgrader{
		HandshakeTimeout: o.WriteTimeout,
		ReadBufferSize:   512, // clients have nothing to say
		WriteBufferSize:  512,
		WriteBufferPool:  &sync.Pool{},
		Subprotocols:     []string{protocolJSON, protocolXML},
		CheckOrigin:      o.CheckOrigin,
		Error: func(w http.ResponseWriter, r *http.Request, status int, reason error) {
			changelog.WriteError(w, r, changelog.NewStatus(status, "websocket", reason.Error()))
		},
	}
	return s
}

// age is a clock that nobody sets.
func (s *Server) age() time.Duration { return time.Since(s.begun) }

// parameters are those of a query that follows.
var parameters = []string{"since", "limit", "wait", "prefix", "change", "type"}

// Wants reports whether r, a GET of a topic, asks to follow it and not for the
// latest change notification: by a query, or by a type that it accepts.
func Wants(r *http.Request) bool {
	q := r.URL.Query()
	for _, name := range parameters {
		if q.Has(name) {
			return true
		}
	}
	return websocket.IsWebSocketUpgrade(r) ||
		accepts(r, eventStream) || accepts(r, "application/json") || accepts(r, ndjson)
}

// ServeHTTP serves the following of a set, in the way that r asks for. It
// returns at once for a WebSocket, which goes on until the client or Shutdown
// ends it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request, set string) {
	s.mu.Lock()
	closing := s.closing
	if !closing {
		s.requests.Add(1)
	}
	s.mu.Unlock()
	if closing {
		p := changelog.NewStatus(http.StatusServiceUnavailable, "stopping", "this hub is stopping; connect again with your cursor")
		p.RetryAfter = 1
		changelog.WriteError(w, r, p)
		return
	}
	defer s.requests.Done()
	w.Header().Add("Vary", "Accept")
	err := once(r.URL.Query(), "since", "limit", "wait")
	switch {
	case err != nil:
	case websocket.IsWebSocketUpgrade(r):
		err = s.serveWebSocket(w, r, set)
	case accepts(r, eventStream):
		err = s.serveEvents(w, r, set)
	default:
		err = s.servePage(w, r, set)
	}
	if err != nil && r.Context().Err() == nil {
		if p := changelog.WriteError(w, r, err); p.Status == http.StatusInternalServerError {
			s.opts.Logger.ErrorContext(r.Context(), "follow failed", "set", set, "err", err)
		}
	}
}

// once refuses a parameter that is there twice: one of the two would not count.
func once(q url.Values, names ...string) error {
	for _, name := range names {
		if len(q[name]) > 1 {
			return changelog.Invalid("%s is there %d times; give it once", name, len(q[name]))
		}
	}
	return nil
}

// accepts reports whether the Accept header names a media type itself, not by
// a wildcard, and does not refuse it.
func accepts(r *http.Request, mediaType string) bool {
	for _, v := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(v, ",") {
			t, params, err := mime.ParseMediaType(part)
			if err == nil && t == mediaType && strings.Trim(params["q"], "0.") == "" && params["q"] != "" {
				return false
			}
			if err == nil && t == mediaType {
				return true
			}
		}
	}
	return false
}

// stopping is why Shutdown closes connections.
const stopping = "the hub is stopping"

// Shutdown refuses new followers and closes those there are: a WebSocket with
// 1001 "going away" and its cursor, others by ending their response. It returns
// when no request is under way and none of its goroutines is left. When ctx is
// done before, it closes WebSockets hard and returns ctx's error; responses
// that their clients do not take are left to the HTTP server then.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.stop()
	for _, c := range s.conns() {
		c.goodbye(websocket.CloseGoingAway, stopping)
	}
	defer context.AfterFunc(ctx, func() {
		for _, c := range s.conns() {
			_ = c.nc.Close()
		}
	})()
	s.wg.Wait()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.requests.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// conns returns all connections.
func (s *Server) conns() (conns []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slot := range s.wheel {
		for c := range slot {
			conns = append(conns, c)
		}
	}
	return conns
}
