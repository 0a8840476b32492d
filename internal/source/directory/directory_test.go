package directory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/resourcesync"
)

// A clock stands still until sleep is called or the test moves it.
type clock struct {
	mu    sync.Mutex
	t     time.Time
	slept func() // called by each Sleep, after the clock has moved
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	c.t = c.t.Add(d)
	slept := c.slept
	c.mu.Unlock()
	if slept != nil {
		slept()
	}
	return ctx.Err()
}

// A testDir is a directory that is listed, and its clock.
type testDir struct {
	*testing.T
	dir  string
	opts Options
	*clock
}

// newTestDir returns an empty directory. Its clock is an hour ahead, so that files written now have
// settled.
func newTestDir(t *testing.T) *testDir {
	p := &testDir{T: t, dir: t.TempDir(), clock: &clock{t: time.Now().Add(time.Hour)}}
	p.opts = Options{Ledger: filepath.Join(t.TempDir(), "ledger"), Now: p.now, Sleep: p.sleep}
	return p
}

func (p *testDir) write(name, content string) {
	p.Helper()
	name = filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		p.Fatal(err)
	}
}

func (p *testDir) open() *Tree {
	p.Helper()
	tree, err := Open(p.dir, "https://example.org/d", p.opts)
	if err != nil {
		p.Fatal(err)
	}
	return tree
}

// A listResult is the result of a list.
type listResult struct {
	files map[string]resourcesync.Change // by the part of the loc after the base
	gaps  []*reconcile.Gap
	err   error
	Stats
}

func (p *testDir) list() *listResult {
	p.Helper()
	l := &listResult{files: map[string]resourcesync.Change{}}
	tree := p.open()
	for e, err := range tree.Resources(p.Context()) {
		if gap, ok := errors.AsType[*reconcile.Gap](err); ok {
			l.gaps = append(l.gaps, gap)
			continue
		}
		if err != nil {
			l.err = err
			break
		}
		path, ok := strings.CutPrefix(e.Change.Loc, "https://example.org/d/")
		if !ok || l.files[path].Loc != "" || int(e.Position) != len(l.files)+1 || e.Change.Validate() != nil {
			p.Errorf("entry %d = %+v", e.Position, e.Change)
		}
		l.files[path] = e.Change
	}
	l.Stats = tree.Stats()
	return l
}

// has fails the test unless the list has exactly these files.
func (l *listResult) has(t *testDir, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(l.files)); l.err != nil || !slices.Equal(got, want) {
		t.Errorf("got files %q, %v; want %q", got, l.err, want)
	}
}

