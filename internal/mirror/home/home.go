// Package home manages the directory of a mirror: the lock against other processes, the settings
// of the mirror, and its bookkeeping.
//
// The bookkeeping consists of a ledger and the pages of a client.Replica. Package mirror manages
// the mirrored files.
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

// A Home is the directory of a mirror. The bookkeeping is in its subdirectory .rsmirror. Only
// one process at a time can open a Home; another one can get a copy, see OpenOrCopy.
type Home struct {
	Dir    string
	Root   *os.Root // Dir; operations through it cannot leave the directory
	Ledger *ledger.Ledger
	Top    *os.File // Dir; open for the life of the Home, so that syncfs reports every failed write

	state string // path of the bookkeeping below Dir

	mu    sync.Mutex       // held while pages are opened, closed or copied
	pages *diskpages.Store // nil if closed
}

// Names below .rsmirror.
const (
	ledgerName  = "ledger"
	replicaName = "replica"
	listedName  = "listed"
	ledgerDir   = filename.State + "/" + ledgerName
	markFile    = filename.State + "/unchanged"
)

// Parts is the path of the directory of contents that are being fetched.
const Parts = filename.State + "/parts"

// LostFound is a directory that file systems create at their top.
const LostFound = "lost+found"

// ErrForeign reports that a directory has files and is not a mirror.
var ErrForeign = errors.New("directory has files and is not a mirror")

// Open opens the home of a mirror, and creates it if it does not exist. Unless adopt is set, it
// returns ErrForeign for a directory that has files and is not a mirror. The caller must close
// the Home.
func Open(dir string, adopt bool) (*Home, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	if !Exists(dir) && !adopt {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() != filename.State && e.Name() != LostFound }) {
			return nil, fmt.Errorf("%s: %w", dir, ErrForeign)
		}
	}
	return unmark(open(dir, lockWait))
}

// ErrNoMirror reports that a directory is not a mirror.
var ErrNoMirror = errors.New("not a mirror")

// ErrInUse reports that another process has the home open.
var ErrInUse = pebbledb.ErrInUse

// Exists reports whether a directory is the home of a mirror.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, ledgerDir))
	return err == nil
}

// Reopen opens the home of an existing mirror.
func Reopen(dir string) (*Home, error) { return unmark(reopen(dir, lockWait)) }

// unmark removes the mark of MarkUnchanged from a home that was just opened. If err is not nil, unmark
// only returns it.
func unmark(h *Home, err error) (*Home, error) {
	if err != nil {
		return nil, err
	}
	if err := h.Root.Remove(markFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// MarkUnchanged marks a closed home. The mark stays until Open or Reopen opens the home, so IsUnchanged
// then shows whether another process may have changed it.
func MarkUnchanged(dir string) error { return os.WriteFile(filepath.Join(dir, markFile), nil, 0o600) }

// IsUnchanged reports whether a directory is a home with the mark of MarkUnchanged.
func IsUnchanged(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, markFile))
	return err == nil && Exists(dir)
}

func reopen(dir string, wait time.Duration) (*Home, error) {
	if !Exists(dir) {
		return nil, fmt.Errorf("%s: %w", dir, ErrNoMirror)
	}
	return open(dir, wait)
}

const (
	lockWait  = 3 * time.Second // time that open waits for another process to exit
	lockPause = 50 * time.Millisecond
)

func open(dir string, wait time.Duration) (*Home, error) {
	if err := os.MkdirAll(filepath.Join(dir, Parts), 0o700); err != nil {
		return nil, err
	}
	// A process that was just killed may still hold the lock for a moment.
	for start := time.Now(); ; time.Sleep(lockPause) {
		h, err := openState(dir, filename.State)
		if !errors.Is(err, ErrInUse) || time.Since(start) > wait {
			return h, err
		}
	}
}

// openState opens a home with its bookkeeping in a directory below it.
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
	URL        string         `json:"url"`                  // URL with which the source was discovered
	Names      filename.Names `json:"names"`                // how paths are derived
	Prefix     string         `json:"prefix,omitempty"`     // only resources whose loc starts with it
	Collection string         `json:"collection,omitempty"` // only resources with a link rel=collection to it
	All        bool           `json:"all,omitempty"`        // whether URL is a hub, and each of its sets has a mirror in a directory of its own
	To         string         `json:"to,omitempty"`         // destination of the changes; empty if the directory has the contents
}

const settingsKey = "settings"

// Settings returns the settings of the mirror. ok is false if the mirror is new.
func (h *Home) Settings() (s Settings, ok bool, err error) {
	ok, err = h.Ledger.Meta(settingsKey, &s)
	return s, ok, err
}

// SaveSettings stores the settings of a new mirror. If the mirror already has other settings,
// the error names the difference.
func (h *Home) SaveSettings(s Settings) error {
	was, ok, err := h.Settings()
	if err != nil {
		return err
	}
	if !ok {
		var b ledger.Batch
		b.PutMeta(settingsKey, s)
		return h.Ledger.Commit(&b)
	}
	for _, v := range []struct{ what, was, is string }{
		{"the URL", was.URL, s.URL}, {"-strip", was.Names.Strip, s.Names.Strip}, {"-prefix", was.Prefix, s.Prefix},
		{"-collection", was.Collection, s.Collection}, {"-to", was.To, s.To}, {"-all", fmt.Sprint(was.All), fmt.Sprint(s.All)},
	} {
		if v.was != v.is {
			return fmt.Errorf("%s: %s is %q and cannot be changed to %q; use another directory", h.Dir, v.what, v.was, v.is)
		}
	}
	return nil
}

func (h *Home) pagesDir() string { return filepath.Join(h.Dir, h.state, replicaName) }

// OpenPages opens the pages of a client.Replica. The caller must call closed.
func (h *Home) OpenPages() (p *diskpages.Store, closed func() error, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p, err = diskpages.Open(h.pagesDir(), diskpages.Options{Fatal: fatal}); err != nil {
		return nil, nil, err
	}
	h.pages = p
	return p, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.pages = nil
		return p.Close()
	}, nil
}

// OpenListing opens an empty store for the listing that an audit collects of a source. The
// caller must call closed, which removes it.
func (h *Home) OpenListing() (p *diskpages.Store, closed func() error, err error) {
	name := h.state + "/" + listedName
	if err := h.Root.RemoveAll(name); err != nil { // left over from an audit that was killed
		return nil, nil, err
	}
	if p, err = diskpages.Open(filepath.Join(h.Dir, name), diskpages.Options{Fatal: fatal}); err != nil {
		return nil, nil, err
	}
	return p, func() error { return errors.Join(p.Close(), h.Root.RemoveAll(name)) }, nil
}

// fatal exits because a write to the disk failed. Earlier durable writes exist when the home is
// opened again.
func fatal(err error) {
	fmt.Fprintf(os.Stderr, "write mirror: %v\n", err)
	os.Exit(FatalStatus)
}

// FatalStatus is the exit status of a process that cannot write its home.
const FatalStatus = 3

// PackageFile returns the path of the package of a dump that is being read.
func (h *Home) PackageFile() string { return h.state + "/package" }

// RemovePages removes the pages of a client.Replica, so that it starts from scratch. They must
// be closed.
func (h *Home) RemovePages() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Root.RemoveAll(h.state + "/" + replicaName)
}

// Close closes the home. It removes a copy.
func (h *Home) Close() error {
	err := errors.Join(h.Top.Close(), h.Ledger.Close())
	if h.IsCopy() {
		err = errors.Join(err, h.Root.RemoveAll(h.state))
	}
	return errors.Join(err, h.Root.Close())
}
