// Package harvest reads the lists of sources. A Getter requests them, and a Lister reads them: the
// resources of a Resource List or a sitemap, the changes of Change Lists, and the packages of a
// dump.
//
// It reads faulty documents as far as that is safe, and reports what it skipped. It stores nothing
// and compares nothing: packages reconcile, relay and mirror do. Package oaipmh reads repositories
// that speak OAI-PMH.
package harvest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/idn"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/resourcesync"
)

// A Skipped is an entry of a document whose loc cannot be read, so it is unknown which resource it
// is about. The caller must not conclude that a resource is missing at the source. It does not end
// a sequence.
type Skipped struct {
	Document string              // URL of the document, without secrets
	Change   resourcesync.Change // entry, with an unreadable loc
	Err      *resourcesync.Error // place and rule
}

// Error names the document, the entry and the rule.
func (s *Skipped) Error() string { return s.Document + ": " + s.Err.Error() }

// Unwrap returns Err.
func (s *Skipped) Unwrap() error { return s.Err }

// A Lister lists the resources of a source: those of a Resource List, of an index of Resource
// Lists, of a sitemap, of an index of sitemaps, or of a text with one URL per line; compressed by
// gzip or not.
//
// It accepts harmless mistakes in them, and calls Note. A mistake that may lose a resource is an
// error: a truncated list is never mistaken for a short one.
type Lister struct {
	Getter *Getter
	Limits resourcesync.Limits // of one document; default: the standard's, 50,000 entries and 50 MiB uncompressed
	Total  resourcesync.Limits // of all documents of a listing together; default: none
	Now    func() time.Time    // default: time.Now

	// Note is called once for each document and kind of mistake that loses no resource. Default:
	// not called.
	Note func(document string, mistake *resourcesync.Error)
}

// Seen records which versions of its documents a listing was read from.
type Seen struct {
	List      string             `json:"list"`      // URL of the listing
	At        time.Time          `json:"at"`        // when the source started the list, by its clock; zero if unknown
	Documents []string           `json:"documents"` // URLs of its documents, in order
	Versions  map[string]Version `json:"versions"`  // by URL; without the documents whose server names no version

	Moved string `json:"moved,omitempty"` // origin of the listing if its server redirects to another host
}

// comparable reports whether all documents of a list have a version, so that their servers can
// answer that nothing changed.
func (s *Seen) comparable(list string) bool {
	return s != nil && s.List == list && len(s.Documents) > 0 && len(s.Versions) == len(s.Documents)
}

// Resources yields the resources of the listing at a URL, in its order. The position of each is its
// number in the whole listing, from 1; its change is updated, with the properties that the listing
// has. A loc that the listing has twice is yielded twice.
//
// An error that is not a *Skipped ends the sequence. It names the document, and wraps a
// *resourcesync.Error that names the entry and the rule, an *outbound.Failure, a *Busy, or the
// error of ctx. After an error, the caller must not conclude that a resource is missing at the
// source.
func (l *Lister) Resources(ctx context.Context, list string) iter.Seq2[*feed.Entry, error] {
	return l.Since(ctx, list, nil)
}

// Since is Resources, but if no document of the listing has changed since the reading that seen
// describes, it yields only the error ErrUnchanged. After the last resource, seen describes this
// reading; after an error it is unchanged. A listing with a *Skipped always counts as changed. A
// nil seen is never set.
func (l *Lister) Since(ctx context.Context, list string, seen *Seen) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		this := l.newListing(ctx)
		this.yield = yield
		if err := this.read(list, seen); err != nil && err != errStopped {
			yield(nil, err)
		}
	}
}

// A Reach is the time that the Change Lists of a reading cover.
type Reach struct {
	From  time.Time // start of the lists; zero if unknown
	Until time.Time // the lists have every change up to then; zero if unknown
}

// Changes yields the changes of the Change List at a URL, or of the lists that an index of Change
// Lists names, in their order, which is oldest first. It leaves out changes before since, and does
// not read lists that end before. Each change has a datetime; for a list of version 1.0 that is the
// lastmod. A datetime more than an hour in the future must be wrong, and a reader that continued
// from it would miss changes. Changes replaces it by the datetime of the previous change, or by the
// start of the list. It leaves the change out if the next one in the list is before since.
//
// seen and the errors are those of Since. If reach is not nil, it is set when the first change is
// yielded. If reach.From is later than since, the changes in between are unknown. Changes holds at
// most one change in memory, except those with a datetime in the future. It reads the lists one
// after the other.
func (l *Lister) Changes(ctx context.Context, list string, since time.Time, seen *Seen, reach *Reach) iter.Seq2[*resourcesync.Change, error] {
	return func(yield func(*resourcesync.Change, error) bool) {
		this := l.newListing(ctx)
		this.change, this.since = yield, since
		if reach != nil {
			this.reach = reach
		}
		if err := this.read(list, seen); err != nil && err != errStopped {
			yield(nil, err)
		}
	}
}

