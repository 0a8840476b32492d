package server

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/dialect/rdm"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

var asRDM = []string{"Content-Type", rdm.MediaType}

// soif returns an RDM message: a header of a type for a set, and objects.
func soif(kind, set string, objects ...rdm.Object) string {
	header := rdm.Object{Type: "RDMHEADER", URL: "-", Attributes: []rdm.Attribute{{Name: "RDM-Version", Value: "1.0"}, {Name: "RDM-Type", Value: kind}, {Name: "Catalog-Service-ID", Value: set}}}
	text := header.Append(nil)
	for _, o := range objects {
		text = o.Append(text)
	}
	return string(text)
}

// rdmDocument returns a resource description. Attributes are pairs of name and value.
func rdmDocument(loc string, attributes ...string) rdm.Object {
	o := rdm.Object{Type: "DOCUMENT", URL: loc}
	for i := 0; i < len(attributes); i += 2 {
		o.Attributes = append(o.Attributes, rdm.Attribute{Name: attributes[i], Value: attributes[i+1]})
	}
	return o
}

// Descriptions submitted by RDM are published. RDM requests return the resources of a set and the
// deleted ones, selected by the scope. Package rdm tests views and most errors.
func TestRDM(t *testing.T) {
	t.Parallel()
	h := start(t, Config{})
	// get requests resource descriptions, and returns the objects without the header.
	get := func(status int, query string) string {
		t.Helper()
		text := h.wantStatus(status, "GET", rdm.Path+"?"+query, "")
		if !strings.HasPrefix(text, "@RDMHEADER { -\nRDM-Version{3}:\t1.0\n") {
			t.Fatalf("GET %s: got %s, want an RDM header", query, text)
		}
		header, objects, _ := strings.Cut(text, "\n}\n")
		if status == 200 && objects == "" {
			return header
		}
		return objects
	}
	locs := func(objects string) string {
		var all []string
		for line := range strings.Lines(objects) {
			if loc, ok := strings.CutPrefix(line, "@DOCUMENT { https://example.org/"); ok {
				all = append(all, strings.TrimSpace(loc))
			}
		}
		return strings.Join(all, " ")
	}
	want := func(query, want string) {
		t.Helper()
		if got := locs(get(200, query)); got != want {
			t.Errorf("GET %s: got %q, want %q", query, got, want)
		}
	}

	get(200, "type=status-request")
	if text := get(400, "type=rd-request&scope=all"); !strings.Contains(text, "you may follow 0 sets") {
		t.Errorf("without sets: got %s, want an error with their number", text)
	}
	resp, text := servertest.Do(t, "POST", h.URL+rdm.Path, soif("rd-response", "demo",
		rdmDocument("https://example.org/a", "Last-Modified", "Thu, 16 May 1996 11:45:39 GMT", "Content-Type", "text/html", "File-Size", "30", "MD5", strings.Repeat("0a", 16), "Title", "ignored"),
		rdmDocument("https://example.org/b", "Content-Length", "7", "Change", "created"),
		rdmDocument("https://example.org/c", "Content-Length", "100"),
		rdmDocument("https://example.org/d")), asRDM...)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != rdm.MediaType || !strings.Contains(text, "RDM-Type{15}:\tstatus-response") || !strings.Contains(text, "has stored 4 changes") {
		t.Fatalf("POST: got %d %s, want 200 and 4 changes", resp.StatusCode, text)
	}
	page := h.wantStatus(200, "GET", "/sets/demo/changes?since=start", "")
	for _, want := range []string{
		`"loc":"https://example.org/a","change":"updated"`, `"lastmod":"1996-05-16T11:45:39Z","hash":"md5:` + strings.Repeat("0a", 16) + `","length":30,"type":"text/html"`,
		`"loc":"https://example.org/b","change":"created"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("got the page %s, want a part %s", page, want)
		}
	}
	h.wantStatus(200, "POST", rdm.Path, soif("rd-response-deleted", "", rdmDocument("https://example.org/c"), rdmDocument("https://example.org/d")), asRDM...) // without a set, which is unambiguous
	h.wantStatus(200, "POST", rdm.Path, soif("rd-response", "", rdmDocument("https://example.org/d", "Content-Length", "9")), asRDM...)

	want("type=rd-request&ql=gatherer&scope=all", "a b d")
	want("type=rd-request&scope=all&csid="+url.QueryEscape("x-catalog://"+strings.TrimPrefix(h.URL, "http://")+"/demo"), "a b d")
	want("type=rd-request&scope=all&view-hits=2&view-order=-content-length", "a d") // sorted
	want("type=rd-request-deleted&scope=all", "c")                                  // d exists again
	for ago, found := range map[time.Duration]string{time.Hour: "a b d", -time.Hour: ""} {
		since := url.QueryEscape("since " + time.Now().Add(-ago).UTC().Format(http.TimeFormat))
		want("type=rd-request&scope="+since, found)
	}
	want("type=rd-request-deleted&scope="+url.QueryEscape("since "+time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)), "c")

	for _, test := range []struct {
		status       int
		want         string
		method, body string // body, or the query of a GET
	}{
		{400, "is not a set of this hub", "GET", "type=rd-request&scope=all&csid=x-catalog://example.org:80/demo"},
		{404, "no such set", "GET", "type=rd-request&scope=all&csid=other"},
		{400, "unknown parameter", "GET", "typ=status-request"},
		{400, "object 3 (@DOCUMENT https://example.org/f): attribute Title: value does not end after 3 bytes", "POST",
			soif("rd-response", "demo", rdmDocument("https://example.org/e")) + "@DOCUMENT { https://example.org/f\nTitle{3}:\tHello\n}\n"},
		{400, "the batch is empty", "POST", soif("rd-response", "demo")},
	} {
		query, body := "", test.body
		if test.method == "GET" {
			query, body = "?"+test.body, ""
		}
		resp, text := servertest.Do(t, test.method, h.URL+rdm.Path+query, body, asRDM...)
		if resp.StatusCode != test.status || resp.Header.Get("Content-Type") != rdm.MediaType || !strings.Contains(text, test.want) || !strings.Contains(text, "RDM-Error-Number{3}:\t4") {
			t.Errorf("%s: got %d %s, want %d and a part %q", test.body, resp.StatusCode, text, test.status, test.want)
		}
	}
	h.wantStatus(400, "POST", rdm.Path+"?csid=demo", soif("rd-response", "demo", rdmDocument("https://example.org/e")), asRDM...)
	want("type=rd-request&scope=all", "a b d") // nothing that was refused is stored
}
