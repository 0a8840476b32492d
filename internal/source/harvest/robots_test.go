package harvest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// For any robots.txt, the delay is bounded, and sitemaps are absolute URLs.
func FuzzReadRobots(f *testing.F) {
	for _, s := range []string{
		"", "User-agent: *\nCrawl-delay: 5\nSitemap: /sitemap.xml", "\ufeffuser-agent: rshub\r\ncrawl-delay: 1e999\r\n", "User-agent: a\nUser-agent: RSHUB\nDisallow: /\nCrawl-delay: 0.5\nUser-agent: *\nCrawl-delay: 9",
		"Crawl-delay: NaN\nCrawl-delay: -1\nCrawl-delay: Inf", "Sitemap: javascript:alert(1)\nSitemap: //evil.example/x\nSitemap: http://[::1\nSitemap: robots.txt", "Sitemap: https://user:pass@a.example/#x\nSitemap:\n", "a\x00b:c\n:::\n#",
	} {
		f.Add(s)
	}
	at, err := url.Parse("https://site.example.org/robots.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		said, err := parseRobots(strings.NewReader(text), at, "rshub")
		if said.delay < 0 || said.delay > maxDelay || len(said.sitemaps) > maxSitemaps {
			t.Errorf("parseRobots(%q) = %+v, want values within the limits", text, said)
		}
		for i, s := range said.sitemaps {
			u, err := url.Parse(s)
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.String() != s || u.Fragment != "" || s == at.String() || slices.Contains(said.sitemaps[:i], s) {
				t.Errorf("parseRobots(%q) has the sitemap %q, %v", text, s, err)
			}
		}
		if err != nil || len(said.sitemaps) == maxSitemaps {
			return
		}
		// Later lines count, too.
		more, err := parseRobots(strings.NewReader(text+"\nUser-agent: rshub\nCrawl-delay: 3\nSitemap: https://more.example/x"), at, "rshub")
		if err != nil || !slices.Contains(more.sitemaps, "https://more.example/x") || more.delay != 3*time.Second {
			t.Errorf("parseRobots(%q) ignores later lines: %+v, %v", text, more, err)
		}
	})
}

// Sitemaps returns an error if a site's robots.txt cannot be read at present, because another list
// of the site may have fewer resources. The next call requests it again.
func TestSitemapsOfBusySite(t *testing.T) {
	const text = "Sitemap: /1.xml\nSitemap: /2.xml\n"
	for name, fail := range map[string]func(w http.ResponseWriter){
		"busy":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		"broken": func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		"cut off": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "32")
			_, _ = io.WriteString(w, text[:17])
		},
	} {
		t.Run(name, func(t *testing.T) {
			fails := true
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if fails {
					fail(w)
					return
				}
				_, _ = io.WriteString(w, text)
			}))
			defer s.Close()
			site, err := url.Parse(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			g := &Getter{Client: http.DefaultClient, Robots: true}
			if got, err := g.Sitemaps(t.Context(), site); !IsAway(err) || len(got) > 0 {
				t.Errorf("Sitemaps() = %q, %v, want none, and an error for which IsAway is true", got, err)
			}
			fails = false
			if got, err := g.Sitemaps(t.Context(), site); err != nil || len(got) != 2 {
				t.Errorf("Sitemaps() = %q, %v, want two", got, err)
			}
		})
	}
}

// A source whose lists are at ever more hosts does not fill the memory. A host that wants a delay
// between two requests is remembered until then, however its name is written.
func TestGetterForgetsHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Getter{Robots: true, Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			text := "urn:x:1"
			if r.URL.Path == "/robots.txt" {
				text = "User-agent: *\nCrawl-delay: 60"
			}
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
		})}}
		get := func(site string) {
			t.Helper()
			a, err := g.Get(t.Context(), "the list", site+"/list", Version{})
			if err != nil {
				t.Fatal(err)
			}
			a.Close()
		}
		begin := time.Now()
		get("http://slow.example")
		get("https://Slow.example:443")
		for i := range 5 * maxHosts {
			get(fmt.Sprint("http://host", i, ".example"))
		}
		if n := len(g.hosts); n > maxHosts {
			t.Errorf("got %d remembered hosts", n)
		}
		get("http://slow.example")
		if took := time.Since(begin); took != 2*time.Minute {
			t.Errorf("three requests with a Crawl-delay of a minute took %v", took)
		}
	})
}

// The delay of a robots.txt applies while the file cannot be read, and it is soon requested again.
func TestCrawlDelaySurvivesFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status, delay, asked := http.StatusOK, 60, 0
		g := &Getter{Robots: true, Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			a := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("urn:x:1")), Request: r}
			if r.URL.Path == "/robots.txt" {
				asked++
				a.StatusCode, a.Body = status, io.NopCloser(strings.NewReader(fmt.Sprintf("User-agent: *\nCrawl-delay: %d", delay)))
			}
			return a, nil
		})}}
		pause := func(want time.Duration) {
			t.Helper()
			begin := time.Now()
			for range 2 {
				a, err := g.Get(t.Context(), "the list", "http://slow.example/list", Version{})
				if err != nil {
					t.Fatal(err)
				}
				a.Close()
			}
			if took := time.Since(begin); took != want {
				t.Errorf("two requests took %v, want %v", took, want)
			}
		}
		pause(time.Minute)
		time.Sleep(25 * time.Hour)
		status = http.StatusServiceUnavailable
		pause(time.Minute)
		if asked != 2 {
			t.Errorf("robots.txt was requested %d times", asked)
		}
		time.Sleep(time.Hour)
		status, delay = http.StatusOK, 30
		pause(30 * time.Second)
	})
}