// remember stores this reading in seen. It does not remember a listing with very many documents;
// the next reading reads it again.
func (l *listing) remember(seen *Seen) {
	if seen == nil {
		return
	}
	if len(l.seen.Documents) > maxRemembered || l.skipped && l.change == nil {
		l.seen.Documents, l.seen.Versions = nil, nil
	}
	*seen = l.seen
}

var errStopped = errors.New("the caller stopped the iteration")

// Explain returns why reading the Body of an Answer failed: an *outbound.Failure, which IsAway
// recognizes, a *resourcesync.Error, or the cause of ctx.
func Explain(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*resourcesync.Error](err); ok {
		return err
	}
	if f, ok := errors.AsType[*outbound.Failure](err); ok {
		return f
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &outbound.Failure{Text: "unexpected end: the server sent less than it announced", Outcome: outbound.Other}
	}
	return outbound.Explain(err)
}

// detectText reports whether a document is text, not XML, and whether it has a byte order mark of
// UTF-8. It skips the mark, and blanks before either.
func detectText(in *bufio.Reader) (isText, marked bool, err error) {
	for first := true; ; first = false {
		mark, err := in.Peek(3)
		switch {
		case len(mark) == 0 && err == io.EOF:
			return false, marked, resourcesync.Invalidf("the document is empty")
		case len(mark) == 0:
			return false, marked, err
		case first && string(mark) == utf8Mark:
			marked = true
			_, _ = in.Discard(3)
		case bytes.IndexByte([]byte(" \t\r\n"), mark[0]) >= 0:
			_, _ = in.Discard(1)
		default:
			// A NUL and the marks of UTF-16 are not text; the XML reader reports them.
			return mark[0] != '<' && mark[0] < 0xFE && bytes.IndexByte(mark, 0) < 0, marked, nil
		}
	}
}

func (l *listing) readLines(in *bufio.Reader) error {
	limits := l.limits()
	lines := bufio.NewScanner(&limitedReader{in, &limits.Bytes, "the document has more bytes, unpacked, than a document may have"})
	lines.Buffer(nil, 16<<10)
	for number, entries := 1, 0; lines.Scan(); number++ {
		if lines.Err() != nil {
			break // the rest after the last whole line is incomplete
		}
		loc := strings.TrimSpace(lines.Text())
		if loc == "" {
			continue
		}
		if entries++; entries > limits.Entries {
			return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Entry: entries, Msg: fmt.Sprintf("a document has at most %d entries", limits.Entries)}
		}
		if scheme, _, ok := strings.Cut(loc, ":"); !ok || strings.ContainsAny(scheme, "/?# \"{[<") {
			e := entryError(entries, loc, "the document is neither XML nor a text with one absolute URL per line")
			e.Line = number
			return e
		}
		c := &resourcesync.Change{Loc: loc}
		if err := l.yieldResource(entries, c); err != nil {
			if e, ok := errors.AsType[*resourcesync.Error](err); ok {
				e.Line = number
			}
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return resourcesync.Invalidf("the document is neither XML nor a text with one URL per line")
	}
	return lines.Err()
}

// limits returns the limits of one document.
func (l *Lister) limits() resourcesync.Limits {
	return resourcesync.Limits{Bytes: cmp.Or(l.Limits.Bytes, maxList), Entries: cmp.Or(l.Limits.Entries, maxEntries)}
}

// isAhead reports whether a time is so far in the future that it must be wrong.
func (l *listing) isAhead(t time.Time) bool {
	now := time.Now
	if l.Now != nil {
		now = l.Now
	}
	return Ahead(t, now())
}

// Ahead reports whether a time of a source is too far in the future. A reader that continued from
// it would miss all changes until then.
func Ahead(t, now time.Time) bool { return t.After(now.Add(maxAhead)) }

// A limitedReader returns an error with rule if more bytes than *left are read.
type limitedReader struct {
	io.Reader
	left *int64
	rule string
}

func (b *limitedReader) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if *b.left -= int64(n); *b.left < 0 {
		return 0, &resourcesync.Error{Err: resourcesync.ErrTooLarge, Msg: b.rule}
	}
	return n, err
}

