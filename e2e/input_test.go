package e2e

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
)

const (
	asXML    = "Content-Type: application/xml"
	asJSON   = "Content-Type: application/json"
	asNDJSON = "Content-Type: application/x-ndjson"
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
	{"not XML", asXML, "created https://example.org/", 400, 0, "root element"},
	{"XML that ends early", asXML, xmlOf(goodURL)[:260], 400, 0, "ends"},
	{"XML that is not well-formed", asXML, xmlOf(goodURL + `<url><loc>https://example.org/2</url>`), 400, 2, ""},
	{"empty XML", asXML, "", 400, 0, "empty"},
	{"HTML", asXML, "<html><body>no</body></html>", 400, 0, "urlset"},
	{"a sitemapindex", asXML, `<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
		<rs:md capability="changelist"/><sitemap><loc>https://example.org/1</loc></sitemap></sitemapindex>`, 400, 0, "sitemapindex"},
	{"a Resource List", asXML, strings.Replace(xmlOf(goodURL), "change-notification", "resourcelist", 1), 400, 0, "resourcelist"},
	{"a DOCTYPE", asXML, "<!DOCTYPE urlset>" + strings.SplitN(xmlOf(goodURL), "\n", 2)[1], 400, 0, "DOCTYPE"},
	{"an entity bomb", asXML, `<!DOCTYPE urlset [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>` +
		strings.SplitN(xmlOf(`<url><loc>https://example.org/&b;</loc><rs:md change="created"/></url>`), "\n", 2)[1], 400, 0, "DOCTYPE"},
	{"an unknown entity", asXML, xmlOf(goodURL + `<url><loc>https://example.org/&eacute;</loc><rs:md change="created"/></url>`), 400, 2, "eacute"},
	{"another encoding", asXML, strings.Replace(xmlOf(goodURL), "UTF-8", "ISO-8859-1", 1), 400, 0, "ISO-8859-1"},
	{"deep XML", asXML, xmlOf(goodURL + "<url>" + strings.Repeat(`<x xmlns="https://example.org/">`, 50)), 413, 2, "levels"},
	{"a relative loc", asXML, xmlOf(goodURL + `<url><loc>/2</loc><rs:md change="created"/></url>`), 400, 2, "loc"},
	{"a long loc", asXML, xmlOf(goodURL + `<url><loc>https://example.org/` + strings.Repeat("x", 3000) + `</loc><rs:md change="created"/></url>`), 400, 2, "2048"},
	{"no loc", asXML, xmlOf(goodURL + `<url><rs:md change="created"/></url>`), 400, 2, "loc"},
	{"two locs", asXML, xmlOf(goodURL + `<url><loc>https://example.org/2</loc><loc>https://example.org/3</loc><rs:md change="created"/></url>`), 400, 2, "loc"},
	{"an unknown change", asXML, xmlOf(goodURL + `<url><loc>https://example.org/2</loc><rs:md change="moved"/></url>`), 400, 2, "moved"},
	{"no change", asXML, xmlOf(goodURL + `<url><loc>https://example.org/2</loc></url>`), 400, 2, "change"},
	{"a bad date", asXML, xmlOf(goodURL + `<url><loc>https://example.org/2</loc><lastmod>yesterday</lastmod><rs:md change="created"/></url>`), 400, 2, "lastmod"},
	{"a bad datetime", asXML, xmlOf(goodURL + `<url><loc>https://example.org/2</loc><rs:md change="created" datetime="2026-02-30T00:00:00Z"/></url>`), 400, 2, "datetime"},
	{"a hash without algorithm", asXML, xmlOf(goodURL + `<url><loc>https://example.org/2</loc><rs:md change="created" hash="1584abdf8ebdc9802ac0c6a7402c03b6"/></url>`), 400, 2, "algorithm"},
	{"a bad length", asXML, xmlOf(goodURL + `<url><loc>https://example.org/2</loc><rs:md change="created" length="-1"/></url>`), 400, 2, "length"},
	{"no entries in XML", asXML, xmlOf(""), 400, 0, "at least one"},
	{"from later than until", asXML, strings.Replace(xmlOf(goodURL), `"/>`, `" from="2026-02-01T00:00:00Z" until="2026-01-01T00:00:00Z"/>`, 1), 400, 0, "from"},

	{"not JSON", asJSON, "created", 400, 0, "JSON"},
	{"empty JSON", asJSON, "", 400, 0, "empty"},
	{"JSON that ends early", asJSON, jsonOf()[:40], 400, 1, "ends"},
	{"JSON with more behind it", asJSON, jsonOf() + `{}`, 400, 0, ""},
	{"an array", asJSON, `[]`, 400, 0, "object"},
	{"no changes", asJSON, `{}`, 400, 0, "changes"},
	{"an empty batch", asJSON, `{"changes":[]}`, 400, 0, "at least one"},
	{"an unknown member", asJSON, jsonOf(`{"loc":"https://example.org/2","change":"created","size":3}`), 400, 2, "size"},
	{"an unknown member of the document", asJSON, `{"changes":[],"title":"x"}`, 400, 0, "title"},
	{"a duplicate member", asJSON, jsonOf(`{"loc":"https://example.org/2","change":"created","loc":"https://example.org/3"}`), 400, 2, "loc"},
	{"a wrong type", asJSON, jsonOf(`{"loc":"https://example.org/2","change":7}`), 400, 2, "change"},
	{"a length as text", asJSON, jsonOf(`{"loc":"https://example.org/2","change":"created","length":"7"}`), 400, 2, "length"},
	{"not UTF-8", asJSON, jsonOf("{\"loc\":\"https://example.org/\xff\",\"change\":\"created\"}"), 400, 2, "UTF-8"},
	{"a control character", asJSON, jsonOf(`{"loc":"https://example.org/2","change":"created","type":"text/html\u0000"}`), 400, 2, "type"},
	{"deep JSON", asJSON, jsonOf(`{"loc":"https://example.org/2","change":"created","ln":` + strings.Repeat("[", 50)), 400, 2, "ln"},
	{"a relative loc in JSON", asJSON, jsonOf(`{"loc":"2","change":"created"}`), 400, 2, "loc"},
	{"a loc with a blank", asJSON, jsonOf(`{"loc":"https://example.org/a b","change":"created"}`), 400, 2, "loc"},
	{"a link without href", asJSON, jsonOf(`{"loc":"https://example.org/2","change":"created","ln":[{"rel":"x"}]}`), 400, 2, "href"},
	{"50,001 entries", asJSON, `{"changes":[` + strings.Repeat(`{"loc":"https://example.org/1","change":"created"},`, 50_000) + `{"loc":"https://example.org/1","change":"created"}]}`, 413, 50_001, "50,000"},

	{"a bad line", asNDJSON, string(change("1")) + `{"loc":"https://example.org/2"}`, 400, 2, "change"},
	{"an empty stream", asNDJSON, "\n\n", 400, 0, "at least one"},
	{"a line that is too long", asNDJSON, string(change("1")) + `{"loc":"https://example.org/` + strings.Repeat("x", 2<<20), 413, 2, "a line has at most"},
	{"a JSON array as lines", asNDJSON, "[\n" + string(change("1")) + "]\n", 400, 1, ""},

	{"no Content-Type", "X-Nothing: 1", jsonOf(), 415, 0, "Content-Type"},
	{"a form", "Content-Type: application/x-www-form-urlencoded", "a=b", 415, 0, "x-www-form-urlencoded"},
	{"a charset", "Content-Type: application/xml; charset=iso-8859-1", xmlOf(goodURL), 415, 0, "iso-8859-1"},
	{"another Content-Encoding", asJSON + "\nContent-Encoding: br", jsonOf(), 415, 0, "br"},
	{"two Content-Encodings", asJSON + "\nContent-Encoding: gzip, gzip", jsonOf(), 415, 0, "gzip"},
	{"rubbish as gzip", asJSON + "\nContent-Encoding: gzip", jsonOf(), 400, 0, "gzip"},
	{"gzip that ends early", asJSON + "\nContent-Encoding: gzip", gzipped(jsonOf())[:40], 400, 0, "ends"},
	{"gzip with a wrong checksum", asJSON + "\nContent-Encoding: gzip", gzipped(jsonOf())[:len(gzipped(jsonOf()))-8] + "\x00\x00\x00\x00\x00\x00\x00\x00", 400, 0, "gzip"},
	{"an empty key", asJSON + "\nIdempotency-Key: ", jsonOf(), 400, 0, "Idempotency-Key"},
	{"a long key", asJSON + "\nIdempotency-Key: " + strings.Repeat("k", 256), jsonOf(), 400, 0, "255"},
	{"two keys", asJSON + "\nIdempotency-Key: a\nIdempotency-Key: b", jsonOf(), 400, 0, "Idempotency-Key"},
}

