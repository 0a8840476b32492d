package mirror

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestCredentials has tokens for documents and for contents, and sends each only to the
// place that it is for.
func TestCredentials(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]string{} // by what was asked for: its Authorization
	note := func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.URL.Path] = r.Header.Get("Authorization")
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note(r)
		_, _ = w.Write([]byte("elsewhere"))
	}))
	defer other.Close()
	contents := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note(r)
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, other.URL+"/from-contents", http.StatusFound)
			return
		}
		_, _ = w.Write([]byte("content"))
	}))
	defer contents.Close()
	site := newOrigin(t)
	redirected := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note(r)
		http.Redirect(w, r, site.URL+"/list.xml", http.StatusFound)
	}))
	defer redirected.Close()
	loc := func(u string) string { return "<url><loc>" + u + "</loc></url>" }
	site.set("/list.xml", document("resourcelist", "", loc(contents.URL+"/a"), loc(contents.URL+"/moved"), loc(other.URL+"/plain"), loc(site.URL+"/content")), nil)
	site.set("/content", []byte("x"), nil)
	inner := site.Config.Handler
	site.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note(r)
		inner.ServeHTTP(w, r)
	})
	tokens := t.TempDir()
	for name, token := range map[string]string{"documents": "tok-documents", "contents": "tok-contents\n"} {
		if err := os.WriteFile(filepath.Join(tokens, name), []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rsmirror(t, 0, "-once", "-token-file", filepath.Join(tokens, "documents"), "-content-token", contents.URL+"="+filepath.Join(tokens, "contents"), site.URL+"/list.xml", t.TempDir())
	for name, want := range map[string]string{
		"/list.xml": "Bearer tok-documents", "/content": "", "/a": "Bearer tok-contents", "/moved": "Bearer tok-contents", "/from-contents": "", "/plain": "",
	} {
		if got, ok := seen[name]; !ok || got != want {
			t.Errorf("%s was asked for with %q, and ought to be with %q", name, got, want)
		}
	}

	// A site that sends its visitors elsewhere does not send its token with them.
	clear(seen)
	rsmirror(t, 0, "-once", "-token-file", filepath.Join(tokens, "contents"), redirected.URL, t.TempDir())
	if got, ok := seen["/list.xml"]; !ok || got != "" {
		t.Errorf("a redirect to another host got %q", got)
	}
}

// TestPublic names a server of the own network in documents, and as a content.
func TestPublic(t *testing.T) {
	t.Parallel()
	h, inner, site := hubtest.StartHub(t), newOrigin(t), newOrigin(t)
	publish(t, h, "demo", inner.set("/secret", []byte("x"), nil))
	complete(t, h, "demo")
	if _, stderr := rsmirror(t, 1, "-once", "-public", h.Topic("demo"), t.TempDir()); !strings.Contains(stderr, "not allowed") {
		t.Errorf("it says %s", stderr)
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
	if len(inner.asked) != 0 {
		t.Errorf("a server of the own network was asked for %v", inner.asked)
	}
	rsmirror(t, 0, "-once", "-public", inner.URL+"/list.xml", t.TempDir()) // the user has named it
}
