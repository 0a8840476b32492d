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

// Default limits of a document, from the standard.
const (
	maxList    = 50 << 20 // bytes
	maxEntries = 50_000
)

const (
	maxDocuments  = 100_000   // maximum number of documents of a listing
	maxUndated    = 1_000     // maximum number of undated changes that are held
	maxRemembered = 1_000     // maximum number of documents whose version a Seen remembers
	maxAhead      = time.Hour // how far a time of a source may be in the future
)

type listing struct {
	*Lister
	ctx       context.Context
	yield     func(*feed.Entry, error) bool
	seen      Seen   // description of this reading
	count     uint64 // number of resources or changes so far
	bytesLeft *int64 // remaining bytes of all documents, uncompressed; nil if unlimited

	skipped bool // whether a *Skipped was yielded

	// State of the current document.
	doc      *Answer
	progress *progress       // its entries
	noted    map[string]bool // kinds of mistakes in it that Note was called with

	manifest string // capability of the manifest of a package; empty if it is not a manifest

	// For Change Lists; change is nil for lists of resources.
	change   func(*resourcesync.Change, error) bool
	since    time.Time
	reach    *Reach
	reachSet bool            // whether reach is set from a list
	undated  []undatedChange // changes with a datetime in the future, held until the next change
	last     time.Time       // datetime of the newest change that is not in the future; before the first, the start of the lists
}

func (l *Lister) newListing(ctx context.Context) *listing {
	this := &listing{Lister: l, ctx: ctx, reach: new(Reach), seen: Seen{Versions: map[string]Version{}}}
	if most := l.Total.Bytes; most > 0 {
		this.bytesLeft = &most
	}
	return this
}

