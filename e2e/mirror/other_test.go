package mirror

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// document returns a document of ResourceSync.
func document(capability, times string, entries ...string) []byte {
	return []byte(`<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">` +
		`<rs:md capability="` + capability + `" ` + times + `/>` + strings.Join(entries, "") + `</urlset>`)
}

// TestSiteWithoutHub mirrors a plain site with a Resource List and a Change List.
func TestSiteWithoutHub(t *testing.T) {
	t.Parallel()
	contents, site, dir := newOrigin(t), newOrigin(t), t.TempDir()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(n int) string { return begin.Add(time.Duration(n) * time.Minute).Format(time.RFC3339) }
	entry := func(name, change string, n int) string {
		content := contents.files[name]
		md := ""
		if change != "" {
			md = fmt.Sprintf(` change="%s" datetime="%s"`, change, at(n))
		}
		if content != nil {
			md += fmt.Sprintf(` hash="sha-256:%s" length="%d"`, sum(content), len(content))
		}
		return fmt.Sprintf(`<url><loc>%s%s</loc><lastmod>2020-02-03T04:05:06Z</lastmod><rs:md%s/></url>`, contents.URL, name, md)
	}
	var listed []string
	for i := range 40 {
		name := fmt.Sprintf("/f%d", i)
		contents.set(name, fmt.Appendf(nil, "content %d", i), nil)
		listed = append(listed, entry(name, "", 0))
	}
	site.set("/.well-known/resourcesync", document("description", "", `<url><loc>`+site.URL+`/cap.xml</loc><rs:md capability="capabilitylist"/></url>`), nil)
	site.set("/cap.xml", document("capabilitylist", "", `<url><loc>`+site.URL+`/list.xml</loc><rs:md capability="resourcelist"/></url>`,
		`<url><loc>`+site.URL+`/changes.xml</loc><rs:md capability="changelist"/></url>`), nil)
	site.set("/list.xml", document("resourcelist", `at="`+at(10)+`"`, listed...), nil)

	var changes []string
	change := func(name, what string, n int, content []byte) {
		contents.set(name, content, nil)
		changes = append(changes, entry(name, what, n))
		site.set("/changes.xml", document("changelist", `from="`+at(5)+`"`, changes...), nil)
	}
	change("/f1", "updated", 11, []byte("newer than the list"))
	change("/f2", "deleted", 12, nil)
	once := func(code int, more ...string) {
		t.Helper()
		rsmirror(t, code, append(append([]string{"-once", "-strip", contents.URL}, more...), site.URL, dir)...)
		if err := contents.same(dir); code == 0 && err != nil {
			t.Fatal(err)
		}
	}
	once(0)
	rsmirror(t, 0, "audit", dir)
	change("/f3", "updated", 13, []byte("newer again"))
	change("/new", "created", 13, []byte("new"))
	once(0)
	rsmirror(t, 0, "audit", dir)
	change("/f3", "updated", 13, []byte("newer again, within the precision of the times"))
	once(0)
	asked := contents.asked["/f5"]
	once(0)
	if contents.asked["/f5"] != asked || asked != 1 {
		t.Errorf("a resource that did not change was asked for %d times", contents.asked["/f5"])
	}

	// Followed by looking again.
	p := hubtest.Start(t, nil, nil, hubtest.Rsmirror, "-every", "20ms", "-strip", contents.URL, site.URL, dir)
	change("/new", "deleted", 14, nil)
	change("/newer", "created", 15, []byte("x"))
	hubtest.Until(t, "the changes are there", func() error { return contents.same(dir) })
	p.Kill()
	p.Wait()

	// The Change List forgets what was before: the Resource List tells what is.
	changes, listed = nil, nil
	contents.set("/f7", []byte("changed unseen"), nil)
	contents.set("/f8", nil, nil)
	for name := range contents.files {
		listed = append(listed, entry(name, "", 0))
	}
	site.set("/list.xml", document("resourcelist", `at="`+at(30)+`"`, listed...), nil)
	site.set("/changes.xml", document("changelist", `from="`+at(30)+`"`), nil)
	if stdout, _ := rsmirror(t, 1, "audit", dir); !slices.Contains(problems(t, contents, stdout), "stale bookkeeping /f7") {
		t.Errorf("audit says %s", stdout)
	}
	once(0)
	rsmirror(t, 0, "audit", dir)

	// A list that is nearly empty deletes nothing.
	site.set("/list.xml", document("resourcelist", `at="`+at(50)+`"`, listed[:3]...), nil)
	site.set("/changes.xml", document("changelist", `from="`+at(50)+`"`), nil)
	once(5)
	if err := contents.same(dir); err != nil {
		t.Error(err)
	}
}

