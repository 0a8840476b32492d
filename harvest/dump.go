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

// A Dump is a Resource Dump: packages with the contents of all resources of a source, as
// they were at one time.
type Dump struct {
	At       time.Time // every change up to then is in it; zero: it does not say
	Packages []Package // in their order
}

// A Package is a ZIP file of a Dump.
type Package struct {
	Change   resourcesync.Change // loc, and perhaps hash, length and lastmod, of the ZIP file
	At       time.Time
	Manifest string // the URL of a copy of its manifest; empty: the source names none
}

// Dump reads a Resource Dump, or an index of Resource Dumps. It reads no packages. The
// errors are those of Resources.
func (l *Lister) Dump(ctx context.Context, at string) (*Dump, error) {
	d := new(Dump)
	parts, err := l.dump(ctx, "the Resource Dump", at, d, true)
	for i, part := range parts {
		if err == nil {
			_, err = l.dump(ctx, fmt.Sprintf("Resource Dump %d of the index", i+1), part, d, false)
		}
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// dump adds the packages of one document to a Dump. It returns what the document names if
// it is an index.
func (l *Lister) dump(ctx context.Context, what, at string, d *Dump, first bool) (parts []string, err error) {
	a, err := l.Getter.Get(ctx, what, at, Version{})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	this := &listing{Lister: l, ctx: ctx}
	if parts, err = this.packages(a, d, first); err != nil {
		return nil, fmt.Errorf("%s (%s): %w", what, Plain(a.URL), Explain(ctx, err))
	}
	return parts, nil
}

func (l *listing) packages(a *Answer, d *Dump, first bool) (parts []string, err error) {
	said := map[string]bool{}
	r := resourcesync.NewXMLReader(a.Body, resourcesync.Limits{Bytes: l.bytes(), Entries: l.entries(), Depth: l.Limits.Depth})
	r.Tolerate(func(mistake *resourcesync.Error) { l.once(a, mistake, said) })
	h, err := r.Header()
	switch {
	case err != nil:
		return nil, err
	case h.Capability != resourcesync.ResourceDump:
		return nil, resourcesync.Invalid("its capability is %.40q, not resourcedump", h.Capability)
	case h.Index && !first:
		return nil, resourcesync.Invalid("it is an index, and an index names it: an index names dumps only")
	}
	d.since(h.At)
	for n := 1; ; n++ {
		it, err := r.Next()
		if err == io.EOF {
			return parts, nil
		}
		if err != nil {
			return nil, err
		}
		loc, err := address(a.URL, it.Loc)
		if err != nil {
			return nil, entryError(n, &it.Change, "loc: "+err.Error())
		}
		it.Loc = loc.String()
		d.since(it.At)
		if h.Index {
			parts = append(parts, it.Loc)
			continue
		}
		if len(d.Packages) == l.entries() {
			return nil, &resourcesync.Error{Err: resourcesync.ErrTooLarge, Entry: n, Rule: fmt.Sprintf("a dump has at most %d packages", l.entries())}
		}
		p := Package{Change: it.Change, At: it.At}
		for _, ln := range it.Links {
			if to, err := address(a.URL, ln.Href); err == nil && strings.EqualFold(ln.Rel, "contents") {
				p.Manifest = to.String()
			}
		}
		p.Change.Links = nil
		d.Packages = append(d.Packages, p)
	}
}

// since notes when a part of the dump was begun. The earliest time counts.
func (d *Dump) since(at time.Time) {
	if !at.IsZero() && (d.At.IsZero() || at.Before(d.At)) {
		d.At = at
	}
}

// Manifest yields the resources of the manifest of a package, which was got from base.
// The path of each says where it is in the package. The rest is as with Resources.
func (l *Lister) Manifest(ctx context.Context, in io.Reader, base *url.URL) iter.Seq2[*feed.Entry, error] {
	return l.manifest(ctx, func() (*Answer, error) { return &Answer{Body: in, URL: base, Complete: true, close: func() {}}, nil })
}

// ManifestAt yields the resources of the manifest at a URL.
func (l *Lister) ManifestAt(ctx context.Context, at string) iter.Seq2[*feed.Entry, error] {
	return l.manifest(ctx, func() (*Answer, error) { return l.Getter.Get(ctx, "the manifest of a package", at, Version{}) })
}

func (l *Lister) manifest(ctx context.Context, get func() (*Answer, error)) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		this := &listing{Lister: l, ctx: ctx, yield: yield, manifest: true, now: Seen{Versions: map[string]Version{}}}
		a, err := get()
		if err == nil {
			_, err = this.document(a, part{what: "the manifest", url: a.URL.String(), index: true}, &progress{seed: maphash.MakeSeed()})
		}
		if err != nil && err != errStopped {
			yield(nil, err)
		}
	}
}
