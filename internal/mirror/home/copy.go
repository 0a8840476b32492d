package home

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
	"github.com/rshub/rshub/internal/inventory/diskpages"
	"github.com/rshub/rshub/internal/mirror/filename"
)

// A process that wants a copy of the bookkeeping of a running mirror makes a directory in
// copiesDir. The mirror puts the copy there, and reports its progress with files of these names.
const (
	copiesDir = filename.State + "/audits"
	seenName  = "seen"  // the mirror has seen the request, and will answer it after its present work
	readyName = "ready" // the copy is complete

	askedEvery = time.Second        // how often a mirror looks for requests
	seenWithin = 10 * time.Second   // how long to wait for seenName; after that, nobody will answer
	forgetAsks = 7 * 24 * time.Hour // a copy of this age belongs to a process that was killed
	askPause   = 100 * time.Millisecond
)

// OpenOrCopy opens the home of a mirror to read it. If a mirror is running there, the Home is
// a copy of its bookkeeping. OpenOrCopy blocks until the copy is ready. That takes a second or
// two, or longer while the mirror processes a long list, but at most patience.
func OpenOrCopy(ctx context.Context, dir string, patience time.Duration) (*Home, error) {
	h, err := reopen(dir, 0)
	if !errors.Is(err, ErrInUse) {
		return h, err
	}
	state := copiesDir + "/" + rand.Text()
	ask := filepath.Join(dir, state)
	if err := os.MkdirAll(ask, 0o700); err != nil {
		return nil, err
	}
	if h, err = awaitCopy(ctx, dir, state, patience); err != nil || !h.Copied() {
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

// Copied reports whether the home is a copy of another process's bookkeeping.
func (h *Home) Copied() bool { return h.state != filename.State }

// Answer makes copies for processes that ask for one, until ctx is done. It calls copyTo with the
// directory for each copy, and note with what goes wrong.
func (h *Home) Answer(ctx context.Context, copyTo func(dir string) error, note func(format string, args ...any)) {
	for {
		asked, err := fs.ReadDir(h.Root.FS(), copiesDir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			note("%v", err)
		}
		for _, a := range asked {
			if err := h.answer(copiesDir+"/"+a.Name(), copyTo); err != nil && ctx.Err() == nil {
				note("an audit gets no copy of what the mirror knows: %v", err)
			}
		}
		if backoff.Sleep(ctx, askedEvery) != nil {
			return
		}
	}
}

func (h *Home) answer(state string, copyTo func(dir string) error) error {
	if info, err := h.Root.Stat(state + "/" + seenName); err == nil {
		if time.Since(info.ModTime()) > forgetAsks {
			return h.Root.RemoveAll(state)
		}
		return nil
	}
	if err := h.Root.WriteFile(state+"/"+seenName, nil, 0o600); err != nil {
		return err
	}
	if err := copyTo(filepath.Join(h.Dir, state)); err != nil {
		return err
	}
	return h.Root.WriteFile(state+"/"+readyName, nil, 0o600)
}

// CopyTo copies the bookkeeping to a directory. If the pages of the replica are closed, it copies
// them only if over is true, when nobody else will open them. Nothing may change meanwhile.
func (h *Home) CopyTo(dir string, over bool) error {
	if err := h.Ledger.Copy(filepath.Join(dir, ledgerName)); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	to := filepath.Join(dir, replicaName)
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
