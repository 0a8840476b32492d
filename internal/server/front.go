package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/rshub/rshub/internal/limit"
)

// A front is the HTTP servers of a hub: one for users, and one for operations if
// that has an address. Both answer from the start. So probes and users can tell a hub
// that waits for its memory from a hub that is not there.
type front struct {
	listener, opsListener net.Listener // nil before listen; opsListener stays nil if there is no address for it
	public, ops           *http.Server
	publicDoor, opsDoor   door
	requests              *requests
	writeTimeout          time.Duration
	failed                chan error // errors of servers that cannot take connections any more, and of parts that run beside the servers
	wg                    sync.WaitGroup
}

// A door passes each request to the handler that open set last.
type door struct{ to atomic.Pointer[http.Handler] }

func (d *door) open(h http.Handler) { d.to.Store(&h) }

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*d.to.Load()).ServeHTTP(w, r) }

// newFront returns a front that does not listen yet.
func newFront(q *requests, writeTimeout time.Duration, log *slog.Logger) *front {
	f := &front{requests: q, writeTimeout: writeTimeout, failed: make(chan error, 5)}
	f.public = newHTTPServer(f.arrival(&f.publicDoor, slog.LevelWarn), writeTimeout, log)
	limit.Serve(f.public)
	addHTTP2(f.public)
	f.ops = newHTTPServer(f.arrival(&f.opsDoor, slog.LevelDebug), writeTimeout, log) // at debug, because probes ask again and again
	limit.Serve(f.ops)
	return f
}

// listen opens the addresses; ops may be empty. Nothing is answered until serve is
// called. If listen returns no error, the caller closes the front.
func (f *front) listen(public, ops string) (err error) {
	if f.listener, err = net.Listen("tcp", public); err != nil {
		return fmt.Errorf("Config.Listen: %w", err)
	}
	if ops == "" {
		return nil
	}
	if f.opsListener, err = net.Listen("tcp", ops); err != nil {
		return errors.Join(fmt.Errorf("Config.OpsListen: %w", err), f.listener.Close())
	}
	return nil
}

// bound bounds the connections to both addresses. It is called between listen and serve.
func (f *front) bound(d limit.Descriptors, proxies []netip.Prefix, log *slog.Logger, r prometheus.Registerer) {
	bounded := limit.Listen(f.listener, d, proxies, log)
	countConnections(r, bounded)
	f.listener = bounded
	if f.opsListener != nil {
		f.opsListener = bounded.Beside(f.opsListener, d.Ops)
	}
}

// serve begins to take connections, and to pass requests to the handlers. It does
// not block.
func (f *front) serve(public, ops http.Handler) {
	f.open(public, ops)
	take := func(srv *http.Server, l net.Listener) {
		f.wg.Go(func() {
			serve := srv.Serve
			if srv.TLSConfig != nil {
				serve = func(l net.Listener) error { return srv.ServeTLS(l, "", "") }
			}
			if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
				f.failed <- err
			}
		})
	}
	take(f.public, f.listener)
	if f.opsListener != nil {
		take(f.ops, f.opsListener)
	}
}

// open passes requests to these handlers from now on.
func (f *front) open(public, ops http.Handler) {
	f.publicDoor.open(public)
	f.opsDoor.open(ops)
}

// addrs returns the addresses that the front listens on. ops is nil if there is
// none.
func (f *front) addrs() (listen, ops net.Addr) {
	if f.opsListener != nil {
		ops = f.opsListener.Addr()
	}
	return f.listener.Addr(), ops
}

// close ends both servers at once, and waits for their goroutines.
func (f *front) close() {
	_ = f.public.Close()
	_ = f.ops.Close()
	_ = f.listener.Close() // public does not know the listener before serve
	if f.opsListener != nil {
		_ = f.opsListener.Close()
	}
	f.wg.Wait()
}

// newHTTPServer returns a server for h. A request's body must come within ReadTimeout, and a
// TLS handshake must be over within ReadHeaderTimeout. Without that limit, net/http would wait
// for ever for the rest of a body that no handler has read. A publish sets a deadline of its
// own. A stream of answers has no read deadline once its request is read. An answer sets the
// deadlines of writes. Where HTTP/2 is spoken, they do not end a connection that takes nothing
// at all, because not even the end of an answer can be written to it. WriteByteTimeout does.
func newHTTPServer(h http.Handler, writeTimeout time.Duration, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxReadHeader,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: writeTimeout},
		ErrorLog:          slog.NewLogLogger(&netHTTPHandler{Handler: log.Handler(), said: rate.Sometimes{Interval: time.Minute}}, slog.LevelDebug),
	}
}

// maxStreams is how many requests one HTTP/2 connection may have under way. A proxy
// that has more opens another connection.
const maxStreams = 250

// addHTTP2 lets clients also speak HTTP/2 to srv, without TLS and without being asked
// (RFC 9113 section 3.3), as a proxy does that is told to.
func addHTTP2(srv *http.Server) {
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
}

// A netHTTPHandler logs the messages of net/http. Most of them are about mistakes of
// clients. But it is an error if the hub cannot take connections, as when it has no
// file descriptors left. net/http tries again each second or more often, and the log is
// told each minute.
type netHTTPHandler struct {
	slog.Handler
	said rate.Sometimes // that the hub cannot take connections
}

func (h *netHTTPHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *netHTTPHandler) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "http: Accept error") {
		h.said.Do(func() { r.Level = slog.LevelError })
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}
