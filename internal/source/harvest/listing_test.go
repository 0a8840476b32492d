package harvest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// A truncatingTransport truncates responses. For each path, it truncates the first responses after
// these numbers of bytes.
type truncatingTransport struct {
	docs  map[string][]string // responses by path, in order; the last one is repeated
	cuts  map[string][]int
	asked []string
}

func (s *truncatingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	path := r.URL.Path
	s.asked = append(s.asked, path)
	doc := s.docs[path][0]
	if len(s.docs[path]) > 1 {
		s.docs[path] = s.docs[path][1:]
	}
	body := io.Reader(strings.NewReader(doc))
	if cuts := s.cuts[path]; len(cuts) > 0 {
		s.cuts[path] = cuts[1:]
		body = io.MultiReader(strings.NewReader(doc[:cuts[0]]), iotest.ErrReader(io.ErrUnexpectedEOF))
	}
	return &http.Response{StatusCode: 200, ContentLength: int64(len(doc)), ProtoMajor: 1, Body: io.NopCloser(body)}, nil
}

// A document that breaks off at any byte is requested again, alone, and no resource is yielded
// twice.
func TestListerContinues(t *testing.T) {
	xml := sitemapOpen + `<url><loc>urn:x:1</loc></url><url><loc>urn:x:2</loc></url><url><loc>urn:x:3</loc></url></urlset>`
	plain := "urn:x:1\nurn:x:2\nurn:x:3\n"
	for _, doc := range []string{xml, packed(xml), plain, packed(plain)} {
		for n := range len(doc) {
			synctest.Test(t, func(t *testing.T) {
				s := &truncatingTransport{
					docs: map[string][]string{"/list": {sitemapIndex("a", "b", "c")}, "/a": {"urn:x:a"}, "/b": {doc}, "/c": {"urn:x:c"}},
					cuts: map[string][]int{"/b": {n, max(n-5, 0), min(n+30, len(doc)-1)}},
				}
				begin := time.Now()
				l := &Lister{Getter: &Getter{Client: &http.Client{Transport: s}}}
				all, _, err := listAll(t.Context(), l, "http://a.example/list")
				if want := []string{"urn:x:a", "urn:x:1", "urn:x:2", "urn:x:3", "urn:x:c"}; err != nil || !slices.Equal(all, want) {
					t.Fatalf("truncated after %d of %d bytes: got %q, %v", n, len(doc), all, err)
				}
				if want := []string{"/list", "/a", "/b", "/b", "/b", "/b", "/c"}; !slices.Equal(s.asked, want) {
					t.Fatalf("got requests %q", s.asked)
				}
				if took := time.Since(begin); took < time.Minute {
					t.Fatalf("got four requests within %v", took)
				}
			})
		}
	}
}

// A document that is different at the second request cannot be continued. One that breaks off each
// time is an error.
func TestListerGivesUp(t *testing.T) {
	list := func(names ...string) string {
		var b bytes.Buffer
		for _, n := range names {
			fmt.Fprintf(&b, "<url><loc>urn:x:%s</loc></url>", n)
		}
		return sitemapOpen + b.String() + "</urlset>"
	}
	whole := list("1", "2", "3")
	cut := strings.Index(whole, "urn:x:3")
	for _, test := range []struct {
		name  string
		docs  []string
		cuts  []int
		all   string
		want  string // in the error
		asked int
	}{
		{"the same", []string{whole}, []int{cut}, "urn:x:1 urn:x:2 urn:x:3", "", 2},
		{"longer", []string{whole, list("1", "2", "4", "5")}, []int{cut}, "urn:x:1 urn:x:2 urn:x:4 urn:x:5", "", 2},
		{"another", []string{whole, list("2", "1", "3")}, []int{cut}, "urn:x:1 urn:x:2", "different at the second request", 2},
		{"shorter", []string{whole, list("1")}, []int{cut}, "urn:x:1 urn:x:2", "different at the second request", 2},
		{"broken", []string{whole}, []int{cut, cut, cut, cut}, "urn:x:1 urn:x:2", "unexpected end", 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &truncatingTransport{docs: map[string][]string{"/list": test.docs}, cuts: map[string][]int{"/list": test.cuts}}
				all, _, err := listAll(t.Context(), &Lister{Getter: &Getter{Client: &http.Client{Transport: s}}}, "http://a.example/list")
				if got := strings.Join(all, " "); got != test.all || (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %s, %v", got, err)
				}
				if len(s.asked) != test.asked {
					t.Errorf("got %d requests", len(s.asked))
				}
			})
		})
	}
}

// A Change List that breaks off yields no change twice.
func TestListerChangesContinue(t *testing.T) {
	doc := listOf("", "a created 1", "b created 2", "a updated 3")
	synctest.Test(t, func(t *testing.T) {
		for n := range len(doc) {
			s := &truncatingTransport{docs: map[string][]string{"/list": {doc}}, cuts: map[string][]int{"/list": {n}}}
			var all []string
			for c, err := range (&Lister{Getter: &Getter{Client: &http.Client{Transport: s}}}).Changes(t.Context(), "http://a.example/list", time.Time{}, nil, nil) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, c.Loc+" "+string(c.Change))
			}
			if got := strings.Join(all, ", "); got != "https://example.org/a created, https://example.org/b created, https://example.org/a updated" {
				t.Fatalf("truncated after %d bytes: got changes %s", n, got)
			}
		}
	})
}

// A robots.txt is an index of the sitemaps that it names, which may be indexes.
func TestListerRobots(t *testing.T) {
	docs := map[string][]string{
		"/robots.txt": {"User-agent: *\nDisallow: /\nSitemap: http://a.example/index\nSitemap: /b\n"},
		"/index":      {sitemapIndex("a", "b")}, "/a": {"urn:x:a"}, "/b": {"urn:x:b"},
	}
	list := func(want, problem string) {
		t.Helper()
		s := &truncatingTransport{docs: docs}
		all, _, err := listAll(t.Context(), &Lister{Getter: &Getter{Client: &http.Client{Transport: s}, Tries: 1}}, "http://a.example/robots.txt")
		if got := strings.Join(all, " "); got != want || (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("got %q, %v", got, err)
		}
	}
	list("urn:x:b urn:x:a", "") // each document once
	docs["/a"] = []string{sitemapIndex("b")}
	list("urn:x:b", "list 1 of sitemap 1 of robots.txt (http://a.example/a): an index names another index")
	docs["/robots.txt"] = []string{"User-agent: *\nDisallow: /\n"}
	list("", "the list (http://a.example/robots.txt): robots.txt names no sitemap")
	var many strings.Builder
	for i := range maxSitemaps + 1 {
		fmt.Fprintf(&many, "Sitemap: /%d\n", i)
	}
	docs["/robots.txt"] = []string{many.String()}
	list("", "the list (http://a.example/robots.txt): robots.txt has more than 1000 sitemaps")
	docs["/robots.txt"] = []string{"Sitemap: /b\n" + strings.Repeat("#", maxRobotsBytes)}
	list("", "the list (http://a.example/robots.txt): ")
}
