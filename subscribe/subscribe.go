// Package subscribe serves destinations that hold a connection: they follow a set over WebSocket,
// as an event stream, or page by page with a long poll, and resume where they stopped.
//
// Followers of one set that want the same bytes form a group, which encodes and waits once for all
// of them: read group.go next. The package reads changes from package hub and baselines from an
// inventory. It does not store anything about a follower. Destinations that are called are served
// by package callback. The package carries no compatibility promise.
package subscribe

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// A Follower follows the logs of sets for a Server. It is a *hub.Hub.
type Follower interface {
	// Follow yields the batches after a cursor in a set's log. It yields all batches that
	// there are at one time, and then waits for more, until ctx is done. The batches are
	// shared and read-only. An error, such as feed.ErrGone, ends the sequence.
	Follow(ctx context.Context, set string, after feed.Cursor) iter.Seq2[[]*feed.Batch, error]
	// Attend says that a set has a follower, also between two calls of Follow, until
	// leave is called.
	Attend(set string) (leave func())
	// Behind returns how far a follower at a cursor is behind: the number of changes
	// after the cursor, and the datetime of the oldest of them in microseconds since
	// 1970. It does not block.
	Behind(set string, after feed.Cursor) (changes uint64, oldest int64)
	// Waits reports whether a set that is not made yet can be followed.
	Waits(set string) bool
}

// A Memory is the part of changelog.Log that finds where to start, and reads pages.
type Memory interface {
	State(ctx context.Context, set string) (feed.State, error)
	Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)
	Seek(ctx context.Context, set string, micros int64) (feed.Cursor, error)
}

// Options of a Server. Zero values are the defaults.
type Options struct {
	Base         feed.Base                  // the hub's own URL, for Link headers
	CheckOrigin  func(r *http.Request) bool // whether a page in a browser may connect; default: only pages of the hub's own origin
	Heartbeat    time.Duration              // time between pings; a WebSocket that is silent for 2.5 times as long is closed; default 30 s
	WriteTimeout time.Duration              // the connection of a follower that takes no data for this long is closed; default 15 s
	ClockSkew    time.Duration              // by how much a datetime may lie in the future; default 1 minute
	Now          func() time.Time           // default time.Now
	Logger       *slog.Logger               // default: discard
	Metrics      prometheus.Registerer      // registry for the server's metrics; two servers cannot share one; default: none

	// Answers is the budget of memory for the texts of pages. Other parts of the hub may
	// share it. Default: 128 MiB for pages alone.
	Answers *limit.Budget

	// Streams is the budget of memory for baselines while their clients read them. Other
	// parts of the hub may share it. Default: 256 MiB for baselines alone.
	Streams *limit.Budget

	Inventories Inventories // what baselines are read from; default: there is no baseline of any set
	Rights      Rights      // how long clients may follow; default: a client that began to follow may go on
	Deliveries  Deliveries  // is told what followers get; default: none

	// Messages are the formats of WebSocket messages, chosen by Name; the first is for clients
	// that choose none. A Single one can also be chosen for an event stream, by MediaType.
	// Default: feed.MessageFormats, and JSONZstd.
	Messages []*feed.Format
	Pages    []*feed.Format // formats of pages, chosen by MediaType; the first is for clients that choose none; default: feed.PageFormats
}

// Inventories know what sets hold.
type Inventories interface {
	// Snapshot takes a snapshot of what a set holds, to be read as a baseline: with the
	// zero cursor the newest one, else the one at exactly the cursor at. It returns
	// feed.ErrGone if there is none at that cursor any more. The caller calls Release of
	// the snapshot.
	Snapshot(ctx context.Context, set string, at feed.Cursor) (*Snapshot, error)
}

// Rights know what callers may do.
type Rights interface {
	// WhileFollowing calls end once, with why, when the caller of ctx may not follow a set
	// any more. After release it does not call end. end must not block.
	WhileFollowing(ctx context.Context, set string, end func(why error)) (release func())
}

// Deliveries are told what followers get.
type Deliveries interface {
	// Delivered says that followers of a set have received so many changes. It does not block.
	Delivered(set string, changes int)
}

// A Server serves clients that follow sets. Shutdown ends their connections.
type Server struct {
	// Set by New.
	follower Follower
	memory   Memory
	begin    changelog.Start
	opts     Options
	metrics  *metrics
	upgrader websocket.Upgrader
	events   []*feed.Format // of event streams, besides events
	begun    time.Time
	ctx      context.Context // done when Shutdown begins
	stop     context.CancelFunc

	wg       sync.WaitGroup // of all goroutines
	requests sync.WaitGroup // that are under way

	mu       sync.Mutex
	closing  bool // nothing is added any more to the wait groups and to the fields below
	groups   map[groupKey]*group
	wheel    [wheelSlots]map[*conn]struct{} // all conns, by when their heartbeat is due
	progress map[*progress]struct{}         // of long polls
	next     int                            // slot and shard of the next connection
}

