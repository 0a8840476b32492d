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

// A frontend has the HTTP servers of a hub: one for users, and one for operations if it has an
// address. Both answer from the start, so that clients can distinguish a hub that waits for its
// memory from one that is down.
type frontend struct {
	listener, opsListener     net.Listener // nil before listen; opsListener stays nil without an address
	public, ops               *http.Server
	publicHandler, opsHandler switchableHandler
	requests                  *requestLog
	writeTimeout              time.Duration
	failed                    chan error // errors of servers that can no longer accept connections
	wg                        sync.WaitGroup
}

// A switchableHandler passes each request to the handler that was set last.
type switchableHandler struct{ to atomic.Pointer[http.Handler] }

func (d *switchableHandler) set(h http.Handler) { d.to.Store(&h) }

func (d *switchableHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*d.to.Load()).ServeHTTP(w, r)
}

// newFront returns a frontend that does not listen yet.
func newFront(q *requestLog, writeTimeout time.Duration, log *slog.Logger) *frontend {
	f := &frontend{requests: q, writeTimeout: writeTimeout, failed: make(chan error, 5)}
	f.public = newHTTPServer(f.baseChain(&f.publicHandler, slog.LevelWarn), writeTimeout, log)
	limit.Serve(f.public)
	addHTTP2(f.public)
	f.ops = newHTTPServer(f.baseChain(&f.opsHandler, slog.LevelDebug), writeTimeout, log) // at debug, because probes are frequent
	limit.Serve(f.ops)
	return f
}

// listen opens the addresses; ops may be empty. Requests are not answered before serve is called.
// If listen succeeds, the caller must call close.
func (f *frontend) listen(public, ops string) (err error) {
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

// limitConnections bounds the connections to both addresses. It is called between listen and serve.
func (f *frontend) limitConnections(d limit.Descriptors, proxies []netip.Prefix, log *slog.Logger, r prometheus.Registerer) {
	bounded := limit.Listen(f.listener, d, proxies, log)
	countConnections(r, bounded)
	f.listener = bounded
	if f.opsListener != nil {
		f.opsListener = bounded.Beside(f.opsListener, d.Ops)
	}
}

// serve starts to accept connections and to pass requests to the handlers. It does not block.
func (f *frontend) serve(public, ops http.Handler) {
	f.setHandlers(public, ops)
	accept := func(srv *http.Server, l net.Listener) {
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
	accept(f.public, f.listener)
	if f.opsListener != nil {
		accept(f.ops, f.opsListener)
	}
}

// setHandlers replaces the handlers of both servers.
func (f *frontend) setHandlers(public, ops http.Handler) {
	f.publicHandler.set(public)
	f.opsHandler.set(ops)
}

// addrs returns the addresses of the listeners. ops is nil if there is none.
func (f *frontend) addrs() (listen, ops net.Addr) {
	if f.opsListener != nil {
		ops = f.opsListener.Addr()
	}
	return f.listener.Addr(), ops
}

// close stops both servers immediately, and waits for their goroutines.
func (f *frontend) close() {
	_ = f.public.Close()
	_ = f.ops.Close()
	_ = f.listener.Close() // public does not have the listener before serve
	if f.opsListener != nil {
		_ = f.opsListener.Close()
	}
	f.wg.Wait()
}

// newHTTPServer returns a server for h. The body of a request must arrive within ReadTimeout, and a
// TLS handshake must end within ReadHeaderTimeout. Without these, net/http would wait forever for
// the rest of a body that no handler has read. Publishes set their own deadlines, and streams have
// no read deadline once the request was read. A response sets the write deadlines. Over HTTP/2
// these do not close a connection whose client reads nothing, because not even the end of a stream
// can be written. WriteByteTimeout does.
func newHTTPServer(h http.Handler, writeTimeout time.Duration, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxReadHeader,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: writeTimeout},
		ErrorLog:          slog.NewLogLogger(&netHTTPHandler{Handler: log.Handler(), acceptErrors: rate.Sometimes{Interval: time.Minute}}, slog.LevelDebug),
	}
}

// maxStreams is the maximum number of requests in progress on one HTTP/2 connection. Proxies with
// more requests open another connection.
const maxStreams = 250

// addHTTP2 enables HTTP/2 without TLS, with prior knowledge (RFC 9113 section 3.3), which proxies
// can use.
func addHTTP2(srv *http.Server) {
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
}

// A netHTTPHandler logs the messages of net/http at debug, because most of them are about errors of
// clients. That the hub cannot accept connections, for example without free file descriptors, is
// an error. net/http retries at least every second, so it is logged once per minute.
type netHTTPHandler struct {
	slog.Handler
	acceptErrors rate.Sometimes // limits the log of accept errors
}

func (h *netHTTPHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *netHTTPHandler) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "http: Accept error") {
		h.acceptErrors.Do(func() { r.Level = slog.LevelError })
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}
