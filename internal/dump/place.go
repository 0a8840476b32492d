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
	errInUse   = errors.New("another process makes dumps there")
	errForeign = errors.New("it has files, and they are no dumps")
)

// The names in a place. Nothing in stateDir is for readers.
const (
	stateDir    = ".rsdump"
	historyFile = stateDir + "/history.json"
	temporary   = stateDir + "/tmp"
)

// HashesDir is a directory below that of the dumps where whoever makes a Listing may remember
// the hashes of files between runs.
const HashesDir = stateDir + "/hashes"

// ListingDir is a directory below that of the dumps where a Listing may keep what it needs until
// its end. It does not exist unless a Listing makes it.
const ListingDir = stateDir + "/listing"

// dated is in the names that a run gives to its files.
var dated = regexp.MustCompile(`-\d{8}T\d{6}Z`)

// A place is the directory with the dumps.
type place struct {
	dir  string
	opts *Options
	lock *os.File
	history
}

// openPlace opens the place in a directory, repairs it after a run that was killed, and locks
// it until close.
func openPlace(dir string, o *Options) (_ *place, err error) {
	p := &place{dir: dir, opts: o}
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

func (p *place) close() error { return p.lock.Close() }

func (p *place) path(name string) string { return filepath.Join(p.dir, filepath.FromSlash(name)) }

// repair reads the history, and finishes what a run that was killed has begun.
func (p *place) repair() error {
	b, err := os.ReadFile(p.path(historyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return p.sweep()
	}
	if err == nil {
		err = json.Unmarshal(b, &p.history)
	}
	switch {
	case err != nil:
		return fmt.Errorf("read what was published: %w", err)
	case p.history.Format != format:
		return fmt.Errorf("the dumps in %s have format %q, and this version of rshub knows only format %s", p.dir, p.history.Format, format)
	case len(p.Runs) > 0 && p.history.URL != p.opts.URL:
		return fmt.Errorf("the dumps in %s are for %s, and that cannot be changed to %s: take another directory", p.dir, p.history.URL, p.opts.URL)
	}
	return p.publish()
}

// publish writes the documents of the history, and then removes the files that they do not
// name. A document that names something new is written after what it names is durable.
func (p *place) publish() error {
	for _, d := range p.documents() {
		if _, err := os.Stat(p.path(d.name)); err == nil && dated.MatchString(d.name) {
			continue // it never changes
		}
		var b bytes.Buffer
		if err := d.WriteXML(&b); err != nil {
			return err
		}
		if err := p.replace(d.name, b.Bytes()); err != nil {
			return err
		}
	}
	if err := durable.SyncDir(p.dir); err != nil { // also the names that a run gave before it was killed
		return err
	}
	return p.sweep()
}

// replace gives a file its content in one step, unless the file has it.
func (p *place) replace(name string, content []byte) error {
	if was, err := os.ReadFile(p.path(name)); err == nil && bytes.Equal(was, content) {
		return nil
	}
	f, err := p.create(filepath.Base(name))
	if err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		return errors.Join(err, f.Close())
	}
	return p.put(f, name)
}

// create makes a temporary file. The name is anew in each run.
func (p *place) create(name string) (*os.File, error) {
	if err := p.opts.step("create " + name); err != nil {
		return nil, err
	}
	file := p.path(temporary + "/" + name)
	// What a killed run left is removed, not opened: it could be a link to a file elsewhere.
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
}

// put closes a temporary file, and moves it to its place, where it is durable.
func (p *place) put(f *os.File, name string) error {
	if err := p.opts.step("put " + name); err != nil {
		return errors.Join(err, f.Close())
	}
	return durable.Replace(f, p.path(name))
}

// sweep removes the files that nothing names.
func (p *place) sweep() error {
	named := p.named()
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
