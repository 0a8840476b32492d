package server

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rshub/rshub/internal/trail"
)

// openTrail opens the audit log, if Config names one.
func (s *Server) openTrail() error {
	if s.config.AuditLog == "" {
		return nil
	}
	t, err := trail.Open(s.config.AuditLog, s.log)
	if err != nil {
		return fmt.Errorf("Config.AuditLog: %w", err)
	}
	s.requests.trail = t
	count := func(name, help string, n func() uint64) {
		promauto.With(s.metrics).NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help + "; only where RSHUB_AUDIT_LOG is set."}, func() float64 { return float64(n()) })
	}
	count("rshub_audit_log_lines_total", "Lines of the audit log that were written", t.Lines)
	count("rshub_audit_log_lost_total", "Lines of the audit log that are missing, because a write failed or there were too many", t.Lost)
	s.reopen.Store(t)
	return nil
}

// closeTrail writes what waits for the audit log.
func (s *Server) closeTrail() {
	if t := s.requests.trail; t != nil {
		s.reopen.Store(nil)
		t.Close()
	}
}

// ReopenAuditLog opens the file of the audit log anew soon, as after it was renamed. It does
// nothing if the hub does not run or has no audit log. It may be called at any time.
func (s *Server) ReopenAuditLog() {
	if t := s.reopen.Load(); t != nil {
		t.Reopen()
	}
}

// hubItself is who the audit log names for what the hub does for the source of a set.
const hubItself = "(hub)"

// keep passes requests that come over no network to next, and has the audit log say what
// they do.
func (q *requests) keep(next http.Handler) http.Handler {
	if q.trail == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		record := &trail.Record{Caller: hubItself}
		answer := &notedAnswer{ResponseWriter: w}
		next.ServeHTTP(answer, r.WithContext(trail.NewContext(r.Context(), record)))
		answer.note(http.StatusOK)
		q.trail.Add(record, answer.status)
	})
}
