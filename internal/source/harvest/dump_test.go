package harvest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

const dumpOpen = rsOpen + `<rs:md capability="resourcedump" at="2026-02-03T00:00:00Z"/>`

// TestDump reads Resource Dumps, and documents that are not.
func TestDump(t *testing.T) {
	t.Parallel()
	documents := map[string]string{
		"/dump":   dumpOpen + `<url><loc>/p1.zip</loc><rs:md hash="md5:00" length="7" at="2026-02-02T00:00:00Z"/><rs:ln rel="contents" href="m1.xml"/></url><url><loc>https://a.example/p2.zip</loc></url></urlset>`,
		"/index":  strings.NewReplacer("urlset", "sitemapindex").Replace(dumpOpen) + `<sitemap><loc>/dump</loc></sitemap><sitemap><loc>/more</loc></sitemap></sitemapindex>`,
		"/more":   dumpOpen + `<url><loc>/p3.zip</loc></url></urlset>`,
		"/nested": strings.NewReplacer("urlset", "sitemapindex").Replace(dumpOpen) + `<sitemap><loc>/index</loc></sitemap></sitemapindex>`,
		"/list":   rsOpen + `<rs:md capability="resourcelist"/></urlset>`,
		"/half":   dumpOpen + `<url><loc>/p1.zip</loc></url>`,
		"/many":   dumpOpen + strings.Repeat(`<url><loc>/p1.zip</loc></url>`, 4) + `</urlset>`,
		"/absent": strings.NewReplacer("urlset", "sitemapindex").Replace(dumpOpen) + `<sitemap><loc>/none</loc></sitemap></sitemapindex>`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := documents[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, text)
	}))
	defer s.Close()
	l := &Lister{Getter: &Getter{Client: s.Client(), Tries: 1}, Limits: resourcesync.Limits{Entries: 3}}
	d, err := l.Dump(t.Context(), s.URL+"/index")
	if err != nil || len(d.Packages) != 3 || !d.At.Equal(time.Date(2026, 2, 2, 0, 0, 0, 0, time.UTC)) {
		t.Fatalf("Dump() = %+v, %v, want three packages at 2026-02-02", d, err)
	}
	if p := d.Packages[0]; p.Change.Loc != s.URL+"/p1.zip" || p.Manifest != s.URL+"/m1.xml" || p.Change.Hash != "md5:00" || *p.Change.Length != 7 {
		t.Errorf("package 0 = %+v, want p1.zip with its manifest, hash and length", p)
	}
	for at, says := range map[string]string{"/nested": "it may name only dumps", "/list": `"resourcelist", want resourcedump`, "/half": "ends early", "/many": "at most 3", "/absent": "404"} {
		t.Run(at, func(t *testing.T) {
			if d, err := l.Dump(t.Context(), s.URL+at); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("Dump(%s) = %+v, %v", at, d, err)
			}
		})
	}
}

// TestManifest reads the manifests of packages.
func TestManifest(t *testing.T) {
	t.Parallel()
	base, err := url.Parse("https://a.example/p.zip")
	if err != nil {
		t.Fatal(err)
	}
	l := new(Lister)
	text := rsOpen + `<rs:md capability="resourcedump-manifest"/><url><loc>/1</loc><rs:md path="/x/1"/></url><url><loc>https://b.example/2</loc><rs:md path="no slash"/></url></urlset>`
	var got []string
	for e, err := range l.Manifest(t.Context(), resourcesync.ResourceDumpManifest, strings.NewReader(text), base) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Change.Loc+" "+e.Change.Path)
	}
	if all := strings.Join(got, ","); all != "https://a.example/1 /x/1,https://b.example/2 " {
		t.Errorf("got resources %q", got)
	}
	for text, says := range map[string]string{
		rsOpen + `<rs:md capability="resourcedump"/></urlset>`: "want resourcedump-manifest",
		"https://a.example/1\n":                                "want a ResourceSync document",
		text[:len(text)-20]:                                    "ends early",
	} {
		var failed error
		for _, err := range l.Manifest(t.Context(), resourcesync.ResourceDumpManifest, strings.NewReader(text), base) {
			failed = err
		}
		if failed == nil || !strings.Contains(failed.Error(), says) {
			t.Errorf("manifest %s: got error %v", text, failed)
		}
	}
}
