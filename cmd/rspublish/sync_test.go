package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/internal/testutil/localhub"
)

func TestParseSync(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "list")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args string
		want string // substring of the error; empty if there is no error
	}{
		{"sync -set a -base https://e.org/ " + dir, ""},
		{"watch -set a -base https://e.org/ " + dir, ""},
		{"sync -set a -max-delete 5% -", ""},
		{"sync -set a -prefix https://e.org/ " + file, ""},
		{"sync -set a https://e.org/sitemap.xml", ""},
		{"sync -set a", "missing source"},
		{"watch -set a", "missing directory"},
		{"sync -set a " + dir, "missing -base URL"},
		{"watch -set a " + dir, "missing -base URL"},
		{"watch -set a https://e.org/sitemap.xml", "not a directory"},
		{"watch -set a -", "not a directory"},
		{"sync - ", "missing set"},
		{"sync -set A -", "set"},
		{"sync -set a -max-delete many -", "-max-delete"},
		{"sync -set a - -dry-run", "flag -dry-run must be before -"},
		{"sync -set a " + file + " " + file, "got several sources"},
		{"sync -set a -exclude *.x " + file, "require a directory"},
		{"sync -set a -every 1h " + file, "every"},
		{"watch -set a -dry-run -base https://e.org/ " + dir, "dry-run"},
		{"watch -set a -every 0 -base https://e.org/ " + dir, "-every"},
		{"sync -set a -base e.org " + dir, "-base: invalid base URL \"e.org\": want one like https://"},
		{"watch -set a -settle 5 -base https://e.org/ " + dir, "-settle \"5\": want a duration"},
		{"sync -set a -settle -1s -base https://e.org/ " + dir, "negative"},
	} {
		t.Run(strings.ReplaceAll(test.args, dir, "dir"), func(t *testing.T) {
			args := strings.Fields(test.args)
			_, err := parseSync(args[0] == "watch", args[1:], func(string) string { return "" })
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("parseSync(%q) = %v, want %q", args, err, test.want)
			}
		})
	}
}

// TestStateInsideDirectoryIsRefused checks that the state cannot be in the synced directory, where
// it would be published.
func TestStateInsideDirectoryIsRefused(t *testing.T) {
	b := newTestEnv(t)
	dir := t.TempDir()
	b.runArgs(exitUsage, "sync", "-hub", b.hub.URL, "-set", "peps", "-base", "https://e.org/", "-state", filepath.Join(dir, "state"), dir)
	b.checkStderr("-state")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	b.runArgs(exitUsage, "sync", "-hub", b.hub.URL, "-set", "peps", "-base", "https://e.org/", "-state", filepath.Join(dir, "state"), link)
	if len(b.hub.requests) > 0 {
		t.Errorf("hub received %d requests, want 0", len(b.hub.requests))
	}
}

// TestStateKeepsOtherFiles checks that the directory of the state may have files of other
// programs, such as a home directory, and that they are not removed.
func TestStateKeepsOtherFiles(t *testing.T) {
	hub, b := localhub.Start(t).URL, newTestEnv(t)
	b.write("a", "a")
	state := t.TempDir()
	book := filepath.Join(state, "pages-of-a-book")
	if err := os.Mkdir(book, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b.runArgs(0, "sync", "-hub", hub, "-set", "peps", "-base", "https://e.org/", "-settle", "0", "-state", state, b.dir)
	}
	if _, err := os.Stat(book); err != nil {
		t.Error(err)
	}
}

// TestDryRunWriteError checks that a dry run fails if its changes cannot be written. Otherwise a
// script would miss some of them.
func TestDryRunWriteError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	hub, b := localhub.Start(t).URL, newTestEnv(t)
	var stderr strings.Builder
	p := &program{env: func(string) string { return "" }, stdin: strings.NewReader(`{"loc":"https://e.org/a"}`), stdout: full, stderr: &stderr,
		cacheDir: func() (string, error) { return b.cache, nil }, now: b.clock.now, sleep: b.clock.sleep}
	if code := p.run(t.Context(), []string{"sync", "-hub", hub, "-set", "peps", "-dry-run", "-"}); code != exitInput {
		t.Errorf("exit code = %d, want %d: %s", code, exitInput, stderr.String())
	}
}

