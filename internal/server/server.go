// Package server runs a hub as an HTTP server. It opens the change memory, connects the packages
// that publish, follow, deliver and serve documents, serves them at one address, and stops them in
// order. It is the program rshub without commands and environment variables.
//
// wire.go creates the parts of a hub and connects them. site.go has the routes. The parts depend
// neither on each other nor on this package.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/certificate"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/trail"
)

// A Server is one hub.
type Server struct {
	config   Config
	log      *slog.Logger
	metrics  *prometheus.Registry
	errors   *problem.Adapter
	callers  *callers
	requests *requestLog
	health   *health
	front    *frontend

	certificate *certificate.Files        // nil without TLS
	reopen      atomic.Pointer[trail.Log] // audit log of the running hub, or nil
	ready       chan struct{}
}

// New returns a hub with the configuration c, or an error with all problems of c. The hub does
// nothing before Run.
func New(c Config) (*Server, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	handler := slog.Handler(slog.DiscardHandler)
	if c.Logger != nil {
		handler = requestHandler{c.Logger.Handler()}
	}
	s := &Server{config: c, log: slog.New(handler), metrics: newMetrics(&c), health: newHealth(), ready: make(chan struct{})}
	s.errors = &problem.Adapter{Logger: s.log, Path: shownPath, Write: writeError}
	s.callers = newCallers(&c, s.metrics, s.errors, s.log)
	s.requests = &requestLog{log: s.log, proxies: c.TrustedProxies}
	if err := s.openCertificate(); err != nil {
		return nil, err
	}
	s.front = newFront(s.requests, c.WriteTimeout, s.log)
	if s.certificate != nil {
		enableTLS(s.front.public, s.certificate)
	}
	return s, nil
}

// Ready returns a channel that is closed when the hub is ready for requests. Until then, Run
// waits for the change memory, and requests are answered with 503. If Run fails before that, the
// channel is never closed.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addrs returns the addresses that the hub listens on. It must not be called before Ready is
// closed. ops is nil if Config has no operations address.
func (s *Server) Addrs() (listen, ops net.Addr) { return s.front.addrs() }

// Run opens the change memory and serves until ctx is done. Then it reports that it is not ready,
// serves for DrainDelay, and waits for up to Grace for requests in progress. It returns an error if
// the hub could not start or failed. When Run returns, all goroutines of the hub have stopped. Run
// may be called only once.
func (s *Server) Run(ctx context.Context) error {
	if err := s.openTrail(); err != nil {
		return err
	}
	defer s.closeTrail()
	f := s.front
	if err := f.listen(s.config.Listen, s.config.OpsListen); err != nil {
		return err
	}
	defer f.close()
	descriptors := limit.ShareDescriptors(callback.InFlight, s.log)
	f.limitConnections(descriptors, s.config.TrustedProxies, s.log, s.metrics)
	scheme := "http://"
	if s.certificate != nil {
		scheme = "https://"
	}
	base := feed.Base(cmp.Or(s.config.BaseURL, scheme+f.listener.Addr().String()))
	s.warnCertificateName(base)
	guard := &guard{base: base, origins: s.config.Origins, hosts: s.config.Hosts, tokens: s.config.Callers != nil, errors: s.errors}
	s.requests.starting.Store(true)
	f.serve(s.starting(guard))

	store, err := s.openStore(ctx)
	if errors.Is(err, errStopped) {
		s.log.Info("stopped during the start")
		return nil
	} else if err != nil {
		return err
	}
	defer func() {
		if err := store.close(); err != nil {
			s.log.Error("close the change memory", "err", err)
		}
	}()
	bus, err := s.connect()
	if err != nil {
		return err
	}
	if bus != nil {
		defer bus.Close()
	}
	p := s.wire(base, guard, store, bus, descriptors.Idle)
	s.callers.start(ctx, store.memory, p.hub, store.ticketKeys, descriptors.One)
	f.setHandlers(s.site(base, guard, store, p), s.ops(guard, store))
	s.health.setReady(&dependencies{store.memory, bus, p.engine, s.callers, s.certificate, s.requests.trail}) // last, because clients may send requests as soon as the hub is ready
	s.requests.starting.Store(false)
	s.logRunning(base)
	return s.serve(ctx, p)
}

// connect connects to NATS. It returns nil if Config has no NATS.
func (s *Server) connect() (*hub.Bus, error) {
	c := &s.config
	if c.NATSURL == "" {
		return nil, nil
	}
	bus, err := hub.ConnectNATS(c.NATSURL, hub.NATSOptions{
		Prefix: c.Prefix, Credentials: c.NATSCredentials, RootCAs: c.NATSRootCAs, Logger: s.log, Metrics: s.metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("Config.NATSURL: %w", err)
	}
	return bus, nil
}

// logRunning logs that the hub is running, and closes the channel of Ready.
func (s *Server) logRunning(base feed.Base) {
	listen, ops := s.Addrs()
	opsText := "none"
	if ops != nil {
		opsText = ops.String()
	}
	s.log.Info("rshub is running", "version", s.config.Version, "listen", listen.String(), "ops", opsText, "url", base, "memory", s.config.memory())
	close(s.ready)
}

// serve runs the parts until ctx is done or one of them fails, and then stops the hub.
func (s *Server) serve(ctx context.Context, p *parts) error {
	f := s.front
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBackground()
	var wg sync.WaitGroup
	defer wg.Wait()
	runs := append(p.runs(), s.callers.run)
	if s.certificate != nil {
		runs = append(runs, s.certificate.Watch)
	}
	for _, run := range runs {
		wg.Go(func() { run(background) })
	}

	var err error
	select {
	case <-ctx.Done():
	case err = <-f.failed:
	}
	s.health.setNotReady("stopping")
	s.requests.closing.Store(true)
	if err == nil {
		err = s.serveDuringDrainDelay()
	}
	if err != nil {
		s.log.Error("stopping", "err", err)
	}
	s.log.Info("stopping: closing connections; a second signal exits immediately")
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.Grace)
	defer cancel()
	s.drain(grace, p)
	stopBackground()
	wg.Wait()
	p.outbound.Close()
	_ = f.ops.Shutdown(grace) // last, so that /readyz reports until the end that the hub is not ready
	f.close()
	select {
	case late := <-f.failed: // failed while the hub was stopping
		err = cmp.Or(err, late)
	default:
	}
	s.log.Info("stopped")
	return err
}

// serveDuringDrainDelay continues to serve for DrainDelay although the hub is no longer ready,
// because load balancers send requests until their next health check. It returns early with an
// error if a server fails.
func (s *Server) serveDuringDrainDelay() error {
	d := s.config.DrainDelay
	if d <= 0 {
		return nil
	}
	s.log.Info("stopping: not ready, but still serving; a second signal exits immediately", "delay", d.String())
	select {
	case <-time.After(d):
		return nil
	case err := <-s.front.failed:
		return err
	}
}

// drain stops the hub within the grace period. It accepts no new connections, closes followers with
// their cursors, answers publishes in progress, and hands its callbacks over to other hubs.
func (s *Server) drain(grace context.Context, p *parts) {
	public := s.front.public
	drained := make(chan error, 1)
	go func() { drained <- public.Shutdown(grace) }() // accepts no more connections
	handed := make(chan struct{})
	go func() { defer close(handed); p.engine.Shutdown(grace) }()
	if err := p.subscribe.Shutdown(grace); err != nil {
		s.log.Warn("connections were still open after the grace period")
	}
	if err := <-drained; err != nil {
		_ = public.Close()
		s.log.Warn("requests were still in progress after the grace period")
	}
	<-handed
	p.hub.Close()
}
