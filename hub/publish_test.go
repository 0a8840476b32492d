package hub

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

const (
	loc1 = "https://example.org/a"
	loc2 = "https://example.org/b"
)

// xmlOf returns a document with two changes. md has the attributes of its rs:md.
func xmlOf(md string) string {
	return `<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
  ` + md + `
  <url><loc>` + loc1 + `</loc><lastmod>2026-01-02T03:04:05Z</lastmod><rs:md change="updated" datetime="2026-01-02T03:04:05Z" length="8"/></url>
  <url><loc>` + loc2 + `</loc><rs:md change="deleted"/></url>
</urlset>`
}

const (
	jsonDoc  = `{"changes":[{"loc":"` + loc1 + `","change":"updated"},{"loc":"` + loc2 + `","change":"deleted"}]}`
	linesDoc = `{"loc":"` + loc1 + `","change":"updated"}` + "\n" + `{"loc":"` + loc2 + `","change":"deleted"}` + "\n"
)

func gzipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(s))
	_ = z.Close()
	return b.String()
}

// post publishes to the set demo. headers are name, value, name, value.
func post(h *Hub, body string, headers ...string) *httptest.ResponseRecorder {
	return postIn(callerContext(""), h, body, headers...)
}

func postIn(ctx context.Context, h *Hub, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, base+"/sets/demo/changes", strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	servePublish(h, w, r)
	return w
}

// servePublish publishes to the set demo, and answers with errors as a server does.
func servePublish(h *Hub, w http.ResponseWriter, r *http.Request) {
	a := problem.Adapter{Logger: slog.New(slog.DiscardHandler)}
	a.Handle(func(w http.ResponseWriter, r *http.Request) error { return h.ServePublish(w, r, "demo") })(w, r)
}

// as returns the context of a request of the named caller, who may do everything.
func callerContext(caller string) context.Context {
	return access.NewContext(context.Background(), access.Caller{Name: caller, Rights: access.All()})
}

func receiptOf(t *testing.T, w *httptest.ResponseRecorder) feed.Receipt {
	t.Helper()
	var r feed.Receipt
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("got status %d, body %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func problemOf(t *testing.T, status int, header http.Header, body []byte) feed.Problem {
	t.Helper()
	var p feed.Problem
	if header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("got status %d, body %s", status, body)
	}
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatal(err)
	}
	if p.Status != status {
		t.Errorf("problem has status %d, response %d", p.Status, status)
	}
	return p
}

func TestServePublish(t *testing.T) {
	for _, test := range []struct {
		name, contentType, encoding, body string
	}{
		{"change notification", "application/xml", "", xmlOf(`<rs:md capability="change-notification"/>`)},
		{"change list", "application/xml", "", xmlOf(`<rs:md capability="changelist" from="2026-01-01T00:00:00Z"/>`)},
		{"as version 1.0 called it", "application/xml", "", xmlOf(`<rs:md capability="changelist-notification"/>`)},
		{"no capability", "application/xml", "", xmlOf("")},
		{"text/xml", "text/xml", "", xmlOf("")},
		{"charset", "application/xml; charset=UTF-8", "", xmlOf("")},
		{"quoted charset", `text/xml; charset="utf-8"`, "", xmlOf("")},
		{"letter case", "Application/XML", "", xmlOf("")},
		{"identity", "application/xml", "identity", xmlOf("")},
		{"JSON", "application/json", "", jsonDoc},
		{"JSON with charset", "application/json; charset=utf-8", "", jsonDoc},
		{"NDJSON", "application/x-ndjson", "", linesDoc},
		{"NDJSON by another name", "application/jsonl", "", linesDoc},
		{"XML, gzip", "application/xml", "gzip", gzipped(xmlOf(""))},
		{"JSON, gzip", "application/json", "x-gzip", gzipped(jsonDoc)},
		{"NDJSON, gzip", "application/x-ndjson", "GZIP", gzipped(linesDoc)},
		{"gzip in two members", "application/x-ndjson", "gzip", gzipped(linesDoc[:50]) + gzipped(linesDoc[50:])},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, log := newHub(t, Options{})
			w := post(h, test.body, "Content-Type", test.contentType, "Content-Encoding", test.encoding)
			r := receiptOf(t, w)
			b, err := log.Since(t.Context(), "demo", feed.Cursor{}, 0)
			if err != nil || len(b.Entries) != 2 {
				t.Fatalf("Since() = %+v, %v", b, err)
			}
			first, last := b.Entries[0], b.Entries[1]
			want := feed.Receipt{Set: "demo", First: first.Cursor.String(), Cursor: last.Cursor.String(), Count: 2, Line: r.Line}
			if r != want {
				t.Errorf("receipt = %+v, want %+v", r, want)
			}
			if first.Change.Loc != loc1 || first.Change.Change != resourcesync.Updated || last.Change.Loc != loc2 || last.Change.Change != resourcesync.Deleted {
				t.Errorf("entries = %+v", b.Entries)
			}
		})
	}
}

