package harvest

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/testutil/pipetest"
	"github.com/rshub/rshub/resourcesync"
)

const (
	sitemapOpen = `<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`
	rsOpen      = `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/" xmlns:x="urn:x">`
)

// sitemapIndex returns an index of lists.
func sitemapIndex(locs ...string) string {
	var b strings.Builder
	b.WriteString(`<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`)
	for _, loc := range locs {
		fmt.Fprintf(&b, "<sitemap><loc>%s</loc></sitemap>", loc)
	}
	return b.String() + "</sitemapindex>"
}

func packed(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	_ = w.Close()
	return b.String()
}

// listAll lists the resources at a URL, each as loc, lastmod, hash, length and type, separated by
// blanks, and the mistakes that were noted.
func listAll(ctx context.Context, l *Lister, list string) (all, odd []string, err error) {
	l.Note = func(_ string, e *resourcesync.Error) { odd = append(odd, e.Error()) }
	for e, err := range l.Resources(ctx, list) {
		if err != nil {
			return all, odd, err
		}
		c := e.Change
		if int(e.Position) != len(all)+1 || c.Change != resourcesync.Updated || c.Validate() != nil {
			return all, odd, fmt.Errorf("resource %d = %+v", len(all)+1, e)
		}
		s := c.Loc
		if !c.Lastmod.IsZero() {
			s += " " + c.Lastmod.Format(time.RFC3339)
		}
		if c.Hash != "" {
			s += " " + c.Hash
		}
		if c.Length != nil {
			s += " " + strconv.FormatInt(*c.Length, 10)
		}
		if c.Type != "" {
			s += " " + c.Type
		}
		for _, ln := range c.Links {
			s += " " + ln.Rel + "=" + ln.Href
		}
		all = append(all, s)
	}
	return all, odd, nil
}

