package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/source/discovery"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/internal/testutil"
)

// Resources named only by a truncated list are removed if the next list does not name them.
func TestListTruncated(t *testing.T) {
	b := newFixture(t)
	entry := func(name string) string {
		b.set(name, name)
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md hash="%s"/></url>`, b.URL, name, hashOf(name))
	}
	source := &discovery.Source{ResourceList: b.URL + "/list.xml"}
	a, old, never := entry("/a"), entry("/old"), entry("/never")
	b.set("/list.xml", document("resourcelist", "", a, old))
	b.mirror(source)
	b.set("/list.xml", strings.TrimSuffix(document("resourcelist", "", a, old, never), "</urlset>"))
	if _, err := b.run(source); err == nil {
		t.Error("Run() with a truncated list = nil, want an error")
	}
	b.set("/list.xml", document("resourcelist", "", a))
	b.mirror(source)
	b.wantFile("old", "")
	b.wantFile("never", "")
}

// A sitemap may name a resource several times. The last entry counts, for the mirror and for its
// audit.
func TestListWithDuplicates(t *testing.T) {
	b := newFixture(t)
	b.set("/a", "a")
	entry := func(lastmod string) string {
		return fmt.Sprintf("<url><loc>%s/a</loc><lastmod>%s</lastmod></url>", b.URL, lastmod)
	}
	b.set("/list.xml", document("resourcelist", "", entry("2026-01-01"), entry("2026-01-02")))
	source := &discovery.Source{ResourceList: b.URL + "/list.xml"}
	b.mirror(source)
	b.set("/list.xml", document("resourcelist", "", entry("2026-01-01"), entry("2026-01-02"), entry("2026-01-03")))
	b.mirror(source)
	b.set("/list.xml", document("resourcelist", "", entry("2026-01-02"), entry("2026-01-03"))) // the mirror has the last entry
	b.mirror(source)
}

// A fullDiskSink is a Sink on a full disk.
type fullDiskSink struct{}

var errFull = errors.New("the disk is full")

func (fullDiskSink) Apply(context.Context, []feed.Entry) error    { return errFull }
func (fullDiskSink) Retry(context.Context, bool) (Backlog, error) { return Backlog{}, nil }

// A full disk is not an error of the source, even if the list is truncated as well.
func TestListTruncatedOnFullDisk(t *testing.T) {
	b := newFixture(t)
	text := document("resourcelist", `at="2026-01-01T00:00:00Z"`, `<url><loc>`+b.URL+`/a</loc></url>`)
	b.set("/list.xml", strings.TrimSuffix(text, "</urlset>"))
	m := New(b.home, &discovery.Source{ResourceList: b.URL + "/list.xml"}, fullDiskSink{}, Options{HTTP: b.Client(), SourceTimeout: time.Second})
	m.lister.Getter.Tries = 1
	_, err := m.Run(t.Context(), true)
	if _, source := errors.AsType[*SourceError](err); source || !errors.Is(err, errFull) {
		t.Errorf("Run() = %v, want errFull and not a SourceError", err)
	}
}

// A list without resources is probably a mistake of the source. It deletes nothing, however few
// resources the mirror has.
func TestListEmpty(t *testing.T) {
	b := newFixture(t)
	b.set("/a", "a")
	entry := fmt.Sprintf(`<url><loc>%s/a</loc><rs:md hash="%s"/></url>`, b.URL, hashOf("a"))
	list := func(entries ...string) {
		b.set("/list.xml", document("resourcelist", `at="2026-01-01T00:00:00Z"`, entries...))
	}
	source := &discovery.Source{ResourceList: b.URL + "/list.xml"}
	list()
	b.mirror(source)
	list(entry, fmt.Sprintf(`<url><loc>%s/never</loc></url>`, b.URL))
	if _, err := b.run(source); err != nil {
		t.Fatal(err)
	}
	list()
	if _, err := b.run(source); err == nil || !strings.Contains(err.Error(), "lists no resources, and 1 are known") {
		t.Errorf("Run() = %v, want an error about the empty list", err)
	}
	b.wantFile("a", "a")
	all, err := reconcile.ParseBound("all")
	if err != nil {
		t.Fatal(err)
	}
	b.reopen(DirectoryOptions{MaxDelete: all})
	b.mirror(source)
	b.wantFile("a", "")
}

// A dump that changes while it is read is read from the start, and resources named only by the
// old one are removed.
func TestDumpChangesWhileRead(t *testing.T) {
	b := newFixture(t)
	a := zipFiles(manifest(b.dumpEntry("/a", "/a", "a"), b.dumpEntry("/old", "/old", "old")), zipMember{"a", "a"}, zipMember{"old", "old"})
	source := &discovery.Source{ResourceDump: b.URL + "/dump.xml"}
	b.dump("2026-01-01T00:00:00Z", a, "no ZIP file")
	if _, err := b.run(source); err == nil {
		t.Error("Run() with a damaged package = nil, want an error")
	}
	b.wantFile("old", "old")
	b.dump("2026-01-02T00:00:00Z", zipFiles(manifest(b.dumpEntry("/a", "/a", "a")), zipMember{"a", "a"}))
	b.mirror(source)
	b.wantFile("old", "")
}

// A failing list deletes nothing and does not end Run: the mirror polls until the list is valid
// again.
func TestListUnavailable(t *testing.T) {
	b := newFixture(t)
	entries := func(n int) (all []string) {
		for i := range n {
			name := fmt.Sprintf("/f%d", i)
			b.set(name, name)
			all = append(all, fmt.Sprintf(`<url><loc>%s%s</loc><rs:md hash="%s"/></url>`, b.URL, name, hashOf(name)))
		}
		return all
	}
	b.set("/list.xml", document("resourcelist", `at="2026-01-04T00:00:00Z"`, entries(20)...))
	source := &discovery.Source{ResourceList: b.URL + "/list.xml"}
	b.mirror(source)

	var broken atomic.Pointer[http.HandlerFunc]
	var polls atomic.Int32
	b.handle(func(w http.ResponseWriter, r *http.Request) {
		if f := broken.Load(); f != nil && r.URL.Path == "/list.xml" {
			defer polls.Add(1)
			(*f)(w, r)
			return
		}
		b.serve(w, r)
	})
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	says := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	half := document("resourcelist", "", entries(3)...)
	never := status(http.StatusNotFound)
	broken.Store(&never)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	m := New(b.home, source, b.Directory, Options{HTTP: b.Client(), PollInterval: time.Millisecond})
	m.lister.Getter.Tries = 1
	ended := make(chan struct{})
	wg.Go(func() {
		defer close(ended)
		if _, err := m.Run(ctx, false); err != nil {
			t.Error(err)
		}
	})
	defer wg.Wait()
	defer cancel()
	for _, f := range []http.HandlerFunc{
		status(404), status(410), status(500), says(""), says(half[:len(half)-10]), says("<html>"), says(document("changelist", "")),
		func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/list.xml", http.StatusFound) },
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			_, _ = io.WriteString(w, half)
		},
		func(w http.ResponseWriter, _ *http.Request) { // an endless response
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		},
	} {
		broken.Store(&f)
		before := polls.Load()
		testutil.Until(t, "the list was polled", func() bool {
			select {
			case <-ended:
				t.Fatal("Run() returned, want it to continue")
			default:
			}
			return polls.Load() >= before+2
		})
		if n := b.home.Ledger.Counts().Files; n != 20 {
			t.Fatalf("Counts().Files = %d, want 20", n)
		}
	}
	b.set("/f20", "new")
	b.set("/list.xml", document("resourcelist", `at="2026-01-05T00:00:00Z"`, append(entries(19), fmt.Sprintf(`<url><loc>%s/f20</loc><rs:md hash="%s"/></url>`, b.URL, hashOf("new")))...))
	broken.Store(nil)
	testutil.Until(t, "the mirror has the new list", func() bool {
		_, had, err := b.home.Ledger.File(b.URL + "/f19")
		_, has, err2 := b.home.Ledger.File(b.URL + "/f20")
		return err == nil && err2 == nil && !had && has
	})
}

// A change dated 2099 is applied, and does not hide later changes. A mirror whose progress is in
// the future reads everything again.
func TestChangeInFuture(t *testing.T) {
	b := newFixture(t)
	changed := func(name, text, at string) string {
		b.set(name, text)
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md change="updated" datetime="%s" hash="%s"/></url>`, b.URL, name, at, hashOf(text))
	}
	var changes []string
	list := func(entry ...string) {
		changes = append(changes, entry...)
		b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`, changes...))
	}
	source := &discovery.Source{ChangeList: b.URL + "/changes.xml"}
	poll := func(want string) {
		t.Helper()
		var notes []string
		m := New(b.home, source, b.Directory, Options{HTTP: b.Client(), Logf: func(format string, a ...any) { notes = append(notes, fmt.Sprintf(format, a...)) }})
		if left, err := m.Run(t.Context(), true); err != nil || left.Resources != 0 {
			t.Fatalf("Run() = %+v, %v, want an empty backlog", left, err)
		}
		if got := strings.Join(notes, "\n"); !strings.Contains(got, want) {
			t.Errorf("log = %q, want %q", got, want)
		}
	}
	list(changed("/a", "a1", "2026-01-02T00:00:00Z"), changed("/b", "b1", "2099-01-01T00:00:00Z"))
	poll("is in the future")
	b.wantFile("/b", "b1")
	list(changed("/a", "a2", "2026-01-03T00:00:00Z"))
	poll("")
	b.wantFile("/a", "a2")
	list(changed("/b", "b2", "2026-01-04T00:00:00Z"))
	poll("")
	b.wantFile("/b", "b2")

	var st listState
	if _, err := b.home.Ledger.Meta("looks", &st); err != nil {
		t.Fatal(err)
	}
	st.Changed = time.Now().Add(10_000 * time.Hour)
	if err := New(b.home, source, b.Directory, Options{}).saveListState(&st); err != nil {
		t.Fatal(err)
	}
	list(changed("/c", "c1", "2026-01-05T00:00:00Z"))
	poll("changes in between are lost")
	b.wantFile("/c", "c1")
	list(changed("/c", "c2", "2026-01-06T00:00:00Z"))
	poll("")
	b.wantFile("/c", "c2")
}

// A source may add a change after changes with later datetimes. Changes that were already
// applied are not applied again.
func TestLateChange(t *testing.T) {
	b := newFixture(t)
	var changes []string
	change := func(name, text, minute string) {
		kind, hash := "deleted", ""
		if text != "" {
			b.set(name, text)
			kind, hash = "updated", fmt.Sprintf(`hash="%s"`, hashOf(text))
		}
		changes = append(changes, fmt.Sprintf(`<url><loc>%s%s</loc><rs:md change="%s" datetime="2026-01-01T12:%s:00Z" %s/></url>`, b.URL, name, kind, minute, hash))
		b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`, changes...))
	}
	b.set("/kept", "as the list has it")
	b.set("/list.xml", document("resourcelist", `at="2026-01-01T12:05:00Z"`, fmt.Sprintf(`<url><loc>%s/kept</loc><rs:md hash="%s"/></url>`, b.URL, hashOf("as the list has it"))))
	change("/a", "a1", "10")
	change("/gone", "gone", "20")
	change("/gone", "", "25")
	change("/a", "a2", "30")
	source := &discovery.Source{ResourceList: b.URL + "/list.xml", ChangeList: b.URL + "/changes.xml"}
	b.mirror(source)
	b.wantFile("a", "a2")
	b.requestCount("/gone")
	change("/late", "late", "29")
	change("/kept", "before the list", "04")
	b.set("/kept", "as the list has it")
	var actions []Action
	b.reopen(DirectoryOptions{OnAction: func(d Action) { actions = append(actions, d) }})
	b.mirror(source)
	b.wantFile("late", "late")
	b.wantFile("a", "a2")
	b.wantFile("kept", "as the list has it")
	if len(actions) != 1 || b.requestCount("/gone") > 0 {
		t.Errorf("actions = %+v, want one, and no request for /gone", actions)
	}
}