// The tests of resourcesync cover the faults of documents and changes. This test checks that each
// format is validated, and what the problem says.
func TestServePublishRefuses(t *testing.T) {
	const xmlType, jsonType, lines = "application/xml", "application/json", "application/x-ndjson"
	entry := func(s string) string { return `{"changes":[{"loc":"` + loc1 + `","change":"updated"},` + s + `]}` }
	line := func(s string) string { return `{"loc":"` + loc1 + `","change":"updated"}` + "\n\n" + s + "\n" }
	for _, test := range []struct {
		name, contentType, encoding, body string
		status                            int
		problem                           string // the end of its type
		entry, line                       int
		detail                            string // a part of it
	}{
		{"no type", "", "", jsonDoc, 415, "unsupported", 0, 0, "changes are sent as application/xml, text/xml, application/json, application/x-ndjson, application/ndjson, application/jsonl"},
		{"a form", "application/x-www-form-urlencoded", "", jsonDoc, 415, "unsupported", 0, 0, "application/x-www-form-urlencoded"},
		{"charset", "application/xml; charset=iso-8859-1", "", xmlOf(""), 415, "unsupported", 0, 0, "send UTF-8"},
		{"coding", xmlType, "br", xmlOf(""), 415, "unsupported", 0, 0, "send gzip or none"},
		{"no gzip", xmlType, "gzip", xmlOf(""), 400, "invalid", 0, 0, "body: data is not gzip"},
		{"half a gzip", xmlType, "gzip", gzipped(xmlOf(""))[:60], 400, "invalid", 0, 0, "gzip data ends early"},
		{"a gzip without its checksum", jsonType, "gzip", gzipped(jsonDoc)[:len(gzipped(jsonDoc))-4], 400, "invalid", 0, 0, "ends early"},
		{"a damaged gzip", xmlType, "gzip", gzipped(jsonDoc)[:10] + "\xff" + gzipped(jsonDoc)[11:], 400, "invalid", 0, 0, "gzip data is damaged"},
		{"bytes after the gzip of XML", xmlType, "gzip", gzipped(xmlOf("")) + "\n", 400, "invalid", 0, 0, "1 byte after the end of the gzip data"},
		{"bytes after the gzip of JSON", jsonType, "gzip", gzipped(jsonDoc) + "\n", 400, "invalid", 0, 0, "1 byte after the end of the gzip data"},
		{"bytes after the gzip of NDJSON", lines, "gzip", gzipped(linesDoc) + "\n", 400, "invalid", 0, 0, "1 byte after the end of the gzip data"},
		{"empty gzip", lines, "gzip", "", 400, "invalid", 0, 0, "ends early"},

		{"empty NDJSON", lines, "", "\n \n", 400, "invalid", 0, 0, "at least one"},
		{"no changes in XML", xmlType, "", `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"/>`, 400, "invalid", 0, 0, "at least one"},
		{"no changes in JSON", jsonType, "", `{"changes":[]}`, 400, "invalid", 0, 0, "at least one"},
		{"truncated XML", xmlType, "", xmlOf("")[:300], 400, "invalid", 1, 4, "ends early"},
		{"truncated JSON", jsonType, "", jsonDoc[:60], 400, "invalid", 1, 0, "ends early"},
		{"a resource list", xmlType, "", xmlOf(`<rs:md capability="resourcelist"/>`), 400, "invalid", 0, 0, `its capability is "resourcelist"`},
		{"an index", xmlType, "", `<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><sitemap><loc>` + loc1 + `</loc></sitemap></sitemapindex>`, 400, "invalid", 0, 0, "sitemapindex"},
		{"from after until", xmlType, "", xmlOf(`<rs:md capability="changelist" from="2026-01-02T00:00:00Z" until="2026-01-01T00:00:00Z"/>`), 400, "invalid", 0, 0, "from is later than until"},

		{"no change", jsonType, "", entry(`{"loc":"` + loc2 + `"}`), 400, "invalid", 2, 0, "created, updated or deleted"},
		{"no change in XML", xmlType, "", strings.Replace(xmlOf(""), ` change="deleted"`, "", 1), 400, "invalid", 2, 0, "change is missing"},
		{"a bad line", lines, "", line(`{"loc":"` + loc2 + `"`), 400, "invalid", 2, 3, "ends early"},
		{"a line without change", lines, "", line(`{"loc":"` + loc2 + `"}`), 400, "invalid", 2, 3, "change is missing"},

		{"too large", xmlType, "", xmlOf("<!--" + strings.Repeat("x", 20_000) + "-->"), 413, "too-large", 0, 0, "10"},
		{"too large once unpacked", jsonType, "gzip", gzipped(`{"set":"` + strings.Repeat("x", 20_000) + `","changes":[]}`), 413, "too-large", 0, 0, "10,000 bytes"},
		{"a batch of lines too large", lines, "", strings.Repeat(linesDoc, 150), 413, "too-large", 201, 201, "a batch of 1000 lines"},
		{"a long line", lines, "", line(`{"loc":"` + strings.Repeat("x", 1<<20) + `"}`), 413, "too-large", 2, 3, "1,048,576 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, log := newHub(t, Options{MaxBody: 10_000})
			w := post(h, test.body, "Content-Type", test.contentType, "Content-Encoding", test.encoding)
			p := problemOf(t, w.Code, w.Header(), w.Body.Bytes())
			if p.Status != test.status || p.Type != resourcesync.Terms+"problems/"+test.problem {
				t.Errorf("problem = %d %s (%s), want %d %s", p.Status, p.Type, p.Detail, test.status, test.problem)
			}
			if p.Entry != test.entry || p.Line != test.line && test.contentType != xmlType {
				t.Errorf("problem is at entry %d, line %d, want %d, %d: %s", p.Entry, p.Line, test.entry, test.line, p.Detail)
			}
			if !strings.Contains(p.Detail, test.detail) {
				t.Errorf("detail = %q, want it to contain %q", p.Detail, test.detail)
			}
			if got := locs(t, log, "demo"); len(got) > 0 {
				t.Errorf("the log has %d entries", len(got))
			}
		})
	}
}