func TestListerReads(t *testing.T) {
	for _, test := range []struct {
		name string
		docs map[string]string // by path; the listing is at /list
		want []string          // HOST stands for the server
		odd  string            // in the notes; empty means no notes
	}{
		{"a sitemap", map[string]string{"/list": sitemapOpen + `<url><loc>https://a.example/1</loc><lastmod>2026-01-02</lastmod><priority>0.5</priority></url>
			<url><loc> https://a.example/0?a=1&amp;b=2
			</loc></url></urlset>`}, []string{"https://a.example/1 2026-01-02T00:00:00Z", "https://a.example/0?a=1&b=2"}, ""},
		{"no resources", map[string]string{"/list": sitemapOpen + `</urlset>`}, nil, ""},
		{"a Resource List", map[string]string{"/list": rsOpen + `<rs:ln rel="up" href="https://a.example/cap.xml"/><rs:md capability="resourcelist" at="2026-01-01T00:00:00Z"/>
			<url><loc>https://a.example/1</loc><lastmod>2026-01-02T03:04:05+01:00</lastmod><rs:md hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6" length="8876" type="text/html"/>
			<rs:ln rel="describedby" href="https://a.example/1.xml"/></url></urlset>`},
			[]string{"https://a.example/1 2026-01-02T02:04:05Z md5:1584abdf8ebdc9802ac0c6a7402c03b6 8876 text/html describedby=https://a.example/1.xml"}, ""},
		{"no capability", map[string]string{"/list": rsOpen + `<rs:md at="2026-01-01T00:00:00Z"/><x:xd id="7"/><url><loc>https://a.example/1</loc><x:xd/><rs:md x:y="z" length="1"/></url></urlset>`},
			[]string{"https://a.example/1 1"}, ""},
		{"packed", map[string]string{"/list": packed(sitemapOpen + `<url><loc>https://a.example/1</loc></url></urlset>`)}, []string{"https://a.example/1"}, ""},
		{"packed twice", map[string]string{"/list": packed(packed(sitemapOpen + `<url><loc>https://a.example/1</loc></url></urlset>`))}, []string{"https://a.example/1"}, ""},
		{"an index", map[string]string{"/list": sitemapIndex("HOST/a?verb=one", "/b", "HOST/a?verb=one"), "/a": packed(sitemapOpen + `<url><loc>https://a.example/1</loc></url></urlset>`), "/b": "https://a.example/2"},
			[]string{"https://a.example/1", "https://a.example/2"}, "entry 3 (HOST/a?verb=one): duplicate entry of the index"},
		{"an empty index", map[string]string{"/list": sitemapIndex()}, nil, ""},
		{"text", map[string]string{"/list": "\ufeff\r\nhttps://a.example/1\r\n\r\n  https://a.example/2 \nurn:x:3"}, []string{"https://a.example/1", "https://a.example/2", "urn:x:3"}, ""},
		{"BOM and blanks", map[string]string{"/list": "\ufeff\n\n" + sitemapOpen[21:] + `<url><loc>https://a.example/1</loc></url></urlset>`}, []string{"https://a.example/1"}, ""},
		{"another namespace", map[string]string{"/list": `<urlset xmlns="https://www.google.com/schemas/sitemap/0.84"><url><loc>https://a.example/1</loc><lastmod>2026</lastmod></url></urlset>`},
			[]string{"https://a.example/1 2026-01-01T00:00:00Z"}, "namespace of urlset: got"},
		{"no namespace", map[string]string{"/list": `<urlset><url><loc>https://a.example/1</loc></url></urlset>`}, []string{"https://a.example/1"}, "namespace of urlset: got"},
		{"invalid dates", map[string]string{"/list": sitemapOpen + `<url><loc>https://a.example/1</loc><lastmod>2024-02-30</lastmod></url><url><loc>https://a.example/2</loc><lastmod/></url></urlset>`},
			[]string{"https://a.example/1", "https://a.example/2"}, "day out of range"},
		{"an encoding", map[string]string{"/list": `<?xml version="1.0" encoding="windows-1252"?>` + sitemapOpen[21:] + "<url><loc>https://a.example/\xe4</loc></url></urlset>"}, []string{"https://a.example/%C3%A4"}, "; using http"},
		{"a document type", map[string]string{"/list": `<!DOCTYPE urlset PUBLIC "x" "http://x.example/sitemap.dtd">` + sitemapOpen[21:] + "<url><loc>https://a.example/1</loc></url></urlset>"}, []string{"https://a.example/1"}, ""},
		{"locs that are not URIs", map[string]string{"/list": sitemapOpen + `<url><loc>https://a.example/ä b?c=d e#f</loc></url><url><loc>/x</loc></url></urlset>`},
			[]string{"https://a.example/%C3%A4%20b?c=d%20e", "HOST/x"}, "; using http"},
		{"internationalized hosts", map[string]string{"/list": rsOpen + `<url><loc>https://bücher.example/ä</loc></url><url><loc>https://b%C3%BCcher.example/2</loc><rs:ln rel="up" href="https://BÜCHER.example/"/></url></urlset>`},
			[]string{"https://xn--bcher-kva.example/%C3%A4", "https://xn--bcher-kva.example/2 up=https://xn--bcher-kva.example/"}, "; using http"},
		{"values that a hub refuses", map[string]string{"/list": rsOpen + `<rs:md capability="resourcelist"/><url><loc>https://a.example/1</loc><changefreq>Daily</changefreq>
			<rs:md hash="1584" length="many" type="html" change="moved"/><rs:ln rel="x"/><rs:ln rel="Is No Rel" href="https://a.example/2"/><lastmod>2026</lastmod></url>text<rs:md/></urlset>`},
			[]string{"https://a.example/1 2026-01-01T00:00:00Z"}, `hash: got "1584", want an algorithm and a digest`},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := newOrigin(t)
			for path, doc := range test.docs {
				o.put(path, strings.ReplaceAll(doc, "HOST", o.url))
			}
			all, odd, err := listAll(t.Context(), &Lister{Getter: &Getter{Client: http.DefaultClient}}, o.url+"/list")
			if err != nil {
				t.Fatal(err)
			}
			for i := range test.want {
				test.want[i] = strings.ReplaceAll(test.want[i], "HOST", o.url)
			}
			if !slices.Equal(all, test.want) {
				t.Errorf("got resources\n%q, want\n%q", all, test.want)
			}
			if said := strings.Join(odd, "\n"); !strings.Contains(said, strings.ReplaceAll(test.odd, "HOST", o.url)) || test.odd == "" && said != "" {
				t.Errorf("got notes %q, want %q", said, test.odd)
			}
		})
	}
}

