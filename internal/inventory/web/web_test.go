package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/web"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// A shelf has the states of the set a.
type shelf struct {
	mu     sync.Mutex
	states []*inventory.State // oldest first
	held   int                // number of unreleased states
	waited time.Duration      // last argument wait of State
	fail   error              // error of State and At
}

func (s *shelf) State(_ context.Context, set string, from feed.Cursor, wait time.Duration) (*inventory.Pinned, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waited = wait
	if set != "a" {
		return nil, feed.ErrNoSet
	}
	newest := s.states[len(s.states)-1]
	if from.Position > newest.Cursor().Position {
		return nil, &feed.Error{Code: "behind", Status: 503, RetryAfter: 5, Text: "behind", Detail: "not there yet"}
	}
	return s.holdLocked(newest)
}

func (s *shelf) At(_ context.Context, _ string, at feed.Cursor) (*inventory.Pinned, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.states {
		if st.Cursor() == at {
			return s.holdLocked(st)
		}
	}
	return nil, feed.ErrGone
}

func (s *shelf) holdLocked(st *inventory.State) (*inventory.Pinned, error) {
	if s.fail != nil {
		return nil, s.fail
	}
	s.held++
	return &inventory.Pinned{State: st, Complete: true, Release: sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held--
	})}, nil
}

// A site is a Server over HTTP, with an inventory in memory.
type site struct {
	testing.TB
	shelf
	inventory *inventory.Inventory
	proved    []string
	root      inventory.Root
	streams   *limit.Budget
	http      *httptest.Server
}

func newSite(t testing.TB) *site {
	s := &site{TB: t, inventory: inventory.New(inventory.NewMemory(), "a", inventory.Options{}), streams: limit.NewBudget(256<<20, time.Millisecond)}
	mux := http.NewServeMux()
	s.http = httptest.NewServer(mux)
	t.Cleanup(func() {
		s.http.Close()
		if s.held != 0 || s.streams.Taken() != 0 {
			t.Errorf("got %d unreleased states and %d unreleased bytes", s.held, s.streams.Taken())
		}
	})
	server := web.New(&s.shelf, feed.Base(s.http.URL), web.Options{Streams: s.streams, Proofs: s})
	errors := problem.Adapter{Logger: slog.New(slog.DiscardHandler)}
	mux.HandleFunc("/sets/{set}/resources", errors.Handle(func(w http.ResponseWriter, r *http.Request) error {
		return server.ServeResources(w, r, r.PathValue("set"))
	}))
	mux.HandleFunc("/sets/{set}/audit", errors.Handle(func(w http.ResponseWriter, r *http.Request) error {
		return server.ServeAudit(w, r, r.PathValue("set"))
	}))
	s.commit()
	return s
}

// RecordProof implements web.Proofs.
func (s *site) RecordProof(_ *http.Request, name string, p audit.Proof) {
	s.proved = append(s.proved, fmt.Sprintf("%s of %s holds %d with %q by %s at %v", name, p.Set, p.Count, p.Prefix, p.By, p.Cursor))
}

// loc returns the loc of resource i.
func loc(i int) string {
	return fmt.Sprintf("https://example.org/%s/%06d", []string{"a", "ä&<b>", "c"}[i%3], i)
}

// commit adds a state with further changes, and returns its cursor.
func (s *site) commit(changes ...resourcesync.Change) feed.Cursor {
	s.Helper()
	position := s.root.Cursor.Position + uint64(len(changes)) + 1
	to := feed.Cursor{Position: position, Micros: 1_700_000_000_000_000 + int64(position)}
	var entries []*feed.Entry
	for i, c := range changes {
		entries = append(entries, &feed.Entry{Cursor: feed.Cursor{Position: s.root.Cursor.Position + 1 + uint64(i), Micros: to.Micros - 1}, Change: c})
	}
	slices.SortFunc(entries, func(a, b *feed.Entry) int { return strings.Compare(a.Change.Loc, b.Change.Loc) })
	root, err := s.inventory.Writer(1).Commit(s.Context(), inventory.Changes{Base: s.root, To: to, Sorted: slices.Values(entries)})
	if err != nil {
		s.Fatal(err)
	}
	if _, err := s.inventory.Pin(s.Context(), root.Upto, "a test", time.Hour); err != nil {
		s.Fatal(err)
	}
	s.root = root
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states = append(s.states, s.inventory.Tree(root).State())
	return to
}

