package rdm

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

var update = flag.Bool("update", false, "write the golden files")

// A memory is a Hub with one set, whose log starts after floor.
type memory struct {
	feed.State
	log       []feed.Entry
	held      []feed.Entry
	err       error // error after the last resource
	published string
	reserved  int64 // bytes of memory
}

var start = time.Date(2026, 2, 3, 4, 5, 6, 7000, time.UTC)

// newMemory returns a memory with changes a second apart.
func newMemory(floor uint64, changes ...resourcesync.Change) *memory {
	m := &memory{State: feed.State{Set: "demo", Description: feed.Description{Title: "Demo"}}}
	at := func(position uint64) feed.Cursor {
		return feed.Cursor{Position: position, Micros: start.Add(time.Duration(position) * time.Second).UnixMicro()}
	}
	m.Floor = at(floor)
	for i, c := range changes {
		e := feed.Entry{Cursor: at(floor + uint64(i) + 1), Change: c}
		m.log, m.Head = append(m.log, e), e.Cursor
		m.held = slices.DeleteFunc(m.held, func(h feed.Entry) bool { return h.Change.Loc == c.Loc })
		if c.Change != resourcesync.Deleted {
			m.held = append(m.held, e)
		}
	}
	return m
}

func (m *memory) Sets(context.Context) ([]feed.State, error) { return []feed.State{m.State}, nil }

func (m *memory) Follow(w http.ResponseWriter, r *http.Request, set string, do func(w http.ResponseWriter, r *http.Request, set string) error) error {
	return do(w, r, set)
}

func (m *memory) Publish(w http.ResponseWriter, r *http.Request, set string) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	m.published = fmt.Sprint(set, r.Header, string(body))
	_, err = io.WriteString(w, `{"set":"demo","cursor":"2-3","count":2}`)
	return err
}

func (m *memory) Snapshot(context.Context, string) (*Snapshot, error) {
	return &Snapshot{
		Cursor: m.Head, Release: func() {},
		All: func(context.Context) iter.Seq2[*feed.Entry, error] {
			return func(yield func(*feed.Entry, error) bool) {
				for i := range m.held {
					if e := m.held[i]; !yield(&e, nil) {
						return
					}
				}
				if m.err != nil {
					yield(nil, m.err)
				}
			}
		},
		Find: func(_ context.Context, locs []string, found func(i int, e *feed.Entry)) error {
			for i, loc := range locs {
				if slices.ContainsFunc(m.held, func(e feed.Entry) bool { return e.Change.Loc == loc }) {
					found(i, nil)
				}
			}
			return nil
		},
	}, nil
}

func (m *memory) ReserveMemory(_ context.Context, bytes int64) (func(), error) {
	m.reserved += bytes
	return sync.OnceFunc(func() { m.reserved -= bytes }), nil
}

func (m *memory) seeState(set string) (feed.State, error) {
	if set != m.Set {
		return feed.State{}, feed.ErrNoSet
	}
	return m.State, nil
}

func (m *memory) Seek(_ context.Context, _ string, micros int64) (feed.Cursor, error) {
	after := m.Floor
	if micros <= after.Micros {
		return after, feed.ErrGone
	}
	for _, e := range m.log {
		if e.Micros < micros {
			after = e.Cursor
		}
	}
	return after, nil
}

func (m *memory) Since(_ context.Context, set string, after feed.Cursor, _ int) (*feed.Batch, error) {
	i := int(after.Position - m.Floor.Position)
	rest := m.log[i:min(len(m.log), i+2)]
	return &feed.Batch{Set: set, After: after, Cursor: rest[len(rest)-1].Cursor, Entries: rest}, nil
}

// A hub is a memory with the method State, which the field State hides.
type hub struct{ *memory }

func (h hub) State(_ context.Context, set string) (feed.State, error) { return h.seeState(set) }

// request sends a request to a Server, and writes errors like the hub.
func request(m *memory, method, query string, body []byte, headers ...string) *httptest.ResponseRecorder {
	s := New(hub{m}, "https://hub.example", 0, slog.New(slog.DiscardHandler))
	r := httptest.NewRequest(method, Path+"?"+query, bytes.NewReader(body))
	r.URL.RawQuery = query
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	if err := s.Serve(w, r); err != nil {
		WriteError(w, err)
	}
	return w
}

