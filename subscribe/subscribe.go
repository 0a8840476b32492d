// Package subscribe serves destinations that hold a connection. They follow a set over a
// WebSocket, an event stream, or long polls, or any number of sets over a session, and resume where
// they stopped.
//
// Followers of one set that need the same bytes form a group, which encodes and waits once for all
// of them; see group.go. A session is a WebSocket with a cursor for each of its sets; see session.go.
// A change reaches sessions through topics (topic.go), which write it to those that are idle and wake
// the others.
//
// The package reads changes from package hub and baselines from an inventory. It stores nothing about
// a follower. Package callback serves destinations that are called. The package carries no
// compatibility promise.
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
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// A Follower follows the logs of sets. It is implemented by *hub.Hub.
type Follower interface {
	// Follow yields the batches after a cursor in a set's log. Each element has all batches
	// available at that time. Follow waits for more until ctx is done. The batches are shared
	// and must not be modified. An error, such as feed.ErrGone, ends the sequence.
	Follow(ctx context.Context, set string, after feed.Cursor) iter.Seq2[[]*feed.Batch, error]
	// Retain registers a follower of a set, which counts even between two calls of Follow,
	// until release is called.
	Retain(set string) (release func())
	// Behind returns how far a follower at a cursor is behind: the number of changes
	// after the cursor, and the datetime of the oldest of them in microseconds since
	// 1970. It does not block.
	Behind(set string, after feed.Cursor) (changes uint64, oldest int64)
	// Waits reports whether a set that does not exist yet can be followed.
	Waits(set string) bool

	// Next returns the batches that Follow yields first, without waiting for any. It reads at most
	// limit entries from the log.
	Next(ctx context.Context, set string, after feed.Cursor, limit int) ([]*feed.Batch, error)
	// Cached is like Next, but does not block: ok is false if the log would have to be read.
	Cached(set string, after feed.Cursor) (batches []*feed.Batch, ok bool)
	// Watch calls wake whenever the log of a set may have changed, until release is called. wake
	// must not block. If a call of Next after Watch misses a change, wake is called after it.
	Watch(set string, wake func()) (release func())
	// NoteHead tells that the caller has read in the memory, after its call of Watch, that the log
	// of a set ends at head.
	NoteHead(set string, head feed.Cursor)
	// WatchSets calls wake when this hub has created, described or deleted a set, until release is
	// called. wake must not block.
	WatchSets(wake func()) (release func())
}

// A Memory is the part of changelog.Log that finds starting points and reads pages.
type Memory interface {
	State(ctx context.Context, set string) (feed.State, error)
	Sets(ctx context.Context, names ...string) ([]feed.State, error)
	Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)
	Seek(ctx context.Context, set string, micros int64) (feed.Cursor, error)
}

// Options configures a Server. The zero value uses the defaults.
type Options struct {
	Base         feed.Base                  // URL of the hub, for Link headers
	CheckOrigin  func(r *http.Request) bool // reports whether a web page may connect; default: only pages of the hub's own origin
	Heartbeat    time.Duration              // interval of pings; a WebSocket that is silent for 2.5 times as long is closed; default: 30s
	WriteTimeout time.Duration              // time after which a connection that accepts no data is closed; default: 15s
	ClockSkew    time.Duration              // tolerance for datetimes in the future; default: 1m
	Now          func() time.Time           // default: time.Now
	Logger       *slog.Logger               // default: discard
	Metrics      prometheus.Registerer      // registry for the metrics of this server alone; default: none

	// Answers is the memory budget of pages. Other parts of the hub may share it. Default:
	// 128 MiB for pages alone.
	Answers *limit.Budget

	// Streams is the memory budget of baselines while their clients read them. Other parts of
	// the hub may share it. Default: 256 MiB for baselines alone.
	Streams *limit.Budget

	Inventories Inventories // source of baselines; default: no set has a baseline
	Rights      Rights      // notifies of clients that lose their rights; default: clients keep them
	Deliveries  Deliveries  // receives the number of delivered changes; default: none

	// Messages are the formats of WebSocket messages, selected by Name; the first is the
	// default of clients. A Single format can also be selected for an event stream, by
	// MediaType. Default: feed.MessageFormats and JSONZstd.
	Messages []*feed.Format
	Pages    []*feed.Format // formats of pages, selected by MediaType; the first is the default of clients; default: feed.PageFormats
}

// Inventories provides the resources of sets.
type Inventories interface {
	// Snapshot returns a snapshot of the resources of a set at exactly the cursor at, or the
	// newest one if at is zero. It returns feed.ErrGone if the snapshot at that cursor no
	// longer exists. The caller must call Release of the snapshot.
	Snapshot(ctx context.Context, set string, at feed.Cursor) (*Snapshot, error)
}

// Rights watches the rights of callers.
type Rights interface {
	// WhileFollowing calls end once, with the reason, when the caller of ctx may no longer
	// follow a set. After release it does not call end. end must not block.
	WhileFollowing(ctx context.Context, set string, end func(why error)) (release func())
	// WhileConnected calls changed with a function that reports whether the caller of ctx may
	// follow a set: first before it returns, and again when the results may have changed for
	// another reason than the state of the set. It calls end once, with the reason, when the token
	// of the caller is no longer valid. After release it calls neither. Both must not block.
	WhileConnected(ctx context.Context, changed func(mayFollow func(feed.State) bool), end func(why error)) (release func())
}

// Deliveries counts what followers receive.
type Deliveries interface {
	// Delivered reports that followers of a set have received changes. It must not block.
	Delivered(set string, changes int)
}