// TestMaxDeleteCountsWholeDay checks that -max-delete bounds the deletions of all runs within a
// day.
func TestMaxDeleteCountsWholeDay(t *testing.T) {
	hub, b := localhub.Start(t).URL, newTestEnv(t)
	sync := func(code, have int, args ...string) {
		t.Helper()
		var list strings.Builder
		for i := range have {
			fmt.Fprintf(&list, `{"loc":"https://e.org/%d"}`+"\n", i)
		}
		b.stdin = strings.NewReader(list.String())
		b.runArgs(code, append(append([]string{"sync", "-hub", hub, "-set", "peps"}, args...), "-")...)
	}
	sync(0, 200)
	sync(0, 185)
	sync(exitTooManyDeletions, 175)
	b.checkStderr("10 more of the 200 known resources", "after 15 within a day", "-max-delete 25")
	sync(exitTooManyDeletions, 170, "-dry-run", "-max-delete", "10")
	sync(0, 175, "-max-delete", "25")
	sync(0, 160) // allowed deletions no longer count
	if b.clock.t = b.clock.t.Add(25 * time.Hour); b.stderr != "" {
		t.Errorf("stderr = %s, want none", b.stderr)
	}
	sync(0, 145)
}

// TestSyncLists syncs lists from standard input, a file, a sitemap and a site. An invalid list
// deletes nothing, regardless of -max-delete.
func TestSyncLists(t *testing.T) {
	hub, b := localhub.Start(t).URL, newTestEnv(t)
	var docs sync.Map // by path
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if doc, ok := docs.Load(r.URL.Path); ok {
			fmt.Fprint(w, doc)
		} else {
			http.NotFound(w, r)
		}
	}))
	defer web.Close()
	sitemap := func(names ...string) string {
		var list strings.Builder
		for _, n := range names {
			fmt.Fprintf(&list, "<url><loc>https://e.org/%s</loc></url>", n)
		}
		return `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">` + list.String() + "</urlset>"
	}
	run := func(code int, want, stdin string, args ...string) {
		t.Helper()
		b.stdin = strings.NewReader(stdin)
		b.runArgs(code, append([]string{"sync", "-hub", hub, "-set", "peps", "-json"}, args...)...)
		if !strings.Contains(b.stdout+b.stderr, want) {
			t.Errorf("output of %q = %s%s, want %s", args, b.stdout, b.stderr, want)
		}
	}
	list := `{"loc":"https://e.org/1","length":1}` + "\n" + `{"loc":"https://e.org/2","length":2}` + "\n"
	run(0, `"created":2,"updated":0,"deleted":0,`, list, "-")
	run(0, `"created":0,"updated":1,"deleted":0,`, "", b.write("list", strings.Replace(list, `"length":2`, `"length":3`, 1)))
	run(exitTooManyDeletions, "lists no resources", "", "-")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprint(z, list[:len(list)/2])
	if err := z.Flush(); err != nil { // the gzip trailer is missing
		t.Fatal(err)
	}
	docs.Store("/cut.xml", strings.TrimSuffix(sitemap("1"), "</urlset>"))
	docs.Store("/page.xml", "<html>under construction</html>")
	for _, broken := range [][2]string{{`{"loc":"https://e.org/1"}` + "\n{", "-"}, {packed.String(), "-"}, {"", web.URL + "/cut.xml"}, {"", web.URL + "/page.xml"}} {
		run(exitInput, "", broken[0], "-max-delete", "all", broken[1])
	}
	run(0, `"created":0,"updated":0,"deleted":0,`, strings.Replace(list, `"length":2`, `"length":3`, 1), "-")

	docs.Store("/list.xml", sitemap("1", "3", "3"))
	run(0, `"created":1,"updated":0,"deleted":1,`, "", web.URL+"/list.xml")
	docs.Store("/", "<html>hello")
	run(exitInput, "no sitemap in robots.txt", "", web.URL)
	docs.Store("/robots.txt", "User-agent: *\nDisallow: /private\nSitemap: "+web.URL+"/list.xml\nSitemap: /more.xml\n")
	docs.Store("/more.xml", sitemap("3", "4"))
	run(0, `"created":1,"updated":0,"deleted":0,`, "", web.URL+"/")
	docs.Delete("/robots.txt") // the sitemap moved
	docs.Store("/sitemap.xml", sitemap("1", "3", "4", "5"))
	run(0, `"created":1,"updated":0,"deleted":0,`, "", web.URL+"/")
}