func length64(n int64) *int64 { return &n }

func sampleMemory() *memory {
	return newMemory(0,
		resourcesync.Change{Loc: "https://example.org/a", Change: resourcesync.Created, Type: "text/html", Length: length64(10), Hash: "sha-256:" + strings.Repeat("0", 64) + " md5:" + strings.Repeat("1", 32), Lastmod: start},
		resourcesync.Change{Loc: "https://example.org/b", Change: resourcesync.Updated, Length: length64(9)},
		resourcesync.Change{Loc: "https://example.org/c", Change: resourcesync.Updated},
		resourcesync.Change{Loc: "https://example.org/c", Change: resourcesync.Deleted},
		resourcesync.Change{Loc: "https://example.org/d", Change: resourcesync.Deleted},
		resourcesync.Change{Loc: "https://example.org/d", Change: resourcesync.Created, Length: length64(10)})
}

// Responses equal the files in testdata. The clock is fake.
func TestGolden(t *testing.T) {
	for name, query := range map[string]string{
		"all":     "type=rd-request&ql=gatherer&scope=all",
		"deleted": "type=RD-Request-Deleted&scope=all&csid=x-catalog://hub.example:443/demo",
		"none":    "type=rd-request&scope=since+Sun,+06+Nov+2044+08:49:37+GMT",
		"server":  "type=server-description-request&csid=demo",
		"hub":     "type=server-description-request",
		"schema":  "type=schema-description-request&ql=schema-basic&scope=defined+SOIF-Attribute",
		"unique":  "type=schema-description-request&scope=defined+enforce-uniqueness&view-attributes=soif-attribute,data-type",
		"status":  "type=status-request",
		"refused": "type=taxonomy-description-request&ql=taxonomy-basic&scope=descendant+ROOT",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := request(sampleMemory(), "GET", query, nil)
				if w.Header().Get("Content-Type") != MediaType || w.Header().Get("Cache-Control") != "no-store" {
					t.Errorf("got the header %v, want a message without caching", w.Header())
				}
				file := "testdata/" + name + ".rdm"
				if *update {
					_ = os.WriteFile(file, w.Body.Bytes(), 0o644)
				}
				want, err := os.ReadFile(file)
				if err != nil || w.Body.String() != string(want) {
					t.Errorf("GET %s: got %d\n%s\nwant %s (%v)", query, w.Code, w.Body, want, err)
				}
			})
		})
	}
}

// locs returns the last parts of the URLs in a response.
func locs(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var all strings.Builder
	for o, err := range objects(NewReader(w.Body)) {
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(strings.TrimPrefix(strings.TrimPrefix(o.URL, "-"), "https://example.org/"))
	}
	return all.String()
}

