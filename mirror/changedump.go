package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/harvest"
	"github.com/rshub/rshub/resourcesync"
)

// A span is a package of a Change Dump: what changed in a time, with the contents.
type span struct {
	harvest.Package
	from, until time.Time // zero: it does not say
}

// print returns a text that is another one for another package; empty: the dump does not say
// enough of the package to tell whether it has grown.
func (s *span) print() string {
	c := &s.Change
	if s.until.IsZero() && c.Hash == "" && c.Length == nil && c.Lastmod.IsZero() {
		return ""
	}
	return printOf(&harvest.Dump{At: s.until, Packages: []harvest.Package{s.Package}})
}

// takeChangeDump takes over the changes of the Change Dump since the last look, with their
// contents, one package after the other. It reads a package once, if the dump says when the
// package is another one. gap says that the dump does not reach back to the last look; then
// nothing was taken over.
func (m *Mirror) takeChangeDump(ctx context.Context, st *looks) (gap bool, err error) {
	from, spans, err := m.changeDump(ctx, st.Changed)
	if err != nil {
		return false, err
	}
	if !st.Changed.IsZero() && from.After(st.Changed) && from.After(st.Until) {
		return true, nil
	}
	if st.Package != "" {
		known := slices.IndexFunc(spans, func(s span) bool { return s.print() == st.Package })
		spans = spans[known+1:]
	}
	newest := st.Changed
	for i := range spans {
		m.opts.Note("reading package %d of %d of the Change Dump", i+1, len(spans))
		last, err := m.takeSpan(ctx, &spans[i], st)
		if err != nil {
			return false, err
		}
		if last.After(newest) {
			newest = last
		}
		st.Package, st.Until = spans[i].print(), spans[i].until
		if i == len(spans)-1 {
			st.Changed = newest // not before: nobody promises that the packages are in the order of their changes
		}
		if err := m.keep(st); err != nil {
			return false, err
		}
	}
	return false, nil
}

// takeSpan takes over the changes of one package. It returns when the newest of them was.
func (m *Mirror) takeSpan(ctx context.Context, s *span, st *looks) (newest time.Time, err error) {
	var batch []resourcesync.Change
	packed, latest := map[string]*member{}, map[string]time.Time{}
	apply := func() error {
		err := m.applyChanges(ctx, batch, packed, st)
		batch = batch[:0]
		clear(packed)
		return err
	}
	_, contents := m.sink.(*Directory)
	err = m.manifest(ctx, changeManifests{m}, &s.Package, contents, func(e *feed.Entry, in *member) error {
		c := &e.Change
		if !m.wants(e) || c.Datetime.Before(st.Changed) || c.Datetime.Before(latest[c.Loc]) {
			return nil
		}
		latest[c.Loc] = c.Datetime
		if c.Datetime.After(newest) {
			newest = c.Datetime
		}
		delete(packed, c.Loc) // the content of an earlier change is not that of this one
		if in != nil {
			packed[c.Loc] = in
		}
		if batch = append(batch, *c); len(batch) < listBatch {
			return nil
		}
		return apply()
	}, apply)
	return newest, err
}

// changeDump returns the packages of the source's Change Dump, or of the dumps that an index
// names, but not those that end before since; oldest first. from is what the dumps reach back
// to; zero: they do not say.
func (m *Mirror) changeDump(ctx context.Context, since time.Time) (from time.Time, spans []span, err error) {
	begun := false
	read := func(what, at string, first bool) (dumps []span, err error) {
		a, err := m.lister.Getter.Get(ctx, what, at, harvest.Version{})
		if err != nil {
			return nil, &SourceError{err}
		}
		defer a.Close()
		err = m.entries(a.Body, resourcesync.ChangeDump, func(h *resourcesync.Header, n int, it *resourcesync.Item) (err error) {
			if !h.Index && !begun {
				from, begun = h.From, true
			}
			s := span{harvest.Package{Change: it.Change}, it.From, it.Until}
			if s.Change.Loc, err = absolute(a.URL, it.Loc); err != nil {
				return entryError(n, &it.Change, "loc: "+err.Error())
			}
			switch {
			case h.Index && !first:
				return resourcesync.Invalid("it is an index, and an index names it: an index names dumps only")
			case !s.until.IsZero() && s.until.Before(since):
				return nil
			case h.Index:
				dumps = append(dumps, s)
				return nil
			case len(spans) == mostSpans:
				return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Entry: n, Rule: fmt.Sprintf("a dump has at most %d packages", mostSpans)}
			}
			for _, ln := range it.Links {
				if to, err := absolute(a.URL, ln.Href); err == nil && strings.EqualFold(ln.Rel, "contents") {
					s.Manifest = to
				}
			}
			s.Change.Links = nil
			spans = append(spans, s)
			return nil
		})
		if err != nil {
			return nil, &SourceError{fmt.Errorf("%s (%s): %w", what, harvest.Plain(a.URL), harvest.Explain(ctx, err))}
		}
		return oldestFirst(dumps), nil
	}
	dumps, err := read("the Change Dump", m.source.ChangeDump, true)
	for i := range dumps {
		if err == nil {
			_, err = read(fmt.Sprintf("Change Dump %d of the index", i+1), dumps[i].Change.Loc, false)
		}
	}
	return from, oldestFirst(spans), err
}

