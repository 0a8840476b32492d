// Package harvest reads the lists of sources. A Getter requests them, and a Lister reads them: the
// resources of a Resource List or a sitemap, the changes of Change Lists, and the packages of a
// dump.
//
// It reads faulty documents as far as that is safe, and reports what it skipped. It stores nothing,
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

// A Skipped stands for an entry of a document whose loc cannot be read, so it is unknown
// which resource it is about. The caller must not conclude that a resource is missing at
// the source. It does not end a sequence.
type Skipped struct {
	Document string              // URL of the document, without secrets
	Change   resourcesync.Change // entry, with a loc that names no resource
	Err      *resourcesync.Error // place and rule
}

// Error names the document, the entry and the rule.
func (s *Skipped) Error() string { return s.Document + ": " + s.Err.Error() }

// Unwrap returns Err.
func (s *Skipped) Unwrap() error { return s.Err }

// A Lister lists the resources that a source has: those of a Resource List, of an index of
// Resource Lists, of a sitemap as most websites have one, of an index of sitemaps, or of a
// text with one URL on each line; packed by gzip or not.
//
// It accepts harmless mistakes in them, and calls Odd. A mistake that may lose a resource
// is an error: a list that ends early is never taken for a short list.
type Lister struct {
	Getter *Getter
	Limits resourcesync.Limits // of one document; default: those of the standard, 50,000 entries and 50 MiB unpacked
	Total  resourcesync.Limits // of all documents of a listing together; default: none
	Now    func() time.Time    // default time.Now

	// Odd is called once for each document and kind of mistake that loses no
	// resource. Default: nothing is called.
	Odd func(document string, mistake *resourcesync.Error)
}

// Seen says which versions of its documents a listing was read from.
type Seen struct {
	List      string             `json:"list"`      // the URL of the listing
	At        time.Time          `json:"at"`        // when the source began to make the list, by its clock; zero: it does not say
	Documents []string           `json:"documents"` // the URLs of its documents, from the first
	Versions  map[string]Version `json:"versions"`  // by URL; without the documents whose server names no version

	Moved string `json:"moved,omitempty"` // origin of the listing if its server redirects to another host
}

// unchangeable reports whether all documents of a list have a version, so that their
// servers can answer that nothing changed.
func (s *Seen) unchangeable(list string) bool {
	return s != nil && s.List == list && len(s.Documents) > 0 && len(s.Versions) == len(s.Documents)
}

// Resources yields the resources of the listing at a URL, in its order. The position of
// each is its number in the whole listing, from 1; its change is updated, and has what
// the listing says about the resource. A loc that the listing has twice is yielded twice.
//
// An error that is not a *Skipped ends the sequence. It names the document, and wraps a
// *resourcesync.Error that names the entry and the rule, an *outbound.Failure, a *Busy, or
// the error of ctx. After an error, the caller must not conclude that a resource is missing
// at the source.
func (l *Lister) Resources(ctx context.Context, list string) iter.Seq2[*feed.Entry, error] {
	return l.Since(ctx, list, nil)
}

// Since is Resources, but if no document of the listing changed since the reading that
// seen describes, it yields only the error ErrUnchanged. After the last resource, seen
// describes the present reading; after an error it is unchanged. A listing with a *Skipped
// is never found unchanged. A nil seen is never changed.
func (l *Lister) Since(ctx context.Context, list string, seen *Seen) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		this := l.begin(ctx)
		this.yield = yield
		if err := this.read(list, seen); err != nil && err != errStopped {
			yield(nil, err)
		}
	}
}

// A Reach is the time that the Change Lists of a reading cover.
type Reach struct {
	From  time.Time // the lists begin here; zero: they do not say
	Until time.Time // the lists have every change up to then; zero: they do not say
}

