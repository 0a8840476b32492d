package xmpp

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/internal/backoff"
)

// How long to wait after a failure.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second // it doubles up to here
	slowRetry  = 5 * time.Minute  // after what only an operator can cure
	steady     = time.Minute      // a connection that lasted so long was good
)

// pause returns how long to wait after so many failures in a row, the last of which was err.
func pause(failures int, err error) time.Duration {
	if f, ok := errors.AsType[*Failure](err); ok && f.Permanent() {
		return slowRetry
	}
	return min(firstRetry<<min(max(failures-1, 0), 10), lastRetry)
}

// A session is the work under one claim: a connection, again and again, and the lines of all
// sets over it.
type session struct {
	publisher *Publisher
	hold      *claim.Hold
	lines     []*line
	logger    *slog.Logger

	// Both end the session. begins is done first: nothing new begins then. calls ends with
	// the claim, and with it all that is under way.
	begins, calls context.Context
	end, cut      context.CancelFunc

	connected atomic.Bool // for the metrics
}

func newSession(p *Publisher, h *claim.Hold) *session {
	s := &session{publisher: p, hold: h, logger: p.opts.Logger.With("server", p.account.Server)}
	s.calls, s.cut = context.WithCancel(context.Background())
	s.begins, s.end = context.WithCancel(s.calls)
	for _, set := range p.sets {
		s.lines = append(s.lines, newLine(s, set))
	}
	return s
}

// run publishes until the session ends. When it returns, none of its goroutines is left.
func (s *session) run() {
	defer s.cut()
	for _, l := range s.lines {
		defer s.publisher.follower.Attend(l.set)()
		if err := l.begin(s.begins); err != nil && s.begins.Err() == nil {
			l.failed(err) // it tries again when there is a connection
		}
	}
	for failures := 0; s.begins.Err() == nil; {
		began := time.Now()
		err := s.connect()
		if s.begins.Err() != nil {
			return
		}
		if time.Since(began) >= steady {
			failures = 0
		}
		failures++
		wait := pause(failures, err)
		s.publisher.metrics.failed(err)
		s.logger.Warn("xmpp: there is no connection to the XMPP server, so nothing is published there", "err", err, "failures", failures, "again", wait.String())
		for _, l := range s.lines {
			s.publisher.opts.Outcome(l.set, err)
		}
		backoff.Wait(s.begins, wait)
	}
}

// connect connects to the server, and works until the connection or the session ends. The
// error says why the connection ended.
func (s *session) connect() error {
	c, err := dial(s.begins, &s.publisher.account, s.publisher.opts.MaxStanza, s.publisher.opts.Dial)
	if err != nil {
		return err
	}
	s.logger.Info("xmpp: connected to the XMPP server", "component", s.publisher.account.Domain, "service", s.publisher.account.Service)
	s.connected.Store(true)
	defer s.connected.Store(false)
	ctx, cancel := context.WithCancel(s.begins)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		c.read()
	})
	var lines sync.WaitGroup
	for _, l := range s.lines {
		lines.Go(func() { l.run(ctx, s.calls, c) })
	}
	lines.Wait() // each ends with ctx
	c.close()
	wg.Wait()
	err = c.failure()
	for _, l := range s.lines {
		l.disconnected(err)
	}
	return err
}
