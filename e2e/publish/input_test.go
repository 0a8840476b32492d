package publish

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// xmlOf is a change notification with entries.
func xmlOf(entries string) string {
	return `<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
<rs:md capability="change-notification"/>` + entries + `</urlset>`
}

const goodURL = `<url><loc>https://example.org/1</loc><rs:md change="created"/></url>`

// jsonOf is a document of a good change, then others.
func jsonOf(changes ...string) string {
	all := append([]string{`{"loc":"https://example.org/1","change":"created"}`}, changes...)
	return `{"changes":[` + strings.Join(all, ",") + `]}`
}

func gzipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, s) // a Buffer does not fail
	_ = z.Close()
	return b.String()
}

// A bad is a publish that is refused, what the answer has to name, and what it
// has to say.
type bad struct {
	name, header, body string
	status, entry      int // entry -1: whichever
	says               string
}

var badInput = []bad{
	{"not XML", hubtest.AsXML, "created https://example.org/", 400, 0, "root element"},
	{"XML that ends early", hubtest.AsXML, xmlOf(goodURL)[:260], 400, 0, "ends"},
	{"XML that is not well-formed", hubtest.AsXML, xmlOf(goodURL + `<url><loc>https://example.org/2</url>`), 400, 2, ""},
	{"empty XML", hubtest.AsXML, "", 400, 0, "empty"},
	{"HTML", hubtest.AsXML, "<html><body>no</body></html>", 400, 0, "urlset"},
	{"a sitemapindex", hubtest.AsXML, `<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
		<rs:md capability="changelist"/><sitemap><loc>https://example.org/1</loc></sitemap></sitemapindex>`, 400, 0, "sitemapindex"},
	{"a Resource List", hubtest.AsXML, strings.Replace(xmlOf(goodURL), "change-notification", "resourcelist", 1), 400, 0, "resourcelist"},
	{"a DOCTYPE", hubtest.AsXML, "<!DOCTYPE urlset>" + strings.SplitN(xmlOf(goodURL), "\n", 2)[1], 400, 0, "DOCTYPE"},
	{"an entity bomb", hubtest.AsXML, `<!DOCTYPE urlset [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>` +
		strings.SplitN(xmlOf(`<url><loc>https://example.org/&b;</loc><rs:md change="created"/></url>`), "\n", 2)[1], 400, 0, "DOCTYPE"},
	{"an unknown entity", hubtest.AsXML, xmlOf(goodURL + `<url><loc>https://example.org/&eacute;</loc><rs:md change="created"/></url>`), 400, 2, "eacute"},
	{"another encoding", hubtest.AsXML, strings.Replace(xmlOf(goodURL), "UTF-8", "ISO-8859-1", 1), 400, 0, "ISO-8859-1"},
	{"deep XML", hubtest.AsXML, xmlOf(goodURL + "<url>" + strings.Repeat(`<x xmlns="https://example.org/">`, 50)), 413, 2, "levels"},
	{"a relative loc", hubtest.AsXML, xmlOf(goodURL + `<url><loc>/2</loc><rs:md change="created"/></url>`), 400, 2, "loc"},
	{"a long loc", hubtest.AsXML, xmlOf(goodURL + `<url><loc>https://example.org/` + strings.Repeat("x", 3000) + `</loc><rs:md change="created"/></url>`), 400, 2, "2048"},
	{"no loc", hubtest.AsXML, xmlOf(goodURL + `<url><rs:md change="created"/></url>`), 400, 2, "loc"},
	{"two locs", hubtest.AsXML, xmlOf(goodURL + `<url><loc>https://example.org/2</loc><loc>https://example.org/3</loc><rs:md change="created"/></url>`), 400, 2, "loc"},
	{"an unknown change", hubtest.AsXML, xmlOf(goodURL + `<url><loc>https://example.org/2</loc><rs:md change="moved"/></url>`), 400, 2, "moved"},
	{"no change", hubtest.AsXML, xmlOf(goodURL + `<url><loc>https://example.org/2</loc></url>`), 400, 2, "change"},
	{"a bad date", hubtest.AsXML, xmlOf(goodURL + `<url><loc>https://example.org/2</loc><lastmod>yesterday</lastmod><rs:md change="created"/></url>`), 400, 2, "lastmod"},
	{"a bad datetime", hubtest.AsXML, xmlOf(goodURL + `<url><loc>https://example.org/2</loc><rs:md change="created" datetime="2026-02-30T00:00:00Z"/></url>`), 400, 2, "datetime"},
	{"a hash without algorithm", hubtest.AsXML, xmlOf(goodURL + `<url><loc>https://example.org/2</loc><rs:md change="created" hash="1584abdf8ebdc9802ac0c6a7402c03b6"/></url>`), 400, 2, "algorithm"},
	{"a bad length", hubtest.AsXML, xmlOf(goodURL + `<url><loc>https://example.org/2</loc><rs:md change="created" length="-1"/></url>`), 400, 2, "length"},
	{"no entries in XML", hubtest.AsXML, xmlOf(""), 400, 0, "at least one"},
	{"from later than until", hubtest.AsXML, strings.Replace(xmlOf(goodURL), `"/>`, `" from="2026-02-01T00:00:00Z" until="2026-01-01T00:00:00Z"/>`, 1), 400, 0, "from"},

	{"not JSON", hubtest.AsJSON, "created", 400, 0, "JSON"},
	{"empty JSON", hubtest.AsJSON, "", 400, 0, "empty"},
	{"JSON that ends early", hubtest.AsJSON, jsonOf()[:40], 400, 1, "ends"},
	{"JSON with more behind it", hubtest.AsJSON, jsonOf() + `{}`, 400, 0, ""},
	{"an array", hubtest.AsJSON, `[]`, 400, 0, "object"},
	{"no changes", hubtest.AsJSON, `{}`, 400, 0, "changes"},
	{"an empty batch", hubtest.AsJSON, `{"changes":[]}`, 400, 0, "at least one"},
	{"an unknown member", hubtest.AsJSON, jsonOf(`{"loc":"https://example.org/2","change":"created","size":3}`), 400, 2, "size"},
	{"an unknown member of the document", hubtest.AsJSON, `{"changes":[],"title":"x"}`, 400, 0, "title"},
	{"a duplicate member", hubtest.AsJSON, jsonOf(`{"loc":"https://example.org/2","change":"created","loc":"https://example.org/3"}`), 400, 2, "loc"},
	{"a wrong type", hubtest.AsJSON, jsonOf(`{"loc":"https://example.org/2","change":7}`), 400, 2, "change"},
	{"a length as text", hubtest.AsJSON, jsonOf(`{"loc":"https://example.org/2","change":"created","length":"7"}`), 400, 2, "length"},
	{"not UTF-8", hubtest.AsJSON, jsonOf("{\"loc\":\"https://example.org/\xff\",\"change\":\"created\"}"), 400, 2, "UTF-8"},
	{"a control character", hubtest.AsJSON, jsonOf(`{"loc":"https://example.org/2","change":"created","type":"text/html\u0000"}`), 400, 2, "type"},
	{"deep JSON", hubtest.AsJSON, jsonOf(`{"loc":"https://example.org/2","change":"created","ln":` + strings.Repeat("[", 50)), 400, 2, "ln"},
	{"a relative loc in JSON", hubtest.AsJSON, jsonOf(`{"loc":"2","change":"created"}`), 400, 2, "loc"},
	{"a loc with a blank", hubtest.AsJSON, jsonOf(`{"loc":"https://example.org/a b","change":"created"}`), 400, 2, "loc"},
	{"a link without href", hubtest.AsJSON, jsonOf(`{"loc":"https://example.org/2","change":"created","ln":[{"rel":"x"}]}`), 400, 2, "href"},
	{"50,001 entries", hubtest.AsJSON, `{"changes":[` + strings.Repeat(`{"loc":"https://example.org/1","change":"created"},`, 50_000) + `{"loc":"https://example.org/1","change":"created"}]}`, 413, 50_001, "50,000"},

	{"a bad line", hubtest.AsNDJSON, string(hubtest.Change("1")) + `{"loc":"https://example.org/2"}`, 400, 2, "change"},
	{"an empty stream", hubtest.AsNDJSON, "\n\n", 400, 0, "at least one"},
	{"a line that is too long", hubtest.AsNDJSON, string(hubtest.Change("1")) + `{"loc":"https://example.org/` + strings.Repeat("x", 2<<20), 413, 2, "a line has at most"},
	{"a JSON array as lines", hubtest.AsNDJSON, "[\n" + string(hubtest.Change("1")) + "]\n", 400, 1, ""},

	{"no Content-Type", "X-Nothing: 1", jsonOf(), 415, 0, "Content-Type"},
	{"a form", "Content-Type: application/x-www-form-urlencoded", "a=b", 415, 0, "x-www-form-urlencoded"},
	{"a charset", "Content-Type: application/xml; charset=iso-8859-1", xmlOf(goodURL), 415, 0, "iso-8859-1"},
	{"another Content-Encoding", hubtest.AsJSON + "\nContent-Encoding: br", jsonOf(), 415, 0, "br"},
	{"two Content-Encodings", hubtest.AsJSON + "\nContent-Encoding: gzip, gzip", jsonOf(), 415, 0, "gzip"},
	{"rubbish as gzip", hubtest.AsJSON + "\nContent-Encoding: gzip", jsonOf(), 400, 0, "gzip"},
	{"gzip that ends early", hubtest.AsJSON + "\nContent-Encoding: gzip", gzipped(jsonOf())[:40], 400, 1, "ends early"},
	{"gzip with a wrong checksum", hubtest.AsJSON + "\nContent-Encoding: gzip", gzipped(jsonOf())[:len(gzipped(jsonOf()))-8] + "\x00\x00\x00\x00\x00\x00\x00\x00", 400, 0, "gzip"},
	{"an empty key", hubtest.AsJSON + "\nIdempotency-Key: ", jsonOf(), 400, 0, "Idempotency-Key"},
	{"a long key", hubtest.AsJSON + "\nIdempotency-Key: " + strings.Repeat("k", 256), jsonOf(), 400, 0, "255"},
	{"two keys", hubtest.AsJSON + "\nIdempotency-Key: a\nIdempotency-Key: b", jsonOf(), 400, 0, "Idempotency-Key"},
}

