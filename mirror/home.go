// Package mirror keeps a copy of a source's resources: it finds out what the source has,
// by a hub or by the source's lists, and brings it to a Sink, such as a directory.
package mirror

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rshub/rshub/inventory/diskpages"
	"github.com/rshub/rshub/mirror/filename"
	"github.com/rshub/rshub/mirror/ledger"
)

// A Home is the directory of a mirror. What the mirror knows of itself is in its
// directory .rsmirror. One process at a time has a Home open.
type Home struct {
	Dir    string
	Root   *os.Root // of Dir: nothing that is done through it leaves Dir
	Ledger *ledger.Ledger

	top *os.File // Dir, open as long as the Home is, so that no failed write goes unnoticed
}

// The names within .rsmirror.
const (
	ledgerDir  = filename.State + "/ledger"
	replicaDir = filename.State + "/replica"
	partsDir   = filename.State + "/parts"
)

// ErrForeign means that a directory has files, and is no mirror.
var ErrForeign = errors.New("it has files and is no mirror")

// OpenHome opens the home of a mirror, and makes it if there is none. A directory that has
// files and is no mirror is refused with ErrForeign, unless adopt is set. The caller closes
// the Home.
func OpenHome(dir string, adopt bool) (*Home, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, ledgerDir)); errors.Is(err, os.ErrNotExist) && !adopt {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() != filename.State && e.Name() != "lost+found" }) {
			return nil, fmt.Errorf("%s: %w", dir, ErrForeign)
		}
	}
	return open(dir)
}

// ErrNoMirror means that a directory is no mirror.
var ErrNoMirror = errors.New("it is no mirror")

// ReopenHome opens the home of a mirror that was made before.
func ReopenHome(dir string) (*Home, error) {
	if _, err := os.Stat(filepath.Join(dir, ledgerDir)); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, ErrNoMirror)
	}
	return open(dir)
}

const (
	lockWait  = 3 * time.Second // how long open waits for another process to end
	lockPause = 50 * time.Millisecond
)

func open(dir string) (_ *Home, err error) {
	h := &Home{Dir: dir}
	if err := os.MkdirAll(filepath.Join(dir, partsDir), 0o700); err != nil {
		return nil, err
	}
	// A process that was just killed may hold the lock for a moment more.
	for began := time.Now(); ; time.Sleep(lockPause) {
		h.Ledger, err = ledger.Open(filepath.Join(dir, ledgerDir), func(err error) { fatal("", err) })
		if !errors.Is(err, ledger.ErrInUse) || time.Since(began) > lockWait {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if h.Root, err = os.OpenRoot(dir); err != nil {
		return nil, errors.Join(err, h.Ledger.Close())
	}
	if h.top, err = h.Root.Open("."); err != nil {
		return nil, errors.Join(err, h.Root.Close(), h.Ledger.Close())
	}
	return h, nil
}

// Settings are what a mirror is. They cannot be changed.
type Settings struct {
	URL    string         `json:"url"`              // where the source was found
	Names  filename.Names `json:"names"`            // how paths are made
	Prefix string         `json:"prefix,omitempty"` // only resources whose loc begins with it
	To     string         `json:"to,omitempty"`     // where changes go; empty: the directory has the contents
}

const settingsKey = "settings"

// Settings returns what the mirror is. ok is false if it is new.
func (h *Home) Settings() (s Settings, ok bool, err error) {
	ok, err = h.Ledger.Meta(settingsKey, &s)
	return s, ok, err
}

// Settle makes a new mirror what the settings say. If the mirror is something else
// already, the error says what.
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
		{"the URL", was.URL, s.URL}, {"-strip", was.Names.Strip, s.Names.Strip}, {"-prefix", was.Prefix, s.Prefix}, {"-to", was.To, s.To},
	} {
		if v.was != v.is {
			return fmt.Errorf("%s was made with %s %q, and that cannot be changed to %q: take another directory", h.Dir, v.what, v.was, v.is)
		}
	}
	return nil
}

// Pages opens the pages of a client.Replica. The caller closes them.
func (h *Home) Pages() (*diskpages.Store, error) {
	return diskpages.Open(filepath.Join(h.Dir, replicaDir), diskpages.Options{Fatal: fatal})
}

// fatal ends the process because the disk does not take what is written. What was kept is
// there when the home is opened again.
func fatal(_ string, err error) {
	fmt.Fprintf(os.Stderr, "the mirror cannot be written: %v\n", err)
	os.Exit(FatalStatus)
}

// FatalStatus is the exit status of a process whose home cannot be written.
const FatalStatus = 3

// ForgetPages removes the pages, so that a Replica begins anew.
func (h *Home) ForgetPages() error { return h.Root.RemoveAll(replicaDir) }

// Close closes the home.
func (h *Home) Close() error { return errors.Join(h.top.Close(), h.Root.Close(), h.Ledger.Close()) }