func TestListerRefuses(t *testing.T) {
	says := func(doc string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/missing":
				http.NotFound(w, r)
			case "/index":
				_, _ = io.WriteString(w, sitemapIndex())
			default:
				_, _ = io.WriteString(w, strings.ReplaceAll(doc, "HOST", "http://"+r.Host))
			}
		}
	}
	entry := `<url><loc>https://a.example/1</loc></url>`
	many := strings.Repeat(entry, 4)
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"nothing", says(""), "the list (HOST/list?…): the document is empty"},
		{"a page", says("<!doctype html><html></html>"), "this is a web page (HTML)"},
		{"a page as XML", says(`<html xmlns="http://www.w3.org/1999/xhtml"/>`), "this is a web page (HTML)"},
		{"a part that is a page", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/list" {
				_, _ = io.WriteString(w, sitemapIndex("/a"))
			} else {
				_, _ = io.WriteString(w, "<!-- x -->\n<HTML lang=en><p>down & out")
			}
		}, "list 1 of the index (HOST/a): this is a web page (HTML)"},
		{"another root", says("<rss/>"), `root element: got rss in namespace "", want urlset or sitemapindex`},
		{"declarations", says(`<!DOCTYPE urlset [<!ENTITY a "b">]>` + sitemapOpen[21:] + "</urlset>"), "must not declare entities"},
		{"an unknown encoding", says(`<?xml version="1.0" encoding="EBCDIC-37"?><urlset/>`), `unsupported encoding "EBCDIC-37"`},
		{"UTF-16", says("\xff\xfe<\x00u\x00"), "got UTF-16 or UTF-32, want UTF-8"},
		{"JSON", says(`{"error": "busy"}`), "neither XML nor a text"},
		{"a word", says("oops"), "line 1: entry 1 (oops): the document is neither XML nor a text"},
		{"half of it", says(sitemapOpen + entry + `<url><loc>https`), "entry 2"},
		{"no end", says(sitemapOpen + entry), "ends early: </urlset> is missing"},
		{"no loc", says(sitemapOpen + entry + "<url><lastmod>2026</lastmod></url></urlset>"), "entry 2: loc is missing"},
		{"two locs", says(sitemapOpen + "<url><loc>https://a.example/1</loc><loc>https://a.example/2</loc></url></urlset>"), "entry 1 (https://a.example/1): entry has more than one loc"},
		{"a loc that is not a URL", says(sitemapOpen + entry + "<url><loc>https://</loc></url></urlset>"), `entry 2 (https://): loc: URL: got "https:", want a URI with a host`},
		{"an entry of another namespace", says(sitemapOpen + entry + `<url xmlns=""><loc>https://a.example/2</loc></url></urlset>`), `unexpected element "url"`},
		{"an entry of an index", says(sitemapOpen + entry + `<sitemap><loc>HOST/2</loc></sitemap></urlset>`), `unexpected element "sitemap"`},
		{"a Change List", says(rsOpen + `<rs:md capability="changelist"/></urlset>`), `got capability "changelist"`},
		{"a deleted resource", says(rsOpen + `<url><loc>https://a.example/1</loc><rs:md change="deleted"/></url></urlset>`), "entry 1 (https://a.example/1): change: got deleted"},
		{"too many", says(sitemapOpen + many + "</urlset>"), "at most 3 entries"},
		{"too many lines", says("urn:1:1\nurn:1:2\nurn:1:3\nurn:1:4\n"), "at most 3 entries"},
		{"too large", says(sitemapOpen + strings.Repeat(" ", 2000) + "</urlset>"), "document too large; want at most 2,000 bytes"},
		{"a text too large", says("urn:1:1\n" + strings.Repeat(" ", 2000)), "has more bytes"},
		{"a damaged pack", says(packed(sitemapOpen + entry + "</urlset>")[:60]), "gzip data ends early"},
		{"a wrong checksum", func(w http.ResponseWriter, _ *http.Request) {
			b := []byte(packed(sitemapOpen + entry + "</urlset>"))
			b[len(b)-8] ^= 1
			_, _ = w.Write(b)
		}, "gzip data is damaged"},
		{"a wrong Content-Length", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, sitemapOpen+entry+"</urlset>")
		}, "unexpected end: the server sent less"},
		{"text without an end", func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, _ := http.NewResponseController(w).Hijack()
			_, _ = rw.WriteString("HTTP/1.0 200 OK\r\n\r\nurn:1:1\nurn:1:2")
			_ = rw.Flush()
			_ = conn.Close()
		}, "it may have been cut off"},
		{"a part that is missing", says(sitemapIndex("HOST/missing")), "list 1 of the index (HOST/missing): the answer is 404"},
		{"an index in an index", says(sitemapIndex("HOST/index")), "list 1 of the index (HOST/index): an index names another index"},
		{"a file", says(sitemapIndex("file:///etc/passwd")), "the URL of list 1 of the index does not begin with http"},
		{"a loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/list", http.StatusFound) }, "more than 5 redirects"},
		{"another status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, "the answer is 204"},
		{"unchanged unasked", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }, "the answer is 304"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := httptest.NewServer(test.answer)
			defer s.Close()
			l := &Lister{Getter: &Getter{Client: http.DefaultClient, Tries: 1}, Limits: resourcesync.Limits{Entries: 3, Bytes: 2000}}
			_, _, err := listAll(t.Context(), l, s.URL+"/list?key=SECRET")
			if err == nil {
				t.Fatal("got no error")
			}
			if want := strings.ReplaceAll(test.want, "HOST", s.URL); !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("got error %s\nwant %s", err, want)
			}
		})
	}
}

