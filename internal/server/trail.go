package server

import (
	"context"
	"fmt"
	"net/http"

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
	const only = "; only where RSHUB_AUDIT_LOG is set."
	counter(s.metrics, "rshub_audit_log_lines_total", "Lines of the audit log that were written"+only, nil, t.Lines)
	counter(s.metrics, "rshub_audit_log_lost_total", "Lines of the audit log that are missing, because a write failed or there were too many"+only, nil, t.Lost)
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

// hubItself is the caller in the audit log when the hub publishes what it found at a source.
const hubItself = "(hub)"

// Fetched returns a context for a publish of what was found at a source, and a function that
// adds the publish, with its error, to the audit log.
func (q *requests) Fetched(ctx context.Context, set string) (context.Context, func(error)) {
	if q.trail == nil {
		return ctx, func(error) {}
	}
	record := &trail.Record{Caller: hubItself, Action: trail.Publish, Set: set}
	return trail.NewContext(ctx, record), func(err error) {
		status := http.StatusOK
		if err != nil {
			status = 0
		}
		q.trail.Add(record, status)
	}
}