// resources returns n changes that create resources.
func resources(n int) (all []resourcesync.Change) {
	for i := range n {
		all = append(all, resourcesync.Change{Loc: loc(i), Change: resourcesync.Created, Hash: fmt.Sprintf("md5:%032x", i), Type: "text/plain"})
	}
	return all
}

func (s *site) do(method, url, body string, header ...string) (*http.Response, []byte) {
	s.Helper()
	if !strings.HasPrefix(url, "http") {
		url = s.http.URL + "/sets/a/" + url
	}
	r, err := http.NewRequestWithContext(s.Context(), method, url, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp, b
}

func (s *site) problem(method, url, body string, status int, says string, header ...string) {
	s.Helper()
	resp, b := s.do(method, url, body, header...)
	if resp.StatusCode != status || resp.Header.Get("Content-Type") != "application/problem+json" || !bytes.Contains(b, []byte(says)) {
		s.Errorf("%s: got %d %s, want %d with %q", url, resp.StatusCode, b, status, says)
	}
}

// withoutMemory calls do while other requests have all memory.
func (s *site) withoutMemory(do func()) {
	all, err := s.streams.Acquire(s.Context(), 256<<20)
	if err != nil {
		s.Fatal(err)
	}
	defer all.Release()
	do()
}

// A list is an answer of {set}/resources.
type list struct {
	Set, Cursor, Next, Position, Content string
	Complete                             bool
	Count                                int
	Resources                            []struct {
		Loc, Change, Datetime, Hash string
		Position                    uint64
	}
}

// list returns a list.
func (s *site) list(url string) (*http.Response, list) {
	s.Helper()
	resp, body := s.do("GET", url, "")
	var l list
	if err := json.Unmarshal(body, &l); err != nil || resp.StatusCode != 200 {
		s.Fatalf("%s: %s %.300s, %v", url, resp.Status, body, err)
	}
	return resp, l
}

// TestResources checks that the pages, and the stream, show every resource once, at one cursor, even if
// resources change.
func TestResources(t *testing.T) {
	for _, n := range []int{0, 1, 10, 11, 3_000} {
		for _, prefix := range []string{"", "https://example.org/ä&", "https://example.org/none"} {
			t.Run(fmt.Sprint(n, prefix), func(t *testing.T) {
				s := newSite(t)
				at := s.commit(resources(n)...)
				var want []string
				for i := range n {
					if strings.HasPrefix(loc(i), prefix) {
						want = append(want, loc(i))
					}
				}
				slices.Sort(want)
				query := "resources?prefix=" + url.QueryEscape(prefix)
				next, got, first := query+"&limit=10", []string{}, list{}
				_, stream := s.do("GET", query, "", "Accept", "application/x-ndjson")
				for pages := 0; next != ""; pages++ {
					resp, l := s.list(next)
					var said list
					if err := json.Unmarshal([]byte(resp.Header.Get("RS-Inventory")), &said); err != nil || said.Cursor != at.String() || said.Content != l.Content {
						t.Errorf("RS-Inventory = %+v, %v", said, err)
					}
					if pages == 0 {
						first = l
						s.commit(resourcesync.Change{Loc: loc(n + 1), Change: resourcesync.Created}, resourcesync.Change{Loc: loc(0), Change: resourcesync.Deleted})
					}
					if l.Set != "a" || l.Cursor != at.String() || !l.Complete || l.Count != len(want) || l.Position != first.Position || len(l.Resources) > 10 {
						t.Errorf("page %d = %+v", pages, l)
					}
					for _, r := range l.Resources {
						got = append(got, r.Loc)
						if r.Datetime == "" || r.Position == 0 || r.Change != "created" {
							t.Errorf("resource = %+v", r)
						}
					}
					link := feed.ParseLinks(resp.Header.Values("Link"))
					if next = l.Next; next == "" && len(link) > 0 || next != "" && (len(link) != 1 || link[0].URI != next || !link[0].HasRel("next")) {
						t.Errorf("next = %q, Link = %v", next, link)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("got %d resources in pages, want %d", len(got), len(want))
				}
				lines := strings.Split(strings.TrimSuffix(string(stream), "\n"), "\n")
				var head list
				if err := json.Unmarshal([]byte(lines[0]), &head); err != nil || head.Position != first.Position || head.Count != len(want) {
					t.Errorf("first line = %s", lines[0])
				}
				for i, line := range lines[1:] {
					if !strings.HasPrefix(line, `{"position":`) || !strings.Contains(line, `"hash":"md5:`) {
						t.Errorf("line %d = %s", i, line)
					}
				}
				if len(lines) != 1+len(want) {
					t.Errorf("%d lines for %d resources", len(lines), len(want))
				}
			})
		}
	}
}

// TestCollection lists a collection as pages and as a stream, even if its next resource is far away.
func TestCollection(t *testing.T) {
	s := newSite(t)
	all := resources(110_000)
	var want []string
	for _, i := range []int{3, 7, 8, 109_999} {
		all[i].Links = []resourcesync.Link{{Rel: "collection", Href: "urn:x:c?a&b"}}
		want = append(want, loc(i))
	}
	slices.Sort(want)
	s.commit(all...)
	const query = "resources?collection=urn:x:c%3Fa%26b"
	var got []string
	pages := 0
	for next := query + "&limit=3"; next != ""; pages++ {
		_, l := s.list(next)
		if l.Count != 110_000 {
			t.Fatalf("count = %d, want 110,000", l.Count)
		}
		for _, r := range l.Resources {
			got = append(got, r.Loc)
		}
		next = l.Next
	}
	if !slices.Equal(got, want) || pages < 3 {
		t.Errorf("got %q in %d pages, want %q", got, pages, want)
	}
	_, body := s.do("GET", query, "", "Accept", "application/x-ndjson")
	if lines := strings.Split(strings.TrimSpace(string(body)), "\n"); len(lines) != 5 {
		t.Errorf("the stream is %s", body)
	}
	if _, body := s.do("GET", "resources?limit=3&collection=urn:x:none&prefix=https://example.org/a/000", "", "Accept", "application/x-ndjson"); bytes.Count(body, []byte("\n")) != 1 {
		t.Errorf("a stream of nothing is %s", body)
	}
	s.problem("GET", "resources?collection=c", "", 400, "collection")
	s.problem("GET", "resources?collection=urn:x:c&loc=urn:x:a", "", 400, "loc cannot be combined with")
}

func TestOneResource(t *testing.T) {
	s := newSite(t)
	s.commit(resources(30)...)
	for l, count := range map[string]int{loc(7): 1, loc(30): 0, loc(7)[:20]: 0} {
		_, got := s.list("resources?loc=" + url.QueryEscape(l))
		if got.Count != count || len(got.Resources) != count || got.Next != "" || count > 0 && got.Resources[0].Loc != l {
			t.Errorf("%s: got %+v, want %d", l, got, count)
		}
	}
	_, all := s.do("GET", "resources?limit=30", "")
	resp, body := s.do("GET", "resources?after="+url.QueryEscape(loc(7))+"&limit=3", "", "Accept", "application/x-ndjson")
	if lines := strings.Split(string(body), "\n"); len(lines) != 5 || !bytes.Contains(all, []byte(lines[1]+","+lines[2]+","+lines[3])) || len(resp.Header.Values("Link")) != 1 {
		t.Errorf("three resources after one are\n%s", body)
	}
	if resp, body := s.do("HEAD", "resources", ""); len(body) > 0 || !strings.Contains(resp.Header.Get("RS-Inventory"), `"count":30,`) {
		t.Errorf("HEAD answers %v", resp.Header)
	}
}

func TestResourcesRefused(t *testing.T) {
	s := newSite(t)
	s.commit(resources(3)...)
	s.problem("GET", "resources?limit=0", "", 400, "1 to 10000")
	s.problem("GET", "resources?limit=10001", "", 400, "1 to 10000")
	s.problem("GET", "resources?prefix=a&prefix=b", "", 400, "prefix: got 2 values")
	s.problem("GET", "resources?after="+strings.Repeat("x", 2049), "", 400, "at most 2048")
	s.problem("GET", "resources?at=now", "", 400, "at: ")
	s.problem("GET", "resources?at=77-88", "", 410, "start the list over")
	s.problem("GET", "resources?loc=a&prefix=b", "", 400, "loc cannot be combined with")
	s.problem("POST", "resources", "", 405, "GET, HEAD")
	s.problem("GET", "resources", "", 406, "application/x-ndjson", "Accept", "application/json;q=0, application/x-ndjson;q=0")
	s.problem("GET", s.http.URL+"/sets/b/resources", "", 404, "no such set")
	s.fail = fmt.Errorf("page 7 of set a: %w", inventory.ErrDamaged)
	s.problem("GET", "resources", "", 503, "damaged")
	s.fail = nil
	s.withoutMemory(func() { s.problem("GET", "resources", "", 503, "too many large requests") })
}

// TestAudit compares two inventories over HTTP: by a summary, and then by ranges at its cursor.
func TestAudit(t *testing.T) {
	s := newSite(t)
	at := s.commit(resources(1_000)...)
	other := newSite(t)
	changes := resources(1_000)
	changes[5].Hash, changes[7].Loc = "md5:00", "https://example.org/extra"
	changes[900].Change = resourcesync.Deleted
	other.commit(changes...)
	own := other.states[len(other.states)-1]

	resp, body := s.do("GET", "audit?from="+at.String(), "")
	look, err := audit.ReadSummary(bytes.NewReader(body))
	if err != nil || look.Cursor != at || !look.Complete || look.Set != "a" || look.Count != 1_000 || len(body) > 1<<10 || s.waited != 5*time.Second {
		t.Fatalf("%s: summary = %s, %v", resp.Status, body, err)
	}
	if mine, err := audit.Summarize(t.Context(), own, inventory.Range{}); err != nil || mine.Content == look.Content {
		t.Fatalf("summaries of different inventories are equal: %v", err)
	}
	_, body = s.do("GET", "audit?prefix=https://example.org/c/", "")
	if part, err := audit.ReadSummary(bytes.NewReader(body)); err != nil || part.Count != 333 {
		t.Errorf("summary with a prefix = %s, %v", body, err)
	}

	s.commit(resourcesync.Change{Loc: loc(2), Change: resourcesync.Deleted}) // later than the summary
	var found []string
	rounds := 0
	for d, err := range audit.Compare(t.Context(), own, digest.ByContent, inventory.Range{}, func(_ context.Context, q audit.Question) (audit.Reply, error) {
		rounds++
		q.At = at
		resp, body := s.do("POST", "audit?details=1", string(q.AppendJSON(nil)))
		if resp.StatusCode != 200 {
			t.Fatalf("%s: %s", resp.Status, body)
		}
		return audit.ReadReply(bytes.NewReader(body))
	}) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, string(d.Kind)+" "+d.Loc)
	}
	slices.Sort(found)
	want := []string{"extra https://example.org/extra", "missing " + loc(7), "missing " + loc(900), "stale " + loc(5)}
	slices.Sort(want)
	if !slices.Equal(found, want) || rounds > 3 {
		t.Errorf("after %d rounds: got %q, want %q", rounds, found, want)
	}
}