// TestBadInput publishes what is refused. Nothing of it comes into the memory.
func TestBadInput(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	before := hubtest.Publish(t, h, "strict", hubtest.Changes("before", 3)).Cursor
	for _, test := range badInput {
		t.Run(test.name, func(t *testing.T) {
			a, err := hubtest.Request(http.MethodPost, h.Topic("strict"), strings.NewReader(test.body), strings.Split(test.header, "\n")...)
			if err != nil {
				t.Fatal(err)
			}
			test.check(t, a)
			if now := hubtest.Head(t, h, "strict"); now != before {
				t.Errorf("the set went on from %s to %s", before, now)
				before = now
			}
		})
	}
	t.Run("truncated upload", func(t *testing.T) {
		test := bad{status: 400, says: "ends early"}
		a := exchange(t, h, hubtest.AsJSON, len(jsonOf())+100, jsonOf()[:30])
		test.check(t, a)
	})
	if n := len(hubtest.Memory(t, h, "strict")); n != 3 {
		t.Errorf("the memory has %d changes", n)
	}
}

// check checks that an answer is the problem that was to be expected.
func (b *bad) check(t *testing.T, a *trial.Answer) {
	t.Helper()
	p, err := hubtest.ProblemOf(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d %s", p.Status, p.Detail)
	if p.Status != b.status || b.entry >= 0 && p.Entry != b.entry || !strings.Contains(p.Detail, b.says) {
		t.Errorf("the problem is not %d for entry %d with %q: %s", b.status, b.entry, b.says, trial.Tail(string(a.Body)))
	}
	if b.entry > 0 && !strings.Contains(p.Detail, fmt.Sprintf("entry %d", b.entry)) {
		t.Errorf("the detail does not name entry %d: %s", b.entry, p.Detail)
	}
	if len(p.Detail) > 500 {
		t.Errorf("the detail has %d bytes", len(p.Detail))
	}
}

// exchange sends less than it promises, and reads the answer.
func exchange(t *testing.T, h *hubtest.Hub, header string, length int, body string) *trial.Answer {
	t.Helper()
	conn, err := net.Dial("tcp", h.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /sets/strict/changes HTTP/1.1\r\nHost: %s\r\n%s\r\nContent-Length: %d\r\n\r\n%s", h.Host, header, length, body)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(hubtest.Patience))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return &trial.Answer{Status: resp.StatusCode, Header: resp.Header, Body: b}
}

// TestBodyLimit publishes more bytes than are allowed, plain and packed.
func TestBodyLimit(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t, "RSHUB_MAX_BODY=10KiB")
	before := hubtest.Publish(t, h, "small", hubtest.Change("before")).Cursor
	many := jsonOf(strings.Split(strings.TrimSuffix(string(hubtest.Changes("x", 300)), "\n"), "\n")...)
	oneEntry := xmlOf(goodURL + strings.Repeat(" ", 20<<10))
	var batches bytes.Buffer
	for range 10 { // a stream as a whole may be longer, a batch of it not
		batches.Write(hubtest.Changes("y", 100))
	}
	for _, test := range []bad{
		{"plain", hubtest.AsJSON, many, 413, 0, "10"},
		{"XML", hubtest.AsXML, oneEntry, 413, 0, "10"},
		{"packed", hubtest.AsJSON + "\nContent-Encoding: gzip", gzipped(many), 413, -1, "10"},
		{"a bomb", hubtest.AsXML + "\nContent-Encoding: gzip", gzipped(xmlOf(strings.Repeat(" ", 100<<20))), 413, 0, "10"},
		{"lines", hubtest.AsNDJSON, batches.String(), 413, -1, "10"},
		{"packed lines", hubtest.AsNDJSON + "\nContent-Encoding: gzip", gzipped(batches.String()), 413, -1, "10"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, err := hubtest.Request(http.MethodPost, h.Topic("small"), strings.NewReader(test.body), strings.Split(test.header, "\n")...)
			if err != nil {
				t.Fatal(err)
			}
			test.check(t, a)
			if now := hubtest.Head(t, h, "small"); now != before {
				t.Errorf("the set went on from %s to %s", before, now)
			}
		})
	}
}

