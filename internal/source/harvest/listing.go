package harvest

import (
	"bufio"
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/resourcesync"
)

// The default bounds of a document, from the standard.
const (
	maxList    = 50 << 20 // bytes
	maxEntries = 50_000
)

const (
	maxDocuments  = 100_000   // the most documents of one listing
	maxUndated    = 1_000     // the most undated changes that are held
	maxRemembered = 1_000     // the most documents whose version a Seen remembers
	maxAhead      = time.Hour // how far a time of a source may lie in the future
)

type listing struct {
	*Lister
	ctx   context.Context
	yield func(*feed.Entry, error) bool
	now   Seen   // what was read
	count uint64 // number of resources or changes so far
	left  *int64 // bytes that all documents may still have, unpacked; nil: not bounded

	skipped bool // a *Skipped was yielded

	// Of the current document.
	doc  *Answer
	got  *progress       // its entries
	said map[string]bool // kinds of mistakes in it that Odd was called with

	manifest string // capability of the manifest of a package; empty: not a manifest

	// For Change Lists; change is nil for lists of resources.
	change  func(*resourcesync.Change, error) bool
	since   time.Time
	reach   *Reach
	begun   bool      // reach is set from a list
	undated []undated // changes with a datetime in the future, held until the next change
	last    time.Time // datetime of the newest change that is not in the future; else when the lists begin
}

func (l *Lister) begin(ctx context.Context) *listing {
	this := &listing{Lister: l, ctx: ctx, reach: new(Reach), now: Seen{Versions: map[string]Version{}}}
	if most := l.Total.Bytes; most > 0 {
		this.left = &most
	}
	return this
}

func (l *listing) read(list string, seen *Seen) error {
	l.now.List = list
	var known Version
	if seen.unchangeable(list) {
		known = seen.Versions[list]
	}
	first := part{what: "the list", url: list, index: true, robots: true}
	parts, err := l.part(first, known)
	if err == ErrUnchanged {
		if err := l.compare(seen); err != nil {
			return err
		}
		parts, err = l.part(first, Version{})
	}
	if err != nil {
		return err
	}
	had := map[string]bool{list: true}
	for len(parts) > 0 {
		p := parts[0]
		parts = parts[1:]
		if had[p.url] {
			continue // the index names it twice
		}
		had[p.url] = true
		if l.change != nil && !p.until.IsZero() && p.until.Before(l.since) {
			continue
		}
		more, err := l.part(p, Version{})
		if err != nil {
			return err
		}
		if parts = append(parts, more...); len(had)+len(parts) > maxDocuments {
			return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Msg: fmt.Sprintf("the list has more than %d documents", maxDocuments)}
		}
	}
	l.remember(seen)
	return nil
}

// oldestFirst sorts the parts that an index or a dump names, if each says when it begins.
// The standard demands that order, but not every source obeys.
func oldestFirst[T any](all []T, from func(*T) time.Time) []T {
	if !slices.ContainsFunc(all, func(t T) bool { return from(&t).IsZero() }) {
		slices.SortStableFunc(all, func(a, b T) int { return from(&a).Compare(from(&b)) })
	}
	return all
}

// A part is one document of a listing.
type part struct {
	what   string // for people
	number int    // place in its index, from 1
	url    string
	from   time.Time // when a Change List begins; zero: unknown
	until  time.Time // no change in it is later; zero: unknown
	index  bool      // it may be an index
	robots bool      // it may be a robots.txt
}

// part reads a document, and returns the documents that it names. If the document breaks
// off, part requests it again, and continues where it broke off.
func (l *listing) part(p part, known Version) (parts []part, err error) {
	got := &progress{seed: maphash.MakeSeed()}
	err = l.Getter.Retry(l.ctx, func() error {
		a, err := l.Getter.Once().Get(l.ctx, p.what, p.url, known)
		if err != nil {
			return err
		}
		parts, err = l.document(a, p, got)
		return err
	})
	return parts, err
}

