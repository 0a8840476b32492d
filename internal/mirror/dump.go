package mirror

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/mirror/fetch"
	"github.com/rshub/rshub/internal/mirror/ledger"
	"github.com/rshub/rshub/internal/mirror/pack"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/resourcesync"
)

// dumped is what a mirror remembers of a Resource Dump while it reads it, so that it reads no
// package twice.
type dumped struct {
	Print string `json:"print"` // of the dump
	Look  uint64 `json:"look"`  // as that of a taking
	Read  int    `json:"read"`  // how many packages are applied
}

const packageKey = "package" // the name in the ledger of a ledger.Part: the beginning of a package that broke off

// printOf returns a text that identifies a version of a dump. It is empty if the dump does not
// say enough to show whether a package has changed.
func printOf(d *harvest.Dump) string {
	sum := sha256.New()
	fmt.Fprintln(sum, d.At.UnixNano())
	for i := range d.Packages {
		c := &d.Packages[i].Change
		if d.At.IsZero() && c.Hash == "" && c.Length == nil && c.Lastmod.IsZero() {
			return ""
		}
		n := int64(-1)
		if c.Length != nil {
			n = *c.Length
		}
		fmt.Fprintln(sum, c.Loc, c.Hash, n, c.Lastmod.UnixNano(), d.Packages[i].At.UnixNano())
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// takeDump applies the Resource Dump: new and different resources, with their contents,
// and at the end deletions. It does not read an applied dump again.
func (m *Mirror) takeDump(ctx context.Context, st *looks) error {
	d, err := m.lister.Dump(ctx, m.source.ResourceDump)
	if err != nil {
		return &SourceError{err}
	}
	print := printOf(d)
	t := &taking{Mirror: m, at: d.At, packed: map[string]*pack.Member{}}
	if st.Listed && st.Dump == print && print != "" {
		t.begin(st)
		return nil
	}
	read := &st.Reading
	if read.Print != print || print == "" {
		*read = dumped{Print: print, Look: rand.Uint64()}
	}
	t.look = read.Look
	for read.Read < len(d.Packages) {
		m.opts.Note("reading package %d of %d of the Resource Dump", read.Read+1, len(d.Packages))
		if err := t.unpack(ctx, &d.Packages[read.Read]); err != nil {
			return err
		}
		read.Read++
		if err := m.keep(st); err != nil {
			return err
		}
	}
	st.Dump = print
	return t.end(ctx, st)
}

// unpack applies one package.
func (t *taking) unpack(ctx context.Context, p *harvest.Package) error {
	_, contents := t.sink.(*Directory)
	return t.manifest(ctx, resourcesync.ResourceDumpManifest, p, contents, func(e *feed.Entry, in *pack.Member) error {
		if !t.wants(&e.Change) {
			return nil
		}
		if in != nil {
			t.packed[e.Change.Loc] = in
		}
		return t.add(ctx, e.Change)
	}, func() error { return t.apply(ctx) })
}

// manifest calls each with the resources or changes of a package, and with the member
// that has the content, which may be nil. Then it calls end. With contents it fetches the
// package. Otherwise it uses the copy of the manifest, if the source has one.
func (m *Mirror) manifest(ctx context.Context, capability string, p *harvest.Package, contents bool, each func(*feed.Entry, *pack.Member) error, end func() error) (err error) {
	resources := m.lister.ManifestAt(ctx, capability, p.Manifest)
	in := new(pack.Pack)
	if contents || p.Manifest == "" {
		file, err := m.getPackage(ctx, p)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close(), m.dropPackage()) }()
		if in, err = pack.Open(file); err != nil {
			return &SourceError{aboutPackage(p, err)}
		}
		text, at, err := in.Manifest(p.Change.Loc)
		if err != nil {
			return &SourceError{aboutPackage(p, err)}
		}
		defer text.Close()
		resources = m.lister.Manifest(ctx, capability, text, at)
	}
	for e, err := range resources {
		if err != nil {
			return &SourceError{aboutPackage(p, err)}
		}
		content := in.Member(e.Change.Path)
		e.Change.Path = "" // it has a meaning only within the package
		if err := each(e, content); err != nil {
			return err
		}
	}
	return end()
}

func aboutPackage(p *harvest.Package, err error) error {
	return fmt.Errorf("the package %s: %w", p.Change.Loc, err)
}

// getPackage fetches a package into a file. It continues a package that broke off. The
// caller closes the file, and then calls dropPackage.
func (m *Mirror) getPackage(ctx context.Context, p *harvest.Package) (*os.File, error) {
	var part ledger.Part
	if _, err := m.home.Ledger.Meta(packageKey, &part); err != nil {
		return nil, err
	}
	w, flags := fetch.Wanted{Change: &p.Change}, os.O_RDWR|os.O_CREATE
	if part.URL == p.Change.Loc {
		w.Part = &fetch.Part{URL: part.URL, ETag: part.ETag}
	} else {
		flags |= os.O_TRUNC
	}
	file, err := m.home.Root.OpenFile(m.home.PackageFile(), flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := m.keepPart(nil); err != nil { // while the file is being written, it is not a valid part
		return nil, errors.Join(err, file.Close())
	}
	_, err = m.packages.Get(ctx, w, file)
	if f, ok := errors.AsType[*fetch.Failure](err); ok {
		if f.Part != nil {
			if serr := errors.Join(file.Sync(), m.keepPart(f.Part)); serr != nil {
				return nil, errors.Join(serr, file.Close())
			}
		}
		err = &SourceError{aboutPackage(p, err)}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// keepPart stores which part of a package its file has; nil: nothing useful.
func (m *Mirror) keepPart(part *fetch.Part) error {
	var b ledger.Batch
	b.Meta(packageKey, nil)
	if part != nil {
		b.Meta(packageKey, ledger.Part{URL: part.URL, ETag: part.ETag})
	}
	return m.home.Ledger.Commit(&b)
}

func (m *Mirror) dropPackage() error { return m.home.Root.Remove(m.home.PackageFile()) }

// listing yields what the source lists now. at is the time up to which the list has
// all changes; zero: unknown.
func (m *Mirror) listing(ctx context.Context) (at time.Time, each func(func(*feed.Entry) error) error, err error) {
	if m.resources() != "" {
		at, err := m.listedAt(ctx)
		return at, func(each func(*feed.Entry) error) error {
			for e, err := range m.lister.Resources(ctx, m.resources()) {
				if err != nil {
					return &SourceError{err}
				}
				if err := each(e); err != nil {
					return err
				}
			}
			return nil
		}, err
	}
	d, err := m.lister.Dump(ctx, m.source.ResourceDump)
	if err != nil {
		return time.Time{}, nil, &SourceError{err}
	}
	return d.At, func(each func(*feed.Entry) error) error {
		return m.named(ctx, resourcesync.ResourceDumpManifest, d.Packages, each)
	}, nil
}

// named calls each with what the manifests of packages name.
func (m *Mirror) named(ctx context.Context, capability string, packages []harvest.Package, each func(*feed.Entry) error) error {
	entry := func(e *feed.Entry, _ *pack.Member) error { return each(e) }
	for i := range packages {
		if err := m.manifest(ctx, capability, &packages[i], false, entry, func() error { return nil }); err != nil {
			return err
		}
	}
	return nil
}
