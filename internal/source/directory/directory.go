// Package directory lists the files of a directory as resources, and detects when they change. A
// file below the directory is the resource at the same path below a base URL.
//
// Only regular files are resources. Symbolic links, devices, sockets and pipes are left out: a link
// could lead out of the directory, and a target inside it is listed under its own path. No name,
// such as index.html, has a special meaning.
//
// The package publishes nothing: package reconcile does.
package directory

import (
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rshub/rshub/internal/backoff"
)

// Options configures a Tree. Zero values are the defaults.
type Options struct {
	// Exclude has patterns of path.Match. A pattern with a slash is matched against the whole path,
	// any other against each name in it. Everything in an excluded directory is excluded, too.
	Exclude []string

	// IncludeTemporary also lists the temporary files of editors and file systems, see
	// TemporaryNames.
	IncludeTemporary bool

	// Ledger is the directory of remembered hashes, so that a file is read again only if it has
	// changed. It is created if it does not exist. One Tree at a time may use it. Default: every
	// file is read each time.
	Ledger string

	// Settle is how long a file must be unchanged before it is read, because it may still be open
	// for writing. Default: a file is read immediately, and only a change during the reading is
	// detected.
	Settle time.Duration

	// Now and Sleep are for tests. Default: the system clock.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error
}

// TemporaryNames has the patterns of names that are left out by default: backups, locks and swap
// files of editors, and the files that NFS creates for removed files that are still open. Other
// hidden files are listed, because a web server serves them: .well-known is one.
var TemporaryNames = []string{"*~", ".*.sw[a-p]", ".#*", "#*#", ".~lock.*#", ".nfs????????*"}

// A Tree is a directory whose files are resources. It is not safe for concurrent use.
type Tree struct {
	dir     string
	base    string // ends in a slash
	opts    Options
	exclude exclusion

	// onDirectory is called with the path of each directory before it is read, so that it is
	// watched from then on; "." is the directory itself.
	onDirectory func(path string)

	// onBusy is called with the path of each file that a list leaves out because it is being
	// written, so that the Watcher checks it later.
	onBusy func(path string)

	listedInfo fs.FileInfo // of the directory when it was last listed
	stats      Stats
}

// Stats counts what a list found.
type Stats struct {
	Files   int // number of files that are resources
	Hashed  int // number of files that were read
	Links   int // number of symbolic links, which are left out
	Special int // number of devices, sockets and pipes, which are left out
	Names   int // number of names that are not UTF-8, or too long for a URL; they are gaps, too
}

// Open returns the Tree of a directory below a base URL. It does not read the directory yet.
func Open(dir, base string, o Options) (*Tree, error) {
	if err := CheckBase(base); err != nil {
		return nil, err
	}
	if !strings.HasSuffix(base, "/") {
		base += "/"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sleep == nil {
		o.Sleep = backoff.Sleep
	}
	exclude, err := newExclusion(o)
	if err != nil {
		return nil, err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	return &Tree{dir: dir, base: base, opts: o, exclude: exclude, onDirectory: ignorePath, onBusy: ignorePath}, nil
}

// ignorePath ignores a path.
func ignorePath(string) {}

// CheckBase returns an error unless base can be the URL of a directory.
func CheckBase(base string) error {
	u, err := url.Parse(base)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("invalid base URL %q: want one like https://example.org/files/", base)
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(base, "#"):
		return fmt.Errorf("invalid base URL: it has a user, query or fragment")
	}
	return nil
}

// Stats returns the counts of the newest list.
func (t *Tree) Stats() Stats { return t.stats }

// join returns the file system's name of a path.
func (t *Tree) join(path string) string { return filepath.Join(t.dir, filepath.FromSlash(path)) }
