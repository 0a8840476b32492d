// Package home owns the directory of a mirror: which process may open it, what defines the mirror,
// and where its bookkeeping is.
//
// The bookkeeping itself is in package ledger, and in the pages of a client.Replica. The files of
// the mirror belong to package mirror.
package home

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/rshub/rshub/internal/inventory/diskpages"
	"github.com/rshub/rshub/internal/mirror/filename"
	"github.com/rshub/rshub/internal/mirror/ledger"
	"github.com/rshub/rshub/internal/pebbledb"
)

// A Home is the directory of a mirror. The mirror's bookkeeping is in its directory
// .rsmirror. Only one process at a time can open a Home; another one may get a copy, see
// OpenOrCopy.
type Home struct {
	Dir    string
	Root   *os.Root // root of Dir: operations through it cannot leave Dir
	Ledger *ledger.Ledger
	Top    *os.File // Dir, open as long as the Home is, so that no failed write goes unnoticed

	state string // the directory below Dir with the bookkeeping

	mu    sync.Mutex       // held while the pages are closed or copied
	pages *diskpages.Store // nil: they are closed
}

// The names within .rsmirror.
const (
	ledgerName  = "ledger"
	replicaName = "replica"
	listedName  = "listed"
	ledgerDir   = filename.State + "/" + ledgerName
)

// Parts is the path of the directory for contents that are being fetched.
const Parts = filename.State + "/parts"

// LostFound is a directory at the top of a file system, which belongs to the file system.
const LostFound = "lost+found"

// ErrForeign means that a directory has files and is not a mirror.
var ErrForeign = errors.New("it has files and is not a mirror")

// Open opens the home of a mirror, and makes it if there is none. It refuses a
// directory that has files and is not a mirror with ErrForeign, unless adopt is set. The
// caller closes the Home.
func Open(dir string, adopt bool) (*Home, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, ledgerDir)); errors.Is(err, os.ErrNotExist) && !adopt {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() != filename.State && e.Name() != LostFound }) {
			return nil, fmt.Errorf("%s: %w", dir, ErrForeign)
		}
	}
	return open(dir, lockWait)
}

// ErrNoMirror means that a directory is not a mirror.
var ErrNoMirror = errors.New("it is not a mirror")

// ErrInUse means that another process has the home of a mirror open.
var ErrInUse = pebbledb.ErrInUse

// Reopen opens the home of a mirror that was made before.
func Reopen(dir string) (*Home, error) { return reopen(dir, lockWait) }

func reopen(dir string, wait time.Duration) (*Home, error) {
	if _, err := os.Stat(filepath.Join(dir, ledgerDir)); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, ErrNoMirror)
	}
	return open(dir, wait)
}

const (
	lockWait  = 3 * time.Second // how long open waits for another process to end
	lockPause = 50 * time.Millisecond
)

func open(dir string, wait time.Duration) (*Home, error) {
	if err := os.MkdirAll(filepath.Join(dir, Parts), 0o700); err != nil {
		return nil, err
	}
	// A process that was just killed may still hold the lock for a moment.
	for began := time.Now(); ; time.Sleep(lockPause) {
		h, err := openState(dir, filename.State)
		if !errors.Is(err, ErrInUse) || time.Since(began) > wait {
			return h, err
		}
	}
}

// openState opens a home whose state is in a directory below it.
func openState(dir, state string) (_ *Home, err error) {
	h := &Home{Dir: dir, state: state}
	if h.Ledger, err = ledger.Open(filepath.Join(dir, state, ledgerName), fatal); err != nil {
		return nil, err
	}
	if h.Root, err = os.OpenRoot(dir); err != nil {
		return nil, errors.Join(err, h.Ledger.Close())
	}
	if h.Top, err = h.Root.Open("."); err != nil {
		return nil, errors.Join(err, h.Root.Close(), h.Ledger.Close())
	}
	return h, nil
}

// Settings define a mirror. They cannot be changed.
type Settings struct {
	URL        string         `json:"url"`                  // where the source was found
	Names      filename.Names `json:"names"`                // how paths are made
	Prefix     string         `json:"prefix,omitempty"`     // only resources whose loc begins with it
	Collection string         `json:"collection,omitempty"` // only resources with a link rel=collection to it
	To         string         `json:"to,omitempty"`         // where changes go; empty: the directory has the contents
}

const settingsKey = "settings"

// Settings returns the settings of the mirror. ok is false if the mirror is
// new.
func (h *Home) Settings() (s Settings, ok bool, err error) {
	ok, err = h.Ledger.Meta(settingsKey, &s)
	return s, ok, err
}

// Settle stores the settings of a new mirror. If the mirror already has other
// settings, the error names the difference.
func (h *Home) Settle(s Settings) error {
	was, ok, err := h.Settings()
	if err != nil {
		return err
	}
	if !ok {
		var b ledger.Batch
		b.Meta(settingsKey, s)
		return h.Ledger.Commit(&b)
	}
	for _, v := range []struct{ what, was, is string }{
		{"the URL", was.URL, s.URL}, {"-strip", was.Names.Strip, s.Names.Strip}, {"-prefix", was.Prefix, s.Prefix},
		{"-collection", was.Collection, s.Collection}, {"-to", was.To, s.To},
	} {
		if v.was != v.is {
			return fmt.Errorf("%s was made with %s %q, and that cannot be changed to %q: take another directory", h.Dir, v.what, v.was, v.is)
		}
	}
	return nil
}

func (h *Home) pagesDir() string { return filepath.Join(h.Dir, h.state, replicaName) }

// OpenPages opens the pages of a client.Replica.
func (h *Home) OpenPages() (p *diskpages.Store, closed func() error, err error) {
	if p, err = diskpages.Open(h.pagesDir(), diskpages.Options{Fatal: fatal}); err != nil {
		return nil, nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pages = p
	return p, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.pages = nil
		return p.Close()
	}, nil
}

// OpenListed opens a store for what an audit collects of a source. The caller must call closed,
// which removes it.
func (h *Home) OpenListed() (p *diskpages.Store, closed func() error, err error) {
	name := h.state + "/" + listedName
	if err := h.Root.RemoveAll(name); err != nil { // an audit that was killed has left it
		return nil, nil, err
	}
	if p, err = diskpages.Open(filepath.Join(h.Dir, name), diskpages.Options{Fatal: fatal}); err != nil {
		return nil, nil, err
	}
	return p, func() error { return errors.Join(p.Close(), h.Root.RemoveAll(name)) }, nil
}

// fatal ends the process because a write to the disk failed. Earlier durable writes are
// there when the home is opened again.
func fatal(err error) {
	fmt.Fprintf(os.Stderr, "the mirror cannot be written: %v\n", err)
	os.Exit(FatalStatus)
}

// FatalStatus is the exit status of a process that cannot write its home.
const FatalStatus = 3

// PackageFile returns the path of the package of a dump that is being read.
func (h *Home) PackageFile() string { return h.state + "/package" }

// ForgetPages removes the pages of a client.Replica, which are closed, so that it begins anew.
func (h *Home) ForgetPages() error { return h.Root.RemoveAll(h.state + "/" + replicaName) }

// Close closes the home. A copy is removed.
func (h *Home) Close() error {
	err := errors.Join(h.Top.Close(), h.Ledger.Close())
	if h.Copied() {
		err = errors.Join(err, h.Root.RemoveAll(h.state))
	}
	return errors.Join(err, h.Root.Close())
}
