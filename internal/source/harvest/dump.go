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

// A Dump is a Resource Dump or a Change Dump. A Resource Dump has packages with the contents of all
// resources of a source at one time. A Change Dump has packages with changes and the new contents.
type Dump struct {
	At       time.Time // of a Resource Dump: it has every change up to then; zero if unknown
	From     time.Time // of a Change Dump: it has the changes since then; zero if unknown
	Packages []Package // in their order; of a Change Dump oldest first, if they state their start
}

// A Package is a ZIP file of a Dump.
type Package struct {
	Change   resourcesync.Change // loc, and perhaps hash, length and lastmod, of the ZIP file
	At       time.Time           // of a Resource Dump
	From     time.Time           // of a Change Dump: no change is earlier; zero if unknown
	Until    time.Time           // of a Change Dump: no change is later; zero if unknown
	Manifest string              // URL of a copy of its manifest; empty if the source names none
}

// Dump reads a Resource Dump, or an index of Resource Dumps. It reads no packages. It fails
// like Resources.
func (l *Lister) Dump(ctx context.Context, at string) (*Dump, error) {
	return l.dump(ctx, "Resource Dump", resourcesync.ResourceDump, at, time.Time{})
}

// ChangeDump reads a Change Dump, or an index of Change Dumps, like Dump. It leaves out packages
// and dumps that end before since.
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
	r.dump.Packages = oldestFirst(r.dump.Packages, packageFrom)
	return &r.dump, nil
}

type dumpReader struct {
	*Lister
	ctx        context.Context
	capability string
	since      time.Time
	dump       Dump
	fromSet    bool // whether dump.From is set from a dump
}

// read adds the packages of one document to the Dump. If the document is an index, read returns the
// documents that it names.
func (d *dumpReader) read(what, at string, first bool) (parts []Package, err error) {
	a, err := d.Getter.Get(d.ctx, what, at, Version{})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	if parts, err = d.readDocument(a, first); err != nil {
		return nil, fmt.Errorf("%s (%s): %w", what, Plain(a.URL), Explain(d.ctx, err))
	}
	return oldestFirst(parts, packageFrom), nil
}

func (d *dumpReader) readDocument(a *Answer, first bool) (parts []Package, err error) {
	l := d.newListing(d.ctx)
	l.startDocument(a)
	limits := l.limits()
	most := min(limits.Entries, maxEntries)
	in, err := DecodeXML(a.Body)
	if err != nil {
		return nil, err
	}
	r := resourcesync.NewXMLReader(in, limits)
	r.Tolerate(l.noteOnce)
	h, err := r.Header()
	switch {
	case err != nil:
		return nil, err
	case h.Capability != d.capability:
		return nil, resourcesync.Invalidf("got capability %.40q, want %s", h.Capability, d.capability)
	case h.Index && !first:
		return nil, resourcesync.Invalidf("an index names another index; it may name only dumps")
	case !h.Index && !d.fromSet:
		d.dump.From, d.fromSet = l.pastOrZero(h.From), true
	}
	d.dump.noteAt(l.pastOrZero(h.At))
	for n := 1; ; n++ {
		it, err := r.Next()
		if err == io.EOF {
			return parts, nil
		}
		if err != nil {
			return nil, err
		}
		p := Package{Change: it.Change, At: it.At, From: it.From, Until: it.Until}
		loc, err := resolveURL(a.URL, it.Loc)
		if err != nil {
			return nil, entryError(n, it.Loc, "loc: "+err.Error())
		}
		p.Change.Loc, p.Change.Links = loc.String(), nil
		d.dump.noteAt(l.pastOrZero(it.At))
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
			if to, err := resolveURL(a.URL, ln.Href); err == nil && strings.EqualFold(ln.Rel, "contents") {
				p.Manifest = to.String()
			}
		}
		d.dump.Packages = append(d.dump.Packages, p)
	}
}

// noteAt records when the source started a part of the dump. The earliest time counts.
func (d *Dump) noteAt(at time.Time) {
	if !at.IsZero() && (d.At.IsZero() || at.Before(d.At)) {
		d.At = at
	}
}

func packageFrom(p *Package) time.Time { return p.From }

// Manifest yields the resources in the manifest of a package of a Dump. If the capability is that
// of a Change Dump's manifest, it yields the changes, like Changes. base is the URL of the package.
// The path of each entry is the path of its content in the package. Everything else is as for
// Resources.
func (l *Lister) Manifest(ctx context.Context, capability string, in io.Reader, base *url.URL) iter.Seq2[*feed.Entry, error] {
	return l.readManifest(ctx, capability, func() (*Answer, error) { return &Answer{Body: in, URL: base, Complete: true, close: func() {}}, nil })
}

// ManifestAt is Manifest for a manifest at a URL.
func (l *Lister) ManifestAt(ctx context.Context, capability, at string) iter.Seq2[*feed.Entry, error] {
	return l.readManifest(ctx, capability, func() (*Answer, error) { return l.Getter.Get(ctx, "the manifest of a package", at, Version{}) })
}

func (l *Lister) readManifest(ctx context.Context, capability string, get func() (*Answer, error)) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		this := l.newListing(ctx)
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
			_, err = this.readDocument(a, part{what: "the manifest", url: a.URL.String(), index: true}, &progress{seed: maphash.MakeSeed()})
		}
		if err != nil && err != errStopped {
			yield(nil, err)
		}
	}
}
