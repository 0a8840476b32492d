package mirror

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/mirror/filename"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/source/discovery"
	"github.com/rshub/rshub/source/reconcile"
)

// An origin serves texts, and counts who asks.
type origin struct {
	*httptest.Server
	mu    sync.Mutex
	files map[string]string
	asked map[string]int
	first http.HandlerFunc // answers instead, if it is set; it may call serve
}

func newOrigin(t *testing.T) *origin {
	o := &origin{files: map[string]string{}, asked: map[string]int{}}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		first := o.first
		o.mu.Unlock()
		if first == nil {
			first = o.serve
		}
		first(w, r)
	}))
	t.Cleanup(o.Close)
	return o
}

// serve serves a file.
func (o *origin) serve(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked[r.URL.Path]++
	text, ok := o.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(text))))
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
}

// answers lets something else answer from now on; nil: nothing does.
func (o *origin) answers(first http.HandlerFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.first = first
}

func (o *origin) set(name, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.files[name] = text
}

// requests returns how often a file was asked for since the last call.
func (o *origin) requests(name string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.asked[name]
	o.asked[name] = 0
	return n
}

var positions uint64

// entry returns what a hub says of a file that has a text; empty: it was deleted.
func (o *origin) entry(name, text string) feed.Entry {
	positions++
	e := feed.Entry{Cursor: feed.Cursor{Position: positions, Micros: int64(positions)}, Change: resourcesync.Change{Loc: o.URL + name, Change: resourcesync.Deleted}}
	if text != "" {
		e.Change.Change, e.Change.Hash = resourcesync.Updated, fmt.Sprintf("sha-256:%x", sha256.Sum256([]byte(text)))
	}
	return e
}

// A bench is a Directory of an origin.
type bench struct {
	*Directory
	*origin
	t   *testing.T
	dir string
}

func newBench(t *testing.T) *bench {
	b := &bench{origin: newOrigin(t), t: t, dir: t.TempDir()}
	b.open(DirectoryOptions{})
	t.Cleanup(func() { b.home.Close() })
	return b
}

// open opens the directory, as a new process does.
func (b *bench) open(o DirectoryOptions) {
	b.t.Helper()
	h, err := OpenHome(b.dir, false)
	if err != nil {
		b.t.Fatal(err)
	}
	o.Fetch.Tries, o.Fetch.Client = 1, b.Client()
	o.Names = filename.Names{Strip: b.URL + "/"}
	if b.Directory, err = NewDirectory(h, o); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) reopen(o DirectoryOptions) {
	b.t.Helper()
	if err := b.home.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.open(o)
}

func (b *bench) apply(entries ...feed.Entry) {
	b.t.Helper()
	if err := b.Apply(b.t.Context(), entries); err != nil {
		b.t.Fatal(err)
	}
}

// has fails the test unless a file has a text; empty: unless there is no file.
func (b *bench) has(name, text string) {
	b.t.Helper()
	got, err := os.ReadFile(filepath.Join(b.dir, name))
	if string(got) != text || (err == nil) != (text != "") {
		b.t.Errorf("%s has %q, %v, and ought to have %q", name, got, err, text)
	}
}

func (b *bench) retry() Left {
	b.t.Helper()
	left, err := b.Retry(b.t.Context(), true)
	if err != nil {
		b.t.Fatal(err)
	}
	return left
}

func TestApply(t *testing.T) {
	b := newBench(t)
	b.set("/a", "one")
	first := b.entry("/a", "one")
	b.apply(b.entry("/a", "zero"), first) // only the newest counts
	b.has("a", "one")
	if n := b.requests("/a"); n != 1 {
		t.Errorf("%d requests", n)
	}
	b.apply(first, b.entry("/a", "one")) // again, and with a later change to the same content
	b.reopen(DirectoryOptions{})
	b.apply(first)
	if n := b.requests("/a"); n != 0 {
		t.Errorf("%d requests for what is there", n)
	}
	b.set("/a", "two")
	b.apply(b.entry("/a", "two"))
	b.has("a", "two")
	b.apply(b.entry("/a", ""), b.entry("/never", ""))
	b.has("a", "")
	if n := b.home.Ledger.Counts(); n.Files != 0 || n.Failures != 0 {
		t.Errorf("the ledger counts %+v", n)
	}
}

