package dump

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

var update = flag.Bool("update", false, "write the golden files")

// A destination that reads the dumps after each run has the resources of the source.
func TestUpdateFollowsSource(t *testing.T) {
	b := newBench(t)
	b.opts.Count = 4
	for i := range 10 {
		b.has[fmt.Sprintf("f%02d", i)] = fmt.Sprint("content ", i)
	}
	if r := b.made(); !r.Full || r.Listed != 10 || r.Created != 0 || r.Packages != 3 {
		t.Errorf("first run: Update() = %+v", r)
	}
	b.same()
	if r := b.made(); !r.At.IsZero() || r.Full || r.Packages != 0 {
		t.Errorf("run without changes: Update() = %+v", r)
	}
	b.has["f00"], b.has["f20"] = "other", "new"
	delete(b.has, "f03")
	if r := b.made(); r.Full || r.Created != 1 || r.Updated != 1 || r.Deleted != 1 || r.Packages != 1 {
		t.Errorf("run with one change of each kind: Update() = %+v", r)
	}
	b.same()
	clear(b.has)
	for i := range 9 {
		b.has[fmt.Sprintf("g%02d", i)] = fmt.Sprint(i)
	}
	if r := b.made(); r.Created != 9 || r.Deleted != 10 || r.Packages != 5 {
		t.Errorf("run with all resources replaced: Update() = %+v", r)
	}
	b.same()
	b.opts.Full = true
	b.has["g00"] = "other"
	if r := b.made(); !r.Full || r.Updated != 1 || r.Packages != 4 {
		t.Errorf("run with Full: Update() = %+v", r)
	}
	b.same()
	b.opts.Full = false
	b.now = b.now.Add(31 * 24 * time.Hour)
	if r := b.made(); !r.Full || r.Updated != 0 {
		t.Errorf("run after a month: Update() = %+v", r)
	}
	b.same()
}

// No two runs have the same time, whatever the clock shows.
func TestRunTimesAreUnique(t *testing.T) {
	b := newBench(t)
	b.has["a"] = "1"
	first := b.made().At
	b.now, b.has["a"] = b.now.Add(-2*time.Hour), "2"
	second := b.made().At
	b.opts.step = func(what string) error {
		if strings.HasPrefix(what, "put changedump-") {
			return errors.New("crash")
		}
		return nil
	}
	b.now, b.has["a"] = b.now.Add(-time.Hour), "3"
	if _, err := b.run(); err == nil {
		t.Fatal("Update() succeeded, want crash")
	}
	b.opts.step = nil
	third := b.made().At
	if !second.Equal(first.Add(time.Second)) || !third.Equal(second.Add(2*time.Second)) {
		t.Errorf("times of the runs = %v, %v, %v, want consecutive seconds", first, second, third)
	}
	b.same()
}

// Unreadable resources are reported and listed, and not treated as deleted.
func TestGaps(t *testing.T) {
	b := newBench(t)
	b.has = map[string]string{"a": "1", "b": "2", "c": "3"}
	b.gaps["d&"] = errors.New("no permission")
	if r := b.made(); r.Gaps != 1 || !r.Full || len(b.told) != 1 || b.told[0].Loc != site+"d&" {
		t.Errorf("Update() = %+v, gaps %v", r, b.told)
	}
	if _, lacks := b.readAll(); !slices.Equal(lacks, []string{site + "d&", site + "d&"}) {
		t.Errorf("unreadable resources of Resource Dump and Change Dump = %q", lacks)
	}
	b.same()
	delete(b.gaps, "d&")
	b.has["a"], b.has["d&"] = "other", "read"
	b.made()
	b.same()
	if _, lacks := b.readAll(); !slices.Equal(lacks, []string{site + "d&"}) {
		t.Errorf("unreadable resources = %q, want only the one of the Resource Dump", lacks)
	}

	// A new Resource Dump would lack a resource of the previous one.
	want := maps.Clone(b.has)
	b.gaps["b"], b.has["c"], want["c"], b.opts.Full = errors.New("no permission"), "other", "other", true
	if r := b.made(); r.Full || !r.Delayed || r.Updated != 1 || r.Deleted != 0 {
		t.Errorf("Update() = %+v, want delayed Resource Dump", r)
	}
	if has := b.read(); !maps.Equal(has, want) {
		t.Errorf("resources in dumps = %v, want %v", has, want)
	}

	// Any resource may be missing: nothing is deleted until all can be listed again.
	delete(b.gaps, "b")
	delete(b.has, "c")
	b.gaps[""], b.has["a"], want["a"] = errors.New("no permission"), "newer", "newer"
	for range 2 {
		if r := b.made(); r.Full || !r.Delayed || r.Deleted != 0 || r.Gaps != 1 {
			t.Errorf("Update() with unlocated gap = %+v", r)
		}
	}
	if has := b.read(); !maps.Equal(has, want) {
		t.Errorf("resources in dumps = %v, want %v", has, want)
	}
	delete(b.gaps, "")
	if r := b.made(); !r.Full || r.Deleted != 1 {
		t.Errorf("Update() after the gap = %+v", r)
	}
	b.same()
}

