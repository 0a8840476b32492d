package mirror

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// document returns a ResourceSync document.
func document(capability, times string, entries ...string) []byte {
	return []byte(`<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">` +
		`<rs:md capability="` + capability + `" ` + times + `/>` + strings.Join(entries, "") + `</urlset>`)
}

// TestPublic refers to a server in the local network from documents and for contents.
func TestPublic(t *testing.T) {
	t.Parallel()
	h, inner, site := hubtest.StartHub(t), newOrigin(t), newOrigin(t)
	publish(t, h, inner.set("/secret", []byte("x"), nil))
	complete(t, h)
	if _, stderr := rsmirror(t, 1, "-once", "-public", h.Topic("demo"), t.TempDir()); !strings.Contains(stderr, "not allowed") {
		t.Errorf("stderr = %q, want another error", stderr)
	}
	inner.set("/list.xml", document("resourcelist", ""), nil)
	site.set("/cap.xml", document("capabilitylist", "", `<url><loc>`+inner.URL+`/list.xml</loc><rs:md capability="resourcelist"/></url>`), nil)
	site.set("/page", []byte(`<html><head><link rel="resourcesync" href="`+inner.URL+`/cap.xml"></head></html>`), nil)
	site.set("/dump.xml", document("resourcedump", "", `<url><loc>`+inner.URL+`/p.zip</loc></url>`), nil)
	site.set("/away", nil, func(_ int, w http.ResponseWriter, _ []byte) bool {
		w.Header().Set("Location", inner.URL+"/list.xml")
		w.WriteHeader(http.StatusFound)
		return true
	})
	for _, name := range []string{"/cap.xml", "/page", "/away", "/dump.xml"} {
		rsmirror(t, 4, "-once", "-public", "-retry", "2s", site.URL+name, t.TempDir())
	}
	if len(inner.requests) != 0 {
		t.Errorf("requests to a server in the local network = %v, want none", inner.requests)
	}
	rsmirror(t, 0, "-once", "-public", inner.URL+"/list.xml", t.TempDir()) // named by the user
}