// All that is wrong in a document is reported, and of a stream what has come.
func TestAllErrors(t *testing.T) {
	h, log := newHub(t, Options{})
	const wrong, good = `{"loc":"not a URI","change":"updated"}`, `{"loc":"urn:x:a","change":"updated"}`
	url := func(md string) string { return "<url><loc>urn:x:a</loc><rs:md " + md + "/></url>" }
	list := `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">`
	for _, test := range []struct {
		name, mediaType, body, entries, detail string
	}{
		{"JSON", jsonType, `{"changes":[` + good + "," + wrong + `,{"url":"urn:x:a"},` + good + `,{"loc":"urn:x:b","change":"gone"}]}`, "2 3 5", `unknown member "url" in a change`},
		{"XML", xmlType, list + `<rs:md capability="changelist"/>` + url(`change="updated"`) + url("") + url(`change="moved"`) + "</urlset>", "2 3", "entry 3"},
		{"NDJSON", ndjsonType, good + "\n" + wrong + "\n\nx\n" + good + "\n" + wrong + "\n", "2 3 5", "line 6"},
		{"one", ndjsonType, good + "\n" + wrong + "\n" + good + "\n", "", "line 2"},
		{"no changes at all", xmlType, list + `<rs:md capability="resourcelist"/>` + url(`hash="md5:x"`) + url(`hash="md5:x"`) + "</urlset>", "", "capability"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := post(h, test.body, "Content-Type", test.mediaType)
			p := problemOf(t, w.Code, w.Header(), w.Body.Bytes())
			var entries []string
			for _, e := range p.Errors {
				entries = append(entries, strconv.Itoa(e.Entry))
				if e.Detail == "" || test.mediaType == ndjsonType && e.Line == 0 {
					t.Errorf("error = %+v", e)
				}
			}
			if got := strings.Join(entries, " "); p.Status != 400 || got != test.entries || !strings.Contains(p.Detail, test.detail) {
				t.Errorf("problem = %+v", p)
			}
		})
	}
	if got := locs(t, log, "demo"); len(got) > 0 {
		t.Errorf("the log has %q", got)
	}
}