// Memory is reserved while a message is read.
func TestMessageReservesMemory(t *testing.T) {
	m := sampleMemory()
	message := strings.NewReader("@RDMHEADER { -\nRDM-Version{3}:\t1.0\nRDM-Type{14}:\tstatus-request\n}\n")
	reserved := int64(0)
	r := httptest.NewRequest("POST", Path, readerFunc(func(p []byte) (int, error) {
		reserved = m.reserved
		return message.Read(p)
	}))
	r.Header.Set("Content-Type", MediaType)
	w := httptest.NewRecorder()
	if err := New(hub{m}, "https://hub.example", 0, slog.New(slog.DiscardHandler)).Serve(w, r); err != nil || w.Code != 200 {
		t.Errorf("POST: got %d, %v: %s, want 200", w.Code, err, w.Body)
	}
	if reserved < maxObject || m.reserved != 0 {
		t.Errorf("got %d reserved bytes, and %d after the response, want at least %d, 0", reserved, m.reserved, maxObject)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestViews(t *testing.T) {
	m := sampleMemory()
	for query, want := range map[string]string{
		"":                                       "abd",
		"&view-hits=1":                           "a",
		"&view-hits=99":                          "abd",
		"&view-hits=1&view-order=-url":           "d",
		"&view-hits=2&view-order=content-length": "ba",
		"&view-hits=2&view-order=-Content-Length,-URL":          "da",
		"&view-hits=3&view-order=%2Bcontent-type,%2Burl":        "bda",
		"&view-hits=9&view-order=+md5, -rd-last-modified":       "dba",
		"&view-hits=10000&view-order=last-modified,-change,url": "bda",
	} {
		w := request(m, "GET", "type=rd-request&scope=all"+strings.ReplaceAll(query, " ", "%20"), nil)
		if got := locs(t, w); w.Code != 200 || got != want {
			t.Errorf("GET with %q: got %q, want %q", query, got, want)
		}
	}
	if m.reserved != 0 {
		t.Errorf("got %d reserved bytes after all responses, want 0", m.reserved)
	}
	w := request(m, "HEAD", "type=rd-request&scope=all", nil)
	if w.Code != 200 || w.Body.Len() > 0 || w.Header().Get("Last-Modified") != "Tue, 03 Feb 2026 04:05:12 GMT" {
		t.Errorf("HEAD: got %d %v %q, want 200, Last-Modified and no body", w.Code, w.Header(), w.Body)
	}
}

// The memory for sorting is bounded, regardless of the number of resources.
func TestSortIsBounded(t *testing.T) {
	m := newMemory(0)
	for i := range 6_000 {
		m.held = append(m.held, feed.Entry{Change: resourcesync.Change{Loc: fmt.Sprintf("https://example.org/%04d/%s", i, strings.Repeat("x", 2000))}})
	}
	m.held[4_711].Change.Type = "a"
	if got := locs(t, request(m, "GET", "type=rd-request&scope=all&view-hits=1&view-order=-content-type", nil)); !strings.HasPrefix(got, "4711/") {
		t.Errorf("got %.10s first, want 4711/", got)
	}
	if got := locs(t, request(m, "GET", "type=rd-request&scope=all&view-hits=4000&view-order=-url", nil)); strings.Count(got, "/") != 4_000 || !strings.HasPrefix(got, "5999/") {
		t.Errorf("got %d results from %.10s, want 4000 from 5999/", strings.Count(got, "/"), got)
	}
	for query, status := range map[string]int{"view-hits=5000": 200, "view-hits=10000": 400, "view-hits=10001": 400, "": 400} {
		if w := request(m, "GET", "type=rd-request&scope=all&view-order=url&"+query, nil); w.Code != status {
			t.Errorf("GET with %q: got %d, want %d", query, w.Code, status)
		}
	}
}

// A response that fails is aborted if it has started, and otherwise is an error.
func TestFailedResponse(t *testing.T) {
	m := sampleMemory()
	m.err = errors.New("broken")
	if w := request(m, "GET", "type=rd-request&scope=all", nil); w.Code != 500 || strings.Contains(w.Body.String(), "broken") || w.Header().Get("Last-Modified") != "" {
		t.Errorf("got %d %s, want 500 without details", w.Code, w.Body)
	}
	for i := range 1_000 {
		m.held = append(m.held, feed.Entry{Change: resourcesync.Change{Loc: fmt.Sprintf("https://example.org/%04d", i)}})
	}
	defer func() {
		if recover() != http.ErrAbortHandler {
			t.Error("got a complete response, want an aborted one")
		}
	}()
	request(m, "GET", "type=rd-request&scope=all", nil)
}

// Deletions that the log no longer has are missing, and the response says so.
func TestLostDeletions(t *testing.T) {
	m := newMemory(7,
		resourcesync.Change{Loc: "https://example.org/a", Change: resourcesync.Deleted},
		resourcesync.Change{Loc: "https://example.org/b", Change: resourcesync.Created},
		resourcesync.Change{Loc: "https://example.org/c", Change: resourcesync.Deleted})
	since := func(after time.Duration) string {
		return "type=rd-request-deleted&scope=since+" + url.QueryEscape(date(start.Add(after)))
	}
	for query, want := range map[string]string{since(8 * time.Second): "ac", since(9 * time.Second): "c", since(time.Hour): ""} {
		w := request(m, "GET", query, nil)
		if lost := strings.Contains(w.Body.String(), "no longer known"); lost || w.Code != 200 || locs(t, w) != want {
			t.Errorf("GET %s: got %d, lost: %t, want 200 with %q", query, w.Code, lost, want)
		}
	}
	w := request(m, "GET", "type=rd-request-deleted&scope=all", nil)
	if !strings.Contains(w.Body.String(), "the change memory starts at Tue, 03 Feb 2026 04:05:13 GMT; earlier deletions are no longer known\n}") || locs(t, w) != "ac" {
		t.Errorf("GET of all deletions: got %s, want a note about lost ones", w.Body)
	}
	if w := request(m, "GET", since(7*time.Second), nil); w.Code != 410 || !strings.Contains(w.Body.String(), "delete all others") {
		t.Errorf("GET of lost deletions: got %d %s, want 410", w.Code, w.Body)
	}
}

// A submission is published as a document of changes.
func TestSubmission(t *testing.T) {
	text := "@RDMHEADER { -\nRDM-Type{11}:\tRD-Response\nRDM-Version{3}:\t1.0\n}\n" +
		"@SCHEMA { -\nSOIF-Attribute-1{5}:\tTitle\n}\n" +
		"@DOCUMENT { https://example.org/a\nLast-Modified-1{29}:\tThu, 16 May 1996 11:45:39 GMT\nTitle{2}:\t\xff\xfe\nMD5{32}:\t" + strings.Repeat("A", 32) + "\nhash{6}:\tx:0a0b\n}\n" +
		"@OTHER { https://example.org/b\nFile-Size{1}:\t7\n}\n"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	changes := `{"changes":[{"loc":"https://example.org/a","change":"updated","lastmod":"1996-05-16T11:45:39Z","hash":"x:0a0b md5:` + strings.Repeat("A", 32) + `"},` +
		`{"loc":"https://example.org/b","change":"updated","length":7}]}`
	for encoding, body := range map[string][]byte{"identity": []byte(text), "gzip": packed.Bytes()} {
		m := newMemory(0)
		w := request(m, "POST", "", body, "Content-Type", MediaType+"; charset=utf-8", "Content-Encoding", encoding, "Idempotency-Key", "k", "Ce-Id", "x")
		if w.Code != 200 || m.published != "demomap[Content-Type:[application/json] Idempotency-Key:[k]]"+changes {
			t.Errorf("%s: got %d, published %s", encoding, w.Code, m.published)
		}
		if !strings.Contains(w.Body.String(), "stored 2 changes of set demo, up to cursor 2-3.") {
			t.Errorf("got the response %s, want a receipt", w.Body)
		}
	}
	m := newMemory(0)
	request(m, "POST", "", []byte(strings.Replace(strings.Replace(text, "11", "19", 1), "RD-Response", "RD-Response-Deleted", 1)), "Content-Type", MediaType)
	if want := `{"changes":[{"loc":"https://example.org/a","change":"deleted"},{"loc":"https://example.org/b","change":"deleted"}]}`; !strings.HasSuffix(m.published, want) {
		t.Errorf("got deletions published as %s, want %s", m.published, want)
	}
}

// An invalid message is refused with the object, the attribute and the rule.
func TestInvalidMessages(t *testing.T) {
	header := func(kind string) string {
		return "@RDMHEADER { -\nRDM-Version{3}:\t1.0\n" + fmt.Sprintf("RDM-Type{%d}:\t%s\n}\n", len(kind), kind)
	}
	document := func(attribute string) string {
		return header("rd-response") + "@DOCUMENT { https://example.org/a\n" + attribute + "\n}\n"
	}
	for body, want := range map[string]string{
		"":              "message does not start with @RDMHEADER",
		"@OTHER { -\n}": "message does not start with @RDMHEADER",
		"@RDMHEADER { -\nRDM-Version{3}:\t1.1\n}":                       `unsupported RDM-Version; want 1.0, got "1.1"`,
		"@RDMHEADER { -\nRDM-Version{3}:\t1.0\nRDM-Version{3}:\t1.0\n}": "attribute RDM-Version: got 2 values",
		header("rd-request"):                      `Scope: got ""`,
		header("rd-request") + "@DOCUMENT { -\n}": "object 2: got @DOCUMENT",
		header("rd-request") + "@RDMQUERY { -\nScope{3}:\tall\n}\n@RDMQUERY { -\n}":                           "unexpected data after the query",
		header("rd-request") + "@RDMQUERY { -\nScope{10}:\tsince today\n}":                                    "attribute Scope: value does not end after 10 bytes",
		header("rd-request") + "@RDMQUERY { -\nScope{11}:\tsince today\n}":                                    `Scope: got "since today", want all, or since and an HTTP date`,
		header("rd-request") + "@RDMQUERY { -\nScope{3}:\tall\nView-Hits{1}:\t0\n}":                           `View-Hits: got "0", want a number of at least 1`,
		header("rd-request") + "@RDMQUERY { -\nScope{3}:\tall\nView-Hits{1}:\t1\nView-Order{8}:\turl,-URL\n}": "View-Order: duplicate attribute URL",
		header("schema-description-request") + "@RDMQUERY { -\nScope{3}:\tall\n}":                             "want defined and an attribute",
		header("schema-description-response"):                                                                 `"schema-description-response" is not supported`,
		document("Content-Length{1}:\tx"):                                                                     `object 2 (@DOCUMENT https://example.org/a): Content-Length: got "x", want a number`,
		document("File-Size{2}:\t-1"):                                                                         `Content-Length: got "-1", want a number`,
		document("MD5-1{1}:\tx\nMD5-2{1}:\tx"):                                                                "attribute MD5: got 2 values",
		document("MD5{1}:\tx"):                                                                                `hash: got "md5:x", want a digest`,
		document("Hash{1}:\tx"):                                                                               `hash: got "x", want an algorithm and a digest`,
		document("Change{7}:\tdeleted"):                                                                       `Change: got "deleted", want created or updated`,
		document("Last-Modified{10}:\t2026-01-02"):                                                            `Last-Modified: got "2026-01-02", want an HTTP date`,
		document("Content-Type{1}:\t\xff"):                                                                    "type",
		header("rd-response") + "@DOCUMENT { /relative\n}":                                                    "object 2 (@DOCUMENT /relative): loc",
		header("rd-response-deleted") + "@DOCUMENT { -\n}":                                                    "object 2 (@DOCUMENT -): resource description has no URL",
	} {
		m := newMemory(0)
		w := request(m, "POST", "", []byte(body), "Content-Type", MediaType)
		o, err := NewReader(w.Body).Next()
		if err != nil || w.Code != 400 || !strings.Contains(strings.Join(o.Values("RDM-Error-Message"), ""), want) || m.published != "" {
			t.Errorf("POST %q: got %d %+v, %v, want 400 with %q", body, w.Code, o, err, want)
		}
	}
	for status, headers := range map[int][]string{415: {"Content-Type", "text/plain"}, 400: {"Content-Type", MediaType, "Content-Encoding", "gzip"}} {
		if w := request(newMemory(0), "POST", "", []byte("x"), headers...); w.Code != status {
			t.Errorf("POST with %v: got %d, want %d", headers, w.Code, status)
		}
	}
	if w := request(newMemory(0), "POST", "", nil, "Content-Type", MediaType, "Content-Encoding", "br"); w.Code != 415 || w.Header().Get("Accept-Encoding") != "gzip" {
		t.Errorf("POST with br: got %d, want 415", w.Code)
	}
	if w := request(newMemory(0), "PUT", "", nil); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("PUT: got %d, want 405", w.Code)
	}
	if p := WriteError(httptest.NewRecorder(), feed.ErrUnavailable); p.Status != 503 || p.RetryAfter == 0 || !errors.Is(problem.From(p), feed.ErrUnavailable) {
		t.Errorf("WriteError(ErrUnavailable) = %+v, want 503", p)
	}
}

// A submission is converted to a document of valid changes.
func FuzzSubmission(f *testing.F) {
	f.Add(examples(f), false)
	f.Add([]byte("@D { http://a/\nMD5{32}:\t"+strings.Repeat("a", 32)+"\nFile-Size{1}:\t0\nChange{7}:\tcreated\n}\n@D { urn:x\n}"), false)
	f.Add([]byte("@D { http://a/\n}"), true)
	f.Fuzz(func(t *testing.T, text []byte, deleted bool) {
		body, err := io.ReadAll(newChangesReader(NewReader(bytes.NewReader(text)), deleted))
		if err != nil {
			return
		}
		doc, err := resourcesync.ReadJSON(bytes.NewReader(body), resourcesync.Limits{Check: (*resourcesync.Change).Validate})
		if err != nil {
			t.Fatalf("submission %q: got invalid JSON %s: %v", text, body, err)
		}
		for i := range doc.Items {
			if (doc.Items[i].Change.Change == resourcesync.Deleted) != deleted {
				t.Errorf("submission %q: got %s, want deletions if and only if it is one of deletions", text, body)
			}
		}
	})
}
