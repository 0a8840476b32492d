// Package dump packs the resources of a source into the ZIP files of Resource Dumps and Change
// Dumps, and maintains the documents that list them, in a directory that any web server can serve.
//
// Each run compares what the source has with the previous run. What is new, different or deleted
// goes into the Change Dump; now and then everything goes into a new Resource Dump. A file with a
// time in its name never changes; only the documents without one do.
//
// The package lists no source and parses no flags: package internal/dumpcmd does. docs/dumps.md
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

// A Resource is what a source has: what a manifest says of it, and its content.
type Resource struct {
	// Change has what is known. Its Hash decides whether the content differs from that of an
	// earlier run; without a Hash, Lastmod and Length decide. A sha-256 and a Length are
	// compared with what is read. Change, Datetime and Path are not used.
	Change resourcesync.Change

	// Open opens the content. The reader is closed. It may be that Open is not called.
	Open func() (io.ReadCloser, error)
}

// A Listing yields every resource of a source, in the order of Options.Compare, each once. A
// *Gap says what could not be read, and stands at its place in the order. Any other error
// ends the listing, and then nothing is published.
type Listing func(ctx context.Context) iter.Seq2[*Resource, error]

// A Gap is a resource that could not be read. It is not taken for deleted.
type Gap struct {
	Loc string // empty: any resources may be missing, so nothing is taken for deleted
	Err error
}

// Error says what could not be read, and why.
func (g *Gap) Error() string {
	if g.Loc == "" {
		return g.Err.Error()
	}
	return g.Loc + ": " + g.Err.Error()
}

// Unwrap returns the reason.
func (g *Gap) Unwrap() error { return g.Err }

// Unreadable is the relation of the link from a dump to the list of the resources that could
// not be read: a text with a URL on each line. A manifest has no entry for them, because the
// standard demands a content for each entry that is not a deletion. It has no links to them
// either, because there may be more than a reader takes.
const Unreadable = resourcesync.Terms + "rel/unreadable"

// Options say how to pack. The numbers and the URL are required.
type Options struct {
	URL     string        // where the directory is served; the same in each run
	Size    int64         // most bytes of a package, unless one resource has more
	Count   int           // most entries of a package, at most 50,000
	Every   time.Duration // age at which a Resource Dump is replaced by a new one
	Keep    int           // how many Resource Dumps are kept, with the changes since, and named by the archives
	Full    bool          // make a new Resource Dump now
	Gap     func(*Gap)    // called with each gap; default: gaps are only counted
	Now     func() time.Time
	Compare func(a, b string) int // order of the locs in a Listing; default strings.Compare

	// Allow is called before a run publishes deletions: deleted of held resources, while the
	// source has listed. An error ends the run, which then publishes nothing. Default: all
	// deletions are allowed.
	Allow func(deleted, held, listed uint64) error

	step func(what string) error // for tests: called before each change of a file
	most int                     // for tests: most entries of a document
}

// The bounds. The standard allows 50,000 entries and 50 MB in a document.
const (
	maxEntries = 50_000
	maxBytes   = 16 << 20 // of the entries of a manifest, which is in memory until it is written
)

// Check returns nil if dumps can be made with the options.
func (o *Options) Check() error {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(o.URL, "#") {
		return fmt.Errorf("the URL of the dumps is one like https://example.org/dumps/, not %q", o.URL)
	}
	if o.Size < 1 || o.Count < 1 || o.Count > maxEntries || o.Keep < 1 || o.Every <= 0 {
		return fmt.Errorf("a package has at most %d entries, and all numbers are above 0", maxEntries)
	}
	return nil
}

// complete sets the defaults.
func (o *Options) complete() {
	if !strings.HasSuffix(o.URL, "/") {
		o.URL += "/"
	}
	o.most = cmp.Or(o.most, maxEntries)
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

// A Result is what a run has done.
type Result struct {
	At      time.Time `json:"at,omitzero"`       // in the names of the run's files; zero: nothing has changed, and nothing was published
	Full    bool      `json:"full,omitempty"`    // a new Resource Dump was published
	Delayed bool      `json:"delayed,omitempty"` // a new Resource Dump was due, but could not have every resource of the one before

	Listed   uint64 `json:"listed"`
	Created  uint64 `json:"created"`
	Updated  uint64 `json:"updated"`
	Deleted  uint64 `json:"deleted"`
	Gaps     int    `json:"gaps"`
	Packages int    `json:"packages"` // that were published
	Bytes    int64  `json:"bytes"`
}

// Make brings the dumps in a directory up to date with a source, and makes the directory if
// it does not exist. The directory is Make's own: one Make at a time works there, and a directory
// with files of others is refused.
//
// Make may be killed at any moment: the published documents are valid, and the next Make
// removes what was left, and begins anew. Its memory does not grow with the number of
// resources.
func Make(ctx context.Context, dir string, list Listing, o Options) (r Result, err error) {
	if err := o.Check(); err != nil {
		return r, err
	}
	o.complete()
	p, err := openPlace(dir, &o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	m, err := p.begin()
	if err != nil {
		return r, err
	}
	if err := m.run(ctx, list); err != nil {
		return m.Result, errors.Join(err, p.sweep()) // it frees the room of what is not published
	}
	if err := m.commit(); err != nil {
		return m.Result, err // it may be committed all the same: only the next run knows what may be removed
	}
	return m.Result, p.publish()
}
