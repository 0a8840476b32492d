package mirror

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// document returns a document of ResourceSync.
func document(capability, times string, entries ...string) []byte {
	return []byte(`<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">` +
		`<rs:md capability="` + capability + `" ` + times + `/>` + strings.Join(entries, "") + `</urlset>`)
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
	if stdout, _ := rsmirror(t, 0, "-once", "-json", "-strip", site.URL, documents.URL+"/cap.xml", dir); !strings.Contains(stdout, `"files":2,`) || !strings.Contains(stdout, `"missing":0`) {
		t.Errorf("the summary is %s", stdout)
	}
}

// TestTo brings changes to standard output.
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
}

// TestCollection mirrors one collection of a set, and the audit knows which.
func TestCollection(t *testing.T) {
	t.Parallel()
	const theses = "https://example.org/oai?set=theses"
	h, o, dir := hubtest.StartHub(t), newOrigin(t), t.TempDir()
	in := func(line []byte) []byte {
		return append(bytes.TrimRight(line, "}\n"), `,"ln":[{"rel":"collection","href":"`+theses+`"}]}`+"\n"...)
	}
	publish(t, h, "demo", in(o.set("/a", []byte("a"), nil)), in(o.set("/b", []byte("b"), nil)), o.set("/c", []byte("c"), nil))
	complete(t, h, "demo")
	mirror := func(want ...string) {
		t.Helper()
		rsmirror(t, 0, "-once", "-collection", theses, "-strip", o.URL, h.Topic("demo"), dir)
		files, err := filepath.Glob(filepath.Join(dir, "[a-z]*"))
		for i := range files {
			files[i] = filepath.Base(files[i])
		}
		if err != nil || !slices.Equal(files, want) {
			t.Errorf("it has %q, %v, and not %q", files, err, want)
		}
		rsmirror(t, 0, "audit", dir)
	}
	mirror("a", "b")
	publish(t, h, "demo", o.set("/a", []byte("left"), nil), in(o.set("/c", []byte("came"), nil)))
	mirror("b", "c")
	if _, stderr := rsmirror(t, 3, "-once", "-strip", o.URL, h.Topic("demo"), dir); !strings.Contains(stderr, "-collection") {
		t.Errorf("without -collection it says %s", stderr)
	}
}
