package documents_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/documents"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

var update = flag.Bool("update", false, "write the golden files")

const base = "https://hub.example.org"

// startTime is the initial time of the clock of every test.
var startTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// A memory is a change memory on disk with a fake clock.
type memory struct {
	testing.TB
	changelog.Log
	now atomic.Int64 // nanoseconds

	lookups, reads atomic.Int64           // calls of State and At; of Since and Seek
	before         atomic.Pointer[func()] // called before each Since unless nil
	afterSets      atomic.Pointer[func()] // called after each Sets unless nil
	down           atomic.Bool
}

func newMemory(t testing.TB) *memory {
	m := &memory{TB: t}
	m.now.Store(startTime.UnixNano())
	log, err := disklog.Open(t.Context(), t.TempDir(), disklog.Options{Now: m.clock})
	if err != nil {
		t.Fatal(err)
	}
	m.Log = log
	t.Cleanup(func() { _ = log.Close() })
	return m
}

func (m *memory) clock() time.Time        { return time.Unix(0, m.now.Load()) }
func (m *memory) advance(d time.Duration) { m.now.Add(int64(d)) }

func (m *memory) err(ctx context.Context) error {
	if m.down.Load() {
		return fmt.Errorf("in a test: %w", feed.ErrUnavailable)
	}
	return ctx.Err()
}

func (m *memory) State(ctx context.Context, set string) (feed.State, error) {
	m.lookups.Add(1)
	if err := m.err(ctx); err != nil {
		return feed.State{}, err
	}
	return m.Log.State(ctx, set)
}

func (m *memory) Sets(ctx context.Context, names ...string) ([]feed.State, error) {
	states, err := m.Log.Sets(ctx, names...)
	if f := m.afterSets.Load(); f != nil {
		(*f)()
	}
	return states, err
}

func (m *memory) At(ctx context.Context, set string, position uint64) (feed.Cursor, error) {
	m.lookups.Add(1)
	if err := m.err(ctx); err != nil {
		return feed.Cursor{}, err
	}
	return m.Log.At(ctx, set, position)
}

func (m *memory) Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error) {
	m.reads.Add(1)
	if before := m.before.Load(); before != nil {
		(*before)()
	}
	if err := m.err(ctx); err != nil {
		return nil, err
	}
	return m.Log.Since(ctx, set, after, limit)
}

func (m *memory) Seek(ctx context.Context, set string, micros int64) (feed.Cursor, error) {
	m.reads.Add(1)
	return m.Log.Seek(ctx, set, micros)
}

// create creates a set whose lists have k entries.
func (m *memory) create(set string, k int) {
	m.Helper()
	d := feed.Description{Title: "Proposals", DescribedBy: "https://peps.example.org/about"}
	if err := m.Make(m.Context(), set, d, k); err != nil {
		m.Fatal(err)
	}
}

func (m *memory) describe(set string, d feed.Description) {
	m.Helper()
	if err := m.Describe(m.Context(), set, d); err != nil {
		m.Fatal(err)
	}
}

// add publishes n changes as one batch, one second after the previous one.
func (m *memory) add(set string, n int) {
	m.Helper()
	m.advance(time.Second)
	head := m.state(set).Head.Position
	changes := make([]resourcesync.Change, n)
	for i := range changes {
		changes[i] = change(head + uint64(i) + 1)
	}
	if _, err := m.Append(m.Context(), set, changelog.Publish{Changes: changes}); err != nil {
		m.Fatal(err)
	}
}

func (m *memory) state(set string) feed.State {
	m.Helper()
	s, err := m.Log.State(m.Context(), set)
	if err != nil {
		m.Fatal(err)
	}
	return s
}

func (m *memory) trim(set string, keep uint64) {
	m.Helper()
	if _, err := m.Trim(m.Context(), set, changelog.Retention{Count: keep}); err != nil {
		m.Fatal(err)
	}
}