// A progress says which entries of a document were taken. If the document breaks off
// and is read again, these entries are skipped.
type progress struct {
	seed   maphash.Seed
	taken  int    // entries that were taken
	sum    uint64 // checksum of their locs
	passed int    // entries that were skipped in this reading
	again  uint64 // checksum of the skipped entries
}

func errOther() error {
	return resourcesync.Invalidf("it broke off, and at the second request it was another document")
}

// had reports whether an earlier reading took an entry. It returns an error if the
// document has changed since, because it is then unknown which entries are new.
func (p *progress) had(loc string) (bool, error) {
	p.again = p.again*31 + maphash.String(p.seed, loc)
	if p.passed++; p.passed > p.taken {
		p.taken, p.sum = p.passed, p.again
		return false, nil
	}
	if p.passed == p.taken && p.again != p.sum {
		return true, errOther()
	}
	return true, nil
}

// compare asks the servers whether the documents after the first changed. It returns
// ErrUnchanged if none changed, and nil if one did.
func (l *listing) compare(seen *Seen) error {
	for i, part := range seen.Documents[1:] {
		a, err := l.Getter.Get(l.ctx, fmt.Sprintf("list %d of the index", i+1), part, seen.Versions[part])
		if err == ErrUnchanged {
			continue
		}
		if err == nil {
			a.Close()
		}
		return err
	}
	return ErrUnchanged
}

func (l *listing) open(a *Answer) { l.doc, l.said = a, map[string]bool{} }

// document reads one document, yields its resources, and closes it. If the document is
// an index, it returns the documents that it names.
func (l *listing) document(a *Answer, p part, got *progress) (parts []part, err error) {
	defer a.Close()
	l.open(a)
	if at, err := url.Parse(p.url); err == nil && len(l.now.Documents) == 0 && outbound.Site(at) != outbound.Site(a.URL) {
		l.now.Moved = a.URL.Scheme + "://" + a.URL.Host
	}
	l.got, l.undated = got, nil
	got.passed, got.again = 0, 0
	name := fmt.Sprintf("%s (%s)", p.what, Plain(a.URL))
	body := a.Body
	if l.left != nil {
		body = &bounded{body, l.left, fmt.Sprintf("all documents together have more than %d MiB, unpacked", l.Total.Bytes>>20)}
	}
	in := bufio.NewReaderSize(body, 32<<10)
	isText, marked, err := text(in)
	switch {
	case err != nil:
	case isText && (l.change != nil || l.manifest != ""):
		err = resourcesync.Invalidf("it is text, not a document of ResourceSync")
	case isText && !a.Complete:
		err = resourcesync.Invalidf("it is text, and its server does not say where it ends: it may have been cut off")
	case isText && p.robots && isRobots(a.URL):
		parts, err = l.robots(in)
	case isText:
		err = l.lines(in)
	default:
		parts, err = l.xml(in, p, marked)
	}
	if err == errStopped {
		return nil, err
	}
	if err == nil && got.passed < got.taken {
		err = errOther()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, Explain(l.ctx, err))
	}
	if got.taken == 0 && parts == nil && len(l.now.Documents) > 0 && l.change == nil {
		l.odd(&resourcesync.Error{Err: resourcesync.ErrInvalid, Msg: "it has no entries"})
	}
	l.now.Documents = append(l.now.Documents, p.url)
	if a.Version != (Version{}) {
		l.now.Versions[p.url] = a.Version
	}
	return parts, nil
}

// robots reads a robots.txt. It counts as an index of the sitemaps that it names, which
// may be indexes themselves.
func (l *listing) robots(in io.Reader) (parts []part, err error) {
	most := int64(robotsMax)
	said, err := readRobots(&bounded{in, &most, fmt.Sprintf("a robots.txt has at most %d KiB", robotsMax>>10)}, l.doc.URL)
	if err != nil {
		return nil, err
	}
	for i, at := range said.sitemaps {
		parts = append(parts, part{what: fmt.Sprintf("sitemap %d of robots.txt", i+1), url: at, index: true})
	}
	if parts == nil {
		return nil, resourcesync.Invalidf("it is a robots.txt that names no sitemap")
	}
	return parts, nil
}
