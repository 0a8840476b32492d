package dump

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

const site, dumps = "https://example.org/r/", "https://dumps.example.org/d/"

// A bench is a source, a directory with its dumps, and a clock.
type bench struct {
	*testing.T
	dir  string
	opts Options
	now  time.Time
	has  map[string]string // contents by name
	gaps map[string]error  // what cannot be read, by name; "": anything may be missing
	told []*Gap
}

// options returns the default options of the commands.
func options() Options {
	return Options{URL: dumps, Size: 512 << 20, Count: 10_000, Every: 30 * 24 * time.Hour, Keep: 1}
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, dir: filepath.Join(t.TempDir(), "out"), now: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), has: map[string]string{}, gaps: map[string]error{}}
	b.opts = options()
	b.opts.Now = func() time.Time { return b.now }
	b.opts.Gap = func(g *Gap) { b.told = append(b.told, g) }
	b.opts.step = func(what string) error {
		name, put := strings.CutPrefix(what, "put ")
		if _, err := os.Stat(filepath.Join(b.dir, name)); put && err == nil && datedName.MatchString(name) {
			b.Errorf("unexpected content for %s", name)
		}
		return nil
	}
	return b
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return "sha-256:" + hex.EncodeToString(h[:])
}

// list is a Listing of the source.
func (b *bench) list(ctx context.Context) iter.Seq2[*Resource, error] {
	return func(yield func(*Resource, error) bool) {
		names := slices.Collect(maps.Keys(b.has))
		for name := range b.gaps {
			if _, ok := b.has[name]; !ok {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			if err := b.gaps[name]; err != nil {
				g := &Gap{Err: err}
				if name != "" {
					g.Loc = site + name
				}
				if !yield(nil, g) {
					return
				}
				continue
			}
			content := b.has[name]
			size := int64(len(content))
			r := &Resource{Change: resourcesync.Change{Loc: site + name, Hash: sum(content), Length: &size, Type: "text/plain", Lastmod: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)},
				Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// run runs Update once, an hour after the previous run.
func (b *bench) run() (Result, error) {
	b.now = b.now.Add(time.Hour)
	b.told = nil
	return Update(b.Context(), b.dir, b.list, b.opts)
}

// made runs Update once, and fails the test if that fails.
func (b *bench) made() Result {
	b.Helper()
	r, err := b.run()
	if err != nil {
		b.Fatal(err)
	}
	return r
}

// A reader reads dumps as a destination does. It stops at the first error.
type reader struct {
	dir   string
	read  map[string]bool // files of the directory that something names
	lacks []string        // what dumps say that they lack
}

// file returns the content of the file at a URL.
func (r *reader) file(url string) ([]byte, error) {
	name, ok := strings.CutPrefix(url, dumps)
	if !ok {
		return nil, fmt.Errorf("%s is not in the directory", url)
	}
	r.read[name] = true
	return os.ReadFile(filepath.Join(r.dir, name))
}

func (r *reader) document(url, capability string) (*resourcesync.Document, error) {
	text, err := r.file(url)
	if err != nil {
		return nil, err
	}
	d, err := resourcesync.ReadXML(bytes.NewReader(text), resourcesync.Limits{})
	if err != nil {
		return nil, err
	}
	for _, l := range d.Links {
		if l.Rel == Unreadable {
			text, err := r.file(l.Href)
			if err != nil {
				return nil, err
			}
			r.lacks = append(r.lacks, strings.Fields(string(text))...)
		}
	}
	if err == nil && (d.Capability != capability || !slices.ContainsFunc(d.Links, func(l resourcesync.Link) bool { return l.Rel == "up" }) && capability != resourcesync.Description) {
		err = fmt.Errorf("%s: got capability %s, links %v", url, d.Capability, d.Links)
	}
	return d, err
}

// items returns the items of a document, or of all parts of an index.
func (r *reader) items(url, capability string) (h resourcesync.Header, items []resourcesync.Item, err error) {
	d, err := r.document(url, capability)
	if err != nil || !d.Index {
		if err == nil {
			h, items = d.Header, d.Items
		}
		return h, items, err
	}
	for i := range d.Items {
		part, err := r.document(d.Items[i].Loc, capability)
		if err != nil {
			return h, nil, err
		}
		items = append(items, part.Items...)
	}
	return d.Header, items, nil
}

// manifest reads a package, and calls each with its entries and their content.
func (r *reader) manifest(p *resourcesync.Item, capability string, each func(it *resourcesync.Item, content string)) error {
	zipped, err := r.file(p.Loc)
	if err != nil {
		return err
	}
	if p.Hash != sum(string(zipped)) || *p.Length != int64(len(zipped)) {
		return fmt.Errorf("%s: length or hash differs from the dump's entry", p.Loc)
	}
	beside, err := r.file(p.Links[0].Href)
	if err != nil {
		return err
	}
	z, err := zip.NewReader(bytes.NewReader(zipped), int64(len(zipped)))
	if err != nil {
		return err
	}
	files := map[string]string{}
	for _, f := range z.File {
		in, err := f.Open()
		if err != nil {
			return err
		}
		b, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		files["/"+f.Name] = string(b)
	}
	if files["/manifest.xml"] != string(beside) {
		return fmt.Errorf("%s: manifest in package differs from its copy", p.Loc)
	}
	d, err := r.document(p.Links[0].Href, capability)
	if err != nil {
		return err
	}
	if len(d.Items) == 0 {
		return fmt.Errorf("%s: package is empty", p.Loc)
	}
	if !d.From.Equal(p.From) || !d.Until.Equal(p.Until) || !d.At.Equal(p.At) {
		return fmt.Errorf("%s: times differ from the manifest's", p.Loc)
	}
	for i := range d.Items {
		it := &d.Items[i]
		content, ok := files[it.Path]
		switch {
		case it.Change.Change == resourcesync.Deleted && it.Path == "":
		case !ok || it.Hash != sum(content) || *it.Length != int64(len(content)):
			return fmt.Errorf("%s: content of %s differs from the manifest", p.Loc, it.Loc)
		}
		if it.Datetime.Before(d.From) || it.Datetime.After(d.Until) {
			return fmt.Errorf("%s: datetime %v is not from %v until %v", it.Loc, it.Datetime, d.From, d.Until)
		}
		each(it, content)
	}
	return nil
}

// contents returns the contents at a destination that reads the Resource Dump and then the Change
// Dump.
func (r *reader) contents() (map[string]string, error) {
	has := map[string]string{}
	h, packs, err := r.items(dumps+"resourcedump.xml", resourcesync.ResourceDump)
	if err != nil {
		return nil, err
	}
	for i := range packs {
		if err := r.manifest(&packs[i], resourcesync.ResourceDumpManifest, func(it *resourcesync.Item, content string) {
			has[strings.TrimPrefix(it.Loc, site)] = content
		}); err != nil {
			return nil, err
		}
	}
	changes, packs, err := r.items(dumps+"changedump.xml", resourcesync.ChangeDump)
	if err != nil {
		return nil, err
	}
	if changes.From.After(h.At) {
		return nil, fmt.Errorf("changes start at %v, after the Resource Dump at %v", changes.From, h.At)
	}
	last := changes.From
	for i := range packs {
		p := &packs[i]
		if !p.From.Equal(last) || !p.Until.After(p.From) {
			return nil, fmt.Errorf("package from %v until %v does not follow one until %v", p.From, p.Until, last)
		}
		last = p.Until
		if err := r.manifest(p, resourcesync.ChangeDumpManifest, func(it *resourcesync.Item, content string) {
			name := strings.TrimPrefix(it.Loc, site)
			_, had := has[name]
			switch {
			case p.Until.Before(h.At):
			case it.Change.Change == resourcesync.Deleted:
				delete(has, name)
			case had != (it.Change.Change == resourcesync.Updated):
				err = fmt.Errorf("%s is %s, but present before: %v", it.Loc, it.Change.Change, had)
			default:
				has[name] = content
			}
		}); err != nil {
			return nil, err
		}
	}
	return has, err
}

// archives reads the archives that are listed.
func (r *reader) archives() error {
	list, err := r.document(dumps+"capabilitylist.xml", resourcesync.CapabilityList)
	if err != nil {
		return err
	}
	if _, err := r.document(dumps+"description.xml", resourcesync.Description); err != nil {
		return err
	}
	for _, c := range list.Items {
		of, archive := strings.CutSuffix(c.Capability, "-archive")
		if !archive {
			continue
		}
		_, items, err := r.items(c.Loc, c.Capability)
		if err != nil {
			return err
		}
		for _, it := range items {
			_, packs, err := r.items(it.Loc, of)
			for i := range packs {
				if err == nil && of != resourcesync.ChangeList {
					err = r.manifest(&packs[i], of+"-manifest", func(*resourcesync.Item, string) {})
				}
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// read reads all dumps. It fails the test if a document is invalid or a file is unreferenced.
func (b *bench) read() map[string]string {
	b.Helper()
	has, _ := b.readAll()
	return has
}

// readAll is read, but also returns the resources that the dumps list as unreadable.
func (b *bench) readAll() (has map[string]string, lacks []string) {
	b.Helper()
	r := &reader{dir: b.dir, read: map[string]bool{}}
	has, err := r.contents()
	lacks = r.lacks
	if err = errors.Join(err, r.archives()); err != nil {
		b.Fatal(err)
	}
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != stateDir && !r.read[e.Name()] {
			b.Errorf("unreferenced file %s", e.Name())
		}
	}
	left, err := os.ReadDir(filepath.Join(b.dir, temporary))
	if err != nil || len(left) > 0 {
		b.Errorf("leftover files: %v, %v", left, err)
	}
	return has, lacks
}

// same fails the test unless the dumps have the resources of the source.
func (b *bench) same() {
	b.Helper()
	if has := b.read(); !maps.Equal(has, b.has) {
		b.Errorf("resources in dumps = %v, want %v", has, b.has)
	}
}