func TestIdempotencyKey(t *testing.T) {
	long := strings.Repeat("k", changelog.MaxKey)
	other := strings.Replace(jsonDoc, "deleted", "created", 1)
	interval := xmlOf(`<rs:md capability="changelist" from="2026-01-01T00:00:00Z" until="2026-01-02T00:00:00Z"/>`)
	type sent struct {
		caller, key, form, body string
		status                  int
		replayed                bool // otherwise the receipt is equal to the first one
	}
	const j, x = "application/json", "application/xml"
	for _, test := range []struct {
		name  string
		sent  []sent
		added int
	}{
		{"again", []sent{{"", "k", j, jsonDoc, 200, false}, {"", "k", j, jsonDoc, 200, true}, {"", "k", j, jsonDoc, 200, true}}, 2},
		{"quoted is the same key", []sent{{"", "k", j, jsonDoc, 200, false}, {"", `"k"`, j, jsonDoc, 200, true}}, 2},
		{"the longest key", []sent{{"", long, j, jsonDoc, 200, false}, {"", long, j, jsonDoc, 200, true}}, 2},
		{"other content", []sent{{"", "k", j, jsonDoc, 200, false}, {"", "k", j, other, 422, false}}, 2},
		{"other key", []sent{{"", "k", j, jsonDoc, 200, false}, {"", "l", j, jsonDoc, 200, false}}, 4},
		{"other caller", []sent{{"alice", "k", j, jsonDoc, 200, false}, {"bob", "k", j, other, 200, false}}, 4},
		{"no key", []sent{{"", "", j, jsonDoc, 200, false}, {"", "", j, jsonDoc, 200, false}}, 4},
		{"an interval", []sent{{"", "", x, interval, 200, false}, {"", "", x, interval, 200, true}}, 2},
		{"the same interval with other content", []sent{{"", "", x, interval, 200, false}, {"", "", x, interval + " ", 200, false}}, 4},
		{"an interval of others", []sent{{"alice", "", x, interval, 200, false}, {"bob", "", x, interval, 200, false}}, 4},
		{"too long", []sent{{"", long + "k", j, jsonDoc, 400, false}}, 0},
		{"empty", []sent{{"", `""`, j, jsonDoc, 400, false}}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, log := newHub(t, Options{})
			var first feed.Receipt
			for i, s := range test.sent {
				headers := []string{"Content-Type", s.form}
				if s.key != "" {
					headers = append(headers, "Idempotency-Key", s.key)
				}
				w := postIn(callerContext(s.caller), h, s.body, headers...)
				if w.Code != s.status {
					t.Fatalf("response %d: got status %d, body %s", i+1, w.Code, w.Body)
				}
				if s.status != http.StatusOK {
					continue
				}
				r := receiptOf(t, w)
				if i == 0 {
					first = r
				}
				again := first
				again.Replayed = true
				if s.replayed != r.Replayed || s.replayed && r != again {
					t.Errorf("receipt %d = %+v, want %+v as at first", i+1, r, first)
				}
			}
			if n := len(locs(t, log, "demo")); n != test.added {
				t.Errorf("the log has %d entries, want %d", n, test.added)
			}
		})
	}
	t.Run("two keys", func(t *testing.T) {
		h, _ := newHub(t, Options{})
		if w := post(h, jsonDoc, "Content-Type", j, "Idempotency-Key", "a", "Idempotency-Key", "b"); w.Code != http.StatusBadRequest {
			t.Errorf("got status %d", w.Code)
		}
	})
}