// A hub lists through outbound, whose address rules also apply to redirects and to the lists of an
// index.
func TestListerAddresses(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
		case "/hop":
			http.Redirect(w, r, "/list", http.StatusMovedPermanently)
		case "/list":
			_, _ = io.WriteString(w, "urn:x:1")
		default:
			_, _ = io.WriteString(w, sitemapIndex("/list", "http://169.254.169.254/latest"))
		}
	}))
	defer s.Close()
	list := func(path string, o outbound.Options) error {
		client := outbound.New(o)
		defer client.Close()
		_, _, err := listAll(t.Context(), &Lister{Getter: &Getter{Client: client.HTTP(), Check: client.Check, Tries: 1}}, s.URL+path)
		return err
	}
	for path, want := range map[string]string{"/hop": "", "/redirect": "not", "/index": "not"} {
		if err := list(path, outbound.Options{Allow: here}); err == nil && want != "" || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v", path, err)
		}
	}
	if err := list("/list", outbound.Options{}); err == nil {
		t.Error("got a request to a forbidden private address")
	} else {
		t.Log(err)
	}
}

// A list that is truncated at any byte is never mistaken for a shorter one.
func TestListerTruncated(t *testing.T) {
	whole := sitemapOpen + `<url><loc>https://a.example/1</loc></url><url><loc>https://a.example/2</loc><lastmod>2026-01-01</lastmod></url></urlset>`
	for _, doc := range []string{whole, packed(whole)} {
		for n := range len(doc) {
			transport := roundTrip(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, ContentLength: -1, ProtoMajor: 1, Body: io.NopCloser(strings.NewReader(doc[:n]))}, nil
			})
			l := &Lister{Getter: &Getter{Client: &http.Client{Transport: transport}, Tries: 1}}
			if all, _, err := listAll(t.Context(), l, "http://a.example/"); err == nil {
				t.Errorf("got list %[3]q from %[1]d of %[2]d bytes", n, len(doc), all)
			}
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestListerSince(t *testing.T) {
	var mu sync.Mutex
	docs := map[string]string{"/list": sitemapIndex("a", "b"), "/a": "urn:x:a", "/b": "urn:x:b"}
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		doc := docs[r.URL.Path]
		asked = append(asked, r.URL.Path)
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(doc))))
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(doc))
	}))
	defer s.Close()
	put := func(path, doc string) {
		mu.Lock()
		defer mu.Unlock()
		docs[path], asked = doc, nil
	}
	l := &Lister{Getter: &Getter{Client: http.DefaultClient, Tries: 1}}
	seen := new(Seen)
	look := func(want string, requests int) {
		t.Helper()
		var all []string
		for e, err := range l.Since(t.Context(), s.URL+"/list", seen) {
			if err != nil {
				all = append(all, err.Error())
				break
			}
			all = append(all, e.Change.Loc)
		}
		mu.Lock()
		defer mu.Unlock()
		if got := strings.Join(all, " "); !strings.HasPrefix(got, want) || len(asked) != requests {
			t.Errorf("got %s with %d requests, want %s with %d", got, len(asked), want, requests)
		}
		asked = nil
	}
	look("urn:x:a urn:x:b", 3)
	look("unchanged", 3)
	put("/b", "urn:x:c")
	look("urn:x:a urn:x:c", 3+3)
	look("unchanged", 3)
	put("/list", sitemapIndex("b"))
	look("urn:x:c", 2)
	look("unchanged", 2)
	put("/b", "")
	look("list 1 of the index", 2+2)
	look("list 1 of the index", 2+2) // an error is not forgotten
}