// TestBadInput publishes what is refused. Nothing of it comes into the memory.
func TestBadInput(t *testing.T) {
	t.Parallel()
	h := startHub(t)
	before := publish(t, h, "strict", changes("before", 3)).Cursor
	for _, test := range badInput {
		t.Run(test.name, func(t *testing.T) {
			a, err := request(http.MethodPost, h.topic("strict"), strings.NewReader(test.body), strings.Split(test.header, "\n")...)
			if err != nil {
				t.Fatal(err)
			}
			test.check(t, a)
			if now := head(t, h, "strict"); now != before {
				t.Errorf("the set went on from %s to %s", before, now)
				before = now
			}
		})
	}
	t.Run("truncated upload", func(t *testing.T) {
		test := bad{status: 400, says: "ends early"}
		a := exchange(t, h, asJSON, len(jsonOf())+100, jsonOf()[:30])
		test.check(t, a)
	})
	if n := len(memory(t, h, "strict")); n != 3 {
		t.Errorf("the memory has %d changes", n)
	}
}

// check checks that an answer is the problem that was to be expected.
func (b *bad) check(t *testing.T, a *answer) {
	t.Helper()
	p, err := a.problem()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d %s", p.Status, p.Detail)
	if p.Status != b.status || b.entry >= 0 && p.Entry != b.entry || !strings.Contains(p.Detail, b.says) {
		t.Errorf("the problem is not %d for entry %d with %q: %s", b.status, b.entry, b.says, tail(string(a.body)))
	}
	if b.entry > 0 && !strings.Contains(p.Detail, fmt.Sprintf("entry %d", b.entry)) {
		t.Errorf("the detail does not name entry %d: %s", b.entry, p.Detail)
	}
	if len(p.Detail) > 500 {
		t.Errorf("the detail has %d bytes", len(p.Detail))
	}
}

