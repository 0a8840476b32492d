package dump

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/rshub/rshub/internal/durable"
	"github.com/rshub/rshub/internal/filelock"
)

var (
	errInUse   = errors.New("directory is in use by another process that creates dumps")
	errForeign = errors.New("directory has files that are not dumps")
)

// Names in a directory. Files in stateDir are not published.
const (
	stateDir    = ".rsdump"
	historyFile = stateDir + "/history.json"
	temporary   = stateDir + "/tmp"
)

// HashesDir is a subdirectory of the dumps' directory in which a Listing may cache the hashes of
// files between runs.
const HashesDir = stateDir + "/hashes"

// ListingDir is a subdirectory of the dumps' directory in which a Listing may store temporary files
// until it ends. It does not exist unless a Listing creates it.
const ListingDir = stateDir + "/listing"

// datedName matches the names that a run gives its files.
var datedName = regexp.MustCompile(`-\d{8}T\d{6}Z`)

// A directory is the directory with the dumps.
type directory struct {
	dir  string
	opts *Options
	lock *os.File
	history
}

// openDirectory opens a directory, repairs it if a run was killed, and locks it until close.
func openDirectory(dir string, o *Options) (_ *directory, err error) {
	p := &directory{dir: dir, opts: o}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if _, err := os.Stat(p.path(stateDir)); errors.Is(err, fs.ErrNotExist) && len(entries) > 0 {
		return nil, fmt.Errorf("%s: %w", dir, errForeign)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(p.path(temporary), 0o700); err != nil {
		return nil, err
	}
	if p.lock, err = os.OpenFile(p.path(stateDir+"/lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if !filelock.Lock(p.lock) {
		err = fmt.Errorf("%s: %w", dir, errInUse)
	} else {
		err = p.repair()
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *directory) close() error { return p.lock.Close() }

func (p *directory) path(name string) string { return filepath.Join(p.dir, filepath.FromSlash(name)) }

// repair reads the history, and completes the publication of a run that was killed.
func (p *directory) repair() error {
	b, err := os.ReadFile(p.path(historyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return p.sweep()
	}
	if err == nil {
		err = json.Unmarshal(b, &p.history)
	}
	switch {
	case err != nil:
		return fmt.Errorf("read the history of dumps: %w", err)
	case p.history.Format != format:
		return fmt.Errorf("dumps in %s: got format %q, want %s; another version of rshub created them", p.dir, p.history.Format, format)
	case len(p.Runs) > 0 && p.history.URL != p.opts.URL:
		return fmt.Errorf("dumps in %s: got URL %s, want %s; the URL cannot be changed, use another directory", p.dir, p.history.URL, p.opts.URL)
	}
	return p.publish()
}

// publish writes the documents of the history, and then removes unreferenced files. A document is
// written only after all files that it references are durable.
func (p *directory) publish() error {
	for _, d := range p.documents() {
		if _, err := os.Stat(p.path(d.name)); err == nil && datedName.MatchString(d.name) {
			continue // immutable
		}
		var b bytes.Buffer
		if err := d.WriteXML(&b); err != nil {
			return err
		}
		if err := p.replace(d.name, b.Bytes()); err != nil {
			return err
		}
	}
	if err := durable.SyncDir(p.dir); err != nil { // includes the renames of a run that was killed
		return err
	}
	return p.sweep()
}

// replace sets the content of a file atomically, unless the file already has it.
func (p *directory) replace(name string, content []byte) error {
	if was, err := os.ReadFile(p.path(name)); err == nil && bytes.Equal(was, content) {
		return nil
	}
	f, err := p.createTemp(filepath.Base(name))
	if err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		return errors.Join(err, f.Close())
	}
	return p.install(f, name)
}

// createTemp creates a temporary file. The name must be unique within a run.
func (p *directory) createTemp(name string) (*os.File, error) {
	if err := p.opts.step("create " + name); err != nil {
		return nil, err
	}
	file := p.path(temporary + "/" + name)
	// Remove a leftover of a killed run instead of opening it: it could be a link to another file.
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
}

// install closes a temporary file and renames it to name, durably.
func (p *directory) install(f *os.File, name string) error {
	if err := p.opts.step("put " + name); err != nil {
		return errors.Join(err, f.Close())
	}
	return durable.Replace(f, p.path(name))
}

// sweep removes the files that no document references.
func (p *directory) sweep() error {
	named := p.referencedFiles()
	for dir, prefixes := range map[string][]string{
		".":       {"resourcedump-", "changedump-", "changelist-", "unreadable-"},
		stateDir:  {"state-"},
		temporary: {""},
	} {
		entries, err := os.ReadDir(p.path(dir))
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			if named[name] || !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(e.Name(), prefix) }) {
				continue
			}
			if err := p.opts.step("remove " + name); err != nil {
				return err
			}
			if err := os.Remove(p.path(name)); err != nil {
				return err
			}
		}
	}
	return nil
}
