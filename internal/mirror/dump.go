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

// A dumpProgress records how far a Resource Dump has been read, so that no package is read
// twice.
type dumpProgress struct {
	Print string `json:"print"` // fingerprint of the dump
	ID    uint64 `json:"look"`  // ID of the traversal
	Read  int    `json:"read"`  // number of applied packages
}

const packageKey = "package" // ledger key of the ledger.Part of an interrupted package

// fingerprint identifies a version of a dump. It returns "" if the dump has too little metadata
// to show whether a package has changed.
func fingerprint(d *harvest.Dump) string {
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

// applyDump applies the Resource Dump: new and changed resources with their contents first,
// deletions last. It does not read an applied dump again.
func (m *Mirror) applyDump(ctx context.Context, st *listState) error {
	d, err := m.lister.Dump(ctx, m.source.ResourceDump)
	if err != nil {
		return &SourceError{err}
	}
	print := fingerprint(d)
	t := &traversal{Mirror: m, at: d.At, packed: map[string]*pack.Member{}}
	if st.Listed && st.Dump == print && print != "" {
		t.setStart(st)
		return nil
	}
	read := &st.Reading
	if read.Print != print || print == "" {
		*read = dumpProgress{Print: print, ID: rand.Uint64()}
	}
	t.id = read.ID
	for read.Read < len(d.Packages) {
		m.opts.Logf("reading package %d of %d of the Resource Dump", read.Read+1, len(d.Packages))
		if err := t.applyPackage(ctx, &d.Packages[read.Read]); err != nil {
			return err
		}
		read.Read++
		if err := m.saveListState(st); err != nil {
			return err
		}
	}
	st.Dump = print
	return t.finish(ctx, st)
}

// applyPackage applies one package.
func (t *traversal) applyPackage(ctx context.Context, p *harvest.Package) error {
	_, contents := t.sink.(*Directory)
	return t.readManifest(ctx, resourcesync.ResourceDumpManifest, p, contents, func(e *feed.Entry, in *pack.Member) error {
		if !t.matches(&e.Change) {
			return nil
		}
		if in != nil {
			t.packed[e.Change.Loc] = in
		}
		return t.add(ctx, e.Change)
	}, func() error { return t.flush(ctx) })
}

// readManifest calls each with the resources or changes of a package and with the member that
// has the content, or nil. Then it calls end. If contents is true it fetches the package;
// otherwise it uses the copy of the manifest, if the source has one.
func (m *Mirror) readManifest(ctx context.Context, capability string, p *harvest.Package, contents bool, each func(*feed.Entry, *pack.Member) error, end func() error) (err error) {
	resources := m.lister.ManifestAt(ctx, capability, p.Manifest)
	in := new(pack.Pack)
	if contents || p.Manifest == "" {
		file, err := m.fetchPackage(ctx, p)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close(), m.removePackage()) }()
		if in, err = pack.Open(file); err != nil {
			return &SourceError{packageError(p, err)}
		}
		text, at, err := in.Manifest(p.Change.Loc)
		if err != nil {
			return &SourceError{packageError(p, err)}
		}
		defer text.Close()
		resources = m.lister.Manifest(ctx, capability, text, at)
	}
	for e, err := range resources {
		if err != nil {
			return &SourceError{packageError(p, err)}
		}
		content := in.Member(e.Change.Path)
		e.Change.Path = "" // the path has a meaning only within the package
		if err := each(e, content); err != nil {
			return err
		}
	}
	return end()
}

func packageError(p *harvest.Package, err error) error {
	return fmt.Errorf("package %s: %w", p.Change.Loc, err)
}

// fetchPackage fetches a package into a file, and resumes an interrupted one. The caller must
// close the file, then call removePackage.
func (m *Mirror) fetchPackage(ctx context.Context, p *harvest.Package) (*os.File, error) {
	var part ledger.Part
	if _, err := m.home.Ledger.Meta(packageKey, &part); err != nil {
		return nil, err
	}
	w, flags := fetch.Request{Change: &p.Change}, os.O_RDWR|os.O_CREATE
	if part.URL == p.Change.Loc {
		w.Part = &fetch.Part{URL: part.URL, ETag: part.ETag}
	} else {
		flags |= os.O_TRUNC
	}
	file, err := m.home.Root.OpenFile(m.home.PackageFile(), flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := m.savePart(nil); err != nil { // the file is not a valid part while it is written
		return nil, errors.Join(err, file.Close())
	}
	_, err = m.packages.Get(ctx, w, file)
	if f, ok := errors.AsType[*fetch.Failure](err); ok {
		if f.Part != nil {
			if serr := errors.Join(file.Sync(), m.savePart(f.Part)); serr != nil {
				return nil, errors.Join(serr, file.Close())
			}
		}
		err = &SourceError{packageError(p, err)}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// savePart stores which part of a package its file has. nil means that the file is useless.
func (m *Mirror) savePart(part *fetch.Part) error {
	var b ledger.Batch
	b.PutMeta(packageKey, nil)
	if part != nil {
		b.PutMeta(packageKey, ledger.Part{URL: part.URL, ETag: part.ETag})
	}
	return m.home.Ledger.Commit(&b)
}

func (m *Mirror) removePackage() error { return m.home.Root.Remove(m.home.PackageFile()) }

// currentListing returns a function that yields what the source lists now. at is the time up to
// which the list has all changes, or zero if unknown.
func (m *Mirror) currentListing(ctx context.Context) (at time.Time, each func(func(*feed.Entry) error) error, err error) {
	if m.listURL() != "" {
		at, err := m.listingTime(ctx)
		return at, func(each func(*feed.Entry) error) error {
			for e, err := range m.lister.Resources(ctx, m.listURL()) {
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
		return m.eachListed(ctx, resourcesync.ResourceDumpManifest, d.Packages, each)
	}, nil
}

// eachListed calls each with the entries of the manifests of packages.
func (m *Mirror) eachListed(ctx context.Context, capability string, packages []harvest.Package, each func(*feed.Entry) error) error {
	entry := func(e *feed.Entry, _ *pack.Member) error { return each(e) }
	for i := range packages {
		if err := m.readManifest(ctx, capability, &packages[i], false, entry, func() error { return nil }); err != nil {
			return err
		}
	}
	return nil
}