// readXML reads a Resource List, a sitemap, or an index of them.
func (l *listing) readXML(in *bufio.Reader, p part, marked bool) (parts []part, err error) {
	utf8, err := decodeXML(in, marked)
	if err != nil {
		return nil, err
	}
	r := resourcesync.NewXMLReader(utf8, l.limits())
	r.Tolerate(l.noteOnce)
	h, err := r.Header()
	if err != nil {
		return nil, err
	}
	switch {
	case l.manifest != "" && (h.Index || h.Capability != l.manifest):
		return nil, resourcesync.Invalidf("got capability %.40q, want %s", h.Capability, l.manifest)
	case l.change != nil && l.manifest == "" && h.Capability != resourcesync.ChangeList:
		return nil, resourcesync.Invalidf("got capability %.40q, want changelist", h.Capability)
	case l.change != nil:
		l.noteReach(&h)
	case l.manifest != "":
	case h.Capability != "" && h.Capability != resourcesync.ResourceList:
		return nil, resourcesync.Invalidf("got capability %.40q, want resourcelist, or none for a sitemap", h.Capability)
	}
	if h.Index && !p.index {
		return nil, resourcesync.Invalidf("an index names another index; it may name only lists")
	}
	if len(l.seen.Documents) == 0 {
		l.seen.At = l.pastOrZero(h.At)
	}
	for n := 1; ; n++ {
		it, err := r.Next()
		if err == io.EOF {
			return l.nameParts(p, oldestFirst(parts, func(p *part) time.Time { return p.from })), l.flush()
		}
		if err != nil && !errors.Is(err, resourcesync.ErrLoc) {
			return nil, err
		}
		switch {
		case h.Index && n > maxEntries:
			err = &resourcesync.Error{Err: resourcesync.ErrTooLarge, Entry: n, Msg: fmt.Sprintf("an index has at most %d entries", maxEntries)}
		case err != nil:
			err = l.yieldSkipped(&it.Change, it.Until, err)
		case h.Index:
			parts, err = l.addPart(n, it, parts)
		case l.change != nil:
			err = l.handleChange(n, &it.Change)
		default:
			err = l.yieldResource(n, &it.Change)
		}
		if err != nil {
			return nil, err
		}
	}
}

// noteReach records the time that a Change List covers.
func (l *listing) noteReach(h *resourcesync.Header) {
	if h.Index {
		return
	}
	from, until := l.pastOrZero(h.From), l.pastOrZero(h.Until)
	if !l.reachSet {
		l.reach.From, l.reachSet = from, true
	}
	if l.reach.Until = until; from.After(l.last) {
		l.last = from
	}
}

// pastOrZero returns a time, or zero if it is too far in the future.
func (l *listing) pastOrZero(t time.Time) time.Time {
	if l.isAhead(t) {
		return time.Time{}
	}
	return t
}

// nameParts sets the names of the parts of an index for messages, and leaves out duplicates.
func (l *listing) nameParts(index part, parts []part) (once []part) {
	of := "the index"
	if index.what != "the list" {
		of = index.what
	}
	had := map[string]bool{index.url: true}
	for _, p := range parts {
		if had[p.url] {
			l.noteMistake(entryError(p.number, p.url, "duplicate entry of the index"))
			continue
		}
		had[p.url] = true
		p.what = fmt.Sprintf("list %d of %s", p.number, of)
		once = append(once, p)
	}
	return once
}

// addPart adds entry n of an index to its parts.
func (l *listing) addPart(n int, it *resourcesync.Item, parts []part) ([]part, error) {
	at := l.doc.URL
	loc, err := resolveURL(at, it.Loc)
	if err != nil {
		return parts, l.yieldSkipped(&it.Change, it.Until, locError(n, it.Loc, err))
	}
	if loc.User == nil && loc.Host == at.Host && loc.Scheme == at.Scheme {
		loc.User = at.User
	}
	return append(parts, part{number: n, url: loc.String(), from: it.From, until: it.Until}), nil
}

// yieldResource yields a resource, entry n of its document.
func (l *listing) yieldResource(n int, c *resourcesync.Change) error {
	if c.Change == resourcesync.Deleted {
		return entryError(n, c.Loc, "change: got deleted; a list has only existing resources")
	}
	c.Change = resourcesync.Updated
	if had, err := l.accept(n, c); had || err != nil {
		return err
	}
	if !l.yield(&feed.Entry{Cursor: feed.Cursor{Position: l.count}, Change: *c}, nil) {
		return errStopped
	}
	return nil
}

// yieldSkipped yields a *Skipped for an entry, unless all its changes are before since. until is
// the end of a Change List that it names; zero if unknown.
func (l *listing) yieldSkipped(c *resourcesync.Change, until time.Time, err error) error {
	c.Datetime = cmp.Or(c.Datetime, c.Lastmod)
	if at := cmp.Or(until, c.Datetime); l.change != nil && !at.IsZero() && at.Before(l.since) {
		return nil
	}
	if l.isAhead(c.Datetime) { // it must be wrong, so the entry may be new
		c.Datetime = l.last
	}
	if had, err := l.progress.alreadyTaken(c.Loc); had || err != nil {
		return err
	}
	l.skipped = true
	e, _ := errors.AsType[*resourcesync.Error](err)
	s := &Skipped{Plain(l.doc.URL), *c, e}
	if l.change != nil && !l.change(nil, s) || l.change == nil && !l.yield(nil, s) {
		return errStopped
	}
	return nil
}