// A document that was changed a moment ago has no version: many servers make the ETag of the second
// of the last change and of the length, and both stay the same if it changes again.
func TestVersionOfRecentDocument(t *testing.T) {
	const tag, made = `"68e0c1f2-1a2b"`, "Thu, 01 Jan 2026 12:00:00 GMT"
	for _, test := range []struct {
		modified, date string
		want           Version
	}{
		{made, "Thu, 01 Jan 2026 12:00:00 GMT", Version{}},
		{made, "Thu, 01 Jan 2026 12:00:02 GMT", Version{}},
		{made, "Thu, 01 Jan 2026 12:00:03 GMT", Version{tag, made}},
		{made, "Thu, 01 Jan 2026 11:00:00 GMT", Version{}},
		{made, "", Version{ETag: tag}},
		{"", "Thu, 01 Jan 2026 12:00:00 GMT", Version{ETag: tag}},
	} {
		resp := &http.Response{Header: http.Header{"Etag": {tag}, "Last-Modified": {test.modified}, "Date": {test.date}}}
		if got := VersionOf(resp); got != test.want {
			t.Errorf("modified %s, requested %s: VersionOf() = %+v, want %+v", test.modified, test.date, got, test.want)
		}
	}
}

func TestGetterWaits(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer func(n int, w http.ResponseWriter, r *http.Request)
		want   string // of the error
		least  time.Duration
		most   time.Duration
	}{
		{"busy", func(n int, w http.ResponseWriter, _ *http.Request) {
			if n < 3 {
				w.Header().Set("Retry-After", "100")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}, "", 200 * time.Second, 201 * time.Second},
		{"busy until a date", func(n int, w http.ResponseWriter, _ *http.Request) {
			if n == 1 {
				w.Header().Set("Retry-After", time.Now().Add(time.Minute).UTC().Format(http.TimeFormat))
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}, "", 59 * time.Second, time.Minute},
		{"busy for a day", func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(http.StatusServiceUnavailable)
		}, "a retry in 24h", 0, time.Second},
		{"busy for longer than a number holds", func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "99999999999")
			w.WriteHeader(http.StatusServiceUnavailable)
		}, "a retry in 24h", 0, time.Second},
		{"busy, not saying until when", func(n int, w http.ResponseWriter, _ *http.Request) {
			if n < 4 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}, "", 100 * time.Second, 10 * time.Minute},
		{"broken", func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, "the answer is 500", time.Minute, 10 * time.Minute},
		{"forbidden", func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, "the answer is 403", 0, time.Second},
		{"no answer", func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no response in time", 4 * headTimeout, 4*headTimeout + 10*time.Minute},
		{"a drip", func(_ int, w http.ResponseWriter, r *http.Request) { dripHandler(" ")(w, r) }, "too slow", 4 * paceTime, 4*paceTime + 10*time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var network pipetest.Network
				defer network.Close()
				n := 0
				network.Serve("a.example:80", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					n++
					if r.Header.Get("User-Agent") != outbound.UserAgent {
						t.Errorf("got User-Agent %q", r.Header.Get("User-Agent"))
					}
					test.answer(n, w, r)
					_, _ = io.WriteString(w, "urn:x:1")
				}))
				transport := network.Transport()
				defer transport.CloseIdleConnections()
				begin := time.Now()
				l := &Lister{Getter: &Getter{Client: &http.Client{Transport: transport}}}
				_, _, err := listAll(t.Context(), l, "http://a.example/")
				if took := time.Since(begin); took < test.least || took > test.most {
					t.Errorf("took %v", took)
				}
				if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("got error %v, want %s", err, test.want)
				}
			})
		})
	}
}

// Requests to one host are made one after the other, with the delay of its robots.txt in between.
func TestGetterCrawlDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network pipetest.Network
		defer network.Close()
		var at []time.Duration
		begin := time.Now()
		network.Serve("a.example:80", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/robots.txt":
				_, _ = io.WriteString(w, "User-agent: *\nCrawl-delay: 10\n")
			case "/list":
				_, _ = io.WriteString(w, sitemapIndex("1", "2", "3"))
			default:
				at = append(at, time.Since(begin).Truncate(time.Second))
				_, _ = io.WriteString(w, "urn:x:"+r.URL.Path)
			}
		}))
		transport := network.Transport()
		defer transport.CloseIdleConnections()
		l := &Lister{Getter: &Getter{Client: &http.Client{Transport: transport}, Robots: true}}
		if _, _, err := listAll(t.Context(), l, "http://a.example/list"); err != nil {
			t.Fatal(err)
		}
		if want := []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("lists are read at %v", at)
		}
	})
}

