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
// they were at one time. Or it is a Change Dump: packages with the contents of what changed.
type Dump struct {
	At       time.Time // every change up to then is in a Resource Dump; zero: it does not say
	Packages []Package // in their order
}

// A Package is a ZIP file of a Dump.
type Package struct {
	Change   resourcesync.Change // loc, and perhaps hash, length and lastmod, of the ZIP file
	At       time.Time
	From     time.Time // of a Change Dump: the changes behind From,
	Until    time.Time // up to Until, are in it; zero: it does not say
	Manifest string    // the URL of a copy of its manifest; empty: the source names none
	Missing  string    // the URL of a document like a manifest that names the resources whose contents are missing in the package; empty: none is
}

// What an rshub says of the contents that are missing in a package: the relation of the link
// from the package, and the capability of the document.
const (
	relMissing = resourcesync.Terms + "rel/missing"
	missing    = resourcesync.Terms + "missing"
)

// Dump reads a Resource Dump, or an index of Resource Dumps. It reads no packages. The
// errors are those of Resources.
func (l *Lister) Dump(ctx context.Context, at string) (*Dump, error) {
	return l.dumps(ctx, resourcesync.ResourceDump, "Resource Dump", at, time.Time{})
}

// ChangeDump reads a Change Dump, or an index of Change Dumps. Of an index, parts that end
// before since are left out. It reads no packages. The errors are those of Resources.
func (l *Lister) ChangeDump(ctx context.Context, at string, since time.Time) (*Dump, error) {
	return l.dumps(ctx, resourcesync.ChangeDump, "Change Dump", at, since)
}

func (l *Lister) dumps(ctx context.Context, capability, name, at string, since time.Time) (*Dump, error) {
	d := new(Dump)
	this := &listing{Lister: l, ctx: ctx, since: since}
	parts, err := this.dump(capability, "the "+name, at, d, true)
	for i, part := range parts {
		if err == nil {
			_, err = this.dump(capability, fmt.Sprintf("%s %d of the index", name, i+1), part, d, false)
		}
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// dump adds the packages of one document to a Dump. It returns what the document names if
// it is an index.
func (l *listing) dump(capability, what, at string, d *Dump, first bool) (parts []string, err error) {
	a, err := l.Getter.Get(l.ctx, what, at, Version{})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	if parts, err = l.packages(a, capability, d, first); err != nil {
		return nil, fmt.Errorf("%s (%s): %w", what, Plain(a.URL), Explain(l.ctx, err))
	}
	return parts, nil
}

func (l *listing) packages(a *Answer, capability string, d *Dump, first bool) (parts []string, err error) {
	said := map[string]bool{}
	r := resourcesync.NewXMLReader(a.Body, resourcesync.Limits{Bytes: l.bytes(), Entries: l.entries(), Depth: l.Limits.Depth})
	r.Tolerate(func(mistake *resourcesync.Error) { l.once(a, mistake, said) })
	h, err := r.Header()
	switch {
	case err != nil:
		return nil, err
	case h.Capability != capability:
		return nil, resourcesync.Invalid("its capability is %.40q, not %s", h.Capability, capability)
	case h.Index && !first:
		return nil, resourcesync.Invalid("it is an index that is named by an index: an index may name only dumps")
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
			if it.Until.IsZero() || it.Until.After(l.since) {
				parts = append(parts, it.Loc)
			}
			continue
		}
		if len(d.Packages) == l.entries() {
			return nil, &resourcesync.Error{Err: resourcesync.ErrTooLarge, Entry: n, Rule: fmt.Sprintf("a dump has at most %d packages", l.entries())}
		}
		p := Package{Change: it.Change, At: it.At, From: it.From, Until: it.Until}
		for _, ln := range it.Links {
			to, err := address(a.URL, ln.Href)
			switch {
			case err != nil:
			case strings.EqualFold(ln.Rel, "contents"):
				p.Manifest = to.String()
			case ln.Rel == relMissing:
				p.Missing = to.String()
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
	return l.manifest(ctx, resourcesync.ResourceDumpManifest, given(in, base))
}

// ChangeManifest yields the changes of the manifest of a package of a Change Dump, which was
// got from base. The path of each says where its content is in the package; one that has none
// was deleted, or its content is not there. A resource may change several times. The rest is as
// with Manifest, but the cursor of an entry has the datetime of the change, and no position.
func (l *Lister) ChangeManifest(ctx context.Context, in io.Reader, base *url.URL) iter.Seq2[*feed.Entry, error] {
	return l.manifest(ctx, resourcesync.ChangeDumpManifest, given(in, base))
}

func given(in io.Reader, base *url.URL) func() (*Answer, error) {
	return func() (*Answer, error) { return &Answer{Body: in, URL: base, Complete: true, close: func() {}}, nil }
}

// ManifestAt yields the resources of the manifest at a URL, or of a document that names what is
// missing in a package. The latter have no path.
func (l *Lister) ManifestAt(ctx context.Context, at string) iter.Seq2[*feed.Entry, error] {
	return l.manifest(ctx, resourcesync.ResourceDumpManifest, func() (*Answer, error) { return l.Getter.Get(ctx, "the manifest of a package", at, Version{}) })
}

func (l *Lister) manifest(ctx context.Context, capability string, get func() (*Answer, error)) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		this := &listing{Lister: l, ctx: ctx, yield: yield, manifest: capability, now: Seen{Versions: map[string]Version{}}}
		a, err := get()
		if err == nil {
			_, err = this.document(a, part{what: "the manifest", url: a.URL.String(), index: true}, &progress{seed: maphash.MakeSeed()})
		}
		if err != nil && err != errStopped {
			yield(nil, err)
		}
	}
}