// handleChange yields a change, entry n of its document, or holds it until the next one.
func (l *listing) handleChange(n int, c *resourcesync.Change) error {
	if c.Datetime.IsZero() {
		c.Datetime = c.Lastmod
	}
	if c.Datetime.IsZero() {
		return entryError(n, c.Loc, "no datetime and no lastmod: it is unknown whether the change is new")
	}
	if l.isAhead(c.Datetime) {
		l.noteOnce(entryError(n, c.Loc, "datetime is in the future; using that of the previous change"))
		if c.Datetime = l.last; c.Datetime.IsZero() {
			c.Datetime = l.since
		}
		if c.Datetime.IsZero() {
			c.Datetime = time.Unix(0, 0).UTC()
		}
		if l.undated = append(l.undated, undatedChange{n, *c}); len(l.undated) < maxUndated {
			return nil
		}
		return l.flush()
	}
	if l.last = c.Datetime; c.Datetime.Before(l.since) {
		l.undated = l.undated[:0]
		return nil
	}
	if err := l.flush(); err != nil {
		return err
	}
	return l.yieldChange(n, c)
}

// An undatedChange is a change with a datetime in the future. It is held until the next change
// shows its approximate time.
type undatedChange struct {
	n int
	c resourcesync.Change
}

// flush yields the held undated changes, because the change after them is new.
func (l *listing) flush() error {
	for i := range l.undated {
		if err := l.yieldChange(l.undated[i].n, &l.undated[i].c); err != nil {
			return err
		}
	}
	l.undated = l.undated[:0]
	return nil
}

func (l *listing) yieldChange(n int, c *resourcesync.Change) error {
	if had, err := l.accept(n, c); had || err != nil {
		return err
	}
	if !l.change(c, nil) {
		return errStopped
	}
	return nil
}

// accept checks and counts entry n of a document. had reports whether an earlier reading of the
// document already had it, or it was skipped.
func (l *listing) accept(n int, c *resourcesync.Change) (had bool, err error) {
	if err := l.repairEntry(n, c); errors.Is(err, resourcesync.ErrLoc) {
		return true, l.yieldSkipped(c, time.Time{}, err)
	} else if err != nil {
		return false, err
	}
	if had, err := l.progress.alreadyTaken(c.Loc); had || err != nil {
		return had, err
	}
	if l.count++; l.Total.Entries > 0 && l.count > uint64(l.Total.Entries) {
		e := entryError(n, c.Loc, fmt.Sprintf("all documents together have at most %d entries", l.Total.Entries))
		e.Err = resourcesync.ErrTooLarge
		return false, e
	}
	return false, nil
}

func entryError(n int, loc, rule string) *resourcesync.Error {
	return &resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: n, Loc: resourcesync.Shorten(loc), Msg: rule}
}

// locError returns the error of an entry whose loc is not a URL.
func locError(n int, loc string, err error) *resourcesync.Error {
	e := entryError(n, loc, "loc: "+err.Error())
	e.Err = resourcesync.ErrLoc
	return e
}

// repairEntry makes an entry acceptable for a hub. It leaves out invalid optional parts.
func (l *listing) repairEntry(n int, c *resourcesync.Change) error {
	if err := resourcesync.CheckURI("loc", c.Loc); err != nil || strings.Contains(c.Loc, "#") {
		loc, err := resolveURL(l.doc.URL, c.Loc)
		if err != nil {
			return locError(n, c.Loc, err)
		}
		l.noteOnce(entryError(n, c.Loc, "loc is not an absolute URI without a fragment; using "+resourcesync.Shorten(loc.String())))
		c.Loc = loc.String()
	}
	for i := range c.Links {
		if href, err := idn.URL(c.Links[i].Href); err == nil {
			c.Links[i].Href = href
		}
	}
	repairChange(c, func(e *resourcesync.Error) {
		e.Entry = n
		l.noteOnce(e)
	})
	err := c.Validate()
	if e, ok := errors.AsType[*resourcesync.Error](err); ok {
		e.Entry = n
	}
	return err
}

// noteOnce calls Note with a mistake, unless it was called for the same kind of mistake in the
// document.
func (l *listing) noteOnce(mistake *resourcesync.Error) {
	kind, _, _ := strings.Cut(mistake.Msg, "\"") // the rest are texts from the document
	kind, _, _ = strings.Cut(kind, "http")
	if !l.noted[kind] {
		l.noted[kind] = true
		l.noteMistake(mistake)
	}
}

func (l *listing) noteMistake(mistake *resourcesync.Error) {
	if l.Note != nil {
		l.Note(Plain(l.doc.URL), mistake)
	}
}