// TestBadStream has a bad line late in a stream: the batches before it stay,
// and the answer says which.
func TestBadStream(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	body := append(hubtest.Changes("x", 2500), "{}\n"...)
	var p hubtest.Problem
	var err error
	for range 2 { // the same again adds nothing
		a := hubtest.Must(t, 400, http.MethodPost, h.Topic("stream"), append(body, hubtest.Changes("y", 10)...), hubtest.AsNDJSON, "Idempotency-Key: again")
		if p, err = hubtest.ProblemOf(a); err != nil {
			t.Fatal(err)
		}
		if p.Entry != 2501 || p.Line != 2501 || p.Accepted == nil || p.Accepted.Count != 2000 || p.Accepted.Line != 2000 || p.Accepted.Cursor != hubtest.Head(t, h, "stream") {
			t.Errorf("the problem is %s", a.Body)
		}
	}
	r := hubtest.Publish(t, h, "stream", append(hubtest.Changes("x", 2500), hubtest.Changes("y", 10)...), "Idempotency-Key: again")
	if r.Count != 2510 || r.Line != 2510 || len(hubtest.Memory(t, h, "stream")) != 2510 {
		t.Errorf("the receipt is %+v", r)
	}
	a := hubtest.Must(t, http.StatusUnprocessableEntity, http.MethodPost, h.Topic("stream"), hubtest.Change("other"), hubtest.AsNDJSON, "Idempotency-Key: again")
	if p, err := hubtest.ProblemOf(a); err != nil || !strings.Contains(p.Detail, "Idempotency-Key") {
		t.Errorf("a key with another content: %+v, %v", p, err)
	}
}

