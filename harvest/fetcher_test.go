package harvest

import (
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
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/logged"
	"github.com/rshub/rshub/internal/memorytest"
	"github.com/rshub/rshub/internal/until"
	"github.com/rshub/rshub/outbound"
	"github.com/rshub/rshub/resourcesync"
)

// An origin is a source's web server.
type origin struct {
	url string

	mu    sync.Mutex
	docs  map[string]string // by path
	asked []string          // paths, in order
	hold  chan struct{}     // unless it is nil, answers wait until it is closed
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

// requests returns the paths that were requested since the last call.
func (o *origin) requests() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	asked := o.asked
	o.asked = nil
	return asked
}

// A fetching is a Fetcher with what it needs.
type fetching struct {
	*Fetcher
	t    *testing.T
	memo *disklog.Log
	hub  *hub.Hub
	said *logged.Log

	brought      atomic.Int64 // changes
	took, failed atomic.Int64 // fetches
}

var here = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

const base = "https://hub.example.org"

// newFetching returns a Fetcher that may reach the given networks.
func newFetching(t *testing.T, log *disklog.Log, allow []netip.Prefix) *fetching {
	t.Helper()
	client := outbound.New(outbound.Options{Self: base, Allow: allow})
	t.Cleanup(client.Close)
	return newFetchingBy(t, log, client.HTTP(), client.Check)
}

