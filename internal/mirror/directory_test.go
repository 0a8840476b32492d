package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/mirror/ledger"
	"github.com/rshub/rshub/internal/source/discovery"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/resourcesync"
)

func TestApply(t *testing.T) {
	b := newFixture(t)
	b.set("/a", "one")
	first := b.entry("/a", "one")
	b.apply(b.entry("/a", "zero"), first) // only the newest is fetched
	b.wantFile("a", "one")
	if n := b.requestCount("/a"); n != 1 {
		t.Errorf("got %d requests, want 1", n)
	}
	b.apply(first, b.entry("/a", "one")) // again, and with a later change to the same content
	b.reopen(DirectoryOptions{})
	b.apply(first)
	if n := b.requestCount("/a"); n != 0 {
		t.Errorf("got %d requests for a current file, want 0", n)
	}
	b.set("/a", "two")
	b.apply(b.entry("/a", "two"))
	b.wantFile("a", "two")
	b.apply(b.entry("/a", ""), b.entry("/never", ""))
	b.wantFile("a", "")
	if n := b.home.Ledger.Counts(); n.Files != 0 || n.Failures != 0 {
		t.Errorf("Counts() = %+v, want no files and no failures", n)
	}
}

// A content without a hash is requested with the validators of its server.
func TestApplyWithoutHash(t *testing.T) {
	b := newFixture(t)
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
	if err != nil || b.requestCount("/a") != 2 || after.Mtime != before.Mtime || after.Entry.Position == before.Entry.Position {
		t.Errorf("File() before and after = %+v, %+v, %v, want the same Mtime and a new position", before, after, err)
	}
	b.set("/a", "two")
	b.apply(e())
	b.wantFile("a", "two")
	b.handle(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") != "" { // a stale cache
			w.WriteHeader(http.StatusNotModified)
			return
		}
		b.serve(w, r)
	})
	b.set("/a", "three")
	longer, n := e(), int64(len("three"))
	longer.Change.Length = &n
	b.apply(longer)
	b.wantFile("a", "three")
}

// Caches may be stale: a request accepts only copies that are younger than the change.
func TestApplyCacheControl(t *testing.T) {
	b := newFixture(t)
	b.set("/a", "one")
	var asked atomic.Value
	b.handle(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Header.Get("Cache-Control"))
		b.serve(w, r)
	})
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	for _, test := range []struct {
		published, lastmod time.Time
		want               string
	}{
		{time.Time{}, time.Time{}, "max-age=0"},
		{ago(0), ago(time.Hour), "max-age=0"},
		{ago(time.Hour), ago(0), "max-age=0"},
		{ago(48 * time.Hour), time.Time{}, "max-age=172"},
		{time.Time{}, ago(48 * time.Hour), "max-age=172"},
	} {
		e := b.entry("/a", "x")
		e.Change.Hash, e.Change.Lastmod, e.Micros = "", test.lastmod, 0
		if !test.published.IsZero() {
			e.Micros = test.published.UnixMicro()
		}
		b.apply(e)
		if got := asked.Load().(string); !strings.HasPrefix(got, test.want) {
			t.Errorf("Cache-Control for a change of %v, lastmod %v = %q, want %q", test.published, test.lastmod, got, test.want)
		}
	}
}

func TestFailures(t *testing.T) {
	b := newFixture(t)
	b.set("/a", "one")
	b.apply(b.entry("/a", "one"))
	b.apply(b.entry("/a", "two"), b.entry("/b", "b")) // neither exists yet
	b.wantFile("a", "one")
	b.reopen(DirectoryOptions{})
	left := b.retry()
	if left.Resources != 2 || left.Next.IsZero() {
		t.Errorf("backlog = %+v, want 2 resources", left)
	}
	f, _, err := b.home.Ledger.Failure(b.URL + "/b")
	if err != nil || f.Tries != 2 || !strings.Contains(f.Reason, "404") || f.Next.Sub(f.Since) < 10*time.Second {
		t.Errorf("Failure() = %+v, %v, want 2 tries, status 404 and a pause of at least 10 s", f, err)
	}
	b.requestCount("/a")
	if _, err := b.Retry(t.Context(), false); err != nil || b.requestCount("/a") != 0 {
		t.Errorf("Retry() requested a resource that is not due: %v", err)
	}
	b.set("/a", "two")
	if left := b.retry(); left.Resources != 1 {
		t.Errorf("backlog = %+v, want 1 resources", left)
	}
	b.wantFile("a", "two")
	b.apply(b.entry("/b", ""))
	if left := b.retry(); left.Resources != 0 {
		t.Errorf("backlog = %+v, want 0 resources", left)
	}
	b.apply(feed.Entry{Change: resourcesync.Change{Loc: "urn:isbn:1", Change: resourcesync.Created}})
	if f, ok, err := b.home.Ledger.Failure("urn:isbn:1"); err != nil || !ok || !strings.Contains(f.Reason, "want an http or https URL") {
		t.Errorf("Failure() of a URN = %+v, %v, want a reason about the scheme", f, err)
	}
}

