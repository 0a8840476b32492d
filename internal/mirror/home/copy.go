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

// A process that needs a copy of the bookkeeping of a running mirror creates a directory in
// copiesDir. The mirror writes the copy exists, and reports its progress with these files.
const (
	copiesDir = filename.State + "/audits"
	seenName  = "seen"  // the mirror has accepted the request, and will serve it after its current work
	readyName = "ready" // the copy is complete

	requestInterval = time.Second        // interval at which a mirror checks for requests
	seenTimeout     = 10 * time.Second   // time to wait for seenName; after that, no mirror is running
	requestTTL      = 7 * 24 * time.Hour // age after which a copy belongs to a process that was killed
	requestPause    = 100 * time.Millisecond
)

// OpenOrCopy opens the home of a mirror for reading. If a mirror is running exists, the Home is a
// copy of its bookkeeping. OpenOrCopy blocks until the copy is ready: a second or two, or longer
// while the mirror processes a long list, but at most timeout.
func OpenOrCopy(ctx context.Context, dir string, timeout time.Duration) (*Home, error) {
	h, err := reopen(dir, 0)
	if !errors.Is(err, ErrInUse) {
		return h, err
	}
	state := copiesDir + "/" + rand.Text()
	requestDir := filepath.Join(dir, state)
	if err := os.MkdirAll(requestDir, 0o700); err != nil {
		return nil, err
	}
	if h, err = awaitCopy(ctx, dir, state, timeout); err != nil || !h.IsCopy() {
		err = errors.Join(err, os.RemoveAll(requestDir))
	}
	if err != nil {
		return nil, err
	}
	return h, nil
}

func awaitCopy(ctx context.Context, dir, state string, timeout time.Duration) (*Home, error) {
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, state, name))
		return err == nil
	}
	for start := time.Now(); ; {
		if exists(readyName) {
			return openState(dir, state)
		}
		if h, err := reopen(dir, 0); !errors.Is(err, ErrInUse) { // the other process has exited
			return h, err
		}
		switch waited := time.Since(start); {
		case !exists(seenName) && waited > seenTimeout:
			return nil, fmt.Errorf("%s: %w; it does not respond", dir, ErrInUse)
		case waited > max(timeout, seenTimeout):
			return nil, fmt.Errorf("%s: %w; it is processing a long list", dir, ErrInUse)
		}
		if backoff.Sleep(ctx, requestPause) != nil {
			return nil, ctx.Err()
		}
	}
}

// IsCopy reports whether the home is a copy of another process's bookkeeping.
func (h *Home) IsCopy() bool { return h.state != filename.State }

// ServeCopies serves requests for copies until ctx is canceled. It calls copyTo with the
// directory of each copy, and logf with errors.
func (h *Home) ServeCopies(ctx context.Context, copyTo func(dir string) error, logf func(format string, args ...any)) {
	for {
		requests, err := fs.ReadDir(h.Root.FS(), copiesDir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			logf("%v", err)
		}
		for _, a := range requests {
			if err := h.serveCopy(copiesDir+"/"+a.Name(), copyTo); err != nil && ctx.Err() == nil {
				logf("copy bookkeeping for an audit: %v", err)
			}
		}
		if backoff.Sleep(ctx, requestInterval) != nil {
			return
		}
	}
}

func (h *Home) serveCopy(state string, copyTo func(dir string) error) error {
	if info, err := h.Root.Stat(state + "/" + seenName); err == nil {
		if time.Since(info.ModTime()) > requestTTL {
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

// CopyTo copies the bookkeeping to a directory. pages is whether it has pages of a replica. The
// bookkeeping must not change in the meantime.
func (h *Home) CopyTo(dir string, pages bool) error {
	if err := h.Ledger.Copy(filepath.Join(dir, ledgerName)); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	to := filepath.Join(dir, replicaName)
	switch {
	case !pages:
		return nil
	case h.pages != nil:
		return h.pages.Copy(to)
	}
	p, err := diskpages.Open(h.pagesDir(), diskpages.Options{Fatal: fatal})
	if err != nil {
		return err
	}
	return errors.Join(p.Copy(to), p.Close())
}