// A content without a hash is asked for with what its server said of it.
func TestWithoutHash(t *testing.T) {
	b := newBench(t)
	b.set("/a", "one")
	e := func() feed.Entry {
		e := b.entry("/a", "x")
		e.Change.Hash = ""
		return e
	}
	b.apply(e())
	before, _, err := b.home.Ledger.File(b.URL + "/a")
	if err != nil {
		t.Fatal(err)
	}
	b.apply(e())
	after, _, err := b.home.Ledger.File(b.URL + "/a")
	if err != nil || b.requests("/a") != 2 || after.Mtime != before.Mtime || after.Entry.Position == before.Entry.Position {
		t.Errorf("the file was made anew: %+v, %+v, %v", before, after, err)
	}
	b.set("/a", "two")
	b.apply(e())
	b.has("a", "two")
	b.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") != "" { // a cache that is late
			w.WriteHeader(http.StatusNotModified)
			return
		}
		b.serve(w, r)
	})
	b.set("/a", "three")
	longer, n := e(), int64(len("three"))
	longer.Change.Length = &n
	b.apply(longer)
	b.has("a", "three")
}

func TestFailures(t *testing.T) {
	b := newBench(t)
	b.set("/a", "one")
	b.apply(b.entry("/a", "one"))
	b.apply(b.entry("/a", "two"), b.entry("/b", "b")) // neither is there yet
	b.has("a", "one")
	b.reopen(DirectoryOptions{})
	left := b.retry()
	if left.Resources != 2 || left.Next.IsZero() {
		t.Errorf("%+v is left", left)
	}
	f, _, err := b.home.Ledger.Failure(b.URL + "/b")
	if err != nil || f.Tries != 2 || !strings.Contains(f.Reason, "404") || f.Next.Sub(f.Since) < 10*time.Second {
		t.Errorf("the failure is %+v, %v", f, err)
	}
	b.requests("/a")
	if _, err := b.Retry(t.Context(), false); err != nil || b.requests("/a") != 0 {
		t.Errorf("what is not due was tried again: %v", err)
	}
	b.set("/a", "two")
	if left := b.retry(); left.Resources != 1 {
		t.Errorf("%+v is left", left)
	}
	b.has("a", "two")
	b.apply(b.entry("/b", ""))
	if left := b.retry(); left.Resources != 0 {
		t.Errorf("%+v is left", left)
	}
	b.apply(feed.Entry{Change: resourcesync.Change{Loc: "urn:isbn:1", Change: resourcesync.Created}})
	if f, ok, err := b.home.Ledger.Failure("urn:isbn:1"); err != nil || !ok || !strings.Contains(f.Reason, "cannot be fetched") {
		t.Errorf("a resource that has no URL of http: %+v, %v", f, err)
	}
}

// A resource that fails for long is tried seldom, and what is there stays.
func TestPauses(t *testing.T) {
	b := newBench(t)
	b.set("/a", "one")
	b.apply(b.entry("/a", "one"))
	b.reopen(DirectoryOptions{Pause: time.Minute, MostPause: 10 * time.Minute})
	b.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	b.apply(b.entry("/a", "two"))
	for try, least := range []time.Duration{1, 2, 4, 8, 10, 10} {
		f, ok, err := b.home.Ledger.Failure(b.URL + "/a")
		if pause := time.Until(f.Next); err != nil || !ok || f.Tries != try+1 || pause < least*time.Minute*3/4 || pause > 12*time.Minute {
			t.Errorf("after try %d it is tried again in %v: %+v, %v", try+1, pause, f, err)
		}
		b.retry()
	}
	b.has("a", "one")
	b.answers(nil)
	b.set("/a", "two")
	if left := b.retry(); left.Resources != 0 {
		t.Errorf("%+v is left", left)
	}
	b.has("a", "two")
}