func TestServeHub(t *testing.T) {
	const self, hub = `<` + base + `/sets/demo/changes>; rel="self"`, `<` + base + `/hub>; rel="hub"`
	demo, err := access.ParseRights("publish:demo")
	if err != nil {
		t.Fatal(err)
	}
	other, err := access.ParseRights("publish:other")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		links  []string
		rights access.Rights
		status int
		detail string
	}{
		{"one field", []string{self + ", " + hub}, demo, 200, ""},
		{"two fields", []string{hub, self}, demo, 200, ""},
		{"as the standard writes it", []string{`<` + base + `/sets/demo/changes> ; rel="self", <` + base + `/hub/> ; rel="hub", <` + base + `/sets/demo/capabilitylist.xml> ; rel="resourcesync"`}, demo, 200, ""},
		{"several hubs", []string{self, `<https://other.example/hub>; rel=hub`, hub}, demo, 200, ""},
		{"none", nil, demo, 400, "Link"},
		{"no hub", []string{self}, demo, 400, "Link"},
		{"no self", []string{hub}, demo, 400, "Link"},
		{"two selves", []string{self, self, hub}, demo, 400, "Link"},
		{"another hub", []string{self, `<https://other.example/hub>; rel="hub"`}, demo, 400, "does not name this hub"},
		{"a topic elsewhere", []string{`<https://other.example/sets/demo/changes>; rel=self`, hub}, demo, 400, "is not a topic of this hub"},
		{"another document", []string{`<` + base + `/sets/demo/changelist.xml>; rel=self`, hub}, demo, 400, "is not a topic of this hub"},
		{"no name of a set", []string{`<` + base + `/sets/a/b/changes>; rel=self`, hub}, demo, 400, "is not a topic of this hub"},
		{"no right", []string{self, hub}, other, 403, "publish:demo"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, log := newHub(t, Options{})
			r := httptest.NewRequest(http.MethodPost, base+"/hub", strings.NewReader(jsonDoc))
			r.Header.Set("Content-Type", "application/json")
			r.Header["Link"] = test.links
			w := httptest.NewRecorder()
			a := problem.Adapter{Logger: slog.New(slog.DiscardHandler)}
			a.Handle(h.ServeHub)(w, r.WithContext(access.NewContext(r.Context(), access.Caller{Name: "alice", Rights: test.rights})))
			if w.Code != test.status {
				t.Fatalf("got status %d, body %s", w.Code, w.Body)
			}
			if test.status == http.StatusOK {
				if got := locs(t, log, "demo"); !slices.Equal(got, []string{loc1, loc2}) {
					t.Errorf("the log has %v", got)
				}
				return
			}
			if p := problemOf(t, w.Code, w.Header(), w.Body.Bytes()); !strings.Contains(p.Detail, test.detail) {
				t.Errorf("detail = %q", p.Detail)
			}
		})
	}
}
