package mirror

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/inventory/diskpages"
	"github.com/rshub/rshub/mirror/filename"
)

// An audit of a running mirror works on a copy of the mirror's bookkeeping. It requests a
// copy by making a directory in auditsDir. The mirror puts the copy there, and reports
// its progress with files of these names.
const (
	auditsDir = filename.State + "/audits"
	seenName  = "seen"  // the mirror has seen the request, and will answer it after its present work
	readyName = "ready" // the copy is complete

	askedEvery = time.Second        // how often a mirror looks for requests
	seenWithin = 10 * time.Second   // how long to wait for seenName; after that, nobody will answer
	forgetAsks = 7 * 24 * time.Hour // a copy of this age belongs to an audit that was killed
	lookPause  = 2 * commitEvery    // before the second look; by then the mirror has recorded its work from before the first look
	mostAgain  = 10_000             // the most problems of one second look
	askPause   = 100 * time.Millisecond
)

// AuditHome opens the home of a mirror for an Audit without Repair. If a mirror is
// running there, the Home is a copy of its bookkeeping. AuditHome blocks until the copy
// is ready. That takes a second or two, or longer while the mirror processes a long list,
// but at most patience.
func AuditHome(ctx context.Context, dir string, patience time.Duration) (*Home, error) {
	h, err := reopen(dir, 0)
	if !errors.Is(err, ErrInUse) {
		return h, err
	}
	state := auditsDir + "/" + rand.Text()
	ask := filepath.Join(dir, state)
	if err := os.MkdirAll(ask, 0o700); err != nil {
		return nil, err
	}
	if h, err = awaitCopy(ctx, dir, state, patience); err != nil || !h.copied() {
		err = errors.Join(err, os.RemoveAll(ask))
	}
	if err != nil {
		return nil, err
	}
	return h, nil
}

func awaitCopy(ctx context.Context, dir, state string, patience time.Duration) (*Home, error) {
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, state, name))
		return err == nil
	}
	for began := time.Now(); ; {
		if there(readyName) {
			return openState(dir, state)
		}
		if h, err := reopen(dir, 0); !errors.Is(err, ErrInUse) { // the other process has ended
			return h, err
		}
		switch waited := time.Since(began); {
		case !there(seenName) && waited > seenWithin:
			return nil, fmt.Errorf("%s: %w, which does not answer", dir, ErrInUse)
		case waited > max(patience, seenWithin):
			return nil, fmt.Errorf("%s: %w, which is processing a long list now", dir, ErrInUse)
		}
		if backoff.Sleep(ctx, askPause) != nil {
			return nil, ctx.Err()
		}
	}
}

// copied reports whether the home is a copy of another process's bookkeeping.
func (h *Home) copied() bool { return h.state != filename.State }

// answer makes copies for audits that ask for one, until ctx is done.
func (m *Mirror) answer(ctx context.Context) {
	for {
		asked, err := fs.ReadDir(m.home.Root.FS(), auditsDir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.opts.Note("%v", err)
		}
		for _, a := range asked {
			if err := m.answerTo(ctx, auditsDir+"/"+a.Name()); err != nil && ctx.Err() == nil {
				m.opts.Note("an audit gets no copy of what the mirror knows: %v", err)
			}
		}
		if backoff.Sleep(ctx, askedEvery) != nil {
			return
		}
	}
}

func (m *Mirror) answerTo(ctx context.Context, state string) error {
	root := m.home.Root
	if info, err := root.Stat(state + "/" + seenName); err == nil {
		if time.Since(info.ModTime()) > forgetAsks {
			return root.RemoveAll(state)
		}
		return nil
	}
	if err := root.WriteFile(state+"/"+seenName, nil, 0o600); err != nil {
		return err
	}
	if err := m.still(ctx, func() error { return m.copyTo(ctx, filepath.Join(m.home.Dir, state)) }); err != nil {
		return err
	}
	return root.WriteFile(state+"/"+readyName, nil, 0o600)
}

// copyTo copies the mirror's bookkeeping to a directory.
func (m *Mirror) copyTo(ctx context.Context, dir string) error {
	if r := m.replicated; r != nil {
		if err := r.Flush(ctx); err != nil {
			return err
		}
	}
	if err := m.home.Ledger.Copy(filepath.Join(dir, ledgerName)); err != nil {
		return err
	}
	return m.home.copyPages(filepath.Join(dir, replicaName), m.replicated != nil)
}

// copyPages copies the pages of the replica to a directory. If they are closed, it opens
// them only if over is true, when nobody else will.
func (h *Home) copyPages(to string, over bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pages != nil {
		return h.pages.Copy(to)
	}
	if !over {
		return nil
	}
	p, err := diskpages.Open(h.pagesDir(), diskpages.Options{Fatal: fatal})
	if err != nil {
		return err
	}
	return errors.Join(p.Copy(to), p.Close())
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
	if !a.home.copied() {
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
	home, err := AuditHome(ctx, a.home.Dir, a.Mirror.opts.Patience)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	again := &auditing{Mirror: New(home, &a.source, a.sink, a.Mirror.opts), hub: a.hub, set: a.set}
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
