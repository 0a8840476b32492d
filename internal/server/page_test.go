package server

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/sets"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

// elements returns the names of a page's elements in order, and its links. It
// fails where one is not closed, or closed wrongly.
func elements(t *testing.T, page string) (names, links []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict = false
	d.AutoClose, d.Entity = []string{"meta", "link", "br", "img"}, xml.HTMLEntity
	depth := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			if depth != 0 {
				t.Errorf("%d elements are not closed", depth)
			}
			return names, links
		}
		if err != nil {
			t.Fatalf("the page is no HTML: %v", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			depth++
			names = append(names, e.Name.Local)
			for _, a := range e.Attr {
				if a.Name.Local == "href" || a.Name.Local == "src" {
					links = append(links, a.Value)
				}
			}
		case xml.EndElement:
			depth--
		}
	}
}

func TestPage(t *testing.T) {
	h := start(t, Config{})
	empty := h.wants(200, "GET", "/", "")
	elements(t, empty)
	if !strings.Contains(empty, "The first publish to a set creates it") {
		t.Errorf("the page of a new hub is %s", empty)
	}
	for set, description := range map[string]string{
		"evil": `{"title":"<script>alert(1)</script>","describedby":"https://example.org/%3Cscript%3E"}`,
		"good": `{"title":"Fish & chips","describedby":"https://example.org/?a=1&b=2"}`,
	} {
		h.describes(set, description)
	}
	h.Publish("good")
	resp, page := servertest.Do(t, "GET", h.URL+"/", "")
	names, links := elements(t, page)
	if scripts := slices.DeleteFunc(names, func(name string) bool { return name != "script" }); len(scripts) != 1 {
		t.Errorf("a title became a script:\n%s", page)
	}
	want := map[string]bool{h.URL + "/sets/good/resources": true, "https://example.org/?a=1&b=2": true, h.URL + "/sets/good": true, h.URL + "/sets/good/capabilitylist.xml": true, h.URL + "/sets": true, h.URL + "/.well-known/resourcesync": true}
	for _, link := range links {
		delete(want, link)
		if strings.HasPrefix(link, "javascript") {
			t.Errorf("a link runs %s", link)
		}
		if own, ok := strings.CutPrefix(link, "./"); ok {
			link = h.URL + "/" + own
		}
		if strings.HasPrefix(link, h.URL) {
			if resp, _ := servertest.Do(t, "GET", link, ""); resp.StatusCode != http.StatusOK {
				t.Errorf("%s is %d", link, resp.StatusCode)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("these links are missing: %v", want)
	}
	for _, text := range []string{"&lt;script&gt;", "Fish &amp; chips", ">1</td>"} {
		if !strings.Contains(page, text) {
			t.Errorf("%s is missing:\n%s", text, page)
		}
	}
	policy := resp.Header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, part) {
			t.Errorf("the policy %q lacks %s", policy, part)
		}
	}
	// The policy forbids scripts and styles in the page itself.
	if m := regexp.MustCompile(`(?i)\s(on\w+|style)=|<style|<script[^>]*>[^<]`).FindString(page); m != "" || strings.Contains(policy, "unsafe") {
		t.Errorf("the page has %s, and its policy is %s", m, policy)
	}
}

// A browser gets the view of a set, and a program its JSON, at one URL.
func TestPageOfASet(t *testing.T) {
	h := start(t, Config{})
	h.Publish("shown")
	for accept, want := range map[string]string{
		"": "application/json", "*/*": "application/json", "text/html;q=0.5, application/json": "application/json",
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": "text/html; charset=utf-8",
	} {
		resp, body := servertest.Do(t, "GET", h.URL+"/sets/shown", "", "Accept", accept)
		if resp.Header.Get("Content-Type") != want || !slices.Contains(resp.Header.Values("Vary"), "Accept") {
			t.Errorf("Accept %q gives %v %s", accept, resp.Header, body)
		}
		if strings.HasPrefix(want, "text/html") {
			elements(t, body)
			if !strings.Contains(body, h.URL+"/sets/shown/changes?since=start") {
				t.Errorf("the view of a set is %s", body)
			}
		}
	}
}

// asPerson are the headers of a browser that shows a document.
var asPerson = []string{"Accept", "text/html,application/xml;q=0.9,*/*;q=0.8", "Sec-Fetch-Dest", "document", "Sec-Fetch-Site", "none"}