// Changes yields the changes of the Change List at a URL, or of the lists that an index
// of Change Lists names, in their order, which is oldest first. It leaves out changes
// before since, and does not read lists that end before. Each change has a datetime; for
// a list of version 1.0 that is the lastmod. A datetime more than an hour in the future
// must be wrong, and a reader that continued from it would miss changes. Changes replaces
// it by the datetime of the change before, or by the beginning of the list. It leaves the
// change out if the next one in the list is before since.
//
// seen and the errors are those of Since. If reach is not nil, it is set when the first
// change is yielded. If reach.From is later than since, the changes between are unknown.
// Changes holds at most one change in memory, except those with a datetime in the future.
// It reads the lists one after the other.
func (l *Lister) Changes(ctx context.Context, list string, since time.Time, seen *Seen, reach *Reach) iter.Seq2[*resourcesync.Change, error] {
	return func(yield func(*resourcesync.Change, error) bool) {
		this := l.begin(ctx)
		this.change, this.since = yield, since
		if reach != nil {
			this.reach = reach
		}
		if err := this.read(list, seen); err != nil && err != errStopped {
			yield(nil, err)
		}
	}
}

// remember stores what was read in seen. It does not remember a listing with
// very many documents; the next reading reads it again.
func (l *listing) remember(seen *Seen) {
	if seen == nil {
		return
	}
	if len(l.now.Documents) > maxRemembered || l.skipped && l.change == nil {
		l.now.Documents, l.now.Versions = nil, nil
	}
	*seen = l.now
}

var errStopped = errors.New("the caller wants no more")

// Explain returns why reading the Body of an Answer failed: an *outbound.Failure, which
// IsAway recognizes, a *resourcesync.Error, or the cause of ctx.
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
		return &outbound.Failure{Text: "it ends early: the server sent less than it announced", Outcome: outbound.Other}
	}
	return outbound.Explain(err)
}

// text reports whether a document is text, not XML, and whether it has a byte order mark of
// UTF-8. It skips the mark, and blanks before either.
func text(in *bufio.Reader) (isText, marked bool, err error) {
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

func (l *listing) lines(in *bufio.Reader) error {
	limits := l.limits()
	lines := bufio.NewScanner(&bounded{in, &limits.Bytes, "the document has more bytes, unpacked, than a document may have"})
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
			e := entryError(entries, loc, "it is neither XML nor a text with one absolute URL on each line")
			e.Line = number
			return e
		}
		c := &resourcesync.Change{Loc: loc}
		if err := l.resource(entries, c); err != nil {
			if e, ok := errors.AsType[*resourcesync.Error](err); ok {
				e.Line = number
			}
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return resourcesync.Invalidf("it is neither XML nor a text with one URL on each line")
	}
	return lines.Err()
}

// limits returns the bounds of one document.
func (l *Lister) limits() resourcesync.Limits {
	return resourcesync.Limits{Bytes: cmp.Or(l.Limits.Bytes, maxList), Entries: cmp.Or(l.Limits.Entries, maxEntries)}
}

// ahead reports whether a time is so far in the future that it must be wrong.
func (l *listing) ahead(t time.Time) bool {
	now := time.Now
	if l.Now != nil {
		now = l.Now
	}
	return Ahead(t, now())
}

// Ahead reports whether a time of a source is too far in the future. A reader that
// continued from it would miss all changes until then.
func Ahead(t, now time.Time) bool { return t.After(now.Add(maxAhead)) }

// A bounded reads as many bytes as are left; more break a rule.
type bounded struct {
	io.Reader
	left *int64
	rule string
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if *b.left -= int64(n); *b.left < 0 {
		return 0, &resourcesync.Error{Err: resourcesync.ErrTooLarge, Msg: b.rule}
	}
	return n, err
}

