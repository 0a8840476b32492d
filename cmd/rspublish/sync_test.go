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
		want string // a part of the error; empty: there is none
	}{
		{"sync -set a -base https://e.org/ " + dir, ""},
		{"watch -set a -base https://e.org/ " + dir, ""},
		{"sync -set a -max-delete 5% -", ""},
		{"sync -set a -prefix https://e.org/ " + file, ""},
		{"sync -set a https://e.org/sitemap.xml", ""},
		{"sync -set a", "what is there to sync"},
		{"watch -set a", "which directory"},
		{"sync -set a " + dir, "-base URL is missing"},
		{"watch -set a " + dir, "-base URL is missing"},
		{"watch -set a https://e.org/sitemap.xml", "not a directory"},
		{"watch -set a -", "not a directory"},
		{"sync - ", "which set"},
		{"sync -set A -", "set"},
		{"sync -set a -max-delete many -", "-max-delete"},
		{"sync -set a - -dry-run", "write flags before"},
		{"sync -set a " + file + " " + file, "one source at a time"},
		{"sync -set a -exclude *.x " + file, "for directories"},
		{"sync -set a -every 1h " + file, "every"},
		{"watch -set a -dry-run -base https://e.org/ " + dir, "dry-run"},
		{"watch -set a -every 0 -base https://e.org/ " + dir, "-every"},
		{"sync -set a -base e.org " + dir, "-base: the base of the directory's URLs is one like https://"},
		{"watch -set a -settle 5 -base https://e.org/ " + dir, "-settle \"5\": a duration"},
		{"sync -set a -settle -1s -base https://e.org/ " + dir, "negative"},
	} {
		args := strings.Fields(test.args)
		_, err := parseSync(args[0] == "watch", args[1:], func(string) string { return "" })
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%q: %v, not %q", args, err, test.want)
		}
	}
}

// A state inside of the directory would be published with it.
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
		t.Error("the hub was asked")
	}
}

// The directory of the state may be one that has files of others, such as a home. They stay,
// whatever their names are.
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

// A dry run whose changes cannot be written has failed: else the file of a script lacks some
// of them, and nobody knows.
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
		t.Errorf("the exit code is %d: %s", code, stderr.String())
	}
}

// The bound on deletions is for all runs of a day together.
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
	sync(0, 160) // what somebody has allowed does not count any more
	if b.clock.t = b.clock.t.Add(25 * time.Hour); b.stderr != "" {
		t.Errorf("it says %s", b.stderr)
	}
	sync(0, 145)
}

// What is synced may be standard input, a file, a sitemap, or a site of which only the address is
// known. A list that is broken deletes nothing, whatever may be deleted.
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
	run := func(code int, says, stdin string, args ...string) {
		t.Helper()
		b.stdin = strings.NewReader(stdin)
		b.runArgs(code, append([]string{"sync", "-hub", hub, "-set", "peps", "-json"}, args...)...)
		if !strings.Contains(b.stdout+b.stderr, says) {
			t.Errorf("%q says %s%s, not %s", args, b.stdout, b.stderr, says)
		}
	}
	list := `{"loc":"https://e.org/1","length":1}` + "\n" + `{"loc":"https://e.org/2","length":2}` + "\n"
	run(0, `"created":2,"updated":0,"deleted":0,`, list, "-")
	run(0, `"created":0,"updated":1,"deleted":0,`, "", b.write("list", strings.Replace(list, `"length":2`, `"length":3`, 1)))
	run(exitTooManyDeletions, "no resource at all", "", "-")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprint(z, list[:len(list)/2])
	if err := z.Flush(); err != nil { // its end is missing
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
	run(exitInput, "nor a sitemap", "", web.URL)
	docs.Store("/robots.txt", "User-agent: *\nDisallow: /private\nSitemap: "+web.URL+"/list.xml\nSitemap: /more.xml\n")
	docs.Store("/more.xml", sitemap("3", "4"))
	run(0, `"created":1,"updated":0,"deleted":0,`, "", web.URL+"/")
	docs.Delete("/robots.txt") // the sitemaps move
	docs.Store("/sitemap.xml", sitemap("1", "3", "4", "5"))
	run(0, `"created":1,"updated":0,"deleted":0,`, "", web.URL+"/")
}

// Only one run at a time uses the state of a source, whatever kind of source it is.
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
				t.Fatalf("locks are %v, %v; want one", locks, err)
			}
			for _, path := range locks {
				release, err := lockState(path)
				if err != nil {
					t.Fatal(err)
				}
				defer release()
			}
			b.runArgs(exitInput, args...)
			b.checkStderr("another rspublish uses the state")
		})
	}
}

// A list is synced where no state can be written, until something is to be deleted.
func TestSyncListWithoutState(t *testing.T) {
	hub, b := localhub.Start(t).URL, newTestEnv(t)
	b.cache = filepath.Join(t.TempDir(), "cache")
	if err := os.Symlink(b.cache+"-none", b.cache); err != nil { // no directory can be made there
		t.Fatal(err)
	}
	run := func(code int, list string) {
		t.Helper()
		b.stdin = strings.NewReader(list)
		b.runArgs(code, "sync", "-hub", hub, "-set", "peps", "-")
	}
	run(0, `{"loc":"https://e.org/1"}`+"\n"+`{"loc":"https://e.org/2"}`+"\n")
	b.checkStderr("warning: deletions cannot be counted")
	run(exitInput, `{"loc":"https://e.org/1"}`+"\n")
	run(exitInput, "\n<urlset/>")
	b.checkStderr("it is XML; a list in XML, such as a sitemap, is read from a URL")
	b.stdin = strings.NewReader(`{"loc":"https://e.org/1"}` + "\n" + `{"loc":"https://e.org/2"}` + "\n")
	b.runArgs(0, "sync", "-json", "-hub", hub, "-set", "peps", "-")
	if !strings.Contains(b.stdout, `"created":0`) {
		t.Errorf("sync of the first list says %s; want that nothing was deleted before", b.stdout)
	}
}

// Several processes may store one file at once, such as on a file system without locks.
func TestStoreConcurrently(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deletions.json")
	tolls := []reconcile.Toll{{Held: 123456, Deleted: 1234, Allowed: true}, {Held: 1, Deleted: 1}}
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
		var got reconcile.Toll
		if err := json.Unmarshal(b, &got); err != nil || got != tolls[0] && got != tolls[1] {
			t.Fatalf("the file is %q, %v; want one of the two", b, err)
		}
	}
}