func TestReadCrawlDelay(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"":                              0,
		"User-agent: *\nCrawl-delay: 5": 5 * time.Second,
		"user-agent: x\ncrawl-delay: 5": 0,
		"User-agent: x\nUser-agent: RSHUB\nCrawl-delay: 0.5\nUser-agent: *\nDisallow:\nCrawl-delay: 7": 500 * time.Millisecond,
		"User-agent: rspublish\nDisallow:\n\nUser-agent: *\nCrawl-delay: 7":                            0,
		"User-agent: *\nCrawl-delay: 1e9 # long":                                                       maxDelay,
		"User-agent: *\nCrawl-delay: -1\nCrawl-delay: x\nCrawl-delay: NaN":                             0,
		"<html>": 0,
	} {
		if got, err := parseRobots(strings.NewReader(text), new(url.URL), "rshub", "rspublish"); got.delay != want || err != nil {
			t.Errorf("delay of %q = %v, want %v; %v", text, got.delay, want, err)
		}
	}
}

// The sitemaps that a robots.txt names are found anywhere in it, and after a redirect.
func TestGetterSitemaps(t *testing.T) {
	text, asked := "", 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/robots.txt":
			http.Redirect(w, r, "/sub/robots.txt", http.StatusMovedPermanently)
		case "/sub/robots.txt":
			asked++
			_, _ = io.WriteString(w, text)
		default:
			_, _ = io.WriteString(w, "urn:x:1")
		}
	}))
	defer s.Close()
	site, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"<html>not found</html>", nil},
		{"User-agent: *\nDisallow: /\nSITEMAP:https://a.example/1.xml?a=b # the first\nuser-agent: x\nSitemap: /2.xml\nSitemap: https://a.example/1.xml?a=b\nSitemap:\nSitemap: ftp://a.example/\nSitemap: robots.txt\nSitemap: ä b.xml",
			[]string{"https://a.example/1.xml?a=b", s.URL + "/2.xml", s.URL + "/sub/%C3%A4%20b.xml"}},
		{"\ufeffSitemap: 1.xml\r\nSitemap: 2.xml\r\n", []string{s.URL + "/sub/1.xml", s.URL + "/sub/2.xml"}},
	} {
		text, asked = test.text, 0
		g := &Getter{Client: http.DefaultClient, Robots: true}
		a, err := g.Get(t.Context(), "the page", s.URL, Version{})
		if err != nil {
			t.Fatal(err)
		}
		a.Close()
		for range 2 { // also as it was read before
			got, err := g.Once().Sitemaps(t.Context(), site)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("sitemaps of %q = %q, %v, want %q", test.text, got, err, test.want)
			}
		}
		if asked != 1 {
			t.Errorf("robots.txt was requested %d times", asked)
		}
	}
	g := &Getter{Client: http.DefaultClient, Check: func(name, _ string) error { return errors.New(name) }}
	if got, err := g.Sitemaps(t.Context(), site); len(got) > 0 || err != nil {
		t.Errorf("forbidden address: Sitemaps() = %q, %v, want none", got, err)
	}
}

func TestListerEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, sitemapOpen+`<url><loc>urn:x:1</loc></url>`+strings.Repeat(" ", 64<<10))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	var failed error
	for _, err := range (&Lister{Getter: &Getter{Client: http.DefaultClient}}).Resources(ctx, s.URL) {
		failed = err
		cancel()
	}
	if !errors.Is(failed, context.Canceled) {
		t.Errorf("got error %v", failed)
	}
}

func FuzzLister(f *testing.F) {
	f.Add([]byte(sitemapOpen + `<url><loc>https://a.example/1</loc><lastmod>2026-01-02</lastmod></url></urlset>`))
	f.Add([]byte(rsOpen + `<rs:md at="2026-01-01T00:00:00Z"/><url><loc>/1#x</loc><rs:md hash="1584" length="x" type="y"/><rs:ln/></url></urlset>`))
	f.Add([]byte(packed("urn:x:1\nhttps://a.example/ä")))
	f.Add([]byte(sitemapIndex("/a", "/b")))
	f.Fuzz(func(t *testing.T, doc []byte) {
		transport := roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, ContentLength: int64(len(doc)), ProtoMajor: 1, Body: io.NopCloser(bytes.NewReader(doc)), Request: r}, nil
		})
		l := &Lister{Getter: &Getter{Client: &http.Client{Transport: transport}, Tries: 1}}
		all, _, err := listAll(t.Context(), l, "http://a.example/list")
		if err != nil && strings.HasPrefix(err.Error(), "resource ") {
			t.Errorf("got %d resources, then %v", len(all), err)
		}
	})
}
