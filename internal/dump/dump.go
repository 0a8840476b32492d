// Package dump packs the resources of a source into the ZIP files of Resource Dumps and Change
// Dumps, and maintains the documents that list them, in a directory that any web server can serve.
//
// Each run compares the source with the previous run. New, changed and deleted resources are added
// to the Change Dump; from time to time a new Resource Dump with all resources is created. Files
// with a time in their names never change; the other documents are updated in place.
//
// The package neither lists a source nor parses flags: package internal/dumpcmd does. docs/dumps.md
// describes dumps for users.
package dump

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strings"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// A Resource is a resource of a source: its metadata for the manifest and its content.
type Resource struct {
	// Change is the known metadata. Content counts as changed if Hash differs from the previous
	// run; without a Hash, if Lastmod or Length does. A sha-256 and a Length are verified when the
	// content is read. Change.Change, Datetime and Path are ignored.
	Change resourcesync.Change

	// Open opens the content. Update closes the reader. Open is not called for resources that need
	// not be packed.
	Open func() (io.ReadCloser, error)
}

// A Listing yields every resource of a source once, in the order of Options.Compare. A *Gap error
// reports a resource that could not be read, at its position in the order. Any other error aborts
// the run, and nothing is published.
type Listing func(ctx context.Context) iter.Seq2[*Resource, error]

// A Gap is a resource that could not be read. It is not treated as deleted.
type Gap struct {
	Loc string // empty if any resources may be missing; then no resource is treated as deleted
	Err error
}

// Error returns the loc, if known, and the reason.
func (g *Gap) Error() string {
	if g.Loc == "" {
		return g.Err.Error()
	}
	return g.Loc + ": " + g.Err.Error()
}

// Unwrap returns the reason.
func (g *Gap) Unwrap() error { return g.Err }

// Unreadable is the relation of the link from a dump to the list of resources that could not be
// read, a text file with one URL per line. A manifest has no entries for them, because the standard
// requires content for each entry that is not a deletion. It does not link to them either, because
// there may be more links than a reader accepts.
const Unreadable = resourcesync.Terms + "rel/unreadable"

// Options configures a run. URL and the numbers are required.
type Options struct {
	URL     string        // URL at which the directory is served; the same in each run
	Size    int64         // maximum size of a package in bytes, unless it has a single larger resource
	Count   int           // maximum number of entries in a package, at most 50,000
	Every   time.Duration // maximum age of the newest Resource Dump before a new one is created
	Keep    int           // number of Resource Dumps to keep and to list in the archives, with the changes since
	Full    bool          // create a new Resource Dump in this run
	Gap     func(*Gap)    // called for each gap; default: gaps are only counted
	Now     func() time.Time
	Compare func(a, b string) int // order of the locs in a Listing; default: strings.Compare

	// Allow is called before a run publishes deletions, with the numbers of resources that are to
	// be deleted, that the previous run had, and that the source listed. An error aborts the run,
	// and nothing is published. Default: all deletions are allowed.
	Allow func(deleted, held, listed uint64) error

	step     func(what string) error // for tests: called before each change of a file
	maxItems int                     // for tests: maximum number of entries in a document
}

// Limits. The standard allows 50,000 entries and 50 MB per document.
const (
	maxEntries = 50_000
	maxBytes   = 16 << 20 // of a manifest's entries, which are in memory until the package is finished
)

// Check reports an error if the options are invalid.
func (o *Options) Check() error {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(o.URL, "#") {
		return fmt.Errorf("invalid URL of the dumps %q: want a URL such as https://example.org/dumps/", o.URL)
	}
	if o.Size < 1 || o.Count < 1 || o.Count > maxEntries || o.Keep < 1 || o.Every <= 0 {
		return fmt.Errorf("invalid options: Count must be from 1 to %d, and Size, Keep and Every must be positive", maxEntries)
	}
	return nil
}

// complete sets the defaults.
func (o *Options) complete() {
	if !strings.HasSuffix(o.URL, "/") {
		o.URL += "/"
	}
	o.maxItems = cmp.Or(o.maxItems, maxEntries)
	if o.Gap == nil {
		o.Gap = func(*Gap) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Compare == nil {
		o.Compare = strings.Compare
	}
	if o.Allow == nil {
		o.Allow = func(_, _, _ uint64) error { return nil }
	}
	if o.step == nil {
		o.step = func(string) error { return nil }
	}
}

// A Result is the result of a run.
type Result struct {
	At      time.Time `json:"at,omitzero"`       // time in the names of the run's files; zero if nothing changed, so nothing was published
	Full    bool      `json:"full,omitempty"`    // whether a new Resource Dump was published
	Delayed bool      `json:"delayed,omitempty"` // whether a due Resource Dump was postponed, because it would lack resources of the previous one

	Listed   uint64 `json:"listed"`
	Created  uint64 `json:"created"`
	Updated  uint64 `json:"updated"`
	Deleted  uint64 `json:"deleted"`
	Gaps     int    `json:"gaps"`
	Packages int    `json:"packages"` // number of published packages
	Bytes    int64  `json:"bytes"`    // total size of the published packages
}

// Update brings the dumps in a directory up to date with a source. It creates the directory if
// necessary. The directory belongs to Update: only one call at a time may use it, and a directory
// with other files is rejected.
//
// Update may be killed at any time: the published documents stay valid, and the next Update removes
// leftovers and starts from scratch. Its memory use does not grow with the number of resources.
func Update(ctx context.Context, dir string, list Listing, o Options) (r Result, err error) {
	if err := o.Check(); err != nil {
		return r, err
	}
	o.complete()
	p, err := openDirectory(dir, &o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	m, err := p.startRun()
	if err != nil {
		return r, err
	}
	if err := m.packListing(ctx, list); err != nil {
		return m.Result, errors.Join(err, p.sweep()) // frees the space of unpublished files
	}
	if err := m.commit(); err != nil {
		return m.Result, err // it may be committed anyway: only the next run can tell which files may be removed
	}
	return m.Result, p.publish()
}