// Content that does not match the listing, or cannot be read to its end, is a gap.
func TestChangedContentIsGap(t *testing.T) {
	large := strings.Repeat("large", maxBuffered/2)
	for name, open := range map[string]func() (io.ReadCloser, error){
		"closed":  func() (io.ReadCloser, error) { return nil, errors.New("no") },
		"shorter": func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(large[1:])), nil },
		"other":   func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("L" + large[1:])), nil },
		"breaks off": func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader(large[:2*maxBuffered]), failingReader{})), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.opts.Count = 1
			b.has = map[string]string{"a": "1", "b": large, "c": "3"}
			list := func(ctx context.Context) iter.Seq2[*Resource, error] {
				return func(yield func(*Resource, error) bool) {
					for r, err := range b.list(ctx) {
						if r.Change.Loc == site+"b" {
							r.Open = open
						}
						if !yield(r, err) {
							return
						}
					}
				}
			}
			r, err := Update(t.Context(), b.dir, list, b.opts)
			if err != nil || r.Gaps != 1 || r.Listed != 2 {
				t.Fatalf("Update() = %+v, %v", r, err)
			}
			if has := b.read(); len(has) != 2 {
				t.Errorf("got %d resources in dumps", len(has))
			}
			b.made()
			b.same()
		})
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("disk failure") }

// Nothing is published if a listing fails, is not in order, or deletes too much.
func TestNothingPublishedOnError(t *testing.T) {
	b := newBench(t)
	b.has = map[string]string{"a": "1", "b": "2"}
	b.made()
	before := b.read()
	list := func(names ...string) Listing {
		return func(context.Context) iter.Seq2[*Resource, error] {
			return func(yield func(*Resource, error) bool) {
				for _, n := range names {
					if n == "" {
						yield(nil, errors.New("the source is gone"))
						return
					}
					if !yield(&Resource{Change: resourcesync.Change{Loc: site + n}, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(n)), nil }}, nil) {
						return
					}
				}
			}
		}
	}
	for _, names := range [][]string{{"a", "c", "b"}, {"a", "a"}, {"a", "c", ""}} {
		if _, err := Update(t.Context(), b.dir, list(names...), b.opts); err == nil {
			t.Errorf("published %q, want nothing", names)
		}
	}
	b.opts.Allow = func(deleted, held, listed uint64) error {
		return fmt.Errorf("deleting %d of %d, %d listed", deleted, held, listed)
	}
	if _, err := Update(t.Context(), b.dir, list("a"), b.opts); err == nil || err.Error() != "deleting 1 of 2, 1 listed" {
		t.Errorf("Update() with rejected deletions: err = %v", err)
	}
	if has := b.read(); !maps.Equal(has, before) {
		t.Errorf("resources in dumps = %v, want no change", has)
	}
	b.opts.URL = "https://elsewhere.example.org/"
	if _, err := b.run(); err == nil {
		t.Error("Update() with another URL succeeded")
	}
	b.dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(b.dir, "index.html"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.run(); !errors.Is(err, errForeign) {
		t.Errorf("Update() in a directory with other files: err = %v", err)
	}
}

// If the state file is lost, the next run creates a new Resource Dump, and the Change Dump starts
// from scratch.
func TestUpdateWithoutState(t *testing.T) {
	b := newBench(t)
	b.has["a"] = "1"
	b.made()
	b.has["a"] = "2"
	b.made()
	states, err := filepath.Glob(filepath.Join(b.dir, stateDir, "state-*"))
	if err != nil || len(states) != 1 {
		t.Fatal(states, err)
	}
	if err := os.Remove(states[0]); err != nil {
		t.Fatal(err)
	}
	b.has["a"] = "3"
	if r := b.made(); !r.Full {
		t.Errorf("Update() without state = %+v", r)
	}
	b.same()
}

// Two concurrent runs in one directory are not allowed.
func TestConcurrentUpdateIsRefused(t *testing.T) {
	b := newBench(t)
	b.has["a"] = "1"
	b.made()
	b.opts.step = func(string) error {
		b.opts.step = nil
		_, err := Update(t.Context(), b.dir, b.list, options())
		return err
	}
	if _, err := b.run(); !errors.Is(err, errInUse) {
		t.Error(err)
	}
}

// full creates dumps of several runs, with at most most entries per document.
func full(t *testing.T, most int) *bench {
	b := newBench(t)
	b.opts.Count, b.opts.Keep, b.opts.maxItems = 2, 2, most
	for i := range 5 {
		b.has[fmt.Sprintf("f%d", i)] = fmt.Sprint("content ", i)
	}
	b.made()
	for i := range 3 {
		b.has["f0"], b.has["f3"], b.has[fmt.Sprint("g", i)] = fmt.Sprint("version ", i), fmt.Sprint("version ", i), "new"
		b.opts.Full = i == 1
		b.made()
		b.same()
	}
	b.opts.Full = false
	return b
}

