// Package harvest reads other people's sources. A Getter asks their servers, and a Lister
// reads their lists: the resources of a Resource List or a sitemap, the changes of Change
// Lists, and the packages of a dump. It stores nothing.
package harvest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/outbound"
	"github.com/rshub/rshub/resourcesync"
)

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
// An error ends the sequence. It names the document, and wraps a *resourcesync.Error that
// names the entry and the rule, an *outbound.Failure, a *Busy, or the error of ctx. After
// an error, the caller must not conclude that a resource is missing at the source.
func (l *Lister) Resources(ctx context.Context, list string) iter.Seq2[*feed.Entry, error] {
	return l.Since(ctx, list, nil)
}

// Since is Resources, but if no document of the listing changed since the reading that
// seen describes, it yields only the error ErrUnchanged. After the last resource, seen
// describes the present reading; after an error it is unchanged. A nil seen is never
// changed.
func (l *Lister) Since(ctx context.Context, list string, seen *Seen) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		this := &listing{Lister: l, ctx: ctx, yield: yield, now: Seen{List: list, Versions: map[string]Version{}}}
		if err := this.read(list, seen); err != nil {
			if err != errStopped {
				yield(nil, err)
			}
			return
		}
		this.remember(seen)
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
		if reach == nil {
			reach = new(Reach)
		}
		this := &listing{Lister: l, ctx: ctx, change: yield, since: since, reach: reach, now: Seen{List: list, Versions: map[string]Version{}}}
		if err := this.read(list, seen); err != nil {
			if err != errStopped {
				yield(nil, err)
			}
			return
		}
		this.remember(seen)
	}
}

// remember stores what was read in seen. It does not remember a listing with
// very many documents; the next reading reads it again.
func (l *listing) remember(seen *Seen) {
	if seen == nil {
		return
	}
	if len(l.now.Documents) > maxRemembered {
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

// text reports whether a document is text, not XML. It skips a byte order mark and blanks
// before either.
func text(in *bufio.Reader) (bool, error) {
	for first := true; ; first = false {
		mark, err := in.Peek(3)
		switch {
		case len(mark) == 0 && err == io.EOF:
			return false, resourcesync.Invalid("the document is empty")
		case len(mark) == 0:
			return false, err
		case first && bytes.Equal(mark, []byte("\ufeff")):
			_, _ = in.Discard(3)
		case bytes.IndexByte([]byte(" \t\r\n"), mark[0]) >= 0:
			_, _ = in.Discard(1)
		default:
			// A NUL and the marks of UTF-16 are not text; the XML reader reports them.
			return mark[0] != '<' && mark[0] < 0xFE && bytes.IndexByte(mark, 0) < 0, nil
		}
	}
}

// lines reads one URL from each line.
func (l *listing) lines(a *Answer, in *bufio.Reader) error {
	lines := bufio.NewScanner(&bounded{in, l.bytes()})
	lines.Buffer(nil, 16<<10)
	said := map[string]bool{}
	for number, entries := 1, 0; lines.Scan(); number++ {
		if lines.Err() != nil {
			break // the rest after the last whole line is incomplete
		}
		loc := strings.TrimSpace(lines.Text())
		if loc == "" {
			continue
		}
		if entries++; entries > l.entries() {
			return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Entry: entries, Rule: fmt.Sprintf("a document has at most %d entries", l.entries())}
		}
		if scheme, _, ok := strings.Cut(loc, ":"); !ok || strings.ContainsAny(scheme, "/?# \"{[<") {
			return &resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: entries, Line: number, Loc: resourcesync.Shorten(loc), Rule: "it is neither XML nor a text with one absolute URL on each line"}
		}
		c := &resourcesync.Change{Loc: loc}
		if err := l.resource(a, entries, c, said); err != nil {
			if e, ok := errors.AsType[*resourcesync.Error](err); ok {
				e.Line = number
			}
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return resourcesync.Invalid("it is neither XML nor a text with one URL on each line")
	}
	return lines.Err()
}

func (l *listing) bytes() int64 {
	if l.Limits.Bytes > 0 {
		return l.Limits.Bytes
	}
	return maxList
}

func (l *listing) entries() int {
	if l.Limits.Entries > 0 {
		return l.Limits.Entries
	}
	return maxEntries
}

// A totalled reads a document of a listing whose documents have a bound
// together.
type totalled struct {
	io.Reader
	of *listing
}

func (t totalled) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	most := t.of.Total.Bytes
	if t.of.unpacked += int64(n); most > 0 && t.of.unpacked > most {
		return 0, &resourcesync.Error{Err: resourcesync.ErrTooLarge, Rule: fmt.Sprintf("all documents together have more than %d MiB, unpacked", most>>20)}
	}
	return n, err
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

// A bounded reads at most a number of bytes; more are an error.
type bounded struct {
	io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, &resourcesync.Error{Err: resourcesync.ErrTooLarge, Rule: "the document has more bytes, unpacked, than a document may have"}
	}
	return n, err
}