// exchange sends less than it promises, and reads the answer.
func exchange(t *testing.T, h *hub, header string, length int, body string) *answer {
	t.Helper()
	conn, err := net.Dial("tcp", h.host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /sets/strict/changes HTTP/1.1\r\nHost: %s\r\n%s\r\nContent-Length: %d\r\n\r\n%s", h.host, header, length, body)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return &answer{resp.StatusCode, resp.Header, b}
}

// TestBodyLimit publishes more bytes than are allowed, plain and packed.
func TestBodyLimit(t *testing.T) {
	t.Parallel()
	h := startHub(t, "RSHUB_MAX_BODY=10KiB")
	before := publish(t, h, "small", change("before")).Cursor
	many := jsonOf(strings.Split(strings.TrimSuffix(string(changes("x", 300)), "\n"), "\n")...)
	oneEntry := xmlOf(goodURL + strings.Repeat(" ", 20<<10))
	var batches bytes.Buffer
	for range 10 { // a stream as a whole may be longer, a batch of it not
		batches.Write(changes("y", 100))
	}
	for _, test := range []bad{
		{"plain", asJSON, many, 413, 0, "10"},
		{"XML", asXML, oneEntry, 413, 0, "10"},
		{"packed", asJSON + "\nContent-Encoding: gzip", gzipped(many), 413, -1, "10"},
		{"a bomb", asXML + "\nContent-Encoding: gzip", gzipped(xmlOf(strings.Repeat(" ", 100<<20))), 413, 0, "10"},
		{"lines", asNDJSON, batches.String(), 413, -1, "10"},
		{"packed lines", asNDJSON + "\nContent-Encoding: gzip", gzipped(batches.String()), 413, -1, "10"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, err := request(http.MethodPost, h.topic("small"), strings.NewReader(test.body), strings.Split(test.header, "\n")...)
			if err != nil {
				t.Fatal(err)
			}
			test.check(t, a)
			if now := head(t, h, "small"); now != before {
				t.Errorf("the set went on from %s to %s", before, now)
			}
		})
	}
}

// TestBadStream has a bad line late in a stream: the batches before it stay,
// and the answer says which.
func TestBadStream(t *testing.T) {
	t.Parallel()
	h := startHub(t)
	body := append(changes("x", 2500), "{}\n"...)
	var p problem
	var err error
	for range 2 { // the same again adds nothing
		a := must(t, 400, http.MethodPost, h.topic("stream"), append(body, changes("y", 10)...), asNDJSON, "Idempotency-Key: again")
		if p, err = a.problem(); err != nil {
			t.Fatal(err)
		}
		if p.Entry != 2501 || p.Line != 2501 || p.Accepted == nil || p.Accepted.Count != 2000 || p.Accepted.Line != 2000 || p.Accepted.Cursor != head(t, h, "stream") {
			t.Errorf("the problem is %s", a.body)
		}
	}
	r := publish(t, h, "stream", append(changes("x", 2500), changes("y", 10)...), "Idempotency-Key: again")
	if r.Count != 2510 || r.Line != 2510 || len(memory(t, h, "stream")) != 2510 {
		t.Errorf("the receipt is %+v", r)
	}
	a := must(t, http.StatusUnprocessableEntity, http.MethodPost, h.topic("stream"), change("other"), asNDJSON, "Idempotency-Key: again")
	if p, err := a.problem(); err != nil || !strings.Contains(p.Detail, "Idempotency-Key") {
		t.Errorf("a key with another content: %+v, %v", p, err)
	}
}

// TestBadRequests asks for what cannot be.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	h := startHub(t)
	publish(t, h, "asked", changes("x", 3))
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
			a := must(t, test.status, test.method, h.url+test.path, []byte(jsonOf()), asJSON)
			p, err := a.problem()
			if err != nil || !strings.Contains(p.Detail, test.says) {
				t.Errorf("the problem is %s: %v", a.body, err)
			}
			t.Log(p.Detail)
		})
	}
	v := get[struct{ Sets []struct{ Set string } }](t, h.url+"/sets")
	if len(v.Sets) != 1 {
		t.Errorf("the hub has the sets %+v", v.Sets)
	}
}
