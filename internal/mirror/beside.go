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

// An audit of a running mirror works on a copy of the mirror's bookkeeping, see
// home.OpenOrCopy. What differs is looked at twice.
const (
	lookPause = 2 * commitEvery // before the second look; by then the mirror has recorded its work from before the first look
	mostAgain = 10_000          // the most problems of one second look
)

// copyTo copies the mirror's bookkeeping to a directory.
func (m *Mirror) copyTo(ctx context.Context, dir string) error {
	return m.still(ctx, func() error {
		if m.replicated != nil {
			if err := m.replicated.Flush(ctx); err != nil {
				return err
			}
		}
		return m.home.CopyTo(dir, m.replicated != nil)
	})
}

// still calls do while the ledger and the replica agree, so that both have the same
// updates.
func (m *Mirror) still(ctx context.Context, do func() error) error {
	for {
		m.working.Lock()
		if m.agreeLocked() {
			defer m.working.Unlock()
			return do()
		}
		m.working.Unlock()
		if backoff.Sleep(ctx, 10*time.Millisecond) != nil {
			return ctx.Err()
		}
	}
}

// agreeLocked reports whether the replica has recorded the last update. It does so
// shortly after the update was applied.
func (m *Mirror) agreeLocked() bool {
	if m.replicated == nil {
		return true
	}
	at, whole := m.replicated.Cursor()
	return !whole || at.Position >= m.applied.Position
}

// found yields a problem with a file. If the mirror is running, found only keeps the
// problem for a second look.
func (a *auditing) found(ctx context.Context, p Problem) error {
	if !a.home.Copied() {
		return a.yield(p)
	}
	if p.Loc == "" {
		p.info, _ = a.home.Root.Lstat(p.Path) // nil: the file does not exist any more
	}
	if a.suspects = append(a.suspects, p); len(a.suspects) < mostAgain {
		return nil
	}
	return a.lookAgain(ctx)
}

// lookAgain checks the kept problems again, with a new copy of the bookkeeping. It yields
// those that are unchanged and whose files the mirror did not touch between the two
// looks.
func (a *auditing) lookAgain(ctx context.Context) (err error) {
	if len(a.suspects) == 0 {
		return nil
	}
	if backoff.Sleep(ctx, lookPause) != nil {
		return ctx.Err()
	}
	at, err := home.OpenOrCopy(ctx, a.home.Dir, a.Mirror.opts.Patience)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, at.Close()) }()
	again := &auditing{Mirror: New(at, &a.source, a.sink, a.Mirror.opts), hub: a.hub, set: a.set}
	if a.hub != nil {
		closed, err := again.expect(ctx)
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

// confirm returns what is still wrong with a problem of the first look; nil if nothing is
// wrong, or if the mirror has worked on the file since.
func (a *auditing) confirm(ctx context.Context, first *auditing, was *Problem) (*Problem, error) {
	if was.Loc == "" { // a file that the mirror did not make
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
	e, expected, err := a.entry(ctx, was.Loc)
	if err != nil || expected != (was.Kind != Extra) {
		return nil, err
	}
	if !expected {
		return was, nil
	}
	p, err := a.examine(&e)
	if p != nil {
		p.In, p.Loc = was.In, was.Loc
	}
	return p, err
}

// sameFile reports whether a and b describe the same unchanged file.
func sameFile(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && statusChanged(a).Equal(statusChanged(b))
}