// change returns a change of about 400 bytes of XML.
func change(n uint64) resourcesync.Change {
	length := int64(700 + n)
	c := resourcesync.Change{
		Loc:     fmt.Sprintf("https://peps.example.org/pep-%05d.txt?a=1&b=2", n),
		Change:  []resourcesync.ChangeType{resourcesync.Created, resourcesync.Updated, resourcesync.Deleted}[n%3],
		Lastmod: startTime.Add(-time.Duration(n) * time.Hour),
		Hash:    fmt.Sprintf("sha-256:%x", sha256.Sum256([]byte(strconv.FormatUint(n, 10)))),
		Length:  &length,
		Type:    "text/plain",
	}
	switch n % 4 {
	case 1:
		c.Links = []resourcesync.Link{{Rel: "describedby", Href: c.Loc + "&meta", Modified: c.Lastmod}}
	case 2:
		c.Datetime = c.Lastmod.Add(time.Minute)
		c.Attrs = []resourcesync.Attr{{Namespace: "https://example.org/terms/", Name: "note", Value: `"<&>"`}}
	}
	return c
}

// A server is a documents.Server with routing.
type server struct {
	*documents.Server
	*memory
}

func newServer(m *memory, o documents.Options) *server {
	o.Now = m.clock
	return &server{documents.New(m, base, o), m}
}

// newFilled returns a memory with the set peps, which has n entries in lists of k, and a server of it.
func newFilled(t testing.TB, k, n int, o documents.Options) (*memory, *server) {
	m := newMemory(t)
	m.create("peps", k)
	if n > 0 {
		m.add("peps", n)
	}
	return m, newServer(m, o)
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := problem.Adapter{Logger: slog.New(slog.DiscardHandler)}
	a.Handle(s.serve)(w, r)
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) error {
	path := r.URL.Path
	switch path {
	case "/.well-known/resourcesync":
		return s.ServeDescription(w, r)
	case "/robots.txt":
		return s.ServeRobots(w, r)
	}
	set, name, _ := strings.Cut(strings.TrimPrefix(path, "/sets/"), "/")
	if name == "changes" {
		return s.ServeLatest(w, r, set)
	}
	return s.ServeSet(w, r, set, name)
}

// get sends a GET of a URL or a path. header are pairs of names and values.
func (s *server) get(url string, header ...string) *httptest.ResponseRecorder {
	return s.do("GET", url, header...)
}

func (s *server) do(method, url string, header ...string) *httptest.ResponseRecorder {
	return s.doAs(access.All(), method, url, header...)
}

func (s *server) doAs(rights access.Rights, method, url string, header ...string) *httptest.ResponseRecorder {
	ctx := access.NewContext(s.Context(), access.Caller{Rights: rights})
	r := httptest.NewRequestWithContext(ctx, method, "http://192.0.2.1"+strings.TrimPrefix(url, base), nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// read gets and parses a document.
func (s *server) read(url string) *document {
	s.Helper()
	w := s.get(url)
	if w.Code != http.StatusOK {
		s.Fatalf("GET %s: got %d %s, want 200", url, w.Code, w.Body)
	}
	doc := new(document)
	if err := xml.Unmarshal(w.Body.Bytes(), doc); err != nil {
		s.Fatalf("GET %s: %v", url, err)
	}
	return doc
}

// scan is a faster read for long documents. It parses only the header and the first and last entry, and
// finds the positions of the others.
func (s *server) scan(url string) (*document, []uint64) {
	s.Helper()
	w := s.get(url)
	if w.Code != http.StatusOK {
		s.Fatalf("GET %s: got %d %s, want 200", url, w.Code, w.Body)
	}
	lines := strings.SplitAfter(w.Body.String(), "\n")
	isEntry := func(line string) bool {
		return strings.HasPrefix(line, "  <url>") || strings.HasPrefix(line, "  <sitemap>")
	}
	first := slices.IndexFunc(lines, isEntry)
	end := len(lines) - 2 // the end tag of the root, and the empty rest after its newline
	short := strings.Join(slices.Concat(lines[:first+1], lines[end-1:]), "")
	doc := new(document)
	if err := xml.Unmarshal([]byte(short), doc); err != nil {
		s.Fatalf("GET %s: %v", url, err)
	}
	positions := make([]uint64, 0, end-first)
	for _, line := range lines[first:end] {
		_, rest, _ := strings.Cut(line, ` h:position="`)
		digits, _, _ := strings.Cut(rest, `"`)
		n, _ := strconv.ParseUint(digits, 10, 64) // zero in an index
		positions = append(positions, n)
	}
	if w.Body.Len() > 50<<20 && len(positions) > 2 {
		s.Errorf("GET %s: got %d bytes with %d entries, want at most 50 MiB", url, w.Body.Len(), len(positions))
	}
	return doc, positions
}

// A document is a parsed document with the attributes of the hub, which package resourcesync ignores.
type document struct {
	XMLName  xml.Name
	MD       md      `xml:"http://www.openarchives.org/rs/terms/ md"`
	Links    []ln    `xml:"http://www.openarchives.org/rs/terms/ ln"`
	URLs     []entry `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 url"`
	Sitemaps []entry `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 sitemap"`
}

type entry struct {
	Loc   string `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 loc"`
	MD    md     `xml:"http://www.openarchives.org/rs/terms/ md"`
	Links []ln   `xml:"http://www.openarchives.org/rs/terms/ ln"`
}

type md struct {
	Capability string `xml:"capability,attr"`
	Change     string `xml:"change,attr"`
	Datetime   string `xml:"datetime,attr"`
	From       string `xml:"from,attr"`
	Until      string `xml:"until,attr"`
	Position   uint64 `xml:"https://github.com/rshub/rshub/terms/ position,attr"`
	After      string `xml:"https://github.com/rshub/rshub/terms/ after,attr"`
	Cursor     string `xml:"https://github.com/rshub/rshub/terms/ cursor,attr"`
}

type ln struct {
	Rel  string `xml:"rel,attr"`
	Href string `xml:"href,attr"`
}

// link returns the target of a relation, or "".
func link(links []ln, rel string) string {
	for _, l := range links {
		if l.Rel == rel {
			return l.Href
		}
	}
	return ""
}

func (d *document) positions() []uint64 {
	var all []uint64
	for _, e := range d.URLs {
		all = append(all, e.MD.Position)
	}
	return all
}

// numbers returns the numbers from to to.
func numbers(from, to uint64) []uint64 {
	var all []uint64
	for n := from; n <= to; n++ {
		all = append(all, n)
	}
	return all
}

// golden compares a document with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", filepath.FromSlash(name))
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant %s", got, file)
	}
}