// TestProof checks that a question with a name is a proof if it has one range and nothing differs.
func TestProof(t *testing.T) {
	s := newSite(t)
	at := s.commit(resources(1_000)...)
	own := s.states[len(s.states)-1]
	s.commit(resourcesync.Change{Loc: loc(2), Change: resourcesync.Deleted}) // later than the proof
	question := func(prefix string, by digest.By) string {
		look, err := audit.Summarize(t.Context(), own, inventory.Prefix(prefix))
		if err != nil {
			t.Fatal(err)
		}
		q := (&audit.Proof{Prefix: prefix, By: by, Cursor: at, Count: look.Count, Digest: look.Digest(by)}).Question()
		return string(q.AppendJSON(nil))
	}
	for _, text := range []string{question("", digest.ByPosition), question("https://example.org/c/", digest.ByContent), strings.Replace(question("", digest.ByContent), `"count":1000`, `"count":999`, 1)} {
		if resp, body := s.do("POST", "audit?name=mirror+1", text); resp.StatusCode != 200 || strings.Contains(string(body), `"ranges":[]`) != !strings.Contains(text, "999") {
			t.Errorf("%s: %s", resp.Status, body)
		}
	}
	if _, body := s.do("POST", "audit", question("", digest.ByPosition)); !strings.Contains(string(body), `"ranges":[]`) {
		t.Errorf("without a name: got %s", body)
	}
	want := []string{fmt.Sprintf(`mirror 1 of a holds 1000 with "" by position at %v`, at), fmt.Sprintf(`mirror 1 of a holds 333 with "https://example.org/c/" by content at %v`, at)}
	if !slices.Equal(s.proved, want) {
		t.Errorf("got proofs %q, want %q", s.proved, want)
	}
	for _, name := range []string{"", "a%0Ab", "%ff", strings.Repeat("a", 101)} {
		s.problem("POST", "audit?name="+name, question("", digest.ByPosition), 400, "name")
	}
	s.problem("POST", "audit?name=a", strings.Replace(question("", digest.ByPosition), `"to":null`, `"to":"https://example.org/x"`, 1), 400, "must have one range")
}