// xml reads a Resource List, a sitemap, or an index of them.
func (l *listing) xml(in *bufio.Reader, p part, marked bool) (parts []part, err error) {
	utf8, err := decodeXML(in, marked)
	if err != nil {
		return nil, err
	}
	r := resourcesync.NewXMLReader(utf8, l.limits())
	r.Tolerate(l.once)
	h, err := r.Header()
	if err != nil {
		return nil, err
	}
	switch {
	case l.manifest != "" && (h.Index || h.Capability != l.manifest):
		return nil, resourcesync.Invalidf("its capability is %.40q, not %s", h.Capability, l.manifest)
	case l.change != nil && l.manifest == "" && h.Capability != resourcesync.ChangeList:
		return nil, resourcesync.Invalidf("its capability is %.40q, not changelist", h.Capability)
	case l.change != nil:
		l.covers(&h)
	case l.manifest != "":
	case h.Capability != "" && h.Capability != resourcesync.ResourceList:
		return nil, resourcesync.Invalidf("its capability is %.40q: a list of resources has resourcelist, or is a sitemap without any", h.Capability)
	}
	if h.Index && !p.index {
		return nil, resourcesync.Invalidf("it is an index that an index names: an index may name only lists")
	}
	if len(l.now.Documents) == 0 {
		l.now.At = l.past(h.At)
	}
	for n := 1; ; n++ {
		it, err := r.Next()
		if err == io.EOF {
			return l.named(p, oldestFirst(parts, func(p *part) time.Time { return p.from })), l.flush()
		}
		if err != nil && !errors.Is(err, resourcesync.ErrLoc) {
			return nil, err
		}
		switch {
		case h.Index && n > maxEntries:
			err = &resourcesync.Error{Err: resourcesync.ErrTooLarge, Entry: n, Msg: fmt.Sprintf("an index has at most %d entries", maxEntries)}
		case err != nil:
			err = l.skip(&it.Change, it.Until, err)
		case h.Index:
			parts, err = l.member(n, it, parts)
		case l.change != nil:
			err = l.changed(n, &it.Change)
		default:
			err = l.resource(n, &it.Change)
		}
		if err != nil {
			return nil, err
		}
	}
}

// covers notes the time that a Change List covers.
func (l *listing) covers(h *resourcesync.Header) {
	if h.Index {
		return
	}
	from, until := l.past(h.From), l.past(h.Until)
	if !l.begun {
		l.reach.From, l.begun = from, true
	}
	if l.reach.Until = until; from.After(l.last) {
		l.last = from
	}
}

// past returns a time, unless it lies too far in the future.
func (l *listing) past(t time.Time) time.Time {
	if l.ahead(t) {
		return time.Time{}
	}
	return t
}

// named names the parts of an index for people, and leaves out those that come twice.
func (l *listing) named(index part, parts []part) (once []part) {
	of := "the index"
	if index.what != "the list" {
		of = index.what
	}
	had := map[string]bool{index.url: true}
	for _, p := range parts {
		if had[p.url] {
			l.odd(entryError(p.number, p.url, "the index has it twice"))
			continue
		}
		had[p.url] = true
		p.what = fmt.Sprintf("list %d of %s", p.number, of)
		once = append(once, p)
	}
	return once
}

// member adds entry n of an index to its parts.
func (l *listing) member(n int, it *resourcesync.Item, parts []part) ([]part, error) {
	at := l.doc.URL
	loc, err := address(at, it.Loc)
	if err != nil {
		return parts, l.skip(&it.Change, it.Until, locError(n, it.Loc, err))
	}
	if loc.User == nil && loc.Host == at.Host && loc.Scheme == at.Scheme {
		loc.User = at.User
	}
	return append(parts, part{number: n, url: loc.String(), from: it.From, until: it.Until}), nil
}

// resource yields a resource, entry n of its document.
func (l *listing) resource(n int, c *resourcesync.Change) error {
	if c.Change == resourcesync.Deleted {
		return entryError(n, c.Loc, "change: got deleted; a list has only existing resources")
	}
	c.Change = resourcesync.Updated
	if had, err := l.takeIn(n, c); had || err != nil {
		return err
	}
	if !l.yield(&feed.Entry{Cursor: feed.Cursor{Position: l.count}, Change: *c}, nil) {
		return errStopped
	}
	return nil
}