func TestGolden(t *testing.T) {
	m, s := newFilled(t, 4, 0, documents.Options{DescribedBy: "https://example.org/about"})
	m.create("rfcs", 4)
	m.add("peps", 3)
	m.add("peps", 5)
	m.add("peps", 2)
	m.describe("rfcs", feed.Description{DescribedBy: "https://peps.example.org/about", NoPush: true})
	for _, test := range []struct{ name, url string }{
		{"description", "/.well-known/resourcesync"},
		{"set-description", "/sets/peps/.well-known/resourcesync"},
		{"capabilitylist", "/sets/peps/capabilitylist.xml"},
		{"capabilitylist-nopush", "/sets/rfcs/capabilitylist.xml"},
		{"changelist", "/sets/peps/changelist.xml"},
		{"changelist-from", "/sets/peps/changelist.xml?from=2026-01-02T03:04:08Z"},
		{"changelist-closed", m.list("peps", 2)},
		{"changelist-open", m.list("peps", 3)},
		{"changelist-index", "/sets/peps/changelist-index.xml"},
		{"latest", "/sets/peps/changes"},
		{"empty-changelist", "/sets/rfcs/changelist.xml"},
		{"empty-changelist-index", "/sets/rfcs/changelist-index.xml"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := s.get(test.url)
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/xml" {
				t.Fatalf("GET %s: got %d %s, want 200 and XML", test.url, w.Code, w.Body)
			}
			golden(t, test.name+".golden.xml", w.Body.Bytes())
			if _, err := resourcesync.ReadXML(w.Body, resourcesync.Limits{}); err != nil {
				t.Errorf("read back: %v", err)
			}
		})
	}
}

// Documents without entries are not validated, because the standard allows them, but the sitemap schema
// does not.
func TestGoldenFilesAreValid(t *testing.T) {
	xmllint, err := exec.LookPath("xmllint")
	if err != nil {
		t.Skip("xmllint is not installed, so the golden files are not validated")
	}
	files, err := filepath.Glob("testdata/*.golden.xml")
	if err != nil || len(files) == 0 {
		t.Fatalf("golden files: got %v, %v, want some", files, err)
	}
	for _, file := range files {
		if strings.HasPrefix(filepath.Base(file), "empty-") {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		schema := "urlset.xsd"
		if bytes.Contains(content, []byte("<sitemapindex")) {
			schema = "sitemapindex.xsd"
		}
		out, err := exec.Command(xmllint, "--nonet", "--noout", "--schema", "../../resourcesync/testdata/xsd/"+schema, file).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}

func gunzip(t testing.TB, b []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}
