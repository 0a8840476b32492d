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

// maxWaiting is the most changes that are published between two syncs, because they take
// memory.
const maxWaiting = 200_000

// firstPause and longestPause bound how long watch waits before it tries again.
const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// watch syncs, and publishes changes as they happen, until ctx is done.
func (s *syncing) watch(ctx context.Context, source *reconcile.Source) error {
	w, err := directory.Watch(s.tree)
	if err != nil {
		return err
	}
	defer w.Close()
	for failures := 0; ; {
		err := s.round(ctx, source, w)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch {
		case err == nil, errors.Is(err, reconcile.ErrSync):
			failures = 0
			continue
		case !passes(err):
			return err
		}
		pause := backoff.Doubled(firstPause, longestPause, failures)
		failures++
		s.bar.Note("rspublish: %v; syncing again in %s", err, pause)
		if err := s.sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// round syncs, and then publishes changes as they happen until the next sync is
// due.
func (s *syncing) round(ctx context.Context, source *reconcile.Source, w *directory.Watcher) error {
	err := s.sync(ctx, source)
	if f, ok := errors.AsType[*failure](err); ok && f.code == exitGaps {
		s.bar.Note("rspublish: %v", err)
	} else if err != nil {
		return err
	}
	s.trouble(w)
	next, cancel := context.WithTimeout(ctx, s.cfg.every)
	defer cancel()
	for {
		sights, err := w.Next(next)
		switch {
		case next.Err() != nil, errors.Is(err, directory.ErrLost):
			return nil
		case err != nil:
			return err
		}
		s.trouble(w)
		r, err := source.Update(ctx, sights)
		if err != nil {
			return s.cfg.explained(err)
		}
		if r.Changes() > 0 {
			s.report(&r)
		}
		if source.Waiting() > maxWaiting {
			return nil
		}
	}
}

// trouble warns of directories that are not watched.
func (s *syncing) trouble(w *directory.Watcher) {
	if n, err := w.Trouble(); n > 0 {
		s.bar.Note("rspublish: warning: %s not watched, so changes in them are seen only by the sync every %s (-every): %v", directories(n), s.cfg.every, err)
	}
}

func directories(n int) string {
	if n == 1 {
		return "1 directory is"
	}
	return progress.Group(n) + " directories are"
}
