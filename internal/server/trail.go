package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/rshub/rshub/internal/trail"
)

// openTrail opens the audit log if Config has one.
func (s *Server) openTrail() error {
	if s.config.AuditLog == "" {
		return nil
	}
	t, err := trail.Open(s.config.AuditLog, s.log)
	if err != nil {
		return fmt.Errorf("Config.AuditLog: %w", err)
	}
	s.requests.trail = t
	const only = "; only with RSHUB_AUDIT_LOG."
	counter(s.metrics, "rshub_audit_log_lines_total", "Lines written to the audit log"+only, nil, t.Lines)
	counter(s.metrics, "rshub_audit_log_lost_total", "Lines lost by the audit log because a write failed or there were too many"+only, nil, t.Lost)
	s.reopen.Store(t)
	return nil
}

// closeTrail writes the remaining lines of the audit log and closes it.
func (s *Server) closeTrail() {
	if t := s.requests.trail; t != nil {
		s.reopen.Store(nil)
		t.Close()
	}
}

// ReopenAuditLog makes the hub reopen the file of the audit log soon, for example after it was renamed.
// It does nothing if the hub is not running or has no audit log.
func (s *Server) ReopenAuditLog() {
	if t := s.reopen.Load(); t != nil {
		t.Reopen()
	}
}

// Followed returns a function that adds the end of a connection that followed many sets to the audit
// log, or nil if there is none. ctx is the context of its request.
func (q *requestLog) Followed(ctx context.Context) func(sets int) {
	if q.trail == nil {
		return nil
	}
	record := *trail.FromContext(ctx)
	return func(sets int) {
		record.Action, record.Sets = trail.Follow, sets
		q.trail.Add(&record, http.StatusSwitchingProtocols)
	}
}

// hubItself is the caller in the audit log of publishes for polled sources.
const hubItself = "(hub)"

// Fetched returns a context for a publish for a polled source, and a function that adds the publish
// with its error to the audit log.
func (q *requestLog) Fetched(ctx context.Context, set string) (context.Context, func(error)) {
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
