package documents_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/documents"
	"github.com/rshub/rshub/feed"
)

// robots.txt names the Resource Lists that there are, of sets that the caller may see: the
// hub's own, else the source's.
func TestRobots(t *testing.T) {
	m := newMemory(t)
	for _, set := range []string{"both", "hidden", "nothing", "own", "source"} {
		m.make(set, 4)
	}
	for _, set := range []string{"both", "source"} {
		if err := m.Describe(m.Context(), set, feed.Description{ResourceList: "https://example.org/" + set + ".xml"}); err != nil {
			t.Fatal(err)
		}
	}
	sh := &shelf{}
	sh.put(4, 4, numbered)
	s := newServer(m, documents.Options{List: func(ctx context.Context, set string, at feed.Cursor) (*documents.List, error) {
		if set == "nothing" || set == "source" {
			return nil, &feed.Error{Code: "incomplete", Status: 404, Text: "not complete"}
		}
		return sh.list(ctx, set, at)
	}})
	rights, err := access.ParseRights("follow:both,follow:nothing,follow:own,follow:source")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(s *server, method string) *httptest.ResponseRecorder {
		ctx := access.NewContext(t.Context(), access.Caller{Rights: rights})
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, "/robots.txt", nil))
		return w
	}
	w, h := ask(s, "GET"), ask(s, "HEAD")
	want := "User-agent: *\nAllow: /\n\n" +
		"Sitemap: " + base + "/sets/both/resourcelist.xml\nSitemap: " + base + "/sets/own/resourcelist.xml\nSitemap: https://example.org/source.xml\n"
	if w.Body.String() != want || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" || w.Header().Get("Vary") != "Authorization" {
		t.Errorf("it is\n%s with %v, not\n%s", w.Body, w.Header(), want)
	}
	if h.Body.Len() != 0 || h.Header().Get("Content-Length") != fmt.Sprint(len(want)) {
		t.Errorf("HEAD: %v, %d bytes", h.Header(), h.Body.Len())
	}
	if w := ask(s, "POST"); w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}

	many := newMemory(t)
	for i := range 1_010 {
		many.make(fmt.Sprintf("set-%04d", i), 4)
	}
	rights = access.All()
	text := ask(newServer(many, documents.Options{List: sh.list}), "GET").Body.String()
	if n := strings.Count(text, "\nSitemap: "); n != 1_000 || !strings.HasSuffix(text, "# "+base+"/.well-known/resourcesync names the other 10 sets.\n") {
		t.Errorf("of 1,010 sets it names %d, and ends with %q", n, text[len(text)-100:])
	}
}