// The archives list the retained Resource Dumps and the changes since then, and older files are
// removed.
func TestKeepDropsOldRuns(t *testing.T) {
	b := full(t, 2)
	count := func(pattern string) int {
		names, err := filepath.Glob(filepath.Join(b.dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	if n := count("resourcedump-*-1.zip"); n != 2 {
		t.Errorf("got %d Resource Dumps", n)
	}
	if n := count("changedump-*-1.zip"); n != 3 {
		t.Errorf("got changes of %d runs", n)
	}
	b.opts.Full = true
	b.made()
	b.same()
	if n := count("resourcedump-*-1.zip"); n != 2 {
		t.Errorf("got %d Resource Dumps", n)
	}
	if n := count("changedump-*-1.zip"); n != 2 {
		t.Errorf("got changes of %d runs", n)
	}
	b.opts.Keep = 1
	b.made()
	b.same()
	if n := count("changedump-*") + count("changelist-*"); n != 0 || count("resourcedump-*-1.zip") != 1 {
		t.Errorf("got %d obsolete files with changes", n)
	}
}

// A run that creates every kind of file is killed before each of its steps. The dumps are then as
// before the run or as after it, and the next run continues.
func TestUpdateAfterKill(t *testing.T) {
	before := newBench(t)
	before.opts.Count, before.opts.Keep, before.opts.maxItems = 1, 1, 1
	for i := range 3 {
		before.has["f0"], before.has["f1"] = fmt.Sprint("version ", i), "the same"
		before.opts.Full = i == 1
		before.made()
	}
	copied := func(t *testing.T, step func(what string) error) *bench {
		b := newBench(t)
		b.opts.Count, b.opts.Keep, b.opts.maxItems, b.opts.Full, b.opts.step = 1, 1, 1, true, step
		b.has, b.now = maps.Clone(before.has), before.now
		if err := os.CopyFS(b.dir, os.DirFS(before.dir)); err != nil {
			t.Fatal(err)
		}
		b.has["f0"], b.has["z"] = "last", "last"
		delete(b.has, "f1")
		return b
	}
	steps := 0
	copied(t, func(string) error { steps++; return nil }).made()
	if steps < 50 {
		t.Errorf("got %d steps in a run", steps)
	}
	for i := range steps {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			left := i
			b := copied(t, func(string) error {
				if left--; left < 0 {
					return errors.New("killed")
				}
				return nil
			})
			_, err := b.run()
			r := &reader{dir: b.dir, read: map[string]bool{}}
			has, rerr := r.contents()
			if rerr = errors.Join(rerr, r.archives()); err == nil || rerr != nil {
				t.Fatalf("Update() = %v, reading dumps: %v", err, rerr)
			}
			if !maps.Equal(has, before.has) && !maps.Equal(has, b.has) {
				t.Errorf("resources in dumps = %v", has)
			}
			b.opts.step = nil
			b.made()
			b.same()
		})
	}
}

// TestGolden compares the documents with golden files, and validates these against the schemas.
func TestGolden(t *testing.T) {
	b := full(t, 2)
	b.golden(map[string]string{"resourcedump-index": "resourcedump.xml", "resourcedump-part": "resourcedump-20260102T060405Z.part-2.xml", "changedump-index": "changedump.xml"})
	b = full(t, maxEntries)
	b.gaps["gap"] = errors.New("no")
	delete(b.has, "f1")
	b.has["f4"] = "it's <new> & other"
	b.made()
	b.golden(map[string]string{
		"capabilitylist": "capabilitylist.xml", "description": "description.xml", "resourcedump": "resourcedump.xml", "changedump": "changedump.xml",
		"resourcedump-archive": "resourcedump-archive.xml", "changedump-archive": "changedump-archive.xml", "changelist-archive": "changelist-archive.xml",
		"resourcedump-manifest": "resourcedump-20260102T060405Z-1.manifest.xml", "changedump-manifest": "changedump-20260102T080405Z-1.manifest.xml",
		"changedump-run": "changedump-20260102T080405Z.xml", "changelist": "changelist-20260102T080405Z-1.xml",
	})
}

// golden compares documents with golden files by name.
func (b *bench) golden(documents map[string]string) {
	b.Helper()
	xmllint, err := exec.LookPath("xmllint")
	if err != nil {
		b.Log("xmllint is not installed: the golden files are not held against the XML schemas")
	}
	for name, file := range documents {
		text, err := os.ReadFile(filepath.Join(b.dir, file))
		if err != nil {
			b.Error(err)
			continue
		}
		golden := filepath.Join("testdata", name+".golden.xml")
		if *update {
			if err := os.WriteFile(golden, text, 0o644); err != nil {
				b.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || !bytes.Equal(text, want) {
			b.Errorf("%s differs from %s (err %v):\n%s", file, golden, err, text)
		}
		schema := "urlset.xsd"
		if bytes.Contains(want, []byte("<sitemapindex")) {
			schema = "sitemapindex.xsd"
		}
		if xmllint == "" {
			continue
		}
		if out, err := exec.Command(xmllint, "--nonet", "--noout", "--schema", "../../resourcesync/testdata/xsd/"+schema, golden).CombinedOutput(); err != nil {
			b.Errorf("%s: %v\n%s", golden, err, out)
		}
	}
}