// newFetchingBy returns a Fetcher that makes its requests with a client.
func newFetchingBy(t *testing.T, log *disklog.Log, client *http.Client, check func(name, target string) error) *fetching {
	t.Helper()
	f := &fetching{t: t, memo: log, hub: hub.New(log, hub.Options{Base: base}), said: &logged.Log{}}
	f.Fetcher = New(client, log, func(ctx context.Context, set, key string, digest [32]byte, changes []resourcesync.Change) (feed.Cursor, int, error) {
		a, err := f.hub.Publish(ctx, set, changelog.Publish{Changes: changes, Key: key, Hash: digest})
		if err != nil || a.Replayed {
			return a.Cursor, 0, err
		}
		f.brought.Add(int64(a.Count))
		return a.Cursor, a.Count, nil
	}, Options{
		Sets: base + "/sets", Check: check,
		Logger: slog.New(slog.NewTextHandler(f.said, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Count: func(o outbound.Outcome, _ time.Duration) {
			if o == outbound.Success {
				f.took.Add(1)
			} else {
				f.failed.Add(1)
			}
		},
	})
	t.Cleanup(func() {
		f.Close()
		f.hub.Close()
	})
	return f
}

func (f *fetching) describe(set, list string) {
	f.t.Helper()
	if err := f.hub.Describe(f.t.Context(), set, feed.Description{ChangeList: list}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fetching) ping(set string) {
	f.t.Helper()
	if err := f.Ping(f.t.Context(), set); err != nil {
		f.t.Fatal(err)
	}
}

// fetched pings, and waits until the fetch has ended well.
func (f *fetching) fetched(set string) {
	f.t.Helper()
	took, failed := f.took.Load(), f.failed.Load()
	f.ping(set)
	until.Done(f.t, "a fetch succeeds", func() bool {
		if f.failed.Load() > failed {
			f.t.Fatalf("the fetch failed:\n%s", f.said)
		}
		return f.took.Load() > took
	})
	f.rests(set)
}

// fails pings and waits until the fetch has failed.
func (f *fetching) fails(set string) {
	f.t.Helper()
	before := f.failed.Load()
	f.ping(set)
	until.Done(f.t, "a fetch fails", func() bool { return f.failed.Load() > before })
}

// rests waits until no fetch of a set is under way.
func (f *fetching) rests(set string) {
	f.t.Helper()
	until.Done(f.t, "nothing is fetched", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.pinged[set] == nil
	})
}

// has checks the entries of a set's log. An entry is written "loc change day"; the
// day is that of the source's datetime.
func (f *fetching) has(set string, want ...string) {
	f.t.Helper()
	b, err := f.memo.Since(f.t.Context(), set, feed.Cursor{}, 100_000)
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

// listOf returns a Change List. An entry is written "loc change day".
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

// indexOf returns an index of lists. A list is written "path from until"; from and
// until are days and may be missing.
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
	f := newFetching(t, memorytest.Open(t), here)
	f.describe("demo", o.url+"/list")
	o.put("/list", listOf("", "a created 1", "b created 2"))
	f.fetched("demo")
	f.has("demo", "a created 1", "b created 2")
	f.fetched("demo")
	f.has("demo", "a created 1", "b created 2")

	// The list has one more change of the second that was the newest, and the
	// change that was there before. It is not in order.
	o.put("/list", listOf("", "a created 1", "d deleted 3", "b created 2", "b updated 2", "b created 2"))
	f.fetched("demo")
	all := []string{"a created 1", "b created 2", "b updated 2", "b created 2", "d deleted 3"}
	f.has("demo", all...)
	f.fetched("demo")
	f.has("demo", all...)

	// What others publish has no datetime of the source, or an older datetime.
	late, err := resourcesync.ParseTime(day("1"))
	if err != nil {
		t.Fatal(err)
	}
	posted := memorytest.Changes("posted", 2500)
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
	if took, failed := f.took.Load(), f.failed.Load(); took != 6 || failed != 0 || f.brought.Load() != 7 {
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

// A long list is published in batches. Each has a key that says where it begins.
func TestFetchLong(t *testing.T) {
	o := newOrigin(t)
	f := newFetching(t, memorytest.Open(t), here)
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
	f := newFetching(t, memorytest.Open(t), here)
	f.describe("demo", o.url+"/list")
	o.put("/list", listOf(` from="`+day("1")+`"`, "a created 2"))
	f.fetched("demo")
	if s := f.said.String(); strings.Contains(s, "begins after the newest change of the set") {
		t.Errorf("the first list of all has a gap: %s", s)
	}
	o.put("/list", listOf(` from="`+day("5")+`"`, "b created 6"))
	f.fetched("demo")
	f.has("demo", "a created 2", "b created 6")
	if s := f.said.String(); !strings.Contains(s, "begins after the newest change of the set") {
		t.Errorf("there is no warning: %s", s)
	}
}

func TestFetchIndex(t *testing.T) {
	o := newOrigin(t)
	f := newFetching(t, memorytest.Open(t), here)
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
	o.put("/index", indexOf(o.url, "/2", "/3", "/4")) // the index does not say when they begin or end
	o.put("/4", listOf("", "e created 7"))
	f.fetched("demo")
	f.has("demo", "a created 1", "b created 2", "c created 4", "d created 6", "e created 7")
	if s := f.said.String(); strings.Contains(s, "WARN") {
		t.Errorf("it warns: %s", s)
	}

	// The lists before a bad list are published.
	o.put("/index", indexOf(o.url, "/3", "/5", "/6"))
	o.put("/5", listOf("", "f created 8"))
	o.put("/6", listOf("", "g created 9", "h created"))
	f.fails("demo")
	f.has("demo", "a created 1", "b created 2", "c created 4", "d created 6", "e created 7", "f created 8")
	if s := f.said.String(); !strings.Contains(s, "list 3 of the index: entry 2 (https://example.org/h): datetime is missing") {
		t.Errorf("it says %s", s)
	}
}

// The standard's own examples have no datetimes, which are optional in it.
func TestFetchExample(t *testing.T) {
	text, err := os.ReadFile("../resourcesync/testdata/examples/resourcesync_ex_19.xml")
	if err != nil {
		t.Fatal(err)
	}
	o := newOrigin(t)
	f := newFetching(t, memorytest.Open(t), here)
	f.describe("demo", o.url+"/list")
	o.put("/list", string(text))
	f.fails("demo")
	f.has("demo")
	if s := f.said.String(); !strings.Contains(s, "entry 1 (http://example.com/res1.html): datetime is missing") {
		t.Errorf("it says %s", s)
	}
	dated := regexp.MustCompile(`<lastmod>(.*)</lastmod>\s*<rs:md`).ReplaceAllString(string(text), `<lastmod>$1</lastmod><rs:md datetime="$1"`)
	o.put("/list", dated)
	f.fetched("demo") // a ping fetches at once, and does not wait for the next attempt
	f.has("demo", "http://example.com/res1.html created 3", "http://example.com/res2.pdf updated 3", "http://example.com/res3.tiff deleted 3", "http://example.com/res2.pdf updated 3")
}

func TestPing(t *testing.T) {
	f := newFetching(t, memorytest.Open(t), here)
	for range 2 { // first the set is not made, then it has no Change List
		if err := f.Ping(t.Context(), "demo"); !errors.Is(err, resourcesync.ErrInvalid) || !strings.Contains(err.Error(), "PUT "+base+"/sets/demo {") {
			t.Errorf("without a list: %v", err)
		}
		f.describe("demo", "")
	}
	o := newOrigin(t)
	o.put("/list", listOf("", "a created 1"))
	f.describe("demo", o.url+"/list")

	// However many pings come during a fetch, one more fetch follows.
	hold := make(chan struct{})
	o.hold = hold
	f.ping("demo")
	asked := 0
	until.Done(t, "the list is asked for", func() bool { asked += len(o.requests()); return asked > 0 })
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
	if err := f.Ping(t.Context(), "demo"); !errors.Is(err, feed.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
}

// Two hubs fetch at the same time while the list grows. Each change is published
// once.
func TestFetchTogether(t *testing.T) {
	log := memorytest.Open(t)
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