func (l *listing) read(list string, seen *Seen) error {
	l.seen.List = list
	var known Version
	if seen.comparable(list) {
		known = seen.Versions[list]
	}
	first := part{what: "the list", url: list, index: true, robots: true}
	parts, err := l.readPart(first, known)
	if err == ErrUnchanged {
		if err := l.checkUnchanged(seen); err != nil {
			return err
		}
		parts, err = l.readPart(first, Version{})
	}
	if err != nil {
		return err
	}
	had := map[string]bool{list: true}
	for len(parts) > 0 {
		p := parts[0]
		parts = parts[1:]
		if had[p.url] {
			continue // duplicate in the index
		}
		had[p.url] = true
		if l.change != nil && !p.until.IsZero() && p.until.Before(l.since) {
			continue
		}
		more, err := l.readPart(p, Version{})
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

// oldestFirst sorts the parts that an index or a dump names, if all of them state their start. The
// standard demands that order, but not every source obeys.
func oldestFirst[T any](all []T, from func(*T) time.Time) []T {
	if !slices.ContainsFunc(all, func(t T) bool { return from(&t).IsZero() }) {
		slices.SortStableFunc(all, func(a, b T) int { return from(&a).Compare(from(&b)) })
	}
	return all
}

// A part is one document of a listing.
type part struct {
	what   string // name for messages
	number int    // place in its index, from 1
	url    string
	from   time.Time // start of a Change List; zero if unknown
	until  time.Time // no change in it is later; zero if unknown
	index  bool      // whether it may be an index
	robots bool      // whether it may be a robots.txt
}

// readPart reads a document and returns the documents that it names. If the document breaks off,
// readPart requests it again and continues where it broke off.
func (l *listing) readPart(p part, known Version) (parts []part, err error) {
	got := &progress{seed: maphash.MakeSeed()}
	err = l.Getter.Retry(l.ctx, func() error {
		a, err := l.Getter.Once().Get(l.ctx, p.what, p.url, known)
		if err != nil {
			return err
		}
		parts, err = l.readDocument(a, p, got)
		return err
	})
	return parts, err
}

// A progress records which entries of a document were taken. If the document breaks off and is read
// again, these entries are skipped.
type progress struct {
	seed   maphash.Seed
	taken  int    // number of entries that were taken
	sum    uint64 // checksum of their locs
	passed int    // number of entries that were skipped in this reading
	again  uint64 // checksum of the skipped entries
}

func errOtherDocument() error {
	return resourcesync.Invalidf("document broke off and was different at the second request")
}

// alreadyTaken reports whether an earlier reading took an entry. It returns an error if the
// document has changed since, because it is then unknown which entries are new.
func (p *progress) alreadyTaken(loc string) (bool, error) {
	p.again = p.again*31 + maphash.String(p.seed, loc)
	if p.passed++; p.passed > p.taken {
		p.taken, p.sum = p.passed, p.again
		return false, nil
	}
	if p.passed == p.taken && p.again != p.sum {
		return true, errOtherDocument()
	}
	return true, nil
}

// checkUnchanged asks the servers whether the documents after the first have changed. It returns
// ErrUnchanged if none has, and nil if one has.
func (l *listing) checkUnchanged(seen *Seen) error {
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

func (l *listing) startDocument(a *Answer) { l.doc, l.noted = a, map[string]bool{} }

// readDocument reads one document, yields its resources, and closes it. If the document is an
// index, it returns the documents that it names.
func (l *listing) readDocument(a *Answer, p part, got *progress) (parts []part, err error) {
	defer a.Close()
	l.startDocument(a)
	if at, err := url.Parse(p.url); err == nil && len(l.seen.Documents) == 0 && outbound.Site(at) != outbound.Site(a.URL) {
		l.seen.Moved = a.URL.Scheme + "://" + a.URL.Host
	}
	l.progress, l.undated = got, nil
	got.passed, got.again = 0, 0
	name := fmt.Sprintf("%s (%s)", p.what, Plain(a.URL))
	body := a.Body
	if l.bytesLeft != nil {
		body = &limitedReader{body, l.bytesLeft, fmt.Sprintf("all documents together have more than %d MiB, unpacked", l.Total.Bytes>>20)}
	}
	in := bufio.NewReaderSize(body, 32<<10)
	isText, marked, err := detectText(in)
	switch {
	case err != nil:
	case isText && (l.change != nil || l.manifest != ""):
		err = resourcesync.Invalidf("got text, want a ResourceSync document")
	case isText && !a.Complete:
		err = resourcesync.Invalidf("document is text and its server does not send its length: it may have been cut off")
	case isText && p.robots && isRobots(a.URL):
		parts, err = l.readRobotsTxt(in)
	case isText:
		err = l.readLines(in)
	default:
		parts, err = l.readXML(in, p, marked)
	}
	if err == errStopped {
		return nil, err
	}
	if err == nil && got.passed < got.taken {
		err = errOtherDocument()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, Explain(l.ctx, err))
	}
	if got.taken == 0 && parts == nil && len(l.seen.Documents) > 0 && l.change == nil {
		l.noteMistake(&resourcesync.Error{Err: resourcesync.ErrInvalid, Msg: "document has no entries"})
	}
	l.seen.Documents = append(l.seen.Documents, p.url)
	if a.Version != (Version{}) {
		l.seen.Versions[p.url] = a.Version
	}
	return parts, nil
}

// readRobotsTxt reads a robots.txt. It counts as an index of the sitemaps that it names, which may
// be indexes themselves.
func (l *listing) readRobotsTxt(in io.Reader) (parts []part, err error) {
	most := int64(maxRobotsBytes)
	said, err := parseRobots(&limitedReader{in, &most, fmt.Sprintf("a robots.txt has at most %d KiB", maxRobotsBytes>>10)}, l.doc.URL)
	if err != nil {
		return nil, err
	}
	for i, at := range said.sitemaps {
		parts = append(parts, part{what: fmt.Sprintf("sitemap %d of robots.txt", i+1), url: at, index: true})
	}
	if parts == nil {
		return nil, resourcesync.Invalidf("robots.txt names no sitemap")
	}
	return parts, nil
}