// xml reads a Resource List, a sitemap, or an index of them.
func (l *listing) xml(a *Answer, in io.Reader, p part) (parts []part, err error) {
	said := map[string]bool{}
	r := resourcesync.NewXMLReader(in, resourcesync.Limits{Bytes: l.bytes(), Entries: l.entries()})
	r.Tolerate(func(mistake *resourcesync.Error) { l.once(a, mistake, said) })
	h, err := r.Header()
	if err != nil {
		return nil, err
	}
	switch {
	case l.manifest != "" && (h.Index || h.Capability != l.manifest):
		return nil, resourcesync.Invalid("its capability is %.40q, not %s", h.Capability, l.manifest)
	case l.change != nil && l.manifest == "" && h.Capability != resourcesync.ChangeList:
		return nil, resourcesync.Invalid("its capability is %.40q, not changelist", h.Capability)
	case l.change != nil:
		l.begin(&h)
	case l.manifest != "":
	case h.Capability != "" && h.Capability != resourcesync.ResourceList:
		return nil, resourcesync.Invalid("its capability is %.40q: a list of resources has resourcelist, or is a sitemap without any", h.Capability)
	}
	if h.Index && !p.index {
		return nil, resourcesync.Invalid("it is an index that an index names: an index may name only lists")
	}
	if len(l.now.Documents) == 0 {
		l.now.At = l.past(h.At)
	}
	var lists []listed
	for n := 1; ; n++ {
		it, err := r.Next()
		if err == io.EOF {
			return l.named(a, p, oldestFirst(lists, func(l *listed) time.Time { return l.from })), l.flush(a, said)
		}
		if err != nil {
			return nil, err
		}
		switch {
		case h.Index && n > maxEntries:
			err = &resourcesync.Error{Err: resourcesync.ErrTooLarge, Entry: n, Rule: fmt.Sprintf("an index has at most %d entries", maxEntries)}
		case h.Index:
			err = l.member(a, n, it, &lists)
		case l.change != nil:
			err = l.changed(a, n, &it.Change, said)
		default:
			err = l.resource(a, n, &it.Change, said)
		}
		if err != nil {
			return nil, err
		}
	}
}

// begin notes the time that a Change List covers.
func (l *listing) begin(h *resourcesync.Header) {
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

// named returns the lists that an index names, each once.
func (l *listing) named(a *Answer, p part, lists []listed) (parts []part) {
	of := "the index"
	if p.what != "the list" {
		of = p.what
	}
	had := map[string]bool{}
	for _, m := range lists {
		if had[m.url] || m.url == p.url {
			l.odd(a, &resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: m.number, Loc: resourcesync.Shorten(m.url), Rule: "the index has it twice"})
			continue
		}
		had[m.url] = true
		parts = append(parts, part{what: fmt.Sprintf("list %d of %s", m.number, of), url: m.url, until: m.until})
	}
	return parts
}

// member adds a list that an index names.
func (l *listing) member(a *Answer, n int, it *resourcesync.Item, lists *[]listed) error {
	loc, err := address(a.URL, it.Loc)
	if err != nil {
		return &resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: n, Loc: resourcesync.Shorten(it.Loc), Rule: "loc: " + err.Error()}
	}
	if loc.User == nil && loc.Host == a.URL.Host && loc.Scheme == a.URL.Scheme {
		loc.User = a.URL.User
	}
	*lists = append(*lists, listed{n, loc.String(), it.From, it.Until})
	return nil
}

// resource yields a resource, entry n of its document.
func (l *listing) resource(a *Answer, n int, c *resourcesync.Change, said map[string]bool) error {
	if c.Change == resourcesync.Deleted {
		return entryError(n, c, "it is deleted: a list has only resources that exist")
	}
	c.Change = resourcesync.Updated
	if had, err := l.takeIn(a, n, c, said); had || err != nil {
		return err
	}
	if !l.yield(&feed.Entry{Cursor: feed.Cursor{Position: l.count}, Change: *c}, nil) {
		return errStopped
	}
	return nil
}