// New returns a Server. The caller must also run Run, and call Shutdown at the end.
func New(f Follower, m Memory, o Options) *Server {
	o.Heartbeat = cmp.Or(o.Heartbeat, 30*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 15*time.Second)
	o.ClockSkew = cmp.Or(o.ClockSkew, time.Minute)
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Answers = cmp.Or(o.Answers, limit.NewBudget(128<<20, limit.Patience))
	o.Streams = cmp.Or(o.Streams, limit.NewBudget(256<<20, limit.Patience))
	if o.Messages == nil {
		o.Messages = append(feed.MessageFormats(), JSONZstd)
	}
	if o.Pages == nil {
		o.Pages = feed.PageFormats()
	}
	s := &Server{follower: f, memory: m, opts: o, metrics: newMetrics(o.Metrics), begun: time.Now(), groups: map[groupKey]*group{}, progress: map[*progress]struct{}{}}
	if o.Metrics != nil {
		o.Metrics.MustRegister(gauges{s})
	}
	s.begin = changelog.Start{Log: m, Parameter: "since", Waits: func(set string) bool { return f.Waits(set) }, Now: o.Now, ClockSkew: o.ClockSkew}
	s.ctx, s.stop = context.WithCancel(context.Background())
	for i := range s.wheel {
		s.wheel[i] = map[*conn]struct{}{}
	}
	s.opts.Messages = slices.Clone(o.Messages)
	for i, f := range o.Messages {
		if f.Single {
			s.opts.Messages[i] = framesOf(f)
			s.events = append(s.events, eventsOf(f))
		}
	}
	s.upgrader = websocket.Upgrader{
		HandshakeTimeout: o.WriteTimeout,
		CheckOrigin:      o.CheckOrigin,
		Error: func(w http.ResponseWriter, r *http.Request, status int, reason error) {
			problem.Write(w, r, problem.New(status, "websocket", reason.Error()))
		},
	}
	return s
}

// Parameters are the query parameters of a request that asks to follow.
var Parameters = slices.Concat([]string{"since"}, pageParameters, feed.FilterParameters, resumeParameters)

// Wants reports whether r, a GET of a topic, asks to follow the topic and not for the
// latest change notification. It asks to follow if it has a parameter of the query, is
// a WebSocket handshake, or prefers a media type for following to XML.
func (s *Server) Wants(r *http.Request) bool {
	q := r.URL.Query()
	if slices.ContainsFunc(Parameters, q.Has) {
		return true
	}
	return isWebSocket(r) || s.mediaType(r, feed.XML.MediaType) != feed.XML.MediaType
}

// Serve lets the client follow a set in the way that r asks for. For a WebSocket, and for an
// event stream over HTTP/1, it takes over the connection and returns at once; the connection
// goes on until the client or Shutdown ends it. For the other ways it blocks until the
// response has ended. An error means that nothing
// was answered, and the caller must answer. Serve does not check whether the client
// may follow the set. The caller must have checked that.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, set string) error {
	s.mu.Lock()
	closing := s.closing
	if !closing {
		s.requests.Add(1)
	}
	s.mu.Unlock()
	if closing {
		p := problem.New(http.StatusServiceUnavailable, "stopping", "this hub is stopping; connect again with your cursor")
		p.RetryAfter = 1
		return p
	}
	defer s.requests.Done()
	w.Header().Add("Vary", "Accept")
	q := r.URL.Query()
	for _, name := range Parameters {
		if n := len(q[name]); n > 1 && !slices.Contains(feed.FilterParameters, name) { // one of the two values would be ignored
			return resourcesync.Invalid("%s is there %d times; give it once", name, n)
		}
	}
	if isWebSocket(r) {
		return s.serveWebSocket(w, r, set)
	}
	switch s.mediaType(r) {
	case "":
		return s.notAcceptable()
	case eventStream:
		return s.serveEvents(w, r, set)
	default:
		return s.servePoll(w, r, set)
	}
}

// while calls end when the client of ctx may not follow a set any more, until release.
func (s *Server) while(ctx context.Context, set string, end func(why error)) (release func()) {
	if s.opts.Rights == nil {
		return func() {}
	}
	return s.opts.Rights.WhileFollowing(ctx, set, end)
}

// stopping is why Shutdown closes connections.
const stopping = "the hub is stopping"

// Shutdown refuses new followers and ends the others: a WebSocket with the close code
// 1001 "going away" and its cursor, another follower by the end of its response. It
// blocks until no request is under way and none of the server's goroutines is left. If
// ctx is done before that, it closes WebSockets and event streams without their ends and
// returns ctx's error. The HTTP server must then end the responses that clients do not take.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.stop()
	for _, c := range s.conns() {
		c.goodbye(websocket.CloseGoingAway, stopping)
	}
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cut)
		for _, c := range s.conns() {
			c.cut()
		}
	})
	defer func() {
		if !stop() {
			<-cut
		}
	}()
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

// conns returns all WebSockets and event streams.
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