// The pauses of a failing resource grow, and its old file stays.
func TestRetryPauses(t *testing.T) {
	b := newFixture(t)
	b.set("/a", "one")
	b.apply(b.entry("/a", "one"))
	b.handle(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	again := func() { b.apply(b.entry("/a", "two")) }
	for try, about := range []time.Duration{10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600} {
		before := time.Now()
		again()
		after := time.Now()
		again = func() { b.retry() }
		f, ok, err := b.home.Ledger.Failure(b.URL + "/a")
		if err != nil || !ok || f.Tries != try+1 || f.Next.Sub(before) < about*time.Second*4/5 || f.Next.Sub(after) > about*time.Second*6/5 {
			t.Errorf("Failure() after try %d at %v = %+v, %v, want a pause of about %v s", try+1, before, f, err, int64(about))
		}
	}
	b.wantFile("a", "one")
	b.handle(nil)
	b.set("/a", "two")
	if left := b.retry(); left.Resources != 0 {
		t.Errorf("backlog = %+v, want 0 resources", left)
	}
	b.wantFile("a", "two")
}

// A file in place whose record a crash lost is adopted without a request.
func TestAdoptFile(t *testing.T) {
	b := newFixture(t)
	b.set("/a", "one")
	if err := os.WriteFile(filepath.Join(b.dir, "a"), []byte("one"), 0o666); err != nil {
		t.Fatal(err)
	}
	o, err := b.updateFile(t.Context(), b.entry("/a", "one"), 0, false, nil)
	if err != nil || o.file == nil || !slices.Equal(o.dirs, []string{"."}) { // the name may not be durable yet
		t.Errorf("updateFile() = %+v, %v, want a file and the directory .", o, err)
	}
	b.apply(b.entry("/a", "one"))
	if n := b.requestCount("/a"); n != 0 {
		t.Errorf("got %d requests, want 0", n)
	}
	if f, ok, err := b.home.Ledger.File(b.URL + "/a"); !ok || err != nil || f.Size != 3 {
		t.Errorf("File() = %+v, %v, want a size of 3", f, err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, home.Parts, "left"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	b.reopen(DirectoryOptions{})
	if files, err := os.ReadDir(filepath.Join(b.dir, home.Parts)); err != nil || len(files) > 0 {
		t.Errorf("temporary files = %v, %v, want none", files, err)
	}
}

// crashAfterWrite writes a file as a process does that crashes before it commits to the ledger.
func (b *fixture) crashAfterWrite(name string) {
	b.t.Helper()
	if err := b.home.Ledger.AssignPaths(b.opts.Names, b.URL+"/"+name); err != nil {
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

// A file that was fetched before a crash is removed if the next list no longer names its
// resource.
func TestOrphansOfCrashBeforeListed(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.crashAfterWrite("gone/1")
	b.apply(b.entry("/gone/2", "absent"))
	b.set("/stays", "here")
	b.set("/gone/3", "got")
	b.apply(b.entry("/gone/3", "got"))
	b.set("/sitemap.xml", `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>`+b.URL+`/stays</loc></url></urlset>`)
	source := &discovery.Source{Sitemap: b.URL + "/sitemap.xml"}
	left, err := New(b.home, source, b.Directory, Options{HTTP: b.Client()}).Run(t.Context(), true)
	if err != nil || left.Resources != 0 {
		t.Errorf("Run() = %+v, %v, want an empty backlog", left, err)
	}
	b.wantFile("stays", "here")
	if _, err := os.Stat(filepath.Join(b.dir, "gone")); err == nil {
		t.Error("the directory of removed resources still exists")
	}
}

// A file without a record is updated and removed with its resource.
func TestOrphansOfCrashBeforeCommit(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.crashAfterWrite("d/a")
	b.crashAfterWrite("d/A") // its path depends on the first one
	b.wantFile("d/%~41%~case", "whole")
	b.apply(b.entry("/d/A", "newer"), b.entry("/d/a", "newer")) // no server has it yet
	if left := b.retry(); left.Resources != 2 {
		t.Errorf("backlog = %+v, want 2 resources", left)
	}
	b.set("/d/A", "newer")
	b.retry()
	b.wantFile("d/%~41%~case", "newer")
	b.apply(b.entry("/d/a", ""), b.entry("/d/A", ""))
	b.wantFile("d/a", "")
	b.wantFile("d/%~41%~case", "")
	if _, err := os.Stat(filepath.Join(b.dir, "d")); err == nil {
		t.Error("the directory still exists, want it removed with its last file")
	}
}

// No file leaves the directory, and a foreign file in the way fails only its own resource.
func TestApplyObstacles(t *testing.T) {
	b := newFixture(t)
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
	b.wantFile("fine", "text")
	if left := b.retry(); left.Resources != 3 {
		t.Errorf("backlog = %+v, want 3 resources", left)
	}
	if files, err := os.ReadDir(outside); err != nil || len(files) > 0 {
		t.Errorf("files outside of the mirror = %v, %v, want none", files, err)
	}
	for i := range entries { // deleted at the source; the obstacles are foreign and must stay
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

func TestMaxDelete(t *testing.T) {
	b := newFixture(t)
	var entries, gone []feed.Entry
	for i := range 200 {
		name := fmt.Sprintf("/%d", i)
		b.set(name, "x")
		entries = append(entries, b.entry(name, "x"))
		gone = append(gone, b.entry(name, ""))
	}
	b.apply(entries...)
	b.apply(gone[:15]...)
	b.apply(gone[:20]...) // deleted resources do not count again
	many, ok := errors.AsType[*reconcile.TooManyDeletions](b.Apply(t.Context(), gone[20:21]))
	if !ok || many.Before != 20 || many.Deleted != 1 || many.Held != 200 {
		t.Errorf("Apply() of one deletion more than a tenth = %+v, want TooManyDeletions with 20 before, 1 deleted, 200 held", many)
	}
	b.wantFile("20", "x")
	b.reopen(DirectoryOptions{}) // the limit survives a restart
	if _, ok := errors.AsType[*reconcile.TooManyDeletions](b.Apply(t.Context(), gone[20:21])); !ok {
		t.Error("Apply() after a restart exceeds the limit, want TooManyDeletions")
	}
	all, err := reconcile.ParseBound("all")
	if err != nil {
		t.Fatal(err)
	}
	b.reopen(DirectoryOptions{MaxDelete: all})
	b.apply(gone[:100]...)
	b.reopen(DirectoryOptions{})
	b.apply(gone[100:110]...) // deletions without a limit do not count
	most, err := reconcile.ParseBound("25")
	if err != nil {
		t.Fatal(err)
	}
	b.reopen(DirectoryOptions{MaxDelete: most}) // an explicit limit counts all
	if err := b.Apply(t.Context(), gone[110:130]); err == nil {
		t.Error("Apply() = nil, want an error about the limit")
	}
	if n := b.home.Ledger.Counts().Files; n != 90 {
		t.Errorf("Counts().Files = %d, want 90", n)
	}
}

// Files without a record count like all others: with -adopt they may belong to the user.
func TestMaxDeleteWithoutRecords(t *testing.T) {
	b := newFixture(t)
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
	if _, ok := errors.AsType[*reconcile.TooManyDeletions](b.Apply(t.Context(), gone)); !ok {
		t.Error("Apply() of 11 deletions = nil, want TooManyDeletions")
	}
	b.wantFile("0", "a user's")
}

// Apply and Retry of the same resources at the same time end with the newest versions.
func TestApplyAndRetryConcurrently(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
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
			if (i+j)%3 > 0 { // else it fails, and is retried while it changes again
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
		t.Errorf("backlog = %+v, want 0 resources", left)
	}
	for j := range 10 {
		b.wantFile(fmt.Sprint(j), fmt.Sprint(29, j))
	}
}

// A retry, which may take hours, does not delay later changes of the resource.
func TestApplyDuringRetry(t *testing.T) {
	b := newFixture(t)
	b.apply(b.entry("/a", "one"), b.entry("/b", "one"), b.entry("/c", "c")) // none exists yet
	slow := make(chan struct{}, 2)
	b.handle(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/c" {
			b.serve(w, r)
			return
		}
		_ = http.NewResponseController(w).Flush()
		slow <- struct{}{}
		<-r.Context().Done()
	})
	ended := make(chan error)
	go func() {
		_, err := b.Retry(t.Context(), true)
		ended <- err
	}()
	<-slow
	<-slow
	b.handle(b.serve)
	b.set("/a", "two")
	b.set("/c", "c")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // StallTimeout would end the request after 30 s
	defer cancel()
	if err := b.Apply(ctx, []feed.Entry{b.entry("/a", "two"), b.entry("/b", "")}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	b.wantFile("a", "two")
	b.wantFile("b", "")
}

// A failure recorded while the clock was ahead is retried without waiting for that time.
func TestRetryAfterClockSkew(t *testing.T) {
	b := newFixture(t)
	b.set("/a", "one")
	e := b.entry("/a", "one")
	var batch ledger.Batch
	at := time.Now().Add(9 * 365 * 24 * time.Hour)
	batch.PutFailure(ledger.Failure{Loc: e.Change.Loc, Entry: e, Since: at, Next: at.Add(time.Minute), Tries: 1})
	if err := b.home.Ledger.Commit(&batch); err != nil {
		t.Fatal(err)
	}
	if left, err := b.Retry(t.Context(), false); err != nil || left.Resources != 0 {
		t.Errorf("Retry() = %+v, %v, want an empty backlog", left, err)
	}
	b.wantFile("a", "one")
}
