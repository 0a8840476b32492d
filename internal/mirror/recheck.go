package mirror

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/mirror/home"
)

// An audit of a running mirror works on a copy of its bookkeeping, see home.OpenOrCopy. It checks
// every problem twice before it reports it.
const (
	recheckPause = 2 * commitInterval // before the second check; until then the mirror records its work from before the first one
	maxRecheck   = 10_000             // maximum number of problems per recheck
)

// copyTo copies the mirror's bookkeeping to a directory.
func (m *Mirror) copyTo(ctx context.Context, dir string) error {
	return m.whenConsistent(ctx, func() error {
		if m.lastReplica != nil {
			if err := m.lastReplica.Flush(ctx); err != nil {
				return err
			}
		}
		return m.home.CopyTo(dir, true)
	})
}

// whenConsistent calls f while the ledger and the replica have the same updates.
func (m *Mirror) whenConsistent(ctx context.Context, f func() error) error {
	for {
		m.applyMu.Lock()
		if m.consistentLocked() {
			defer m.applyMu.Unlock()
			return f()
		}
		m.applyMu.Unlock()
		if backoff.Sleep(ctx, 10*time.Millisecond) != nil {
			return ctx.Err()
		}
	}
}

// consistentLocked reports whether the replica has recorded the last update, which it does
// shortly after the update is applied. The caller must hold applyMu.
func (m *Mirror) consistentLocked() bool {
	if m.lastReplica == nil {
		return true
	}
	at, complete := m.lastReplica.Cursor()
	return !complete || at.Position >= m.lastCursor.Position
}

// report yields a problem with a file. If the mirror is running, report queues the problem for
// recheck instead.
func (a *auditRun) report(ctx context.Context, p Problem) error {
	if !a.home.IsCopy() {
		return a.yield(p)
	}
	if p.Loc == "" {
		p.info, _ = a.home.Root.Lstat(p.Path) // nil if the file no longer exists
	}
	if a.suspects = append(a.suspects, p); len(a.suspects) < maxRecheck {
		return nil
	}
	return a.recheck(ctx)
}

// recheck checks the queued problems again, with a new copy of the bookkeeping. It yields those
// that persist and whose files the mirror has not touched between the two checks.
func (a *auditRun) recheck(ctx context.Context) (err error) {
	if len(a.suspects) == 0 {
		return nil
	}
	if backoff.Sleep(ctx, recheckPause) != nil {
		return ctx.Err()
	}
	at, err := home.OpenOrCopy(ctx, a.home.Dir, a.Mirror.opts.SourceTimeout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, at.Close()) }()
	again := &auditRun{Mirror: New(at, &a.source, a.sink, a.Mirror.opts), hub: a.hub, set: a.set}
	if a.hub != nil {
		closed, err := again.openExpected(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closed()) }()
	}
	for i := range a.suspects {
		p, err := again.confirm(ctx, a, &a.suspects[i])
		if err == nil && p != nil {
			err = a.yield(*p)
		}
		if err != nil {
			return err
		}
	}
	a.suspects = a.suspects[:0]
	return nil
}

// confirm returns the problem if it persists. It returns nil if there is none, or if the mirror
// has changed the file since the first check.
func (a *auditRun) confirm(ctx context.Context, first *auditRun, was *Problem) (*Problem, error) {
	if was.Loc == "" { // a foreign file
		info, err := a.home.Root.Lstat(was.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		owned, oerr := a.owns(was.Path)
		if err = errors.Join(err, oerr); err != nil || owned || was.info == nil || !sameFile(info, was.info) {
			return nil, err
		}
		return was, nil
	}
	before, had, err := first.home.Ledger.File(was.Loc)
	if err != nil {
		return nil, err
	}
	now, has, err := a.home.Ledger.File(was.Loc)
	if err != nil || had != has || had && (before.SHA256 != now.SHA256 || before.Mtime != now.Mtime || before.Entry.Cursor != now.Entry.Cursor) {
		return nil, err
	}
	e, expected, err := a.expectedEntry(ctx, was.Loc)
	if err != nil || expected != (was.Kind != Extra) {
		return nil, err
	}
	if !expected {
		return was, nil
	}
	p, err := a.fileProblem(&e)
	if p != nil {
		p.In, p.Loc = was.In, was.Loc
	}
	return p, err
}

// sameFile reports whether a and b describe the same unchanged file.
func sameFile(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && statusChanged(a).Equal(statusChanged(b))
}
