package discovery_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/source/discovery"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/testutil/localhub"
)

func getter() *harvest.Getter { return &harvest.Getter{Client: http.DefaultClient, Tries: 1} }

// A site serves files. If a file begins with header fields, they end at the first blank line.
type site map[string]string

func (s site) start(t *testing.T) (base string) {
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := s[r.URL.RequestURI()]
		if !ok {
			http.NotFound(w, r)
			return
		}
		text = strings.ReplaceAll(text, "BASE", server.URL)
		for {
			line, rest, _ := strings.Cut(text, "\n")
			name, value, field := strings.Cut(line, ": ")
			if !field || strings.ContainsAny(name, "<\" ") {
				break
			}
			w.Header().Add(name, value)
			text = rest
		}
		if w.Header().Get("Location") != "" {
			w.WriteHeader(http.StatusFound)
		}
		if w.Header().Get("Retry-After") != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// document returns a document with a capability and other parts.
func document(root, capability string, parts ...string) string {
	md := ""
	if capability != "" {
		md = `<rs:md capability="` + capability + `" at="2026-01-01T00:00:00Z"/>`
	}
	return `<?xml version="1.0"?><` + root + ` xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">` +
		md + strings.Join(parts, "") + `</` + root + `>`
}

func entry(loc, capability string, parts ...string) string {
	return `<url><loc>` + loc + `</loc><rs:md capability="` + capability + `"/>` + strings.Join(parts, "") + `</url>`
}

func ln(rel, href string) string { return `<rs:ln rel="` + rel + `" href="` + href + `"/>` }

// packed returns text as gzip.
func packed(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return b.String()
}

// whole is a site that offers everything, and refers to it in every way.
var whole = site{
	"/.well-known/resourcesync": document("urlset", "description", ln("describedby", "BASE/about"), entry("BASE/set/capabilitylist.xml", "capabilitylist", ln("describedby", "BASE/set/about"))),
	"/set/capabilitylist.xml": document("urlset", "capabilitylist", ln("up", "BASE/.well-known/resourcesync"),
		entry("BASE/set/resourcelist.xml", "resourcelist"), entry("resourcedump.xml", "resourcedump"),
		entry("BASE/set/changelist.xml", "changelist"), entry("BASE/set/changedump.xml", "changedump"),
		entry("BASE/set/topic", "change-notification", ln("hub", "https://hub.example.org/")),
		entry("BASE/set/else", "something-new")),
	"/set/resourcelist.xml":        document("sitemapindex", "resourcelist", ln("up", "BASE/set/capabilitylist.xml")),
	"/set/resourcelist-1.xml":      document("urlset", "resourcelist", ln("up", "BASE/set/capabilitylist.xml"), ln("index", "BASE/set/resourcelist.xml")),
	"/set/other.xml":               document("urlset", "resourcelist", ln("up", "BASE/set/capabilitylist.xml")),
	"/set/changelist.xml":          document("urlset", "changelist", ln("up", "BASE/set/capabilitylist.xml")),
	"/set/topic":                   "Link: <BASE/set/topic>; rel=\"self\", <https://hub.example.org/>; rel=hub\nLink: <BASE/set/capabilitylist.xml>; rel=resourcesync\n",
	"/set/page":                    "<!doctype html><head><base href='/set/'><link rel='x resourcesync' href='capabilitylist.xml'></head><body><link rel=resourcesync href=/never>",
	"/set/page-of-description":     "<html><link rel=resourcesync href=/.well-known/resourcesync>",
	"/set/header":                  "Content-Type: image/png\nLink: <capabilitylist.xml>; rel=\"resourcesync\"\n",
	"/set/moved":                   "Location: /set/capabilitylist.xml\n",
	"/set/nothing":                 "Content-Type: text/plain\nhello",
	"/set/notification-without-up": document("urlset", "change-notification"),
}

func TestFind(t *testing.T) {
	t.Parallel()
	base := whole.start(t)
	all := discovery.Source{
		CapabilityList: base + "/set/capabilitylist.xml", ResourceList: base + "/set/resourcelist.xml", ResourceDump: base + "/set/resourcedump.xml",
		ChangeList: base + "/set/changelist.xml", ChangeDump: base + "/set/changedump.xml", Topic: base + "/set/topic", Hubs: []string{"https://hub.example.org/"},
	}
	described, other := all, all
	described.DescribedBy = base + "/set/about"
	other.ResourceList = base + "/set/other.xml"
	for path, want := range map[string]discovery.Source{
		"":                             described, // the site
		"/.well-known/resourcesync":    described,
		"/set/page-of-description":     described,
		"/set/nothing":                 described,
		"/set/notification-without-up": described,
		"/set/capabilitylist.xml":      all,
		"/set/page":                    all,
		"/set/header":                  all,
		"/set/moved":                   all,
		"/set/resourcelist.xml":        all,
		"/set/resourcelist-1.xml":      all, // a part leads to its index
		"/set/changelist.xml":          all,
		"/set/topic":                   all,
		"/set/other.xml":               other, // the requested list
	} {
		t.Run(path, func(t *testing.T) {
			got, err := discovery.Find(t.Context(), getter(), base+path)
			if err != nil {
				t.Errorf("Find(%q): %v", path, err)
			} else if !reflect.DeepEqual(*got, want) {
				t.Errorf("Find(%q) =\n%+v, want\n%+v", path, *got, want)
			}
		})
	}
}

func TestFindSitemap(t *testing.T) {
	t.Parallel()
	base := site{"/map.xml.gz": "Content-Type: application/octet-stream\n" + packed(document("urlset", "", "<url><loc>https://example.org/a</loc></url>"))}.start(t)
	got, err := discovery.Find(t.Context(), getter(), base+"/map.xml.gz")
	if want := (discovery.Source{Sitemap: base + "/map.xml.gz"}); err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("Find = %+v, %v, want %+v", got, err, want)
	}
}

