package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A front is the HTTP servers of a hub: for its users and, where that has an
// address, for those who run it. Both answer from the first moment on, so that
// probes and users can tell a hub that waits for its memory from one that is not
// there.
type front struct {
	listener, opsListener net.Listener // the latter nil: there is none
	public, ops           *http.Server
	publicDoor, opsDoor   door
	failed                chan error // of a server that cannot take connections any more, or of a part beside them
	wg                    sync.WaitGroup
}

// A door leads to the handler that it was opened to last.
type door struct{ to atomic.Pointer[http.Handler] }

func (d *door) open(h http.Handler) { d.to.Store(&h) }

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*d.to.Load()).ServeHTTP(w, r) }

// listen returns a front on the addresses that are configured. It answers
// nothing until serve. The caller closes it.
func (s *server) listen() (*front, error) {
	f := &front{failed: make(chan error, 5)}
	var err error
	if f.listener, err = net.Listen("tcp", s.config.Listen); err != nil {
		return nil, fmt.Errorf("RSHUB_LISTEN: %w", err)
	}
	if s.config.OpsListen != "" {
		if f.opsListener, err = net.Listen("tcp", s.config.OpsListen); err != nil {
			return nil, errors.Join(fmt.Errorf("RSHUB_OPS_LISTEN: %w", err), f.listener.Close())
		}
	}
	f.public = s.httpServer(s.logged(&f.publicDoor, slog.LevelWarn))
	f.ops = s.httpServer(s.logged(&f.opsDoor, slog.LevelDebug)) // probes ask again and again
	return f, nil
}

// serve takes connections until shutdown or close.
func (f *front) serve(public, ops http.Handler) {
	f.open(public, ops)
	take := func(srv *http.Server, l net.Listener) {
		f.wg.Go(func() {
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				f.failed <- err
			}
		})
	}
	take(f.public, f.listener)
	if f.opsListener != nil {
		take(f.ops, f.opsListener)
	}
}

// open leads requests to other handlers from now on.
func (f *front) open(public, ops http.Handler) {
	f.publicDoor.open(public)
	f.opsDoor.open(ops)
}

// addrs returns where it listens, for operations nil where there is none.
func (f *front) addrs() (listen, ops net.Addr) {
	if f.opsListener != nil {
		ops = f.opsListener.Addr()
	}
	return f.listener.Addr(), ops
}

// close ends what is left of it, at once.
func (f *front) close() {
	_ = f.public.Close()
	_ = f.ops.Close()
	_ = f.listener.Close() // as it may not have served yet
	if f.opsListener != nil {
		_ = f.opsListener.Close()
	}
	f.wg.Wait()
}

// httpServer returns a server for h. A request's body must come within
// ReadTimeout, else net/http would wait for ever to read over one that no handler
// wanted; a publish sets a deadline of its own, and a stream of answers has none
// once its request is read. For what is written, see withDeadlines.
func (s *server) httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           withDeadlines(h, s.config.WriteTimeout),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(netHTTPHandler{s.log.Handler()}, slog.LevelDebug),
	}
}

// A netHTTPHandler logs what net/http has to say. Most of it is about what
// clients do wrong; that no connection can be taken, for want of file
// descriptors, is an error.
type netHTTPHandler struct{ slog.Handler }

func (h netHTTPHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h netHTTPHandler) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "http: Accept error") {
		r.Level = slog.LevelError
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}
