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

// elements returns the names of the elements of a page in order, and its links. It fails the test if
// an element is not closed properly.
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
				t.Errorf("got %d elements that are not closed, want 0", depth)
			}
			return names, links
		}
		if err != nil {
			t.Fatalf("parse the page: %v", err)
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
	empty := h.wantStatus(200, "GET", "/", "")
	elements(t, empty)
	if !strings.Contains(empty, "The first publish to a set creates it") {
		t.Errorf("page of a new hub = %s, want the advice to publish", empty)
	}
	for set, description := range map[string]string{
		"evil": `{"title":"<script>alert(1)</script>","describedby":"https://example.org/%3Cscript%3E"}`,
		"good": `{"title":"Fish & chips","describedby":"https://example.org/?a=1&b=2"}`,
	} {
		h.describe(set, description)
	}
	h.Publish("good")
	resp, page := servertest.Do(t, "GET", h.URL+"/", "")
	names, links := elements(t, page)
	if scripts := slices.DeleteFunc(names, func(name string) bool { return name != "script" }); len(scripts) != 1 {
		t.Errorf("got scripts in the page, want one:\n%s", page)
	}
	want := map[string]bool{h.URL + "/sets/good/resources": true, "https://example.org/?a=1&b=2": true, h.URL + "/sets/good": true, h.URL + "/sets/good/capabilitylist.xml": true, h.URL + "/sets": true, h.URL + "/.well-known/resourcesync": true}
	for _, link := range links {
		delete(want, link)
		if strings.HasPrefix(link, "javascript") {
			t.Errorf("got the link %s, want no script", link)
		}
		if own, ok := strings.CutPrefix(link, "./"); ok {
			link = h.URL + "/" + own
		}
		if strings.HasPrefix(link, h.URL) {
			if resp, _ := servertest.Do(t, "GET", link, ""); resp.StatusCode != http.StatusOK {
				t.Errorf("GET %s: got %d, want 200", link, resp.StatusCode)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("links missing in the page: %v", want)
	}
	for _, text := range []string{"&lt;script&gt;", "Fish &amp; chips", ">1</td>"} {
		if !strings.Contains(page, text) {
			t.Errorf("page lacks %q:\n%s", text, page)
		}
	}
	policy := resp.Header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, part) {
			t.Errorf("policy %q lacks %q", policy, part)
		}
	}
	// The policy forbids inline scripts and styles.
	if m := regexp.MustCompile(`(?i)\s(on\w+|style)=|<style|<script[^>]*>[^<]`).FindString(page); m != "" || strings.Contains(policy, "unsafe") {
		t.Errorf("got %q in the page with the policy %s, want no inline code", m, policy)
	}
}

// The URL of a set returns HTML to browsers and JSON to programs.
func TestSetPage(t *testing.T) {
	h := start(t, Config{})
	h.Publish("shown")
	for accept, want := range map[string]string{
		"": "application/json", "*/*": "application/json", "text/html;q=0.5, application/json": "application/json",
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": "text/html; charset=utf-8",
	} {
		resp, body := servertest.Do(t, "GET", h.URL+"/sets/shown", "", "Accept", accept)
		if resp.Header.Get("Content-Type") != want || !slices.Contains(resp.Header.Values("Vary"), "Accept") {
			t.Errorf("Accept %q: got %v %s, want %s", accept, resp.Header, body, want)
		}
		if strings.HasPrefix(want, "text/html") {
			elements(t, body)
			if !strings.Contains(body, h.URL+"/sets/shown/changes?since=start") {
				t.Errorf("page of a set = %s, want the URL of its changes", body)
			}
		}
	}
}

// asBrowser are the headers of a browser that navigates to a document.
var asBrowser = []string{"Accept", "text/html,application/xml;q=0.9,*/*;q=0.8", "Sec-Fetch-Dest", "document", "Sec-Fetch-Site", "none"}

// The page of a private set equals the page of a set that does not exist.
func TestPrivateSetPage(t *testing.T) {
	known, texts := tokens(t, "publish:*,follow:*,operate", "anyone - follow:*")
	h := start(t, Config{Callers: known})
	owner := bearer(texts[0])
	h.Publish("hidden", owner...)
	makePrivate(h, "hidden", true, owner...)
	for _, path := range []string{"", "/changelist.xml", "/changes", "/nothing.xml"} {
		h.wantSame(t, "GET", "/sets/SET"+path, "", asBrowser, "hidden", "missing")
	}
}

