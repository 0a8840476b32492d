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

// A cache on the way may be late: what is wanted is no older than the change.
func TestLateCache(t *testing.T) {
	b := newBench(t)
	b.set("/a", "one")
	var asked atomic.Value
	b.answers(func(w http.ResponseWriter, r *http.Request) {
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
			t.Errorf("a change of %v, lastmod %v, is asked for with Cache-Control %q, not %s", test.published, test.lastmod, got, test.want)
		}
	}
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
	b.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	again := func() { b.apply(b.entry("/a", "two")) }
	for try, about := range []time.Duration{10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600} {
		before := time.Now()
		again()
		after := time.Now()
		again = func() { b.retry() }
		f, ok, err := b.home.Ledger.Failure(b.URL + "/a")
		if err != nil || !ok || f.Tries != try+1 || f.Next.Sub(before) < about*time.Second*4/5 || f.Next.Sub(after) > about*time.Second*6/5 {
			t.Errorf("try %d began at %v, and is followed by %+v, %v", try+1, before, f, err)
		}
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
	o, err := b.updateFile(t.Context(), b.entry("/a", "one"), 0, false, nil)
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
	if err := os.WriteFile(filepath.Join(b.dir, home.Parts, "left"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	b.reopen(DirectoryOptions{})
	if files, err := os.ReadDir(filepath.Join(b.dir, home.Parts)); err != nil || len(files) > 0 {
		t.Errorf("temporary files are left: %v, %v", files, err)
	}
}

// kill ends the process when a file is in its place, and the ledger does not know that.
func (b *bench) kill(name string) {
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
	many, ok := errors.AsType[*reconcile.TooManyDeletions](b.Apply(t.Context(), gone[20:21]))
	if !ok || many.Before != 20 || many.Deleted != 1 || many.Held != 200 {
		t.Errorf("one more than a tenth: %+v", many)
	}
	b.has("20", "x")
	b.reopen(DirectoryOptions{}) // another run is no way around it
	if _, ok := errors.AsType[*reconcile.TooManyDeletions](b.Apply(t.Context(), gone[20:21])); !ok {
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
	if _, ok := errors.AsType[*reconcile.TooManyDeletions](b.Apply(t.Context(), gone)); !ok {
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

// What Retry does with a resource, which may take hours, does not hold up later changes of it.
func TestApplyDuringRetry(t *testing.T) {
	b := newBench(t)
	b.apply(b.entry("/a", "one"), b.entry("/b", "one"), b.entry("/c", "c")) // none is there yet
	slow := make(chan struct{}, 2)
	b.answers(func(w http.ResponseWriter, r *http.Request) {
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
	b.answers(b.serve)
	b.set("/a", "two")
	b.set("/c", "c")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // Stall ends a silent server after 30 s
	defer cancel()
	if err := b.Apply(ctx, []feed.Entry{b.entry("/a", "two"), b.entry("/b", "")}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	b.has("a", "two")
	b.has("b", "")
}

// What failed while the clock was ahead is not left alone until that time comes.
func TestRetryAfterAWrongClock(t *testing.T) {
	b := newBench(t)
	b.set("/a", "one")
	e := b.entry("/a", "one")
	var batch ledger.Batch
	at := time.Now().Add(9 * 365 * 24 * time.Hour)
	batch.PutFailure(ledger.Failure{Loc: e.Change.Loc, Entry: e, Since: at, Next: at.Add(time.Minute), Tries: 1})
	if err := b.home.Ledger.Commit(&batch); err != nil {
		t.Fatal(err)
	}
	if left, err := b.Retry(t.Context(), false); err != nil || left.Resources != 0 {
		t.Errorf("%+v is left, %v", left, err)
	}
	b.has("a", "one")
}