func TestAuditRefused(t *testing.T) {
	s := newSite(t)
	at := s.commit(resources(3)...)
	s.problem("GET", "audit?from=x", "", 400, "from: ")
	s.problem("GET", "audit?from=1-2&from=1-2", "", 400, "from: got 2 values")
	s.problem("GET", "audit?from=99-2", "", 503, "not there yet")
	s.problem("PUT", "audit", "", 405, "GET, HEAD, POST")
	digest := strings.Repeat("0", 32)
	question := func(at, ranges string) string {
		return fmt.Sprintf(`{"at":%q,"by":"position","ranges":[%s]}`, at, ranges)
	}
	one := `{"from":null,"to":null,"count":0,"digest":"` + digest + `"}`
	s.problem("POST", "audit", question("77-88", one), 410, "get a new summary")
	s.problem("POST", "audit", question(at.String(), one+","+one), 400, "range 2")
	s.problem("POST", "audit", "{", 400, "ends early")
	s.problem("POST", "audit", strings.Repeat(" ", audit.MaxQuestion+2), 413, "")
	s.problem("POST", "audit?details=yes", question(at.String(), one), 400, "details: want 1")
	if resp, body := s.do("POST", "audit", question(at.String(), one)); resp.StatusCode != 200 || bytes.Contains(body, []byte("datetime")) || strings.Count(string(body), `"e":`) != 3 {
		t.Errorf("%s: %s", resp.Status, body)
	}
	if resp, body := s.do("HEAD", "audit", ""); resp.StatusCode != 200 || len(body) > 0 || resp.ContentLength < 100 {
		t.Errorf("HEAD answers %v", resp.Header)
	}
	s.withoutMemory(func() { s.problem("POST", "audit", "{", 503, "too many large requests") }) // the question is not read
	s.fail = &feed.Error{Code: "too-many", Status: 429, RetryAfter: 5, Text: "too many", Detail: "ask again soon"}
	s.problem("POST", "audit", question(at.String(), one), 429, "ask again soon")
}