const mostSpans = 50_000 // packages of a Change Dump, and of an index of them

// oldestFirst sorts packages, or dumps, if each says when it begins.
func oldestFirst(spans []span) []span {
	if !slices.ContainsFunc(spans, func(s span) bool { return s.from.IsZero() }) {
		slices.SortStableFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	}
	return spans
}

// entries calls each with the entries of a document that has to have a capability. It passes
// over mistakes that lose no entry.
func (m *Mirror) entries(in io.Reader, capability string, each func(h *resourcesync.Header, n int, it *resourcesync.Item) error) error {
	r := resourcesync.NewXMLReader(in, m.lister.Limits)
	r.Tolerate(func(*resourcesync.Error) {})
	h, err := r.Header()
	if err != nil {
		return err
	}
	if h.Capability != capability {
		return resourcesync.Invalid("its capability is %.40q, not %s", h.Capability, capability)
	}
	for n := 1; ; n++ {
		it, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = each(&h, n, it)
		}
		if err != nil {
			return err
		}
	}
}

// absolute returns a URL as it stands in a document at base, without a fragment.
func absolute(base *url.URL, loc string) (string, error) {
	if resourcesync.CheckURI("it", loc) != nil || strings.Contains(loc, "#") {
		plain := *base
		plain.User = nil
		u, err := plain.Parse(strings.TrimSpace(loc))
		if err != nil {
			return "", errors.New("it is no URL")
		}
		u.Fragment, u.RawFragment = "", ""
		loc = u.String()
	}
	return loc, resourcesync.CheckURI("it", loc)
}

func entryError(n int, c *resourcesync.Change, rule string) error {
	return &resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: n, Loc: resourcesync.Shorten(c.Loc), Rule: rule}
}

// manifests reads the manifests of packages. A harvest.Lister does so for Resource Dumps.
type manifests interface {
	Manifest(ctx context.Context, in io.Reader, base *url.URL) iter.Seq2[*feed.Entry, error]
	ManifestAt(ctx context.Context, at string) iter.Seq2[*feed.Entry, error]
}

// changeManifests reads the manifests of packages of a Change Dump. Each entry is a change, with
// a datetime; what a manifest of version 1.0 says as lastmod is taken for it.
type changeManifests struct{ *Mirror }

func (r changeManifests) Manifest(ctx context.Context, in io.Reader, base *url.URL) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		err := r.entries(in, resourcesync.ChangeDumpManifest, func(_ *resourcesync.Header, n int, it *resourcesync.Item) error {
			if err := mended(base, n, &it.Change); err != nil {
				return err
			}
			if !yield(&feed.Entry{Change: it.Change}, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && err != errEnough {
			yield(nil, fmt.Errorf("the manifest: %w", harvest.Explain(ctx, err)))
		}
	}
}

func (r changeManifests) ManifestAt(ctx context.Context, at string) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		a, err := r.lister.Getter.Get(ctx, "the manifest of a package", at, harvest.Version{})
		if err != nil {
			yield(nil, err)
			return
		}
		defer a.Close()
		r.Manifest(ctx, a.Body, a.URL)(yield)
	}
}

// mended makes entry n of a manifest a change that a mirror can take over. It leaves out what
// is wrong in the entry if the mirror does not need it.
func mended(base *url.URL, n int, c *resourcesync.Change) (err error) {
	if c.Datetime.IsZero() {
		c.Datetime = c.Lastmod
	}
	if c.Datetime.IsZero() {
		return entryError(n, c, "it has neither a datetime nor a lastmod: nobody can tell whether the change is new")
	}
	if c.Loc, err = absolute(base, c.Loc); err != nil {
		return entryError(n, c, "loc: "+err.Error())
	}
	if c.Validate() != nil {
		*c = resourcesync.Change{Loc: c.Loc, Change: c.Change, Datetime: c.Datetime, Lastmod: c.Lastmod, Hash: c.Hash, Length: c.Length, Path: c.Path}
	}
	err = c.Validate()
	if e, ok := errors.AsType[*resourcesync.Error](err); ok {
		e.Entry = n
	}
	return err
}