// Whoever visits a private set sees what there is of one that is not there.
func TestPageOfAPrivateSet(t *testing.T) {
	known, texts := tokens(t, "publish:*,follow:*,operate", "anyone - follow:*")
	h := start(t, Config{Callers: known})
	owner := bearer(texts[0])
	h.Publish("hidden", owner...)
	makePrivate(h, "hidden", true, owner...)
	for _, path := range []string{"", "/changelist.xml", "/changes", "/nothing.xml"} {
		h.alike(t, "GET", "/sets/SET"+path, "", asPerson, "hidden", "missing")
	}
}

// The files of the page are kept for ever under a name that changes with them.
func TestAssets(t *testing.T) {
	h := start(t, Config{})
	page := h.wants(200, "GET", "/", "")
	m := regexp.MustCompile(`src="\./(page/(\w+)/main\.js)"`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("the page has no script: %s", page)
	}
	for path, want := range map[string]string{m[1]: "public, max-age=31536000, immutable", strings.Replace(m[1], m[2], "0123456789abcdef", 1): "no-cache"} {
		resp, body := servertest.Do(t, "GET", h.URL+"/"+path, "")
		if got := resp.Header.Get("Cache-Control"); got != want || resp.Header.Get("Content-Type") != "text/javascript; charset=utf-8" || !strings.Contains(body, "import") {
			t.Errorf("%s: %d %v, want Cache-Control: %s", path, resp.StatusCode, resp.Header, want)
		}
	}
	h.refuses(http.StatusNotFound, "not-found", "GET", "/page/"+m[2]+"/none.js", "")
}

// Who signs in learns whether the token is good.
func TestCaller(t *testing.T) {
	known, texts := tokens(t, "follow:a,operate", "follow:a", "anyone - follow:*")
	h := start(t, Config{Callers: known})
	for i, want := range []string{`"operate":true,"tokens":true}`, `"operate":false,"tokens":true}`} {
		if body := h.wants(200, "GET", "/caller", "", bearer(texts[i])...); !strings.Contains(body, want) || !strings.Contains(body, `"name":`) {
			t.Errorf("caller %d is %s", i, body)
		}
	}
	if body := h.wants(200, "GET", "/caller", ""); body != `{"operate":false,"tokens":true}`+"\n" {
		t.Errorf("whoever has no token is %s", body)
	}
	h.refuses(http.StatusUnauthorized, "unauthorized", "GET", "/caller", "", "Authorization", "Bearer rshub_WRONG")
}

// The cursor before the newest changes leads to these.
func TestRecent(t *testing.T) {
	h := start(t, Config{})
	for range 5 {
		h.Publish("demo")
	}
	for n, want := range map[string]int{"1": 1, "3": 3, "5": 5, "100": 5} {
		var st sets.View
		h.reads(&st, "/sets/demo?recent="+n)
		var page struct{ Changes []json.RawMessage }
		if h.reads(&page, "/sets/demo/changes?since="+st.Recent); len(page.Changes) != want {
			t.Errorf("recent=%s leads to %s", n, page.Changes)
		}
	}
	h.refuses(http.StatusBadRequest, "invalid", "GET", "/sets/demo?recent=0", "")
}

// A person in a browser gets a document as a page, and a program gets its bytes.
func TestDocumentsForPeople(t *testing.T) {
	h := start(t, Config{})
	h.Publish("demo")
	for _, path := range []string{"/.well-known/resourcesync", "/sets/demo/capabilitylist.xml", "/sets/demo/changelist.xml", "/sets/demo/changelist-index.xml", "/sets/demo/changes", "/sets/demo/.well-known/resourcesync"} {
		for _, person := range []bool{true, false} {
			headers := []string{"User-Agent", "Java/21.0.2", "Accept", "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"}
			if person {
				headers = append(slices.Clone(asPerson), "User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")
			}
			resp, body := servertest.Do(t, "GET", h.URL+path, "", headers...)
			html := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html")
			if resp.StatusCode != http.StatusOK || html != person || !html && !strings.HasPrefix(body, "<?xml") || strings.Count(strings.Join(resp.Header.Values("Vary"), ", ")+",", "Accept,") != 1 {
				t.Errorf("a person (%t) gets from %s: %d %v %.100s", person, path, resp.StatusCode, resp.Header, body)
			}
			if html && resp.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("the page of %s may be kept: %v", path, resp.Header)
			}
		}
	}
}
