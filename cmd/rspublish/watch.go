package main

import (
	"context"
	"errors"
	"time"

	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/progress"
	"github.com/rshub/rshub/internal/source/directory"
	"github.com/rshub/rshub/internal/source/reconcile"
)

// maxPending is the maximum number of changes that are published between two syncs. It bounds
// memory.
const maxPending = 200_000

// minPause and maxPause bound the delay of watch before a retry.
const (
	minPause = time.Second
	maxPause = time.Minute
)

// watch syncs, and publishes changes as they happen, until ctx is canceled. It retries after
// temporary errors of the hub.
func (s *syncRun) watch(ctx context.Context, source *reconcile.Source) error {
	w, err := directory.Watch(s.tree)
	if err != nil {
		return err
	}
	defer w.Close()
	for failures := 0; ; {
		err := s.watchUntilSync(ctx, source, w)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch {
		case err == nil, errors.Is(err, reconcile.ErrNeedsSync):
			failures = 0
			continue
		case !isTemporary(err):
			return err
		}
		pause := backoff.Exponential(minPause, maxPause, failures)
		failures++
		s.bar.Note("rspublish: %v; syncing again in %s", err, pause)
		if err := s.sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// watchUntilSync syncs, and then publishes changes as they happen until the next sync is due.
func (s *syncRun) watchUntilSync(ctx context.Context, source *reconcile.Source, w *directory.Watcher) error {
	err := s.sync(ctx, source)
	if f, ok := errors.AsType[*commandError](err); ok && f.code == exitGaps {
		s.bar.Note("rspublish: %v", err)
	} else if err != nil {
		return err
	}
	s.warnUnwatched(w)
	next, cancel := context.WithTimeout(ctx, s.cfg.every)
	defer cancel()
	for {
		updates, err := w.Next(next)
		switch {
		case next.Err() != nil, errors.Is(err, directory.ErrLost):
			return nil
		case err != nil:
			return err
		}
		s.warnUnwatched(w)
		r, err := source.Update(ctx, updates)
		if err != nil {
			return s.cfg.explainError(err)
		}
		if r.Changes() > 0 {
			s.printPublished(&r)
		}
		if source.PendingLen() > maxPending {
			return nil
		}
	}
}

// warnUnwatched prints a warning if directories could not be watched.
func (s *syncRun) warnUnwatched(w *directory.Watcher) {
	if n, err := w.Unwatched(); n > 0 {
		s.bar.Note("rspublish: warning: %s not watched, so changes there are detected only by the sync every %s (-every): %v", countDirectories(n), s.cfg.every, err)
	}
}

// countDirectories returns the subject of a sentence, with its verb.
func countDirectories(n int) string {
	if n == 1 {
		return "1 directory is"
	}
	return progress.Group(n) + " directories are"
}