// changed yields a change, entry n of its document.
func (l *listing) changed(a *Answer, n int, c *resourcesync.Change, said map[string]bool) error {
	if c.Datetime.IsZero() {
		c.Datetime = c.Lastmod
	}
	if c.Datetime.IsZero() {
		return entryError(n, c, "it has neither a datetime nor a lastmod: nobody can tell whether the change is new")
	}
	if l.ahead(c.Datetime) {
		l.once(a, entryError(n, c, "its datetime lies in the future; it is taken for that of the change before"), said)
		if c.Datetime = l.last; c.Datetime.IsZero() {
			c.Datetime = l.since
		}
		if c.Datetime.IsZero() {
			c.Datetime = time.Unix(0, 0).UTC()
		}
		if l.undated = append(l.undated, undated{n, *c}); len(l.undated) < maxUndated {
			return nil
		}
		return l.flush(a, said)
	}
	if l.last = c.Datetime; c.Datetime.Before(l.since) {
		l.undated = l.undated[:0]
		return nil
	}
	if err := l.flush(a, said); err != nil {
		return err
	}
	return l.tell(a, n, c, said)
}

// An undated is a change with a datetime in the future. It is held until the next change
// shows about when it was.
type undated struct {
	n int
	c resourcesync.Change
}

// flush yields the held undated changes, because the change after them is new.
func (l *listing) flush(a *Answer, said map[string]bool) error {
	for i := range l.undated {
		if err := l.tell(a, l.undated[i].n, &l.undated[i].c, said); err != nil {
			return err
		}
	}
	l.undated = l.undated[:0]
	return nil
}

// tell yields a change.
func (l *listing) tell(a *Answer, n int, c *resourcesync.Change, said map[string]bool) error {
	if had, err := l.takeIn(a, n, c, said); had || err != nil {
		return err
	}
	if !l.change(c, nil) {
		return errStopped
	}
	return nil
}

// takeIn checks and counts entry n of a document. It reports whether an earlier reading
// of the document already had it.
func (l *listing) takeIn(a *Answer, n int, c *resourcesync.Change, said map[string]bool) (had bool, err error) {
	if err := l.check(a, n, c, said); err != nil {
		return false, err
	}
	if had, err := l.got.had(c.Loc); had || err != nil {
		return had, err
	}
	if l.count++; l.Total.Entries > 0 && l.count > uint64(l.Total.Entries) {
		e := entryError(n, c, fmt.Sprintf("all documents together have at most %d entries", l.Total.Entries))
		e.Err = resourcesync.ErrTooLarge
		return false, e
	}
	return false, nil
}

func entryError(n int, c *resourcesync.Change, rule string) *resourcesync.Error {
	return &resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: n, Loc: resourcesync.Shorten(c.Loc), Rule: rule}
}

// check makes an entry acceptable for a hub. It leaves out wrong optional parts.
func (l *listing) check(a *Answer, n int, c *resourcesync.Change, said map[string]bool) error {
	if err := resourcesync.CheckURI("loc", c.Loc); err != nil || strings.Contains(c.Loc, "#") {
		loc, err := address(a.URL, c.Loc)
		if err != nil {
			return entryError(n, c, "loc: "+err.Error())
		}
		l.once(a, entryError(n, c, "loc is no absolute URI without a fragment; it is taken for "+resourcesync.Shorten(loc.String())), said)
		c.Loc = loc.String()
	}
	mend(c, func(e *resourcesync.Error) {
		e.Entry = n
		l.once(a, e, said)
	})
	err := c.Validate()
	if e, ok := errors.AsType[*resourcesync.Error](err); ok {
		e.Entry = n
	}
	return err
}

// once calls Odd with a mistake, unless it was called for the same kind of
// mistake in the document.
func (l *listing) once(a *Answer, mistake *resourcesync.Error, said map[string]bool) {
	kind, _, _ := strings.Cut(mistake.Rule, "\"") // the rest are texts from the document
	kind, _, _ = strings.Cut(kind, "http")
	if !said[kind] {
		said[kind] = true
		l.odd(a, mistake)
	}
}

func (l *listing) odd(a *Answer, mistake *resourcesync.Error) {
	if l.Odd != nil {
		l.Odd(Plain(a.URL), mistake)
	}
}
