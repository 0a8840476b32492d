// Package server is a hub as an HTTP server. It opens the change memory, connects the parts that
// publish, follow, call back and serve documents, serves them at one address, and stops them in
// order. It is the whole program rshub except for its commands and its environment.
//
// wire.go is the drawing of a hub: it makes the parts and connects them. site.go has the routes.
// The parts do not know each other, nor this package.
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
	requests *requests
	health   *health
	front    *front

	certificate *certificate.Files        // nil: the hub speaks no TLS
	reopen      atomic.Pointer[trail.Log] // while the hub runs; nil: there is no audit log
	ready       chan struct{}
}

// New returns the hub that c describes, or an error that names everything that is
// wrong with c. The hub does nothing before Run.
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
	s.requests = &requests{log: s.log, proxies: c.TrustedProxies}
	if err := s.openCertificate(); err != nil {
		return nil, err
	}
	s.front = newFront(s.requests, c.WriteTimeout, s.log)
	if s.certificate != nil {
		secure(s.front.public, s.certificate)
	}
	return s, nil
}

// Ready returns a channel that is closed once the hub is ready for requests. Until
// then Run waits for the change memory, and the hub answers requests with 503. If Run
// fails before that, the channel is never closed.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addrs returns the addresses that the hub listens on. It may be called only after
// Ready is closed. ops is nil if Config has no address for operations.
func (s *Server) Addrs() (listen, ops net.Addr) { return s.front.addrs() }

// Run opens the change memory and serves until ctx is done. Then it stops in this
// order. First it says that it is not ready, and still serves for DrainDelay. Then it
// takes no new work, and waits at most Grace for the work that is under way. An error
// says why the hub could not start, or what failed. When Run returns, nothing of the
// hub is left. Run may be called only once.
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
	f.bound(descriptors, s.config.TrustedProxies, s.log, s.metrics)
	scheme := "http://"
	if s.certificate != nil {
		scheme = "https://"
	}
	base := feed.Base(cmp.Or(s.config.BaseURL, scheme+f.listener.Addr().String()))
	s.fits(base)
	guard := &guard{base: base, origins: s.config.Origins, hosts: s.config.Hosts, tokens: s.config.Callers != nil, errors: s.errors}
	s.requests.starting.Store(true)
	f.serve(s.starting(guard))

	store, err := s.openStore(ctx)
	if errors.Is(err, errStopped) {
		s.log.Info("stopped before the start was over")
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
	s.callers.open(ctx, store.memory, p.hub, store.ticketKeys, descriptors.One)
	f.open(s.site(base, guard, store, p), s.ops(guard, store))
	s.health.open(&needs{store.memory, bus, p.engine, s.callers, s.certificate, s.requests.trail}) // last: who is told that the hub is ready may ask at once
	s.requests.starting.Store(false)
	s.announce(base)
	return s.serve(ctx, p)
}

// connect connects to NATS. It returns nil if Config names no NATS.
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

// announce logs that the hub runs, and closes the channel of Ready.
func (s *Server) announce(base feed.Base) {
	listen, ops := s.Addrs()
	opsText := "none"
	if ops != nil {
		opsText = ops.String()
	}
	s.log.Info("rshub is running", "version", s.config.Version, "listen", listen.String(), "ops", opsText, "url", base, "memory", s.config.memory())
	close(s.ready)
}

// serve runs the parts until ctx is done or one of them fails. Then it stops the hub.
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
	s.health.leave("stopping")
	s.requests.closing.Store(true)
	if err == nil {
		err = s.linger()
	}
	if err != nil {
		s.log.Error("stopping", "err", err)
	}
	s.log.Info("stopping: closing connections; a second signal ends at once")
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.Grace)
	defer cancel()
	s.drain(grace, p)
	stopBackground()
	wg.Wait()
	p.outbound.Close()
	_ = f.ops.Shutdown(grace) // last, so that /readyz says until the end that the hub is not ready
	f.close()
	select {
	case late := <-f.failed: // something failed while the hub was stopping
		err = cmp.Or(err, late)
	default:
	}
	s.log.Info("stopped")
	return err
}

// linger lets the hub serve for DrainDelay although it is not ready any more. Load
// balancers ask only now and then whether it is ready, and send requests until they
// know. If something fails meanwhile, linger returns early with the error.
func (s *Server) linger() error {
	d := s.config.DrainDelay
	if d <= 0 {
		return nil
	}
	s.log.Info("stopping: not ready, and going on for a while; a second signal ends at once", "while", d.String())
	select {
	case <-time.After(d):
		return nil
	case err := <-s.front.failed:
		return err
	}
}

// drain ends the work, within the grace period. The hub takes no new work. It closes
// the connections of followers with their cursors, answers publishes that are under
// way, and hands its callbacks over to other hubs.
func (s *Server) drain(grace context.Context, p *parts) {
	public := s.front.public
	drained := make(chan error, 1)
	go func() { drained <- public.Shutdown(grace) }() // takes no connections from here on
	handed := make(chan struct{})
	go func() { defer close(handed); p.engine.Shutdown(grace) }()
	if err := p.subscribe.Shutdown(grace); err != nil {
		s.log.Warn("connections were still open after the grace period")
	}
	if err := <-drained; err != nil {
		_ = public.Close()
		s.log.Warn("requests were still under way after the grace period")
	}
	<-handed
	p.hub.Close()
}