// TestAuditCompressed checks that answers are compressed only if the client accepts it.
func TestAuditCompressed(t *testing.T) {
	s := newSite(t)
	at := s.commit(resources(5_000)...)
	question := fmt.Sprintf(`{"at":%q,"by":"position","ranges":[{"count":0,"digest":%q}]}`, at, strings.Repeat("0", 32))
	_, want := s.do("POST", "audit", question, "Accept-Encoding", "identity")
	if resp, got := s.do("POST", "audit", question); !resp.Uncompressed || // decompressed by the client
		!bytes.Equal(got, want) || resp.Header.Get("Vary") != "Accept-Encoding" {
		t.Errorf("default: got %v with %d bytes, want %d", resp.Header, len(got), len(want))
	}
	resp, zipped := s.do("POST", "audit", question, "Accept-Encoding", "gzip")
	if resp.Header.Get("Content-Encoding") != "gzip" || resp.ContentLength != int64(len(zipped)) || len(zipped) > len(want)*6/10 {
		t.Errorf("%v: %d bytes of %d", resp.Header, len(zipped), len(want))
	}
	for _, encoding := range []string{"", "gzip;q=0", "br"} {
		if resp, got := s.do("POST", "audit", question, "Accept-Encoding", encoding); resp.Header.Get("Content-Encoding") != "" || !bytes.Equal(got, want) {
			t.Errorf("Accept-Encoding %q: got %v", encoding, resp.Header)
		}
	}
	s.problem("POST", "audit", "{", 400, "ends early", "Accept-Encoding", "gzip")
}