// skip yields a *Skipped for an entry, unless it is only about changes before those that
// are wanted. until is the end of a Change List that it names; zero if unknown.
func (l *listing) skip(c *resourcesync.Change, until time.Time, err error) error {
	c.Datetime = cmp.Or(c.Datetime, c.Lastmod)
	if at := cmp.Or(until, c.Datetime); l.change != nil && !at.IsZero() && at.Before(l.since) {
		return nil
	}
	if l.ahead(c.Datetime) { // it must be wrong, so the entry may be new
		c.Datetime = l.last
	}
	if had, err := l.got.had(c.Loc); had || err != nil {
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

// changed yields a change, entry n of its document.
func (l *listing) changed(n int, c *resourcesync.Change) error {
	if c.Datetime.IsZero() {
		c.Datetime = c.Lastmod
	}
	if c.Datetime.IsZero() {
		return entryError(n, c.Loc, "it has neither a datetime nor a lastmod: nobody can tell whether the change is new")
	}
	if l.ahead(c.Datetime) {
		l.once(entryError(n, c.Loc, "its datetime lies in the future; it is taken for that of the change before"))
		if c.Datetime = l.last; c.Datetime.IsZero() {
			c.Datetime = l.since
		}
		if c.Datetime.IsZero() {
			c.Datetime = time.Unix(0, 0).UTC()
		}
		if l.undated = append(l.undated, undated{n, *c}); len(l.undated) < maxUndated {
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
	return l.tell(n, c)
}

// An undated is a change with a datetime in the future. It is held until the next change
// shows about when it was.
type undated struct {
	n int
	c resourcesync.Change
}

// flush yields the held undated changes, because the change after them is new.
func (l *listing) flush() error {
	for i := range l.undated {
		if err := l.tell(l.undated[i].n, &l.undated[i].c); err != nil {
			return err
		}
	}
	l.undated = l.undated[:0]
	return nil
}

func (l *listing) tell(n int, c *resourcesync.Change) error {
	if had, err := l.takeIn(n, c); had || err != nil {
		return err
	}
	if !l.change(c, nil) {
		return errStopped
	}
	return nil
}

// takeIn checks and counts entry n of a document. It reports whether an earlier reading
// of the document already had it, or it was skipped.
func (l *listing) takeIn(n int, c *resourcesync.Change) (had bool, err error) {
	if err := l.check(n, c); errors.Is(err, resourcesync.ErrLoc) {
		return true, l.skip(c, time.Time{}, err)
	} else if err != nil {
		return false, err
	}
	if had, err := l.got.had(c.Loc); had || err != nil {
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

// check makes an entry acceptable for a hub. It leaves out wrong optional parts.
func (l *listing) check(n int, c *resourcesync.Change) error {
	if err := resourcesync.CheckURI("loc", c.Loc); err != nil || strings.Contains(c.Loc, "#") {
		loc, err := address(l.doc.URL, c.Loc)
		if err != nil {
			return locError(n, c.Loc, err)
		}
		l.once(entryError(n, c.Loc, "loc is no absolute URI without a fragment; it is taken for "+resourcesync.Shorten(loc.String())))
		c.Loc = loc.String()
	}
	for i := range c.Links {
		if href, err := idn.URL(c.Links[i].Href); err == nil {
			c.Links[i].Href = href
		}
	}
	mend(c, func(e *resourcesync.Error) {
		e.Entry = n
		l.once(e)
	})
	err := c.Validate()
	if e, ok := errors.AsType[*resourcesync.Error](err); ok {
		e.Entry = n
	}
	return err
}

// once calls Odd with a mistake, unless it was called for the same kind of
// mistake in the document.
func (l *listing) once(mistake *resourcesync.Error) {
	kind, _, _ := strings.Cut(mistake.Msg, "\"") // the rest are texts from the document
	kind, _, _ = strings.Cut(kind, "http")
	if !l.said[kind] {
		l.said[kind] = true
		l.odd(mistake)
	}
}

func (l *listing) odd(mistake *resourcesync.Error) {
	if l.Odd != nil {
		l.Odd(Plain(l.doc.URL), mistake)
	}
}