// The sitemap of a bare site is the one that its page names, or its robots.txt, or the customary
// one, in this order. No other page of a site leads to them.
func TestFindSitemapOfSite(t *testing.T) {
	t.Parallel()
	list := document("urlset", "", "<url><loc>https://example.org/a</loc></url>")
	for _, test := range []struct {
		name string
		site site
		want string // empty if nothing is found
	}{
		{"nothing", site{"/": "<html>hello"}, ""},
		{"custom", site{"/sitemap.xml": list}, "/sitemap.xml"},
		{"customary, with a page", site{"/": "<html>hello", "/robots.txt": "#\nUser-agent: *\n", "/sitemap.xml": list}, "/sitemap.xml"},
		{"a redirect", site{"/": "Location: /en/\n", "/en/": "<html>", "/sitemap.xml": "Location: /sitemap_index.xml\n", "/sitemap_index.xml": list}, "/sitemap_index.xml"},
		{"no sitemap", site{"/sitemap.xml": "<html>hello"}, ""},
		{"robots.txt", site{"/robots.txt": "#\nSitemap: BASE/other.xml.gz\n", "/other.xml.gz": packed(list), "/sitemap.xml": list}, "/other.xml.gz"},
		{"robots.txt of several", site{"/robots.txt": "#\nSitemap: /1.xml\nSitemap: /2.xml", "/sitemap.xml": list}, "/robots.txt"},
		{"robots.txt with missing sitemaps", site{"/robots.txt": "#\nSitemap: /1.xml", "/sitemap.xml": list}, "/sitemap.xml"},
		{"robots.txt of a text", site{"/robots.txt": "#\nSitemap: /all.txt", "/all.txt": "https://example.org/a\n", "/sitemap.xml": list}, "/all.txt"},
		{"the page", site{"/": "<html><head><link rel=sitemap href=mine.xml>", "/mine.xml": list, "/robots.txt": "#\nSitemap: /other.xml", "/sitemap.xml": list}, "/mine.xml"},
		{"a Source Description", site{"/.well-known/resourcesync": whole["/.well-known/resourcesync"], "/set/capabilitylist.xml": document("urlset", "capabilitylist"), "/robots.txt": "#\nSitemap: /sitemap.xml", "/sitemap.xml": list}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			base := test.site.start(t)
			for _, root := range []string{base, base + "/"} {
				got, err := discovery.Find(t.Context(), getter(), root)
				switch {
				case test.site["/.well-known/resourcesync"] != "":
					if err != nil || got.Sitemap != "" || got.CapabilityList == "" {
						t.Errorf("Find = %+v, %v, want only a Capability List", got, err)
					}
				case test.want == "":
					if err == nil || !strings.Contains(err.Error(), "no sitemap in robots.txt") {
						t.Errorf("Find = %+v, %v, want an error that names robots.txt", got, err)
					}
				case err != nil || !reflect.DeepEqual(*got, discovery.Source{Sitemap: base + test.want}):
					t.Errorf("Find = %+v, %v, want %s", got, err, test.want)
				}
			}
			if got, err := discovery.Find(t.Context(), getter(), base+"/blog/"); err == nil && got.Sitemap != "" {
				t.Errorf("Find of a page = %+v, want no sitemap", got)
			}
		})
	}
}

