package callback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/resourcesync"
)

// An origin is a source's web server.
type origin struct {
	url string

	mu    sync.Mutex
	docs  map[string]string // by path
	asked []string          // paths, in order
	hold  chan struct{}     // answers wait until it is closed, if it is not nil
}

func newOrigin(t *testing.T) *origin {
	o := &origin{docs: map[string]string{}}
	s := httptest.NewServer(o)
	t.Cleanup(s.Close)
	o.url = s.URL
	return o
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	o.asked = append(o.asked, r.URL.Path)
	doc, ok := o.docs[r.URL.Path]
	hold := o.hold
	o.mu.Unlock()
	if hold != nil {
		<-hold
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write([]byte(doc))
}

// put sets what is at a path.
func (o *origin) put(path, doc string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.docs[path] = doc
}

// requests returns the paths that were asked for since the last time.
func (o *origin) requests() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	asked := o.asked
	o.asked = nil
	return asked
}

// A noted is a log that a test can read.
type noted struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (n *noted) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.buf.Write(p)
}

func (n *noted) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.buf.String()
}

// A fetching is a Fetcher with what it needs.
type fetching struct {
	*Fetcher
	t    *testing.T
	memo *disklog.Log
	hub  *hub.Hub
	said *noted

	brought atomic.Int64 // changes
}

