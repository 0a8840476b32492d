package harvest

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// Whatever a robots.txt says, the delay is bounded, and sitemaps are absolute URLs.
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
		said, err := readRobots(strings.NewReader(text), at, "rshub")
		if said.delay < 0 || said.delay > delayMost || len(said.sitemaps) > sitemapsMax {
			t.Errorf("%q is %+v", text, said)
		}
		for i, s := range said.sitemaps {
			u, err := url.Parse(s)
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.String() != s || u.Fragment != "" || s == at.String() || slices.Contains(said.sitemaps[:i], s) {
				t.Errorf("%q names the sitemap %q, %v", text, s, err)
			}
		}
		if err != nil || len(said.sitemaps) == sitemapsMax {
			return
		}
		// What follows counts, too.
		more, err := readRobots(strings.NewReader(text+"\nUser-agent: rshub\nCrawl-delay: 3\nSitemap: https://more.example/x"), at, "rshub")
		if err != nil || !slices.Contains(more.sitemaps, "https://more.example/x") || more.delay != 3*time.Second {
			t.Errorf("%q hides what follows: %+v, %v", text, more, err)
		}
	})
}
