package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net"
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
	tokens       *access.Tokens         // nil: everybody may do everything
	started      atomic.Bool            // the above is there
	stopping     atomic.Bool            // and is about to go
	away         atomic.Pointer[string] // why the hub itself is not ready; nil: it is
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
	f, err := s.listen()
	if err != nil {
		return err
	}
	defer f.close()
	if s.base = c.BaseURL; s.base == "" {
		s.base = "http://" + f.listener.Addr().String()
	}
	s.leave("starting")
	f.serve(s.startingRoutes(), s.startingOpsRoutes())

	if err := s.openMemory(ctx); errors.Is(err, errStopped) {
		log.Info("stopped before the start was over")
		return nil
	} else if err != nil {
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
	if err := s.wire(); err != nil {
		return err
	}
	return s.run(ctx, f, ready)
}

// openMemory opens the change memory in Redis or on the local disk.
func (s *server) openMemory(ctx context.Context) error {
	c := s.config
	if c.RedisURL != "" {
		memory, err := s.openRedis(ctx)
		if err != nil {
			return err
		}
		s.memory = changelog.Measure(memory, s.metrics)
		if s.registry, err = callback.NewRedis(memory.Client(), c.Prefix, callback.RedisOptions{Wait: c.RedisWait, WaitTimeout: c.RedisWaitTimeout, ClockSkew: c.ClockSkew}); err != nil {
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
func (s *server) wire() error {
	c := s.config
	cas, err := readCAs(c.CallbackCA)
	if err != nil {
		return fmt.Errorf("RSHUB_CALLBACK_CA_FILE: %w", err)
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

// run serves until ctx is done, and then stops in this order: not ready, and for
// a while nothing more; no new work; what is under way ended. ready, which may be
// nil, is told the addresses.
func (s *server) run(ctx context.Context, f *front, ready func(listen, ops net.Addr)) error {
	s.started.Store(true)
	s.leave("")
	f.open(s.routes(), s.opsRoutes())
	s.announce(f, ready)

	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBackground()
	var wg sync.WaitGroup
	defer wg.Wait()
	beside := func(name string, part func(context.Context) error) {
		wg.Go(func() {
			if err := part(background); err != nil {
				f.failed <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	beside("hub", s.hub.Run)
	beside("subscribe", s.subscribe.Run)
	beside("callback", s.engine.Run)

	var err error
	select {
	case <-ctx.Done():
	case err = <-f.failed:
	}
	s.leave("stopping")
	s.stopping.Store(true)
	if err == nil {
		err = s.linger(f)
	}
	if err != nil {
		s.log.Error("stopping", "err", err)
	}
	s.log.Info("stopping: closing connections; a second signal ends at once")
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.Grace)
	defer cancel()
	s.drain(grace, f)
	stopBackground()
	wg.Wait()
	_ = f.ops.Shutdown(grace) // last, so that it says until the end that the hub is not ready
	f.close()
	select {
	case late := <-f.failed: // while it was stopping
		err = cmp.Or(err, late)
	default:
	}
	s.log.Info("stopped")
	return err
}

// announce says that the hub runs.
func (s *server) announce(f *front, ready func(listen, ops net.Addr)) {
	listen, ops := f.addrs()
	opsText := "none"
	if ops != nil {
		opsText = ops.String()
	}
	s.log.Info("rshub is running", "version", version(), "listen", listen.String(), "ops", opsText, "url", s.base, "memory", s.config.memory())
	if ready != nil {
		ready(listen, ops)
	}
}

// linger goes on for a while although the hub is not ready any more: balancers
// look for that only now and then, and send requests until they know. It returns
// early with what fails meanwhile.
func (s *server) linger(f *front) error {
	d := s.config.DrainDelay
	if d <= 0 {
		return nil
	}
	s.log.Info("stopping: not ready, and going on for a while; a second signal ends at once", "while", d.String())
	select {
	case <-time.After(d):
		return nil
	case err := <-f.failed:
		return err
	}
}

// drain ends the work, within the grace period: no new work, connections closed
// with their cursors, appends answered, callbacks handed over to other hubs.
func (s *server) drain(grace context.Context, f *front) {
	drained := make(chan error, 1)
	go func() { drained <- f.public.Shutdown(grace) }() // takes no connections from here on
	handed := make(chan struct{})
	go func() { defer close(handed); s.engine.Shutdown(grace) }()
	if err := s.subscribe.Shutdown(grace); err != nil {
		s.log.Warn("connections were still open after the grace period")
	}
	if err := <-drained; err != nil {
		_ = f.public.Close()
		s.log.Warn("requests were still under way after the grace period")
	}
	<-handed
	s.fetcher.Close()
	s.hub.Close()
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
