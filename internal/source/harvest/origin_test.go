package harvest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// An origin is a source's web server.
type origin struct {
	url string

	mu    sync.Mutex
	docs  map[string]string // by path
	asked []string          // paths, in order
	hold  chan struct{}     // if not nil, responses wait until it is closed
}

func newOrigin(t *testing.T) *origin {
	o := &origin{docs: map[string]string{}}
	s := httptest.NewServer(o)
	t.Cleanup(s.Close)
	o.url = s.URL
	return o
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	o.asked = append(o.asked, r.URL.Path)
	doc, ok := o.docs[r.URL.Path]
	hold := o.hold
	o.mu.Unlock()
	if hold != nil {
		<-hold
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write([]byte(doc))
}

// put sets the document at a path.
func (o *origin) put(path, doc string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.docs[path] = doc
}

// requests returns the paths that were requested since the last call.
func (o *origin) requests() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	asked := o.asked
	o.asked = nil
	return asked
}

var here = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// listOf returns a Change List. An entry is written "loc change day".
func listOf(from string, entries ...string) string {
	b := `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="changelist"` + from + `/>`
	for _, e := range entries {
		f := strings.Fields(e)
		b += `<url><loc>https://example.org/` + f[0] + `</loc><rs:md change="` + f[1] + `"`
		if len(f) > 2 {
			b += ` datetime="` + day(f[2]) + `"`
		}
		b += `/></url>`
	}
	return b + `</urlset>`
}

func day(n string) string { return fmt.Sprintf("2026-01-%02sT00:00:00Z", n) }

// indexOf returns an index of lists. A list is written "path from until"; from and until are days
// and may be missing.
func indexOf(url string, lists ...string) string {
	b := `<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="changelist"/>`
	for _, l := range lists {
		f := strings.Fields(l)
		b += `<sitemap><loc>` + url + f[0] + `</loc><rs:md`
		for i, name := range []string{"from", "until"} {
			if len(f) > i+1 {
				b += " " + name + `="` + day(f[i+1]) + `"`
			}
		}
		b += `/></sitemap>`
	}
	return b + `</sitemapindex>`
}

// dripHandler sends a few bytes each second, forever.
func dripHandler(piece string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := w.Write([]byte(piece)); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-time.After(time.Second):
			case <-r.Context().Done():
				return
			}
		}
	}
}