// TestBadRequests asks for what cannot be.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	hubtest.Publish(t, h, "asked", hubtest.Changes("x", 3))
	topic := "/sets/asked/changes"
	for _, test := range []struct {
		method, path string
		status       int
		says         string
	}{
		{"POST", "/sets/a/b/changes", 400, "cannot name a set"},
		{"POST", "/sets/a%2Fb/changes", 400, "cannot name a set"},
		{"POST", "/sets/Upper/changes", 400, "cannot name a set"},
		{"POST", "/sets/-a/changes", 400, "cannot name a set"},
		{"POST", "/sets/" + strings.Repeat("a", 64) + "/changes", 400, "cannot name a set"},
		{"POST", "/sets/%C3%A4/changes", 400, "cannot name a set"},
		{"POST", "/sets/a%20b/changes", 400, "cannot name a set"},
		{"GET", "/sets/Upper", 400, "cannot name a set"},
		{"GET", "/sets/Upper/changelist.xml", 400, "cannot name a set"},
		{"GET", "/sets/Upper/changes?since=start", 400, "cannot name a set"},
		{"GET", topic + "?since=1-2-3", 400, "since"},
		{"GET", topic + "?since=one-two", 400, "since"},
		{"GET", topic + "?since=-1-5", 400, "since"},
		{"GET", topic + "?since=99999999999999999999-1", 400, "cursor"},
		{"GET", topic + "?since=yesterday", 400, "since"},
		{"GET", topic + "?since=2999-01-01T00:00:00Z", 400, "future"},
		{"GET", topic + "?since=1999-01-01T00:00:00Z", 410, "does not reach back"},
		{"GET", topic + "?since=1-1", 410, "does not reach back"},
		{"GET", topic + "?since=start&limit=-1", 400, "limit"},
		{"GET", topic + "?since=start&limit=10001", 400, "10000"},
		{"GET", topic + "?since=start&limit=many", 400, "limit"},
		{"GET", topic + "?since=start&wait=-1s", 400, "wait"},
		{"GET", topic + "?since=start&wait=1h", 400, "wait"},
		{"GET", topic + "?since=start&wait=long", 400, "wait"},
		{"GET", topic + "?since=start&change=moved", 400, "change"},
		{"GET", topic + "?since=start&type=text", 400, "type"},
		{"GET", topic + "?since=start&prefix=" + strings.Repeat("x", 2049), 400, "prefix"},
		{"GET", "/sets/asked/changelist.xml?from=soon", 400, "from"},
		{"GET", "/sets/asked/changelist.xml?from=2026-01-01&from=2026-01-02", 400, "from"},
		{"GET", "/sets/asked/changelist-1-1.xml", 404, "Change List"},
	} {
		t.Run(test.method+" "+test.path[:min(len(test.path), 60)], func(t *testing.T) {
			a := hubtest.Must(t, test.status, test.method, h.URL+test.path, []byte(jsonOf()), hubtest.AsJSON)
			p, err := hubtest.ProblemOf(a)
			if err != nil || !strings.Contains(p.Detail, test.says) {
				t.Errorf("the problem is %s: %v", a.Body, err)
			}
			t.Log(p.Detail)
		})
	}
	v := hubtest.Get[struct{ Sets []struct{ Set string } }](t, h.URL+"/sets")
	if len(v.Sets) != 1 {
		t.Errorf("the hub has the sets %+v", v.Sets)
	}
}