// TestStateIsLocked checks that two runs cannot use the state of a source at the same time.
func TestStateIsLocked(t *testing.T) {
	hub, b := localhub.Start(t).URL, newTestEnv(t)
	b.write("a", "a")
	list := b.write("list", `{"loc":"https://e.org/1"}`+"\n")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>https://e.org/1</loc></url></urlset>`)
	}))
	defer web.Close()
	for _, tt := range []struct {
		name, source string
		flags        []string
	}{
		{"directory", b.dir, []string{"-base", "https://e.org/", "-settle", "0"}},
		{"file", list, nil},
		{"URL", web.URL + "/list.xml", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append(append([]string{"sync", "-hub", hub, "-set", "of-" + strings.ToLower(tt.name)}, tt.flags...), tt.source)
			b.runArgs(0, args...)
			locks, err := filepath.Glob(filepath.Join(b.cache, "rspublish", "sync-*", "lock"))
			if err != nil || len(locks) == 0 {
				t.Fatalf("locks = %v, %v, want one", locks, err)
			}
			for _, path := range locks {
				release, err := lockState(path)
				if err != nil {
					t.Fatal(err)
				}
				defer release()
			}
			b.runArgs(exitInput, args...)
			b.checkStderr("another rspublish is using the state")
		})
	}
}

// TestSyncListWithoutState checks that a list can be synced without a writable state, unless
// resources must be deleted.
func TestSyncListWithoutState(t *testing.T) {
	hub, b := localhub.Start(t).URL, newTestEnv(t)
	b.cache = filepath.Join(t.TempDir(), "cache")
	if err := os.Symlink(b.cache+"-none", b.cache); err != nil { // no directory can be created there
		t.Fatal(err)
	}
	run := func(code int, list string) {
		t.Helper()
		b.stdin = strings.NewReader(list)
		b.runArgs(code, "sync", "-hub", hub, "-set", "peps", "-")
	}
	run(0, `{"loc":"https://e.org/1"}`+"\n"+`{"loc":"https://e.org/2"}`+"\n")
	b.checkStderr("warning: deletions within a day cannot be counted")
	run(exitInput, `{"loc":"https://e.org/1"}`+"\n")
	run(exitInput, "\n<urlset/>")
	b.checkStderr("to sync a list in XML, such as a sitemap, use its URL")
	b.stdin = strings.NewReader(`{"loc":"https://e.org/1"}` + "\n" + `{"loc":"https://e.org/2"}` + "\n")
	b.runArgs(0, "sync", "-json", "-hub", hub, "-set", "peps", "-")
	if !strings.Contains(b.stdout, `"created":0`) {
		t.Errorf("sync of the first list = %s, want no changes, because nothing was deleted", b.stdout)
	}
}

// TestStoreConcurrently checks that several processes can store a file at the same time, as on a
// file system without locks.
func TestStoreConcurrently(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deletions.json")
	tolls := []reconcile.Deletions{{Held: 123456, Deleted: 1234, Allowed: true}, {Held: 1, Deleted: 1}}
	for range 300 {
		var wg sync.WaitGroup
		for i := range tolls {
			wg.Go(func() {
				if err := storeJSON(path, &tolls[i]); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got reconcile.Deletions
		if err := json.Unmarshal(b, &got); err != nil || got != tolls[0] && got != tolls[1] {
			t.Fatalf("file = %q, %v, want one of the stored values", b, err)
		}
	}
}
