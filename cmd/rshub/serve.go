package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/changelog/redislog"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/subscribe"
)

// storeDir is where in the data directory the change memory is.
const storeDir = "changes"

// callbackKeep is where in the memory on the disk the subscriptions are.
const callbackKeep = "callback"

// A server is one running hub: what its requests need.
type server struct {
	config       *config
	base         string // the base URL, without a slash at the end
	log          *slog.Logger
	metrics      *prometheus.Registry
	memory       changelog.Log
	checkpointer checkpointer // nil: the memory is backed up otherwise
	bus          *hub.Bus     // nil: there is none
	hub          *hub.Hub
	subscribe    *subscribe.Server
	registry     callback.Registry // of the WebSub subscriptions
	callback     *callback.Server
	engine       *callback.Engine
	fetcher      *callback.Fetcher
	documents    *changelog.Documents
	tokens       *access.Tokens // nil: everybody may do everything
	stopping     atomic.Bool
}

// serve runs the hub until ctx is done. ready, which may be nil, is told the
// addresses once the hub listens; ops is nil where there is none.
func serve(ctx context.Context, stderr io.Writer, ready func(listen, ops net.Addr)) error {
	c, err := readConfig()
	if err != nil {
		return fmt.Errorf("configuration:\n%w", err)
	}
	log := newLogger(stderr, c.LogLevel)
	stdlog.SetFlags(0)
	stdlog.SetOutput(slog.NewLogLogger(log.Handler(), slog.LevelDebug).Writer()) // net/http tells it what callbacks send unasked
	for _, name := range unknownVariables() {
		log.Warn("this variable means nothing to rshub; is it misspelt?", "variable", name)
	}
	s := &server{config: c, log: log, metrics: newMetrics()}
	if c.TokensFile != "" {
		if s.tokens, err = access.OpenTokens(c.TokensFile); err != nil {
			return err
		}
	}
	if err := s.openMemory(ctx); err != nil {
		return err
	}
	defer func() {
		if err := s.memory.Close(); err != nil {
			log.Error("close the change memory", "err", err)
		}
	}()
	if c.NATSURL != "" {
		s.bus, err = hub.ConnectNATS(c.NATSURL, hub.NATSOptions{Prefix: c.Prefix, Credentials: c.NATSCreds, RootCAs: c.NATSCA, Logger: log, Metrics: s.metrics})
		if err != nil {
			return fmt.Errorf("RSHUB_NATS_URL: %w", err)
		}
		defer s.bus.Close()
	}

	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("RSHUB_LISTEN: %w", err)
	}
	defer listener.Close()
	var opsListener net.Listener
	if c.OpsListen != "" {
		if opsListener, err = net.Listen("tcp", c.OpsListen); err != nil {
			return fmt.Errorf("RSHUB_OPS_LISTEN: %w", err)
		}
		defer opsListener.Close()
	}
	if err := s.wire(listener.Addr()); err != nil {
		return err
	}
	var ops net.Addr
	opsText := "none"
	if opsListener != nil {
		ops = opsListener.Addr()
		opsText = ops.String()
	}
	log.Info("rshub is running", "version", version(), "listen", listener.Addr().String(), "ops", opsText, "url", s.base, "memory", c.memory())
	if ready != nil {
		ready(listener.Addr(), ops)
	}
	return s.run(ctx, listener, opsListener)
}

// openMemory opens the change memory in Redis or on the local disk.
func (s *server) openMemory(ctx context.Context) error {
	c := s.config
	if c.RedisURL != "" {
		memory, err := redislog.Open(ctx, c.RedisURL, redislog.Options{
			Prefix: c.Prefix, ClockSkew: c.ClockSkew, Logger: s.log, Timeout: c.RedisTimeout,
			Wait: c.RedisWait, WaitTimeout: c.RedisWaitTimeout, AllowEviction: c.RedisAllowEviction,
		})
		if err != nil {
			return fmt.Errorf("RSHUB_REDIS_URL: %w", err)
		}
		s.memory = changelog.Measure(memory, s.metrics)
		if s.registry, err = callback.NewRedis(memory.Client(), c.Prefix, callback.RedisOptions{Wait: c.RedisWait, WaitTimeout: c.RedisWaitTimeout}); err != nil {
			return errors.Join(err, memory.Close())
		}
		return nil
	}
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	memory, err := disklog.Open(filepath.Join(c.Data, storeDir), disklog.Options{
		ClockSkew: c.ClockSkew, Reserve: max(uint64(c.DiskReserve), 1), Logger: s.log, // 0 would be the default
	})
	if err != nil {
		return err
	}
	s.memory, s.checkpointer = changelog.Measure(memory, s.metrics), memory
	measureDisk(s.metrics, memory.Space)
	if s.registry, err = callback.OpenDisk(ctx, memory.Keep(callbackKeep)); err != nil {
		return errors.Join(fmt.Errorf("open the subscriptions: %w", err), memory.Close())
	}
	if err := removeOldBackups(c.Data); err != nil {
		return errors.Join(err, memory.Close())
	}
	return nil
}

// compareEvery is how often a hub looks for changes that were not announced.
const compareEvery = 2 * time.Second