// Files of the page are cached forever, because their names change with their content.
func TestAssets(t *testing.T) {
	h := start(t, Config{})
	page := h.wantStatus(200, "GET", "/", "")
	m := regexp.MustCompile(`src="\./(page/(\w+)/main\.js)"`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("got the page %s, want a script", page)
	}
	for path, want := range map[string]string{m[1]: "public, max-age=31536000, immutable", strings.Replace(m[1], m[2], "0123456789abcdef", 1): "no-cache"} {
		resp, body := servertest.Do(t, "GET", h.URL+"/"+path, "")
		if got := resp.Header.Get("Cache-Control"); got != want || resp.Header.Get("Content-Type") != "text/javascript; charset=utf-8" || !strings.Contains(body, "import") {
			t.Errorf("GET %s: got %d %v, want Cache-Control: %s", path, resp.StatusCode, resp.Header, want)
		}
	}
	h.wantProblem(http.StatusNotFound, "not-found", "GET", "/page/"+m[2]+"/none.js", "")
}

// GET /caller returns the rights of a token.
func TestCaller(t *testing.T) {
	known, texts := tokens(t, "follow:a,operate", "follow:a", "anyone - follow:*")
	h := start(t, Config{Callers: known})
	for i, want := range []string{`"operate":true,"tokens":true}`, `"operate":false,"tokens":true}`} {
		if body := h.wantStatus(200, "GET", "/caller", "", bearer(texts[i])...); !strings.Contains(body, want) || !strings.Contains(body, `"name":`) {
			t.Errorf("GET /caller with token %d = %s, want %s and a name", i, body, want)
		}
	}
	if body := h.wantStatus(200, "GET", "/caller", ""); body != `{"operate":false,"tokens":true}`+"\n" {
		t.Errorf("GET /caller without a token = %s, want no name", body)
	}
	h.wantProblem(http.StatusUnauthorized, "unauthorized", "GET", "/caller", "", "Authorization", "Bearer rshub_WRONG")
}

// ?recent=N returns the cursor before the newest N changes.
func TestRecent(t *testing.T) {
	h := start(t, Config{})
	for range 5 {
		h.Publish("demo")
	}
	for n, want := range map[string]int{"1": 1, "3": 3, "5": 5, "100": 5} {
		var st sets.View
		h.getJSON(&st, "/sets/demo?recent="+n)
		var page struct{ Changes []json.RawMessage }
		if h.getJSON(&page, "/sets/demo/changes?since="+st.Recent); len(page.Changes) != want {
			t.Errorf("changes after recent=%s = %s, want %d", n, page.Changes, want)
		}
	}
	h.wantProblem(http.StatusBadRequest, "invalid", "GET", "/sets/demo?recent=0", "")
}

// Browsers get a document as HTML, and programs as XML.
func TestDocumentsInBrowser(t *testing.T) {
	h := start(t, Config{})
	h.Publish("demo")
	for _, path := range []string{"/.well-known/resourcesync", "/sets/demo/capabilitylist.xml", "/sets/demo/changelist.xml", "/sets/demo/changelist-index.xml", "/sets/demo/changes", "/sets/demo/.well-known/resourcesync"} {
		for _, browser := range []bool{true, false} {
			headers := []string{"User-Agent", "Java/21.0.2", "Accept", "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"}
			if browser {
				headers = append(slices.Clone(asBrowser), "User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")
			}
			resp, body := servertest.Do(t, "GET", h.URL+path, "", headers...)
			html := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html")
			if resp.StatusCode != http.StatusOK || html != browser || !html && !strings.HasPrefix(body, "<?xml") || strings.Count(strings.Join(resp.Header.Values("Vary"), ", ")+",", "Accept,") != 1 {
				t.Errorf("GET %s, browser %t: got %d %v %.100s, want HTML: %t", path, browser, resp.StatusCode, resp.Header, body, browser)
			}
			if html && resp.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("page of %s: got %v, want Cache-Control: no-store", path, resp.Header)
			}
		}
	}
}