func TestList(t *testing.T) {
	p := newTestDir(t)
	for _, name := range []string{"index.html", "foo/b", "foo.txt", "foo-", "ä b/c%?#d.XML", ".well-known/x", ".hidden", "a+b&(c)'!*,;=:@~$", "dir/.a.swp", "x~", "#x#"} {
		p.write(name, "content of "+name)
	}
	if err := os.Symlink("foo.txt", filepath.Join(p.dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", filepath.Join(p.dir, "root")); err != nil {
		t.Fatal(err)
	}
	l := p.list()
	l.has(p, "index.html", "foo/b", "foo.txt", "foo-", "%C3%A4%20b/c%25%3F%23d.XML", ".well-known/x", ".hidden", "a+b&(c)'!*,;=:@~$")
	if l.Links != 2 || l.Files != 8 || l.Hashed != 8 || len(l.gaps) > 0 {
		t.Errorf("got stats %+v, gaps %v", l.Stats, l.gaps)
	}
	c := l.files["index.html"]
	info, err := os.Stat(filepath.Join(p.dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("sha-256:%x", sha256.Sum256([]byte("content of index.html"))); c.Hash != want || *c.Length != 21 || !c.Lastmod.Equal(info.ModTime()) || c.Type != "text/html" {
		t.Errorf("index.html = %+v, want the hash, length, lastmod and type of the file", c)
	}

	p.opts.IncludeTemporary, p.opts.Exclude = true, []string{"foo*", "dir/.a.*", ".hidden", "ä b"}
	p.list().has(p, "index.html", ".well-known/x", "a+b&(c)'!*,;=:@~$", "x~", "%23x%23")
}

// A second list reads only changed files, whatever has changed.
func TestLedger(t *testing.T) {
	p := newTestDir(t)
	for i := range 3_000 { // more than a block
		p.write(fmt.Sprintf("%d/%d", i%7, i), fmt.Sprint("content ", i))
	}
	if l := p.list(); l.Hashed != 3_000 {
		t.Fatalf("first list: read %d files", l.Hashed)
	}
	before := p.list()
	if before.Hashed != 0 || len(before.files) != 3_000 {
		t.Fatalf("second list: read %d of %d files", before.Hashed, len(before.files))
	}
	name := filepath.Join(p.dir, "3/3")
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	p.write("0/0", "longer than it was")
	p.write("3/3", "CONTENT 3") // the same size, and then the same mtime
	if err := os.Chtimes(name, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	p.write("8/new", "new")
	if err := os.Remove(filepath.Join(p.dir, "1/1")); err != nil {
		t.Fatal(err)
	}
	l := p.list()
	if l.Hashed != 3 || len(l.files) != 3_000 || l.files["3/3"].Hash == before.files["3/3"].Hash || l.files["0/0"].Hash == before.files["0/0"].Hash {
		t.Errorf("read %d of %d files", l.Hashed, len(l.files))
	}
}

// A file that changed less than two seconds before it was read is read again.
func TestRacyTimesAreNotTrusted(t *testing.T) {
	p := newTestDir(t)
	p.clock.t = time.Now()
	p.write("a", "1")
	for range 2 {
		if l := p.list(); l.Hashed != 1 {
			t.Errorf("read %d files", l.Hashed)
		}
	}
	p.clock.t = time.Now().Add(3 * time.Second)
	for _, want := range []int{1, 0} {
		if l := p.list(); l.Hashed != want {
			t.Errorf("read %d files, want %d", l.Hashed, want)
		}
	}
}

// The results of a list that was killed or interrupted are not lost, and neither are the older ones
// of the paths after that.
func TestLedgerOfInterruptedList(t *testing.T) {
	p := newTestDir(t)
	for i := range 2_000 {
		p.write(fmt.Sprintf("%04d", i), fmt.Sprint(i))
	}
	killed := filepath.Join(t.TempDir(), "killed") // state of the files when the process is killed
	n := 0
	for range p.open().Resources(t.Context()) {
		if n++; n == 1_500 {
			for size(t, p.opts.Ledger) < 32<<10 { // it is written by another goroutine
				runtime.Gosched()
			}
			if err := os.CopyFS(killed, os.DirFS(p.opts.Ledger)); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if l := p.list(); l.Hashed != 500 {
		t.Errorf("after an interrupted list: read %d of 2,000 files", l.Hashed)
	}
	p.write("0001", "other")
	for range p.open().Resources(t.Context()) {
		break
	}
	if l := p.list(); l.Hashed != 1 {
		t.Errorf("after a list without files: read %d files", l.Hashed)
	}
	p.opts.Ledger = killed
	if l := p.list(); l.Hashed < 500 || l.Hashed > 1_900 {
		t.Errorf("after a killed list: read %d of 2,000 files", l.Hashed)
	}
}

func size(t *testing.T, dir string) (all int64) {
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if info, err := n.Info(); err == nil {
			all += info.Size()
		}
	}
	return all
}

// After damage, files are read again, and damaged data is never used as a hash.
func TestDamagedLedger(t *testing.T) {
	p := newTestDir(t)
	for i := range 2_000 {
		p.write(fmt.Sprintf("%04d", i), fmt.Sprint(i))
	}
	p.list()
	names, err := os.ReadDir(p.opts.Ledger)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		name := filepath.Join(p.opts.Ledger, n.Name())
		whole, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(whole) == 0 {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		whole[len(whole)/3] ^= 1
		if err := os.WriteFile(name, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for i, f := range p.list().files {
				if n := strings.TrimLeft(i, "0"); f.Hash != fmt.Sprintf("sha-256:%x", sha256.Sum256([]byte(cmp.Or(n, "0")))) {
					t.Fatalf("%s is damaged: hash of file %s = %s", name, i, f.Hash)
				}
			}
		}
		if l := p.list(); l.Hashed != 0 {
			t.Errorf("%s was damaged: later list read %d files, want none", name, l.Hashed)
		}
	}
}

func TestGaps(t *testing.T) {
	p := newTestDir(t)
	p.write("good", "1")
	p.write("bad\xff", "2")
	p.write("bad\xfe/in", "3")
	long := strings.Repeat(strings.Repeat("ü", 120)+"/", 3)
	p.write(long+"x", "4")
	l := p.list()
	l.has(p, "good")
	if len(l.gaps) != 3 || l.Names != 3 {
		t.Errorf("got gaps %v", l.gaps)
	}
	for _, g := range l.gaps {
		if g.Loc == "" {
			t.Errorf("gap %v has no loc", g)
		}
	}
	if os.Getuid() == 0 {
		return // root may read everything; see also e2e
	}
	p.write("secret", "5")
	p.write("dir/secret", "6")
	if err := errors.Join(os.Chmod(filepath.Join(p.dir, "secret"), 0), os.Chmod(filepath.Join(p.dir, "dir"), 0)); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(filepath.Join(p.dir, "dir"), 0o700)
	l = p.list()
	l.has(p, "good")
	if len(l.gaps) != 5 || !slices.ContainsFunc(l.gaps, func(g *reconcile.Gap) bool { return g.Loc == "" }) {
		t.Errorf("got gaps %v", l.gaps)
	}
}

// A list waits for a file that is being written, and leaves it out if the writes continue.
func TestSettle(t *testing.T) {
	p := newTestDir(t)
	p.opts.Settle = time.Second
	p.write("log", "1")
	set := func(age time.Duration) {
		at := p.now().Add(-age)
		if err := os.Chtimes(filepath.Join(p.dir, "log"), at, at); err != nil {
			t.Fatal(err)
		}
	}
	set(300 * time.Millisecond)
	begin := p.now()
	p.list().has(p, "log")
	if waited := p.now().Sub(begin); waited != 700*time.Millisecond {
		t.Errorf("waited %v", waited)
	}
	writes := 0
	p.slept = func() { writes++; set(100 * time.Millisecond) }
	set(0)
	l := p.list()
	l.has(p)
	if len(l.gaps) != 1 || !errors.Is(l.gaps[0], ErrBusy) || writes < 2 || writes > 20 {
		t.Errorf("after %d writes: got gaps %v", writes, l.gaps)
	}
}

// A file that grows while it is read is not listed with a wrong hash.
func TestReadGrowingFile(t *testing.T) {
	p := newTestDir(t)
	p.write("a", strings.Repeat("x", 1<<20))
	tree := p.open()
	r, err := newReader(tree)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	grow := func(b []byte) (int, error) {
		f, err := os.OpenFile(filepath.Join(p.dir, "a"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		_, err = f.WriteString("y")
		return len(b), err
	}
	r.sum = &hookedHash{Hash: r.sum, wrote: grow}
	info, err := os.Lstat(filepath.Join(p.dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	var none time.Duration
	if _, _, err := r.read(t.Context(), "a", info, &none); !errors.Is(err, ErrBusy) {
		t.Errorf("read() = %v, want ErrBusy", err)
	}
}

// A hookedHash is a hash that calls a function before each write.
type hookedHash struct {
	hash.Hash
	wrote func([]byte) (int, error)
}

func (s *hookedHash) Write(b []byte) (int, error) {
	if len(b) > 0 {
		if n, err := s.wrote(b); err != nil {
			return n, err
		}
	}
	return s.Hash.Write(b)
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		dir, base string
		o         Options
	}{
		{dir, "", Options{}}, {dir, "/files", Options{}}, {dir, "ftp://a/", Options{}}, {dir, "https://", Options{}},
		{dir, "https://a/?q", Options{}}, {dir, "https://a/?", Options{}}, {dir, "https://a/#f", Options{}}, {dir, "https://u@a/", Options{}},
		{file, "https://a/", Options{}}, {dir + "/no", "https://a/", Options{}},
		{dir, "https://a/", Options{Exclude: []string{"[a"}}}, {dir, "https://a/", Options{Exclude: []string{""}}},
	} {
		if _, err := Open(test.dir, test.base, test.o); err == nil {
			t.Errorf("Open(%q, %q, %+v) succeeded, want an error", test.dir, test.base, test.o)
		}
	}
}

// A removed directory is an error, not an empty list.
func TestRemovedDirectory(t *testing.T) {
	p := newTestDir(t)
	p.write("a", "1")
	tree := p.open()
	if err := os.RemoveAll(p.dir); err != nil {
		t.Fatal(err)
	}
	for e, err := range tree.Resources(t.Context()) {
		if _, gap := errors.AsType[*reconcile.Gap](err); e != nil || err == nil || gap {
			t.Errorf("Resources() yields %v, %v", e, err)
		}
	}
}

// Different paths have different locs, and a loc is a URL of the path.
func FuzzLoc(f *testing.F) {
	for _, s := range []string{"a", "ä", "%41", "a b/c", "\n", "a?b#c", "..."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		escaped := escape(path)
		for i := range len(escaped) {
			if c := escaped[i]; c != '%' && !plain(c) {
				t.Fatalf("escape(%q) = %q, want unreserved characters only", path, escaped)
			}
		}
		if back, err := url.PathUnescape(escaped); err != nil || back != path {
			t.Errorf("escape(%q) = %q, %v", path, escaped, err)
		}
		if back, err := (&Tree{base: "https://example.org/"}).path("https://example.org/" + escaped); err != nil || back != path {
			t.Errorf("escape(%q) = %q, but path() = %q, %v, want the path", path, escaped, back, err)
		}
	})
}

// The list is in the order of Compare, whatever Loc escapes, and Contents opens the listed files.
func TestOrder(t *testing.T) {
	p := newTestDir(t)
	for _, name := range []string{"a/b", "a-b", "a.b", "a b", "a%b", "ab", "zoo", "äb", "ä/b", "a/ä", "~", "%7E"} {
		p.write(name, "content of "+name)
	}
	p.write("bad\xff/in", "not listed")
	p.write("bad\xff-", "not listed")
	tree := p.open()
	contents, err := tree.Contents()
	if err != nil {
		t.Fatal(err)
	}
	defer contents.Close()
	last, n := "", 0
	for e, err := range tree.Resources(t.Context()) {
		loc := ""
		if gap, ok := errors.AsType[*reconcile.Gap](err); ok {
			loc = gap.Loc
		} else if err != nil {
			t.Fatal(err)
		} else {
			loc = e.Change.Loc
			f, err := contents.Open(loc)
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.New()
			if _, err := io.Copy(sum, f); err != nil || fmt.Sprintf("sha-256:%x", sum.Sum(nil)) != e.Change.Hash {
				t.Errorf("Open(%s) returns other content, %v", loc, err)
			}
			_ = f.Close() // it is only read
		}
		if last != "" && Compare(last, loc) >= 0 {
			t.Errorf("%s is listed after %s", loc, last)
		}
		last, n = loc, n+1
	}
	if n != 13 { // ~ is the name of a backup
		t.Errorf("got %d files and gaps", n)
	}
	if _, err := contents.Open("https://example.org/d/../x"); err == nil {
		t.Error("Open of a file outside succeeded")
	}
}