// packed returns a ZIP file with files.
func packed(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var zipped bytes.Buffer
	w := zip.NewWriter(&zipped)
	for name, content := range files {
		out, err := w.Create(name)
		if err == nil {
			_, err = out.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return zipped.Bytes()
}

// TestDump mirrors a site that has a Resource Dump and a Change List, and whose contents
// cannot be got one by one.
func TestDump(t *testing.T) {
	t.Parallel()
	site, dir := newOrigin(t), t.TempDir()
	files, entries := map[string][]byte{}, []string{}
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 50 {
		name, content := fmt.Sprintf("/d%d/f%d", i%5, i), random(r, 5000)
		site.set(name, content, status(http.StatusForbidden))
		files[fmt.Sprintf("../%d", i)] = content
		entries = append(entries, fmt.Sprintf(`<url><loc>%s%s</loc><lastmod>2020-02-03T04:05:06Z</lastmod><rs:md hash="sha-256:%s" path="/../%d"/></url>`, site.URL, name, sum(content), i))
	}
	files["manifest.xml"] = document("resourcedump-manifest", `at="2026-01-01T00:00:00Z"`, entries...)
	zipped := packed(t, files)
	documents := newOrigin(t)
	documents.set("/all.zip", zipped, first(1, cut))
	documents.set("/dump.xml", document("resourcedump", `at="2026-01-01T00:00:00Z"`,
		fmt.Sprintf(`<url><loc>%s/all.zip</loc><rs:md length="%d" hash="sha-256:%s"/></url>`, documents.URL, len(zipped), sum(zipped))), nil)
	site.set("/d0/f0", []byte("changed"), nil)
	documents.set("/changes.xml", document("changelist", `from="2025-12-01T00:00:00Z"`,
		fmt.Sprintf(`<url><loc>%s/d0/f0</loc><lastmod>2020-02-03T04:05:06Z</lastmod><rs:md change="updated" datetime="2026-01-02T00:00:00Z" hash="sha-256:%s"/></url>`, site.URL, sum([]byte("changed")))), nil)
	documents.set("/.well-known/resourcesync", document("description", "", `<url><loc>`+documents.URL+`/cap.xml</loc><rs:md capability="capabilitylist"/></url>`), nil)
	documents.set("/cap.xml", document("capabilitylist", "", `<url><loc>`+documents.URL+`/dump.xml</loc><rs:md capability="resourcedump"/></url>`,
		`<url><loc>`+documents.URL+`/changes.xml</loc><rs:md capability="changelist"/></url>`), nil)
	rsmirror(t, 0, "-once", "-strip", site.URL, documents.URL, dir)
	if err := site.same(dir); err != nil {
		t.Error(err)
	}
	if documents.ranges == 0 {
		t.Error("the package that broke off was not gone on with")
	}
	rsmirror(t, 0, "audit", dir)
	rsmirror(t, 0, "-once", "-strip", site.URL, documents.URL, dir)
	if n := documents.asked["/all.zip"]; n != 3 { // it broke off, came, and was audited
		t.Errorf("the package was asked for %d times", n)
	}
}

// TestDumpsOnly mirrors a site that has a Resource Dump and a Change Dump, no lists, and whose
// contents cannot be got one by one.
func TestDumpsOnly(t *testing.T) {
	t.Parallel()
	site, documents, dir := newOrigin(t), newOrigin(t), t.TempDir()
	entry := func(name, path, attributes string, content []byte) string {
		return fmt.Sprintf(`<url><loc>%s%s</loc><lastmod>2020-02-03T04:05:06Z</lastmod><rs:md %s hash="sha-256:%s" path="%s"/></url>`, site.URL, name, attributes, sum(content), path)
	}
	dump := func(name, capability, times string, packages ...string) {
		var entries []string
		for _, p := range packages {
			entries = append(entries, fmt.Sprintf(`<url><loc>%s%s</loc><rs:md hash="sha-256:%s"/></url>`, documents.URL, p, sum(documents.files[p])))
		}
		documents.set(name, document(capability, times, entries...), nil)
	}
	site.set("/same", []byte("same"), status(http.StatusForbidden))
	site.set("/changed", []byte("the third"), status(http.StatusForbidden))
	documents.set("/all.zip", packed(t, map[string][]byte{
		"manifest.xml": document("resourcedump-manifest", `at="2026-01-01T00:00:00Z"`, entry("/same", "/1", "", []byte("same")), entry("/changed", "/2", "", []byte("the first")), entry("/gone", "/3", "", []byte("gone"))),
		"1":            []byte("same"), "2": []byte("the first"), "3": []byte("gone"),
	}), nil)
	dump("/dump.xml", "resourcedump", `at="2026-01-01T00:00:00Z"`, "/all.zip")
	documents.set("/changed.zip", packed(t, map[string][]byte{
		"manifest.xml": document("changedump-manifest", `from="2026-01-01T00:00:00Z"`,
			entry("/changed", "/1", `change="updated" datetime="2026-01-02T00:00:00Z"`, []byte("the second")), entry("/changed", "/2", `change="updated" datetime="2026-01-03T00:00:00Z"`, []byte("the third")),
			`<url><loc>`+site.URL+`/gone</loc><rs:md change="deleted" datetime="2026-01-03T00:00:00Z"/></url>`),
		"1": []byte("the second"), "2": []byte("the third"),
	}), nil)
	dump("/changedump.xml", "changedump", `from="2026-01-01T00:00:00Z"`, "/changed.zip")
	documents.set("/cap.xml", document("capabilitylist", "", `<url><loc>`+documents.URL+`/dump.xml</loc><rs:md capability="resourcedump"/></url>`,
		`<url><loc>`+documents.URL+`/changedump.xml</loc><rs:md capability="changedump"/></url>`), nil)
	for range 2 {
		rsmirror(t, 0, "-once", "-strip", site.URL, documents.URL+"/cap.xml", dir)
		if err := site.same(dir); err != nil {
			t.Error(err)
		}
	}
	if n := documents.asked["/changed.zip"]; n != 1 {
		t.Errorf("the package was asked for %d times", n)
	}
	rsmirror(t, 0, "audit", dir)
}

// TestSitemap mirrors a site that has a sitemap only.
func TestSitemap(t *testing.T) {
	t.Parallel()
	o, dir := newOrigin(t), t.TempDir()
	o.set("/a", []byte("a"), nil)
	o.set("/a/b", []byte("b"), nil)
	o.set("/?q=1", []byte("c"), nil)
	list := func(entries ...string) {
		o.set("/sitemap.xml", []byte(`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`+strings.Join(entries, "")+`</urlset>`), nil)
	}
	loc := func(name string) string { return "<url><loc>" + o.URL + name + "</loc></url>" }
	list(loc("/a"), loc("/a/b"), loc("/?q=1"))
	rsmirror(t, 0, "-once", "-strip", o.URL, o.URL+"/sitemap.xml", dir)
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	if got := read("%~3Fq=1"); got != "c" {
		t.Errorf("the file with a query has %q", got)
	}
	if got := read("a") + read("a%~file") + read("a/b") + read("a%~dir/b"); !strings.Contains(got, "a") || !strings.Contains(got, "b") {
		t.Errorf("a and a/b have %q", got)
	}
	o.set("/?q=1", []byte("changed"), nil)
	list(loc("/a"), loc("/?q=1"))
	rsmirror(t, 0, "-once", "-strip", o.URL, o.URL+"/sitemap.xml", dir)
	if got := read("%~3Fq=1"); got != "changed" {
		t.Errorf("the file with a query has %q", got)
	}
	rsmirror(t, 0, "audit", dir)
	if stdout, _ := rsmirror(t, 0, "-once", "-json", "-strip", o.URL, o.URL+"/sitemap.xml", dir); !strings.Contains(stdout, `"files":2,`) || !strings.Contains(stdout, `"missing":0`) {
		t.Errorf("the summary is %s", stdout)
	}
}

// TestIncompleteHub takes the source's own list before what the hub knows.
func TestIncompleteHub(t *testing.T) {
	t.Parallel()
	h, o, dir := hubtest.StartHub(t), newOrigin(t), t.TempDir()
	site := newOrigin(t)
	o.set("/old", []byte("old"), nil)
	o.set("/other", []byte("other"), nil)
	publish(t, h, "demo", o.set("/new", []byte("new"), nil))
	site.set("/cap.xml", document("capabilitylist", "", `<url><loc>`+site.URL+`/list.xml</loc><rs:md capability="resourcelist"/></url>`,
		`<url><loc>`+h.Topic("demo")+`</loc><rs:md capability="change-notification"/></url>`), nil)
	entry := func(name string) string {
		return `<url><loc>` + o.URL + name + `</loc><lastmod>2020-02-03T04:05:06Z</lastmod><rs:md hash="sha-256:` + sum(o.files[name]) + `"/></url>`
	}
	site.set("/list.xml", document("resourcelist", `at="2026-01-01T00:00:00Z"`, entry("/old"), entry("/other")), nil)
	args := []string{"-once", "-strip", o.URL, site.URL + "/cap.xml", dir}
	rsmirror(t, 0, args...)
	if err := o.same(dir); err != nil {
		t.Fatal(err)
	}
	publish(t, h, "demo", o.set("/old", nil, nil))
	rsmirror(t, 0, args...)
	if err := o.same(dir); err != nil {
		t.Fatal(err)
	}
	rsmirror(t, 0, "audit", dir)

	// A list that comes later does not undo what the hub has said.
	late := newOrigin(t)
	topic := `<url><loc>` + h.Topic("demo") + `</loc><rs:md capability="change-notification"/></url>`
	late.set("/cap.xml", document("capabilitylist", "", topic), nil)
	args = []string{"-once", "-strip", o.URL, late.URL + "/cap.xml", t.TempDir()}
	publish(t, h, "demo", o.set("/new", []byte("newer"), nil), o.set("/other", []byte("other"), nil))
	rsmirror(t, 0, args...)
	late.set("/cap.xml", document("capabilitylist", "", `<url><loc>`+late.URL+`/list.xml</loc><rs:md capability="resourcelist"/></url>`, topic), nil)
	late.set("/list.xml", document("resourcelist", `at="2026-01-01T00:00:00Z"`, entry("/other"), `<url><loc>`+o.URL+`/old</loc></url>`), nil)
	rsmirror(t, 0, args...)
	if err := o.same(args[len(args)-1]); err != nil {
		t.Error(err)
	}
}

// TestDeletedMeanwhile deletes a resource while the source's own list is read, which still
// names it. The baseline that follows is of a hub that does not know all resources.
func TestDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	h, o, site, dir := hubtest.StartHub(t), newOrigin(t), newOrigin(t), t.TempDir()
	publish(t, h, "demo", o.set("/new", []byte("new"), nil))
	o.set("/same", []byte("same"), nil)
	o.set("/old", []byte("old"), nil)
	var entries []string
	for _, name := range []string{"/old", "/same"} {
		entries = append(entries, `<url><loc>`+o.URL+name+`</loc><lastmod>2020-02-03T04:05:06Z</lastmod></url>`)
	}
	site.set("/cap.xml", document("capabilitylist", "", `<url><loc>`+site.URL+`/list.xml</loc><rs:md capability="resourcelist"/></url>`,
		`<url><loc>`+h.Topic("demo")+`</loc><rs:md capability="change-notification"/></url>`), nil)
	asked, goOn := make(chan bool), make(chan bool)
	site.set("/list.xml", document("resourcelist", `at="2026-01-01T00:00:00Z"`, entries...), func(n int, _ http.ResponseWriter, _ []byte) bool {
		if n == 1 {
			asked <- true
			<-goOn
		}
		return false
	})
	args := []string{"-once", "-prefix", o.URL, "-strip", o.URL, site.URL + "/cap.xml", dir}
	p := hubtest.Start(t, nil, nil, hubtest.Rsmirror, args...)
	<-asked
	publish(t, h, "demo", o.set("/old", nil, nil))
	publish(t, h, "demo", hubtest.Changes("x", 3_000)) // so many that the next baseline is as of a later cursor
	hubtest.Until(t, "a baseline is as of a later cursor", func() error {
		page := hubtest.Get[struct{ Cursor string }](t, h.Topic("demo")+"?since=baseline&limit=1")
		if position, _, err := hubtest.SplitCursor(page.Cursor[:strings.Index(page.Cursor+"~", "~")]); err != nil || position < 3_000 {
			return fmt.Errorf("it is as of %s, %v", page.Cursor, err)
		}
		return nil
	})
	close(goOn)
	if code := p.Wait(); code != 0 {
		t.Errorf("it ended with %d: %s", code, p.Stderr)
	}
	if err := o.same(dir); err != nil {
		t.Error(err)
	}
	rsmirror(t, 0, "audit", dir)
}

// TestTo brings changes to standard output and to a command.
func TestTo(t *testing.T) {
	t.Parallel()
	h, o := hubtest.StartHub(t), newOrigin(t)
	publish(t, h, "demo", o.set("/a", []byte("a"), nil), o.set("/b", []byte("b"), nil))
	complete(t, h, "demo")
	locs := func(text string) (all []string) {
		for line := range strings.Lines(text) {
			var c struct {
				Loc, Change string
				Position    int
			}
			if err := json.Unmarshal([]byte(line), &c); err != nil || c.Position == 0 {
				t.Fatalf("%q: %v", line, err)
			}
			all = append(all, c.Change+" "+strings.TrimPrefix(c.Loc, o.URL))
		}
		return all
	}
	dir := t.TempDir()
	once := []string{"-once", "-to", "ndjson", h.Topic("demo"), dir}
	if stdout, _ := rsmirror(t, 0, once...); !slices.Equal(locs(stdout), []string{"created /a", "created /b"}) {
		t.Errorf("it writes %s", stdout)
	}
	publish(t, h, "demo", o.set("/a", nil, nil))
	if stdout, _ := rsmirror(t, 0, once...); !slices.Equal(locs(stdout), []string{"deleted /a"}) {
		t.Errorf("it writes %s", stdout)
	}
	rsmirror(t, 0, "audit", dir)

	// The command fails twice. Nothing is lost, and nothing comes after it before.
	work := t.TempDir()
	command := fmt.Sprintf(`cat >%[1]s/batch; n=$(cat %[1]s/n 2>/dev/null || echo 0); echo $((n+1)) >%[1]s/n; [ $n -ge 2 ] && cat %[1]s/batch >>%[1]s/all`, work)
	p := hubtest.Start(t, nil, nil, hubtest.Rsmirror, "-to", "exec:"+command, h.Topic("demo"), t.TempDir())
	all := func() string {
		b, _ := os.ReadFile(work + "/all") // it is not there yet
		return string(b)
	}
	hubtest.Until(t, "the command has succeeded", func() error {
		got := locs(all()) // a baseline may be as of an earlier cursor, and then a is deleted
		if !slices.Equal(got, []string{"created /b"}) && !slices.Equal(got, []string{"created /b", "deleted /a"}) && !slices.Equal(got, []string{"created /a", "created /b", "deleted /a"}) {
			return fmt.Errorf("it got %q: %s", got, p.Stderr)
		}
		return nil
	})
	publish(t, h, "demo", o.set("/c", []byte("c"), nil))
	hubtest.Until(t, "the command has got the change", func() error {
		if got := locs(all()); !slices.Equal(got[max(0, len(got)-1):], []string{"created /c"}) {
			return fmt.Errorf("it got %q: %s", got, p.Stderr)
		}
		return nil
	})
	p.Kill()
	p.Wait()
}
