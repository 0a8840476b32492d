package harvest

import (
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"net/url"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A Dump is a Resource Dump or a Change Dump. A Resource Dump has packages with the
// contents of all resources of a source at one time. A Change Dump has packages with
// changes and the new contents.
type Dump struct {
	At       time.Time // of a Resource Dump: it has every change up to then; zero: it does not say
	From     time.Time // of a Change Dump: it has the changes since then; zero: it does not say
	Packages []Package // in their order; of a Change Dump oldest first, if they say when they begin
}

// A Package is a ZIP file of a Dump.
type Package struct {
	Change   resourcesync.Change // loc, and perhaps hash, length and lastmod, of the ZIP file
	At       time.Time           // of a Resource Dump
	From     time.Time           // of a Change Dump: no change is earlier; zero: it does not say
	Until    time.Time           // of a Change Dump: no change is later; zero: it does not say
	Manifest string              // URL of a copy of its manifest; empty: the source names none
}

// Dump reads a Resource Dump, or an index of Resource Dumps. It reads no packages. The
// errors are those of Resources.
func (l *Lister) Dump(ctx context.Context, at string) (*Dump, error) {
	return l.dump(ctx, "Resource Dump", resourcesync.ResourceDump, at, time.Time{})
}

// ChangeDump reads a Change Dump, or an index of Change Dumps, as Dump does. It leaves out
// packages and dumps that end before since.
func (l *Lister) ChangeDump(ctx context.Context, at string, since time.Time) (*Dump, error) {
	return l.dump(ctx, "Change Dump", resourcesync.ChangeDump, at, since)
}

func (l *Lister) dump(ctx context.Context, what, capability, at string, since time.Time) (*Dump, error) {
	r := &dumpReader{Lister: l, ctx: ctx, capability: capability, since: since}
	parts, err := r.read("the "+what, at, true)
	for i := range parts {
		if err == nil {
			_, err = r.read(fmt.Sprintf("%s %d of the index", what, i+1), parts[i].Change.Loc, false)
		}
	}
	if err != nil {
		return nil, err
	}
	r.dump.Packages = oldestFirst(r.dump.Packages, begins)
	return &r.dump, nil
}

type dumpReader struct {
	*Lister
	ctx        context.Context
	capability string
	since      time.Time
	dump       Dump
	begun      bool // dump.From is set from a dump
}

// read adds the packages of one document to the Dump. If the document is an index, read
// returns the documents that it names.
func (d *dumpReader) read(what, at string, first bool) (parts []Package, err error) {
	a, err := d.Getter.Get(d.ctx, what, at, Version{})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	if parts, err = d.document(a, first); err != nil {
		return nil, fmt.Errorf("%s (%s): %w", what, Plain(a.URL), Explain(d.ctx, err))
	}
	return oldestFirst(parts, begins), nil
}

func (d *dumpReader) document(a *Answer, first bool) (parts []Package, err error) {
	l := d.begin(d.ctx)
	l.open(a)
	limits := l.limits()
	most := min(limits.Entries, maxEntries)
	in, err := DecodeXML(a.Body)
	if err != nil {
		return nil, err
	}
	r := resourcesync.NewXMLReader(in, limits)
	r.Tolerate(l.once)
	h, err := r.Header()
	switch {
	case err != nil:
		return nil, err
	case h.Capability != d.capability:
		return nil, resourcesync.Invalidf("its capability is %.40q, not %s", h.Capability, d.capability)
	case h.Index && !first:
		return nil, resourcesync.Invalidf("it is an index that an index names: an index may name only dumps")
	case !h.Index && !d.begun:
		d.dump.From, d.begun = l.past(h.From), true
	}
	d.dump.at(l.past(h.At))
	for n := 1; ; n++ {
		it, err := r.Next()
		if err == io.EOF {
			return parts, nil
		}
		if err != nil {
			return nil, err
		}
		p := Package{Change: it.Change, At: it.At, From: it.From, Until: it.Until}
		loc, err := address(a.URL, it.Loc)
		if err != nil {
			return nil, entryError(n, it.Loc, "loc: "+err.Error())
		}
		p.Change.Loc, p.Change.Links = loc.String(), nil
		d.dump.at(l.past(it.At))
		switch {
		case n > most || len(d.dump.Packages) == limits.Entries:
			return nil, &resourcesync.Error{Err: resourcesync.ErrTooLarge, Entry: n, Msg: fmt.Sprintf("a dump has at most %d packages", most)}
		case !p.Until.IsZero() && p.Until.Before(d.since):
			continue
		case h.Index:
			parts = append(parts, p)
			continue
		}
		for _, ln := range it.Links {
			if to, err := address(a.URL, ln.Href); err == nil && strings.EqualFold(ln.Rel, "contents") {
				p.Manifest = to.String()
			}
		}
		d.dump.Packages = append(d.dump.Packages, p)
	}
}

// at notes when the source began a part of the dump. The earliest time counts.
func (d *Dump) at(at time.Time) {
	if !at.IsZero() && (d.At.IsZero() || at.Before(d.At)) {
		d.At = at
	}
}

func begins(p *Package) time.Time { return p.From }

// Manifest yields the resources in the manifest of a package of a Dump. If the capability
// is that of a Change Dump's manifest, it yields the changes, as Changes does. base is
// the URL that the package came from. The path of each entry says where its content is in
// the package. Everything else is as for Resources.
func (l *Lister) Manifest(ctx context.Context, capability string, in io.Reader, base *url.URL) iter.Seq2[*feed.Entry, error] {
	return l.manifest(ctx, capability, func() (*Answer, error) { return &Answer{Body: in, URL: base, Complete: true, close: func() {}}, nil })
}

// ManifestAt is Manifest for a manifest at a URL.
func (l *Lister) ManifestAt(ctx context.Context, capability, at string) iter.Seq2[*feed.Entry, error] {
	return l.manifest(ctx, capability, func() (*Answer, error) { return l.Getter.Get(ctx, "the manifest of a package", at, Version{}) })
}

func (l *Lister) manifest(ctx context.Context, capability string, get func() (*Answer, error)) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		this := l.begin(ctx)
		this.yield, this.manifest = yield, capability
		if capability == resourcesync.ChangeDumpManifest {
			this.change = func(c *resourcesync.Change, err error) bool {
				if err != nil {
					return yield(nil, err)
				}
				return yield(&feed.Entry{Change: *c}, nil)
			}
		}
		a, err := get()
		if err == nil {
			_, err = this.document(a, part{what: "the manifest", url: a.URL.String(), index: true}, &progress{seed: maphash.MakeSeed()})
		}
		if err != nil && err != errStopped {
			yield(nil, err)
		}
	}
}