var here = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// newFetching returns a Fetcher that may reach the networks.
func newFetching(t *testing.T, log *disklog.Log, allow []netip.Prefix) *fetching {
	t.Helper()
	said := &noted{}
	registry, err := OpenDisk(t.Context(), log.Keep("callback"))
	if err != nil {
		t.Fatal(err)
	}
	h := hub.New(log, hub.Options{BaseURL: base})
	e := New(registry, log, h, Options{BaseURL: base, Allow: allow, Logger: slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	f := &fetching{t: t, memo: log, hub: h, said: said}
	f.Fetcher = NewFetcher(e, log, func(ctx context.Context, set string, p changelog.Publish) (changelog.Appended, error) {
		a, err := h.Publish(ctx, set, p)
		if err == nil && !a.Replayed {
			f.brought.Add(int64(a.Count))
		}
		return a, err
	})
	t.Cleanup(func() {
		f.Close()
		h.Close()
		e.transport.CloseIdleConnections()
	})
	return f
}

func (f *fetching) describe(set, list string) {
	f.t.Helper()
	if err := f.hub.Describe(f.t.Context(), set, changelog.Description{ChangeList: list}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fetching) ping(set string) {
	f.t.Helper()
	if err := f.Ping(f.t.Context(), set); err != nil {
		f.t.Fatal(err)
	}
}

// fetched pings and waits until that has come to an end.
func (f *fetching) fetched(set string) {
	f.t.Helper()
	took, failed := f.engine.metrics.tally(forFetch)
	f.ping(set)
	until(f.t, "a fetch succeeds", func() bool {
		t, n := f.engine.metrics.tally(forFetch)
		if n > failed {
			f.t.Fatalf("the fetch failed:\n%s", f.said)
		}
		return t > took
	})
	f.rests(set)
}

// fails pings and waits until the fetch has failed.
func (f *fetching) fails(set string) {
	f.t.Helper()
	_, before := f.engine.metrics.tally(forFetch)
	f.ping(set)
	until(f.t, "a fetch fails", func() bool {
		_, failed := f.engine.metrics.tally(forFetch)
		return failed > before
	})
}

// rests waits until a set is not fetched any more.
func (f *fetching) rests(set string) {
	f.t.Helper()
	until(f.t, "nothing is fetched", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.pinged[set] == nil
	})
}

// has checks what a set's log has: "loc change day", the last of the source's
// datetime.
func (f *fetching) has(set string, want ...string) {
	f.t.Helper()
	b, err := f.memo.Since(f.t.Context(), set, changelog.Cursor{}, 100_000)
	if err != nil {
		f.t.Fatal(err)
	}
	var got []string
	for _, e := range b.Entries {
		got = append(got, fmt.Sprint(strings.TrimPrefix(e.Change.Loc, "https://example.org/"), " ", e.Change.Change, " ", e.Change.Datetime.Day()))
	}
	if !slices.Equal(got, want) {
		f.t.Errorf("the log of %s has\n%q, want\n%q\n%s", set, got, want, f.said)
	}
}

// listOf writes a Change List of entries "loc change day".
func listOf(from string, entries ...string) string {
	b := `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="changelist"` + from + `/>`
	for _, e := range entries {
		f := strings.Fields(e)
		b += `<url><loc>https://example.org/` + f[0] + `</loc><rs:md change="` + f[1] + `"`
		if len(f) > 2 {
			b += ` datetime="` + day(f[2]) + `"`
		}
		b += `/></url>`
	}
	return b + `</urlset>`
}

func day(n string) string { return fmt.Sprintf("2026-01-%02sT00:00:00Z", n) }

// indexOf writes an index of lists "path from until", of which the days may miss.
func indexOf(url string, lists ...string) string {
	b := `<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="changelist"/>`
	for _, l := range lists {
		f := strings.Fields(l)
		b += `<sitemap><loc>` + url + f[0] + `</loc><rs:md`
		for i, name := range []string{"from", "until"} {
			if len(f) > i+1 {
				b += " " + name + `="` + day(f[i+1]) + `"`
			}
		}
		b += `/></sitemap>`
	}
	return b + `</sitemapindex>`
}

func TestFetch(t *testing.T) {
	o := newOrigin(t)
	f := newFetching(t, openLog(t), here)
	f.describe("demo", o.url+"/list")
	o.put("/list", listOf("", "a created 1", "b created 2"))
	f.fetched("demo")
	f.has("demo", "a created 1", "b created 2")
	f.fetched("demo")
	f.has("demo", "a created 1", "b created 2")

	// One more of the second that was the newest, and the same again of it; the
	// list is not in order.
	o.put("/list", listOf("", "a created 1", "d deleted 3", "b created 2", "b updated 2", "b created 2"))
	f.fetched("demo")
	all := []string{"a created 1", "b created 2", "b updated 2", "b created 2", "d deleted 3"}
	f.has("demo", all...)
	f.fetched("demo")
	f.has("demo", all...)

	// What others publish has no datetime of the source, or an older one.
	late, err := resourcesync.ParseTime(day("1"))
	if err != nil {
		t.Fatal(err)
	}
	posted := changes("posted", 2500)
	posted[2400].Datetime = late
	if _, err := f.hub.Publish(t.Context(), "demo", changelog.Publish{Changes: posted}); err != nil {
		t.Fatal(err)
	}
	f.fetched("demo")
	o.put("/list", listOf("", "e created 3", "d deleted 3", "f created 4"))
	f.fetched("demo")
	st, err := f.memo.State(t.Context(), "demo")
	if want := uint64(len(all) + 2500 + 2); err != nil || st.Head.Position != want {
		t.Errorf("the head is %v, want %d (%v)", st.Head, want, err)
	}
	if took, failed := f.engine.metrics.tally(forFetch); took != 6 || failed != 0 || f.brought.Load() != 7 {
		t.Errorf("%d fetches brought %d changes, and %d failed", took, f.brought.Load(), failed)
	}
	// A list that ends before what the log has.
	o.put("/list", listOf("", "a created 1", "b created 2"))
	f.fetched("demo")
	if got := f.brought.Load(); got != 7 {
		t.Errorf("%d changes by now", got)
	}
	if s := f.said.String(); strings.Contains(s, "WARN") {
		t.Errorf("it warns: %s", s)
	}
}

// A long list comes in batches of which each is known by its place.
func TestFetchLong(t *testing.T) {
	o := newOrigin(t)
	f := newFetching(t, openLog(t), here)
	f.describe("demo", o.url+"/list")
	var entries []string
	for i := range 2500 {
		entries = append(entries, fmt.Sprintf("r%d updated %d", i, 1+i/500))
	}
	o.put("/list", listOf("", entries...))
	f.fetched("demo")
	f.has("demo", entries...)
	f.fetched("demo")
	f.has("demo", entries...)
}

func TestFetchGap(t *testing.T) {
	o := newOrigin(t)
	f := newFetching(t, openLog(t), here)
	f.describe("demo", o.url+"/list")
	o.put("/list", listOf(` from="`+day("1")+`"`, "a created 2"))
	f.fetched("demo")
	if s := f.said.String(); strings.Contains(s, "does not reach back") {
		t.Errorf("the first list of all has a gap: %s", s)
	}
	o.put("/list", listOf(` from="`+day("5")+`"`, "b created 6"))
	f.fetched("demo")
	f.has("demo", "a created 2", "b created 6")
	if s := f.said.String(); !strings.Contains(s, "does not reach back") {
		t.Errorf("there is no warning: %s", s)
	}
}

func TestFetchIndex(t *testing.T) {
	o := newOrigin(t)
	f := newFetching(t, openLog(t), here)
	f.describe("demo", o.url+"/index")
	o.put("/index", indexOf(o.url, "/1 1 3", "/3 5", "/2 3 5"))
	o.put("/1", listOf(` from="`+day("1")+`" until="`+day("3")+`"`, "a created 1", "b created 2"))
	o.put("/2", listOf(` from="`+day("3")+`" until="`+day("5")+`"`, "c created 4"))
	o.put("/3", listOf(` from="`+day("5")+`"`, "d created 6"))
	f.fetched("demo")
	f.has("demo", "a created 1", "b created 2", "c created 4", "d created 6")
	if got := o.requests(); !slices.Equal(got, []string{"/index", "/1", "/2", "/3"}) {
		t.Errorf("it read %q", got)
	}
	f.fetched("demo")
	if got := o.requests(); !slices.Equal(got, []string{"/index", "/3"}) {
		t.Errorf("it read %q again", got)
	}
	o.put("/index", indexOf(o.url, "/2", "/3", "/4")) // nothing says when they are
	o.put("/4", listOf("", "e created 7"))
	f.fetched("demo")
	f.has("demo", "a created 1", "b created 2", "c created 4", "d created 6", "e created 7")
	if s := f.said.String(); strings.Contains(s, "WARN") {
		t.Errorf("it warns: %s", s)
	}

	// What comes before a list that is bad is taken.
	o.put("/index", indexOf(o.url, "/3", "/5", "/6"))
	o.put("/5", listOf("", "f created 8"))
	o.put("/6", listOf("", "g created 9", "h created"))
	f.fails("demo")
	f.has("demo", "a created 1", "b created 2", "c created 4", "d created 6", "e created 7", "f created 8")
	if s := f.said.String(); !strings.Contains(s, "list 3 of the index: entry 2 (https://example.org/h): datetime is missing") {
		t.Errorf("it says %s", s)
	}
}

// The examples of the standard have no datetimes; it has them as optional.
func TestFetchExample(t *testing.T) {
	text, err := os.ReadFile("../resourcesync/testdata/examples/resourcesync_ex_19.xml")
	if err != nil {
		t.Fatal(err)
	}
	o := newOrigin(t)
	f := newFetching(t, openLog(t), here)
	f.describe("demo", o.url+"/list")
	o.put("/list", string(text))
	f.fails("demo")
	f.has("demo")
	if s := f.said.String(); !strings.Contains(s, "entry 1 (http://example.com/res1.html): datetime is missing") {
		t.Errorf("it says %s", s)
	}
	dated := regexp.MustCompile(`<lastmod>(.*)</lastmod>\s*<rs:md`).ReplaceAllString(string(text), `<lastmod>$1</lastmod><rs:md datetime="$1"`)
	o.put("/list", dated)
	f.fetched("demo") // the ping does not wait for the next try
	f.has("demo", "http://example.com/res1.html created 3", "http://example.com/res2.pdf updated 3", "http://example.com/res3.tiff deleted 3", "http://example.com/res2.pdf updated 3")
}

func TestPing(t *testing.T) {
	f := newFetching(t, openLog(t), here)
	for range 2 { // the set is not made, and then it says nothing of its list
		if err := f.Ping(t.Context(), "demo"); !errors.Is(err, resourcesync.ErrInvalid) || !strings.Contains(err.Error(), "PUT "+base+"/sets/demo with") {
			t.Errorf("without a list: %v", err)
		}
		f.describe("demo", "")
	}
	o := newOrigin(t)
	o.put("/list", listOf("", "a created 1"))
	f.describe("demo", o.url+"/list")

	// However many come during a fetch, one more follows it.
	hold := make(chan struct{})
	o.hold = hold
	f.ping("demo")
	asked := 0
	until(t, "the list is asked for", func() bool { asked += len(o.requests()); return asked > 0 })
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { f.ping("demo") })
	}
	wg.Wait()
	close(hold)
	f.rests("demo")
	if asked += len(o.requests()); asked != 2 {
		t.Errorf("the list was fetched %d times", asked)
	}
	f.has("demo", "a created 1")

	f.Close()
	if err := f.Ping(t.Context(), "demo"); !errors.Is(err, changelog.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
}

// Two hubs that fetch at once, while the list grows, publish each change once.
func TestFetchTogether(t *testing.T) {
	log := openLog(t)
	o := newOrigin(t)
	one, two := newFetching(t, log, here), newFetching(t, log, here)
	one.describe("demo", o.url+"/list")
	var entries []string
	for round := range 60 {
		for i := range 1 + round%3 {
			entries = append(entries, fmt.Sprintf("r%d-%d updated %d", round, i, 1+len(entries)/10))
		}
		o.put("/list", listOf("", entries...))
		one.ping("demo")
		two.ping("demo")
		if round%2 > 0 {
			one.rests("demo")
		}
	}
	one.fetched("demo")
	two.rests("demo")
	one.has("demo", entries...)
	if got := one.brought.Load() + two.brought.Load(); got != int64(len(entries)) {
		t.Errorf("they count %d changes of %d", got, len(entries))
	}
	if s := one.said.String() + two.said.String(); strings.Contains(s, "WARN") {
		t.Errorf("they say %s", s)
	}
}