// wire introduces the parts to each other.
func (s *server) wire(addr net.Addr) error {
	c := s.config
	cas, err := readCAs(c.CallbackCA)
	if err != nil {
		return fmt.Errorf("RSHUB_CALLBACK_CA_FILE: %w", err)
	}
	s.base = c.BaseURL
	if s.base == "" {
		s.base = "http://" + addr.String()
	}
	shared := time.Duration(0)
	if c.RedisURL != "" {
		shared = compareEvery
	}
	s.hub = hub.New(s.memory, hub.Options{
		BaseURL: s.base, Sets: c.Sets, ListSize: c.ChangeListSize, MaxBody: int64(c.MaxBody),
		Retention: changelog.Retention{Age: c.RetentionAge, Count: c.RetentionCount},
		Caller:    func(ctx context.Context) string { return access.FromContext(ctx).Name },
		Logger:    s.log, Metrics: s.metrics,
		Bus: s.bus, Shared: shared,
	})
	s.subscribe = subscribe.New(s.hub, s.memory, subscribe.Options{
		BaseURL: s.base, Waits: s.hub.Waits, CheckOrigin: s.allowedOrigin,
		Heartbeat: c.Heartbeat, WriteTimeout: c.WriteTimeout, ClockSkew: c.ClockSkew, Logger: s.log,
		Metrics: s.metrics, Behind: s.hub.Behind,
	})
	s.documents = changelog.NewDocuments(s.memory, s.base, changelog.DocumentsOptions{
		ClockSkew: c.ClockSkew,
		MayFollow: func(ctx context.Context, set string) bool { return access.MayFollow(ctx, set) == nil },
		Waits:     s.hub.Waits,
		NoPush:    func(set string) bool { return slices.Contains(c.NoPushSets, set) },
		Logger:    s.log,
	})
	s.engine = callback.New(s.registry, s.memory, s.hub, callback.Options{
		BaseURL: s.base, Allow: c.CallbackAllow, Ports: c.CallbackPorts, CAs: cas,
		Timeout: c.CallbackTimeout, InFlight: c.CallbackInFlight, PerHost: c.CallbackPerHost, Logger: s.log, Metrics: s.metrics,
	})
	s.fetcher = callback.NewFetcher(s.engine, s.memory, s.hub.Publish)
	s.callback = callback.NewServer(s.engine, s.memory, callback.ServerOptions{
		Waits: s.hub.Waits, Ping: s.fetcher.Ping, LeaseMin: c.LeaseMin, LeaseDefault: c.LeaseDefault, LeaseMax: c.LeaseMax,
		MaxRequests: c.CallbackRequests, MaxPerHost: c.CallbackMaxPerHost, MaxPerSet: c.CallbackMaxPerSet, MaxUnverified: c.CallbackMaxUnverified,
		ClockSkew: c.ClockSkew,
	})
	s.metrics.MustRegister(newReadyGauge(s))
	return nil
}

// readCAs returns the system's certificate authorities and those in a file, nil
// where there is no file.
func readCAs(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("the system's certificates: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", path)
	}
	return pool, nil
}

// run serves until ctx is done, and then stops in this order: not ready, no new
// work, connections closed with their cursors, appends answered.
func (s *server) run(ctx context.Context, listener, opsListener net.Listener) error {
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBackground()
	failed := make(chan error, 4)
	var wg sync.WaitGroup
	defer wg.Wait()
	beside := func(name string, f func(context.Context) error) {
		wg.Go(func() {
			if err := f(background); err != nil {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	beside("hub", s.hub.Run)
	beside("subscribe", s.subscribe.Run)
	beside("callback", s.engine.Run)

	public := s.httpServer(s.logged(s.routes(), slog.LevelWarn))
	ops := s.httpServer(s.logged(s.opsRoutes(), slog.LevelDebug)) // probes ask again and again
	listen := func(srv *http.Server, l net.Listener) {
		wg.Go(func() {
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	listen(public, listener)
	if opsListener != nil {
		listen(ops, opsListener)
	}
	var err error
	select {
	case <-ctx.Done():
		s.log.Info("stopping: closing connections; a second signal ends at once")
	case err = <-failed:
		s.log.Error("stopping", "err", err)
	}
	s.stopping.Store(true)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.Grace)
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- public.Shutdown(grace) }() // takes no connections from here on
	handed := make(chan struct{})
	go func() { defer close(handed); s.engine.Shutdown(grace) }()
	if e := s.subscribe.Shutdown(grace); e != nil {
		s.log.Warn("connections were still open after the grace period")
	}
	if e := <-drained; e != nil {
		_ = public.Close()
		s.log.Warn("requests were still under way after the grace period")
	}
	<-handed
	s.fetcher.Close()
	s.hub.Close()
	stopBackground()
	if e := ops.Shutdown(grace); e != nil { // last, so that it says until the end that the hub is not ready
		_ = ops.Close()
	}
	wg.Wait()
	s.log.Info("stopped")
	return err
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
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// newLogger writes text to a terminal and JSON to anything else.
func newLogger(w io.Writer, level slog.Level) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return slog.New(requestHandler{slog.NewTextHandler(w, o)})
		}
	}
	return slog.New(requestHandler{slog.NewJSONHandler(w, o)})
}