// A busy server is not mistaken for one without documents: the error has the wait. No request goes
// to a forbidden address, and all have a User-Agent.
func TestFindIsPolite(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.Header.Get("User-Agent")+" "+r.URL.Path)
		switch r.URL.Path {
		case "/busy":
			w.Header().Set("Retry-After", "77")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/page":
			_, _ = w.Write([]byte("<html><link rel=resourcesync href=/forbidden>"))
		case "/other":
			http.Redirect(w, r, "/forbidden", http.StatusFound)
		}
	}))
	defer s.Close()
	g := &harvest.Getter{Client: http.DefaultClient, UserAgent: "me/1", Tries: 1, Robots: true, Check: func(_, target string) error {
		if strings.Contains(target, "/forbidden") {
			return errors.New("the rules forbid it")
		}
		return nil
	}}
	for _, path := range []string{"/page", "/other"} {
		if _, err := discovery.Find(t.Context(), g, s.URL+path); err == nil || !strings.Contains(err.Error(), "the rules forbid it") {
			t.Errorf("Find(%s): got %v, want an error of the address rules", path, err)
		}
	}
	_, err := discovery.Find(t.Context(), g, s.URL+"/busy") // last, because the host gets no more requests
	if busy, ok := errors.AsType[*harvest.Busy](err); !ok || busy.After != 77*time.Second {
		t.Errorf("Find(/busy): got %v, want busy for 77 s", err)
	}
	if want := []string{"me/1 /page", "me/1 /robots.txt", "me/1 /other", "me/1 /busy"}; !slices.Equal(asked, want) {
		t.Errorf("got requests %q", asked)
	}
}

func TestFindMultipleSets(t *testing.T) {
	t.Parallel()
	base := site{
		"/.well-known/resourcesync": document("sitemapindex", "description",
			"<sitemap><loc>BASE/one.xml</loc></sitemap>", "<sitemap><loc>BASE/two.xml</loc></sitemap>"),
		"/one.xml": document("urlset", "description", entry("BASE/a.xml", "capabilitylist", ln("describedby", "BASE/about-a"))),
		"/two.xml": document("urlset", "description", entry("BASE/b.xml", "capabilitylist"), entry("BASE/a.xml", "capabilitylist")),
		"/a.xml":   document("urlset", "capabilitylist"),
		"/b.xml":   document("urlset", "capabilitylist"),
		"/page":    "<html><link rel=resourcesync href=a.xml><link rel=resourcesync href=b.xml><link rel=resourcesync href=a.xml>",
	}.start(t)
	for path, want := range map[string][]discovery.Set{
		"":      {{base + "/a.xml", base + "/about-a"}, {base + "/b.xml", ""}},
		"/page": {{base + "/a.xml", ""}, {base + "/b.xml", ""}},
	} {
		_, err := discovery.Find(t.Context(), getter(), base+path)
		several, ok := errors.AsType[*discovery.MultipleSets](err)
		if !ok || !reflect.DeepEqual(several.Sets, want) {
			t.Errorf("Find(%q) = %v, want sets %v", path, err, want)
		}
		if ok && !strings.Contains(err.Error(), base+"/b.xml") {
			t.Errorf("error does not name the sets: %v", err)
		}
	}
	if s, err := discovery.Find(t.Context(), getter(), base+"/b.xml"); err != nil || s.CapabilityList != base+"/b.xml" {
		t.Errorf("Find of the second set = %+v, %v, want its Capability List", s, err)
	}
}