// A Server serves clients that follow sets. It is safe for concurrent use.
type Server struct {
	// Set by New.
	follower    Follower
	memory      Memory
	startFinder changelog.StartFinder
	opts        Options
	metrics     *metrics
	upgrader    websocket.Upgrader
	events      []*feed.Format // formats of event streams, in addition to the variable events
	created     time.Time
	ctx         context.Context // done when Shutdown starts
	stop        context.CancelFunc

	wg       sync.WaitGroup // all goroutines
	requests sync.WaitGroup // requests in progress

	topics   topics
	setWatch setWatch

	mu       sync.Mutex
	closing  bool // set by Shutdown; the wait groups and the fields below then no longer grow
	groups   map[groupKey]*group
	wheel    [wheelSlots]map[connection]struct{} // all connections, by the time of their heartbeats
	progress map[*progress]struct{}              // progress of long polls
	next     int                                 // slot and shard of the next connection
}

// New returns a Server. The caller must call Run for heartbeats, and Shutdown at the end.
func New(f Follower, m Memory, o Options) *Server {
	o.Heartbeat = cmp.Or(o.Heartbeat, 30*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 15*time.Second)
	o.ClockSkew = cmp.Or(o.ClockSkew, time.Minute)
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Answers = cmp.Or(o.Answers, limit.NewBudget(128<<20, limit.MemoryTimeout))
	o.Streams = cmp.Or(o.Streams, limit.NewBudget(256<<20, limit.MemoryTimeout))
	if o.Messages == nil {
		o.Messages = append(feed.MessageFormats(), JSONZstd)
	}
	if o.Pages == nil {
		o.Pages = feed.PageFormats()
	}
	s := &Server{follower: f, memory: m, opts: o, metrics: newMetrics(o.Metrics), created: time.Now(), groups: map[groupKey]*group{}, progress: map[*progress]struct{}{}}
	if o.Metrics != nil {
		o.Metrics.MustRegister(gauges{s})
	}
	s.startFinder = changelog.StartFinder{Log: m, Parameter: "since", Waits: func(set string) bool { return f.Waits(set) }, Now: o.Now, ClockSkew: o.ClockSkew}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.topics = topics{server: s, bySet: map[string]*topic{}, wakeup: backoff.NewWakeup()}
	s.setWatch = setWatch{server: s, sessions: map[*session]bool{}, wakeup: backoff.NewWakeup()}
	for i := range s.wheel {
		s.wheel[i] = map[connection]struct{}{}
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

// Parameters lists the query parameters of requests to follow.
var Parameters = slices.Concat([]string{"since"}, pageParameters, feed.FilterParameters, resumeParameters)

// Wants reports whether r, a GET of a topic, is a request to follow instead of a request for
// the latest change notification. A request to follow has one of Parameters, is a WebSocket
// handshake, or prefers a media type for following to XML.
func (s *Server) Wants(r *http.Request) bool {
	q := r.URL.Query()
	if slices.ContainsFunc(Parameters, q.Has) {
		return true
	}
	return isWebSocket(r) || s.mediaType(r, feed.XML.MediaType) != feed.XML.MediaType
}

// Serve lets the client of r follow a set over the transport that r selects. For a WebSocket,
// and for an event stream over HTTP/1, it hijacks the connection and returns immediately; the
// client or Shutdown ends the connection. For other transports it blocks until the response has
// ended. If Serve returns an error, it has written nothing, and the caller must respond. The
// caller must have checked that the client may follow the set.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, set string) error {
	if err := s.startRequest(); err != nil {
		return err
	}
	defer s.requests.Done()
	w.Header().Add("Vary", "Accept")
	q := r.URL.Query()
	for _, name := range Parameters {
		if n := len(q[name]); n > 1 && !slices.Contains(feed.FilterParameters, name) { // all but one value would be ignored
			return resourcesync.Invalidf("%s: got %d values, want one", name, n)
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

// startRequest counts a request in progress, unless the server is closing. The caller must call
// requests.Done.
func (s *Server) startRequest() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		p := problem.New(http.StatusServiceUnavailable, "stopping", "the hub is stopping; reconnect with your cursor")
		p.RetryAfter = 1
		return p
	}
	s.requests.Add(1)
	return nil
}

// watchRights calls end when the client of ctx may no longer follow a set, until release is called.
func (s *Server) watchRights(ctx context.Context, set string, end func(why error)) (release func()) {
	if s.opts.Rights == nil {
		return func() {}
	}
	return s.opts.Rights.WhileFollowing(ctx, set, end)
}

// stopping is the reason with which Shutdown closes connections.
const stopping = "the hub is stopping"

// Shutdown refuses new followers and ends the others: a WebSocket with the close code
// 1001 "going away" and its cursor, other followers by the end of the response. It blocks until
// no request is in progress and all goroutines of the server have stopped. If ctx is done
// before that, Shutdown closes WebSockets and event streams without a proper end and returns
// ctx's error. The HTTP server must then end the remaining responses.
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
			c.closeSocket()
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

// A connection is a *conn or a *session.
type connection interface {
	// heartbeat sends a heartbeat, or closes the connection of a client that has been silent for
	// longer than patience.
	heartbeat(w *directWriter, patience time.Duration)
	// goodbye closes the connection with a code and a text. It does not block.
	goodbye(code int, text string)
	// closeSocket closes the connection immediately.
	closeSocket()
	// census calls look for each set that the connection follows, with the client's cursor.
	census(look func(k kind, set string, cursor feed.Cursor))
}

// conns returns all WebSockets and event streams.
func (s *Server) conns() (conns []connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slot := range s.wheel {
		for c := range slot {
			conns = append(conns, c)
		}
	}
	return conns
}