// A Change List that starts after the Resource List leaves a gap until there is a newer Resource
// List. That one is read, although the Change List covers each poll since.
func TestGapAfterResourceList(t *testing.T) {
	b := newFixture(t)
	entry := func(name, text, change string) string {
		b.set(name, text)
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md %s hash="%s"/></url>`, b.URL, name, change, hashOf(text))
	}
	source := &discovery.Source{ResourceList: b.URL + "/list.xml", ChangeList: b.URL + "/changes.xml"}
	poll := func(want string) {
		t.Helper()
		var notes []string
		m := New(b.home, source, b.Directory, Options{HTTP: b.Client(), Logf: func(format string, a ...any) { notes = append(notes, fmt.Sprintf(format, a...)) }})
		if _, err := m.Run(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(notes, "\n"); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("log = %q, want %q", got, want)
		}
	}
	b.set("/list.xml", document("resourcelist", `at="2026-01-01T00:00:00Z"`, entry("/a", "a1", ""), entry("/b", "b1", "")))
	b.set("/changes.xml", document("changelist", `from="2026-01-03T00:00:00Z"`, entry("/c", "c1", `change="created" datetime="2026-01-03T12:00:00Z"`)))
	poll("may be missing until there is a newer list")
	b.wantFile("/c", "c1")
	a2 := entry("/a", "a2", "") // changed on the second of January
	poll("")
	b.wantFile("/a", "a1")
	b.set("/list.xml", document("resourcelist", `at="2026-01-04T00:00:00Z"`, a2, entry("/b", "b1", ""), entry("/c", "c1", "")))
	poll("")
	b.wantFile("/a", "a2")
	b.requestCount("/list.xml")
	poll("")
	if n := b.requestCount("/list.xml"); n != 0 {
		t.Errorf("got %d requests for the list, want 0", n)
	}
}

// A countingSink is a Sink that counts entries.
type countingSink struct {
	n   atomic.Int64
	max int // most entries of one Apply
}

func (c *countingSink) Apply(_ context.Context, entries []feed.Entry) error {
	c.n.Add(int64(len(entries)))
	c.max = max(c.max, len(entries))
	return nil
}

func (*countingSink) Retry(context.Context, bool) (Backlog, error) { return Backlog{}, nil }

// Change Lists are applied while they are read: at most one batch of changes is in memory. The
// server sends the end of each list after its start was applied.
func TestChangeListsAreStreamed(t *testing.T) {
	b := newFixture(t)
	const lists, each = 5, 3 * listBatch
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(n int) string { return begin.Add(time.Duration(n) * time.Second).Format(time.RFC3339) }
	var sink countingSink
	b.handle(func(w http.ResponseWriter, r *http.Request) {
		var list int
		if _, err := fmt.Sscanf(r.URL.Path, "/%d.xml", &list); err != nil {
			b.serve(w, r)
			return
		}
		var entries []string
		for i := list * each; i < (list+1)*each; i++ {
			entries = append(entries, fmt.Sprintf(`<url><loc>%s/f%d</loc><rs:md change="created" datetime="%s"/></url>`, b.URL, i, at(i)))
		}
		text := document("changelist", `from="`+at(list*each)+`"`, entries...)
		const rest = 500 // bytes
		_, _ = io.WriteString(w, text[:len(text)-rest])
		_ = http.NewResponseController(w).Flush()
		testutil.Until(t, "all received changes but one batch were applied", func() bool { return sink.n.Load() >= int64(list*each+each-listBatch) })
		if n := sink.n.Load(); n > int64((list+1)*each) {
			t.Errorf("got %d applied changes, want at most %d, as many as were sent", n, (list+1)*each)
		}
		_, _ = io.WriteString(w, text[len(text)-rest:])
	})
	var index []string
	for i := range lists {
		index = append(index, fmt.Sprintf(`<sitemap><loc>%s/%d.xml</loc><rs:md capability="changelist" from="%s" until="%s"/></sitemap>`, b.URL, i, at(i*each), at((i+1)*each)))
	}
	b.set("/changes.xml", strings.NewReplacer("<urlset", "<sitemapindex", "</urlset", "</sitemapindex").Replace(document("changelist", `from="`+at(0)+`"`, index...)))
	source := &discovery.Source{ChangeList: b.URL + "/changes.xml"}
	if _, err := New(b.home, source, &sink, Options{HTTP: b.Client()}).Run(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if n := sink.n.Load(); n != lists*each || sink.max > listBatch {
		t.Errorf("got %d applied changes, at most %d at once, want %d and at most %d", n, sink.max, lists*each, listBatch)
	}
}