func TestFindNotFound(t *testing.T) {
	t.Parallel()
	base := site{
		"/hello":                   "hello",
		"/loop":                    "<html><link rel=resourcesync href=loop>",
		"/feed":                    "<?xml version='1.0'?><rss/>",
		"/empty-description":       document("urlset", "description"),
		"/description-of-itself":   document("sitemapindex", "description", "<sitemap><loc>BASE/description-of-itself</loc></sitemap>"),
		"/capabilities-of-nothing": document("urlset", "description", entry("BASE/hello", "capabilitylist")),
	}.start(t)
	for _, path := range []string{"/hello", "/loop", "/feed", "/empty-description", "/description-of-itself", "/capabilities-of-nothing"} {
		t.Run(path, func(t *testing.T) {
			if s, err := discovery.Find(t.Context(), getter(), base+path); !errors.Is(err, discovery.ErrNotFound) {
				t.Errorf("Find(%q) = %+v, %v, want ErrNotFound", path, s, err)
			}
		})
	}
	for address, want := range map[string]string{
		base + "/absent":     "404: Not Found",
		"example.org":        "http://",
		"ftp://example.org/": "http://",
		"http://127.0.0.1:1": "refused",
	} {
		if s, err := discovery.Find(t.Context(), getter(), address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Find(%q) = %+v, %v, want an error with %q", address, s, err, want)
		}
	}
}

func TestFindTruncatedCapabilityList(t *testing.T) {
	t.Parallel()
	base := site{
		"/torn.xml":                 strings.TrimSuffix(document("urlset", "capabilitylist", entry("BASE/r.xml", "resourcelist")), "</urlset>"),
		"/.well-known/resourcesync": document("urlset", "description", entry("BASE/good.xml", "capabilitylist")),
		"/good.xml":                 document("urlset", "capabilitylist"),
	}.start(t)
	if s, err := discovery.Find(t.Context(), getter(), base+"/torn.xml"); err == nil || errors.Is(err, discovery.ErrNotFound) || !strings.Contains(err.Error(), "torn.xml") {
		t.Errorf("Find = %+v, %v: half a Capability List must be an error", s, err)
	}
}

// A truncated response is an error that allows another try, because the document is unknown.
func TestFindCutOff(t *testing.T) {
	t.Parallel()
	whole := document("urlset", "capabilitylist", entry("BASE/r.xml", "resourcelist"))
	for _, sent := range []string{whole[:len(whole)/2], whole[:3], ""} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			w.Header().Set("Content-Length", strconv.Itoa(len(whole)))
			_, _ = io.WriteString(w, sent)
		}))
		t.Cleanup(srv.Close)
		if s, err := discovery.Find(t.Context(), getter(), srv.URL+"/capabilitylist.xml"); err == nil || !harvest.IsAway(err) {
			t.Errorf("after %d bytes: Find = %+v, %v, want an error for which IsAway is true", len(sent), s, err)
		}
	}
}