// A crash may have put a file in its place and lost its record.
func TestAdopts(t *testing.T) {
	b := newBench(t)
	b.set("/a", "one")
	if err := os.WriteFile(filepath.Join(b.dir, "a"), []byte("one"), 0o666); err != nil {
		t.Fatal(err)
	}
	o, err := b.get(t.Context(), b.entry("/a", "one"), 0, false, nil)
	if err != nil || o.file == nil || !slices.Equal(o.dirs, []string{"."}) { // its name may not be durable yet
		t.Errorf("the outcome is %+v, %v", o, err)
	}
	b.apply(b.entry("/a", "one"))
	if n := b.requests("/a"); n != 0 {
		t.Errorf("%d requests", n)
	}
	if f, ok, err := b.home.Ledger.File(b.URL + "/a"); !ok || err != nil || f.Size != 3 {
		t.Errorf("the record is %+v, %v", f, err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, partsDir, "left"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	b.reopen(DirectoryOptions{})
	if files, err := os.ReadDir(filepath.Join(b.dir, partsDir)); err != nil || len(files) > 0 {
		t.Errorf("temporary files are left: %v, %v", files, err)
	}
}

// kill ends the process when a file is in its place, and the ledger does not know that.
func (b *bench) kill(name string) {
	b.t.Helper()
	if err := b.home.Ledger.Place(b.opts.Names, b.URL+"/"+name); err != nil {
		b.t.Fatal(err)
	}
	p, ok, err := b.home.Ledger.Path(b.URL + "/" + name)
	if err == nil && ok {
		err = os.MkdirAll(filepath.Join(b.dir, filepath.Dir(p)), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(b.dir, p), []byte("whole"), 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.reopen(DirectoryOptions{})
}

// What was got before the process ended, and is gone when the list is read anew, is removed.
func TestKilledBeforeListed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.kill("gone/1")
	b.apply(b.entry("/gone/2", "absent"))
	b.set("/stays", "here")
	b.set("/gone/3", "got")
	b.apply(b.entry("/gone/3", "got"))
	b.set("/sitemap.xml", `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>`+b.URL+`/stays</loc></url></urlset>`)
	source := &discovery.Source{Sitemap: b.URL + "/sitemap.xml"}
	left, err := New(b.home, source, b.Directory, Options{HTTP: b.Client()}).Run(t.Context(), true)
	if err != nil || left.Resources != 0 {
		t.Errorf("%+v, %v", left, err)
	}
	b.has("stays", "here")
	if _, err := os.Stat(filepath.Join(b.dir, "gone")); err == nil {
		t.Error("what is gone is still there")
	}
}

// A file that is there although the ledger does not know of it is removed with its resource.
func TestKilledBeforeCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.kill("d/a")
	b.kill("d/A") // its path depends on that of the first
	b.has("d/%~41%~case", "whole")
	b.apply(b.entry("/d/A", "newer"), b.entry("/d/a", "newer")) // nobody has that
	if left := b.retry(); left.Resources != 2 {
		t.Errorf("%+v is left", left)
	}
	b.set("/d/A", "newer")
	b.retry()
	b.has("d/%~41%~case", "newer")
	b.apply(b.entry("/d/a", ""), b.entry("/d/A", ""))
	b.has("d/a", "")
	b.has("d/%~41%~case", "")
	if _, err := os.Stat(filepath.Join(b.dir, "d")); err == nil {
		t.Error("the directory is still there")
	}
}

// Nothing leaves the directory, and what is in the way of a file is a failure of that file.
func TestObstacles(t *testing.T) {
	b := newBench(t)
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(b.dir, "out")); err != nil {
		t.Skip(err)
	}
	if err := os.MkdirAll(filepath.Join(b.dir, "dir", "full"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "file"), []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	var entries []feed.Entry
	for _, name := range []string{"/out/a", "/dir", "/file/a", "/fine"} {
		b.set(name, "text")
		entries = append(entries, b.entry(name, "text"))
	}
	b.apply(entries...)
	b.has("fine", "text")
	if left := b.retry(); left.Resources != 3 {
		t.Errorf("%+v is left", left)
	}
	if files, err := os.ReadDir(outside); err != nil || len(files) > 0 {
		t.Errorf("files outside: %v, %v", files, err)
	}
	for i := range entries { // they are gone at the source, and what was in their way is not theirs
		entries[i].Position++
		entries[i].Change.Change = resourcesync.Deleted
	}
	b.apply(entries...)
	for _, name := range []string{"out", "dir/full", "file"} {
		if _, err := os.Lstat(filepath.Join(b.dir, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis"), []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	if h, err := OpenHome(dir, false); !errors.Is(err, ErrForeign) {
		t.Errorf("OpenHome = %v, %v", h, err)
	}
	if h, err := ReopenHome(dir); !errors.Is(err, ErrNoMirror) {
		t.Errorf("ReopenHome = %v, %v", h, err)
	}
	h, err := OpenHome(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.Settle(Settings{URL: "a"}); err != nil {
		t.Error(err)
	}
	if err := h.Settle(Settings{URL: "b"}); err == nil {
		t.Error("a mirror became one of another source")
	}
}

func TestMaxDelete(t *testing.T) {
	b := newBench(t)
	var entries, gone []feed.Entry
	for i := range 200 {
		name := fmt.Sprintf("/%d", i)
		b.set(name, "x")
		entries = append(entries, b.entry(name, "x"))
		gone = append(gone, b.entry(name, ""))
	}
	b.apply(entries...)
	b.apply(gone[:15]...)
	b.apply(gone[:20]...) // those that are gone already do not count
	many, ok := errors.AsType[*reconcile.TooMany](b.Apply(t.Context(), gone[20:21]))
	if !ok || many.Before != 20 || many.Deleted != 1 || many.Held != 200 {
		t.Errorf("one more than a tenth: %+v", many)
	}
	b.has("20", "x")
	b.reopen(DirectoryOptions{}) // another run is no way around it
	if _, ok := errors.AsType[*reconcile.TooMany](b.Apply(t.Context(), gone[20:21])); !ok {
		t.Error("a new run deletes what the old one did not")
	}
	all, err := reconcile.ParseBound("all")
	if err != nil {
		t.Fatal(err)
	}
	b.reopen(DirectoryOptions{MaxDelete: all})
	b.apply(gone[:100]...)
	b.reopen(DirectoryOptions{})
	b.apply(gone[100:110]...) // what was allowed does not count any more
	most, err := reconcile.ParseBound("25")
	if err != nil {
		t.Fatal(err)
	}
	b.reopen(DirectoryOptions{MaxDelete: most}) // but a bound that is given counts all
	if err := b.Apply(t.Context(), gone[110:130]); err == nil {
		t.Error("more than the bound is deleted by another run")
	}
	if n := b.home.Ledger.Counts().Files; n != 90 {
		t.Errorf("%d files are left", n)
	}
}

// Files that the ledger does not know count like all others: with -adopt they may be a user's.
func TestMaxDeleteWithoutRecords(t *testing.T) {
	b := newBench(t)
	var entries, gone []feed.Entry
	for i := range 11 {
		name := fmt.Sprintf("%d", i)
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte("a user's"), 0o666); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, b.entry("/"+name, "cannot be fetched"))
		gone = append(gone, b.entry("/"+name, ""))
	}
	b.apply(entries...)
	if _, ok := errors.AsType[*reconcile.TooMany](b.Apply(t.Context(), gone)); !ok {
		t.Error("more than ten files are deleted")
	}
	b.has("0", "a user's")
}

// Apply and Retry at once, about the same resources, end with the newest.
func TestTogether(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() {
		for ctx.Err() == nil {
			if _, err := b.Retry(ctx, true); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	for i := range 30 {
		var entries []feed.Entry
		for j := range 10 {
			text := fmt.Sprint(i, j)
			if (i+j)%3 > 0 { // else it fails, and is retried while it is changed again
				b.set(fmt.Sprintf("/%d", j), text)
			}
			entries = append(entries, b.entry(fmt.Sprintf("/%d", j), text))
		}
		b.apply(entries...)
	}
	cancel()
	wg.Wait()
	for j := range 10 {
		b.set(fmt.Sprintf("/%d", j), fmt.Sprint(29, j))
	}
	if left := b.retry(); left.Resources != 0 {
		t.Errorf("%+v is left", left)
	}
	for j := range 10 {
		b.has(fmt.Sprint(j), fmt.Sprint(29, j))
	}
}

// As many files as are made durable together come into their places, and nothing is left.
func TestCommitOfMany(t *testing.T) {
	b := newBench(t)
	const n = 3 * many
	name := func(i int) string { return fmt.Sprintf("/d%d/%d", i%(many+5), i) }
	for _, text := range []string{"old", "new"} {
		var all []feed.Entry
		for i := range n {
			b.set(name(i), text)
			all = append(all, b.entry(name(i), text))
		}
		b.apply(all...)
	}
	for i := range n {
		if got, err := os.ReadFile(filepath.Join(b.dir, name(i))); err != nil || string(got) != "new" {
			t.Errorf("%s has %q, %v", name(i), got, err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(b.dir, filepath.FromSlash(partsDir))); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	if c := b.home.Ledger.Counts(); c.Files != n || c.Failures != 0 {
		t.Errorf("%+v", c)
	}
}

// What came before an Apply is interrupted is whole, or it is not there at all.
func TestInterruptedApply(t *testing.T) {
	b := newBench(t)
	const n = 3 * many
	var all []feed.Entry
	for i := range n {
		name := fmt.Sprint("/", i)
		b.set(name, "text")
		all = append(all, b.entry(name, "text"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	o := DirectoryOptions{}
	o.Fetch.Client = b.Client()
	o.Fetch.Client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/20" {
			cancel()
		}
		return http.DefaultTransport.RoundTrip(r)
	})
	b.reopen(o)
	if err := b.Apply(ctx, all); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	whole := int64(0)
	for i := range n {
		got, err := os.ReadFile(filepath.Join(b.dir, fmt.Sprint(i)))
		if err == nil && string(got) == "text" {
			whole++
		} else if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%d has %q, %v", i, got, err)
		}
	}
	if c := b.home.Ledger.Counts(); c.Files != whole || whole == n {
		t.Errorf("%d files are there, and the ledger has %d", whole, c.Files)
	}
	b.reopen(DirectoryOptions{})
	b.apply(all...)
	if c := b.home.Ledger.Counts(); c.Files != n {
		t.Errorf("%d files are there in the end", c.Files)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestMixed(t *testing.T) {
	var entries []feed.Entry
	for _, loc := range []string{"http://a/1", "http://a/2", "http://a/3", "http://b/1", "http://c/1", "http://b/2"} {
		entries = append(entries, feed.Entry{Change: resourcesync.Change{Loc: loc}})
	}
	var got []string
	for _, e := range mixed(entries) {
		got = append(got, e.Change.Loc[7:])
	}
	if want := []string{"a/1", "b/1", "c/1", "a/2", "b/2", "a/3"}; !slices.Equal(got, want) {
		t.Errorf("mixed: %v", got)
	}
}

func TestCommand(t *testing.T) {
	dir := t.TempDir()
	entries := []feed.Entry{{Cursor: feed.Cursor{Position: 7, Micros: 1}, Change: resourcesync.Change{Loc: "https://h/a", Change: resourcesync.Created, Datetime: time.Unix(0, 0).UTC()}}}
	failed := 0
	c := &Command{Name: "/bin/sh", Args: []string{"-c", "cat >>" + dir + "/all; test -e " + dir + "/fine"}, Pause: time.Millisecond, Note: func(error, time.Duration) {
		if failed++; failed == 2 {
			if err := os.WriteFile(dir+"/fine", nil, 0o666); err != nil {
				t.Error(err)
			}
		}
	}}
	if err := c.Apply(t.Context(), entries); err != nil || failed != 2 {
		t.Errorf("Apply = %v after %d failures", err, failed)
	}
	line := `{"position":7,"datetime":"1970-01-01T00:00:00.000001Z","sourceDatetime":"1970-01-01T00:00:00Z","loc":"https://h/a","change":"created"}` + "\n"
	if got, err := os.ReadFile(dir + "/all"); err != nil || string(got) != strings.Repeat(line, 3) {
		t.Errorf("the command got %s, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c = &Command{Name: "/bin/sh", Args: []string{"-c", "exit 1"}, Note: func(error, time.Duration) { cancel() }}
	if err := c.Apply(ctx, entries); !errors.Is(err, context.Canceled) {
		t.Errorf("Apply = %v", err)
	}
	c = &Command{Name: filepath.Join(dir, "none"), Tries: 1}
	if err := c.Apply(t.Context(), entries); err == nil {
		t.Error("a command that is not there succeeded")
	}
}

// A change that names a patch is made of the file that is there, if the hash says that the result
// is right. Otherwise the whole content is fetched.
func TestPatches(t *testing.T) {
	const before, after = `{"title":"one","year":2025}`, `{"title":"two","year":2025}`
	good := `{"title":"two"}`
	for name, test := range map[string]struct {
		kind, patch string
		there       bool // the file is as it was
		hash        bool
		whole       int // how often the whole content is asked for
	}{
		"merge patch":       {"application/merge-patch+json", good, true, true, 0},
		"JSON Patch":        {"application/json-patch+json", `[{"op":"replace","path":"/title","value":"two"}]`, true, true, 0},
		"another result":    {"application/merge-patch+json", `{"title":"three"}`, true, true, 1},
		"no patch":          {"application/merge-patch+json", `nonsense`, true, true, 1},
		"not there":         {"application/merge-patch+json", "", true, true, 1},
		"another kind":      {"application/x-diff", good, true, true, 1},
		"no hash":           {"application/merge-patch+json", good, true, false, 1},
		"the file is other": {"application/merge-patch+json", good, false, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.set("/a", before)
			b.apply(b.entry("/a", before))
			if !test.there {
				if err := os.WriteFile(filepath.Join(b.dir, "a"), []byte("{}"), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			b.requests("/a")
			b.set("/a", after)
			if test.patch != "" {
				b.set("/patch", test.patch)
			}
			e := b.entry("/a", after)
			e.Change.Links = []resourcesync.Link{{Rel: resourcesync.RelPatch, Href: b.URL + "/patch", Type: test.kind}}
			if !test.hash {
				e.Change.Hash = ""
			}
			b.apply(e)
			b.has("a", after)
			if n := b.requests("/a"); n != test.whole {
				t.Errorf("the whole content was asked for %d times, and not %d", n, test.whole)
			}
			left, err := os.ReadDir(filepath.Join(b.dir, filepath.FromSlash(partsDir)))
			if err != nil || len(left) > 0 {
				t.Errorf("%v is left, %v", left, err)
			}
		})
	}
}