// A set that is forbidden or does not exist, at a site with a description of other sets, is an
// error: none of the others is returned instead.
func TestFindRefused(t *testing.T) {
	t.Parallel()
	status := http.StatusForbidden
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/sets/other/changes":
			w.WriteHeader(status)
		case "/.well-known/resourcesync", "/repository/.well-known/resourcesync":
			text := document("urlset", "description", entry("http://"+r.Host+"/capabilitylist.xml", "capabilitylist"))
			_, _ = w.Write([]byte(text))
		case "/capabilitylist.xml":
			_, _ = w.Write([]byte(document("urlset", "capabilitylist")))
		case "/": // like servers without a page there
			w.WriteHeader(http.StatusForbidden)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer site.Close()
	for _, status = range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone, http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		s, err := discovery.Find(t.Context(), getter(), site.URL+"/sets/other/changes")
		if err == nil || !strings.Contains(err.Error(), strconv.Itoa(status)) || harvest.IsAway(err) != (status >= 429) {
			t.Errorf("status %d: Find = %+v, %v, want an error that names the status", status, s, err)
		}
	}
	for _, path := range []string{"", "/", "/repository", "/repository/"} {
		if s, err := discovery.Find(t.Context(), getter(), site.URL+path); err != nil || s.CapabilityList != site.URL+"/capabilitylist.xml" {
			t.Errorf("Find(%q) = %+v, %v, want the Capability List of the site", path, s, err)
		}
	}
}

// Lists are found in documents with other mistakes, such as those of openBIS: a time without a
// zone, and nonstandard elements.
func TestFindInFaultyDocuments(t *testing.T) {
	t.Parallel()
	base := site{
		"/?verb=about.xml": document("urlset", "description", entry("BASE/?verb=capabilitylist.xml", "capabilitylist")),
		"/?verb=capabilitylist.xml": strings.Replace(document("urlset", "capabilitylist", entry("BASE/?verb=resourcelist.xml", "resourcelist"), `<x xmlns="urn:x"><y/></x>`),
			`at="2026-01-01T00:00:00Z"`, `from="2013-02-07T22:39:00" at="never"`, 1),
	}.start(t)
	s, err := discovery.Find(t.Context(), getter(), base+"/?verb=about.xml")
	if err != nil || s.ResourceList != base+"/?verb=resourcelist.xml" {
		t.Errorf("Find = %+v, %v, want the Resource List", s, err)
	}
}

// A set of a real hub is found by each of its URLs, and by a source's own Capability List, which
// names only the topic.
func TestFindRSHub(t *testing.T) {
	t.Parallel()
	hub := localhub.Start(t)
	hub.Publish("articles")
	hub.Publish("other")
	source := site{"/capabilitylist.xml": document("urlset", "capabilitylist",
		entry("BASE/resourcelist.xml", "resourcelist"), entry(hub.URL+"/sets/articles/changes", "change-notification"))}.start(t)
	for _, address := range []string{
		hub.URL + "/sets/articles", hub.URL + "/sets/articles/changes",
		hub.URL + "/sets/articles/capabilitylist.xml", hub.URL + "/sets/articles/changelist.xml", source + "/capabilitylist.xml",
	} {
		s, err := discovery.Find(t.Context(), getter(), address)
		if err != nil {
			t.Errorf("Find(%s): %v", address, err)
			continue
		}
		if base, set, ok := s.RSHub(); !ok || base != hub.URL || set != "articles" {
			t.Errorf("Find(%s).RSHub() = %s, %s, %v, want the hub and \"articles\"", address, base, set, ok)
		}
		if s.Audit == "" || s.Baseline == "" || s.Resources == "" || len(s.Hubs) == 0 || s.ChangeList == "" {
			t.Errorf("Find(%s) = %+v, want all fields of an rshub", address, s)
		}
		if strings.HasPrefix(address, source) != (s.ResourceList == source+"/resourcelist.xml") {
			t.Errorf("Find(%s) has the Resource List %q", address, s.ResourceList)
		}
	}
}
