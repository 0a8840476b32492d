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

// What a list named that broke off is removed if the next one does not name it.
func TestListBreaksOff(t *testing.T) {
	b := newBench(t)
	entry := func(name string) string {
		b.set(name, name)
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md hash="%s"/></url>`, b.URL, name, sumOf(name))
	}
	source := &discovery.Source{ResourceList: b.URL + "/list.xml"}
	a, old, never := entry("/a"), entry("/old"), entry("/never")
	b.set("/list.xml", document("resourcelist", "", a, old))
	b.right(source)
	b.set("/list.xml", strings.TrimSuffix(document("resourcelist", "", a, old, never), "</urlset>"))
	if _, err := b.once(source); err == nil {
		t.Error("half a list is taken for a whole one")
	}
	b.set("/list.xml", document("resourcelist", "", a))
	b.right(source)
	b.has("old", "")
	b.has("never", "")
}

// A sitemap may name a resource several times. The last time counts, for the mirror and for its
// audit.
func TestListNamesTwice(t *testing.T) {
	b := newBench(t)
	b.set("/a", "a")
	entry := func(lastmod string) string {
		return fmt.Sprintf("<url><loc>%s/a</loc><lastmod>%s</lastmod></url>", b.URL, lastmod)
	}
	b.set("/list.xml", document("resourcelist", "", entry("2026-01-01"), entry("2026-01-02")))
	source := &discovery.Source{ResourceList: b.URL + "/list.xml"}
	b.right(source)
	b.set("/list.xml", document("resourcelist", "", entry("2026-01-01"), entry("2026-01-02"), entry("2026-01-03")))
	b.right(source)
	b.set("/list.xml", document("resourcelist", "", entry("2026-01-02"), entry("2026-01-03"))) // the mirror has the last one
	b.right(source)
}

// A broken is a Sink on a disk that is full.
type broken struct{}

var errFull = errors.New("the disk is full")

func (broken) Apply(context.Context, []feed.Entry) error    { return errFull }
func (broken) Retry(context.Context, bool) (Backlog, error) { return Backlog{}, nil }

// A disk that is full is no mistake of the source, although its list broke off, too.
func TestListBreaksOffOnAFullDisk(t *testing.T) {
	b := newBench(t)
	text := document("resourcelist", `at="2026-01-01T00:00:00Z"`, `<url><loc>`+b.URL+`/a</loc></url>`)
	b.set("/list.xml", strings.TrimSuffix(text, "</urlset>"))
	m := New(b.home, &discovery.Source{ResourceList: b.URL + "/list.xml"}, broken{}, Options{HTTP: b.Client(), SourceTimeout: time.Second})
	m.lister.Getter.Tries = 1
	_, err := m.Run(t.Context(), true)
	if _, source := errors.AsType[*SourceError](err); source || !errors.Is(err, errFull) {
		t.Errorf("Run = %v", err)
	}
}

// A list without a resource is probably a mistake of the source, and deletes nothing, as few as
// there may be.
func TestEmptyList(t *testing.T) {
	b := newBench(t)
	b.set("/a", "a")
	entry := fmt.Sprintf(`<url><loc>%s/a</loc><rs:md hash="%s"/></url>`, b.URL, sumOf("a"))
	list := func(entries ...string) {
		b.set("/list.xml", document("resourcelist", `at="2026-01-01T00:00:00Z"`, entries...))
	}
	source := &discovery.Source{ResourceList: b.URL + "/list.xml"}
	list()
	b.right(source)
	list(entry, fmt.Sprintf(`<url><loc>%s/never</loc></url>`, b.URL))
	if _, err := b.once(source); err != nil {
		t.Fatal(err)
	}
	list()
	if _, err := b.once(source); err == nil || !strings.Contains(err.Error(), "lists no resources, and 1 are known") {
		t.Errorf("Run = %v", err)
	}
	b.has("a", "a")
	all, err := reconcile.ParseBound("all")
	if err != nil {
		t.Fatal(err)
	}
	b.reopen(DirectoryOptions{MaxDelete: all})
	b.right(source)
	b.has("a", "")
}

// A dump that changes while it is read is read anew: what only the first one had is removed.
func TestDumpChangesMeanwhile(t *testing.T) {
	b := newBench(t)
	a := zipOf(manifest(b.in("/a", "/a", "a"), b.in("/old", "/old", "old")), zipped{"a", "a"}, zipped{"old", "old"})
	source := &discovery.Source{ResourceDump: b.URL + "/dump.xml"}
	b.dump("2026-01-01T00:00:00Z", a, "no ZIP file")
	if _, err := b.once(source); err == nil {
		t.Error("a dump with a damaged package is right")
	}
	b.has("old", "old")
	b.dump("2026-01-02T00:00:00Z", zipOf(manifest(b.in("/a", "/a", "a")), zipped{"a", "a"}))
	b.right(source)
	b.has("old", "")
}

// A list that breaks, in whatever way, deletes nothing and ends nothing: the mirror looks
// again until the list is right.
func TestListBreaks(t *testing.T) {
	b := newBench(t)
	entries := func(n int) (all []string) {
		for i := range n {
			name := fmt.Sprintf("/f%d", i)
			b.set(name, name)
			all = append(all, fmt.Sprintf(`<url><loc>%s%s</loc><rs:md hash="%s"/></url>`, b.URL, name, sumOf(name)))
		}
		return all
	}
	b.set("/list.xml", document("resourcelist", `at="2026-01-04T00:00:00Z"`, entries(20)...))
	source := &discovery.Source{ResourceList: b.URL + "/list.xml"}
	b.right(source)

	var broken atomic.Pointer[http.HandlerFunc]
	var looks atomic.Int32
	b.answers(func(w http.ResponseWriter, r *http.Request) {
		if f := broken.Load(); f != nil && r.URL.Path == "/list.xml" {
			defer looks.Add(1)
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
		func(w http.ResponseWriter, _ *http.Request) { // it does not end
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		},
	} {
		broken.Store(&f)
		before := looks.Load()
		testutil.Until(t, "the list was looked at", func() bool {
			select {
			case <-ended:
				t.Fatal("it has ended")
			default:
			}
			return looks.Load() >= before+2
		})
		if n := b.home.Ledger.Counts().Files; n != 20 {
			t.Fatalf("there are %d files", n)
		}
	}
	b.set("/f20", "new")
	b.set("/list.xml", document("resourcelist", `at="2026-01-05T00:00:00Z"`, append(entries(19), fmt.Sprintf(`<url><loc>%s/f20</loc><rs:md hash="%s"/></url>`, b.URL, sumOf("new")))...))
	broken.Store(nil)
	testutil.Until(t, "the mirror is right again", func() bool {
		_, had, err := b.home.Ledger.File(b.URL + "/f19")
		_, has, err2 := b.home.Ledger.File(b.URL + "/f20")
		return err == nil && err2 == nil && !had && has
	})
}

// One change that is dated 2099 is applied, and hides nothing of what comes after it. A mirror
// that has gone on to such a time reads everything again.
func TestFuture(t *testing.T) {
	b := newBench(t)
	changed := func(name, text, at string) string {
		b.set(name, text)
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md change="updated" datetime="%s" hash="%s"/></url>`, b.URL, name, at, sumOf(text))
	}
	var changes []string
	list := func(entry ...string) {
		changes = append(changes, entry...)
		b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`, changes...))
	}
	source := &discovery.Source{ChangeList: b.URL + "/changes.xml"}
	look := func(want string) {
		t.Helper()
		var notes []string
		m := New(b.home, source, b.Directory, Options{HTTP: b.Client(), Logf: func(format string, a ...any) { notes = append(notes, fmt.Sprintf(format, a...)) }})
		if left, err := m.Run(t.Context(), true); err != nil || left.Resources != 0 {
			t.Fatalf("%+v is left, %v", left, err)
		}
		if got := strings.Join(notes, "\n"); !strings.Contains(got, want) {
			t.Errorf("it notes %q, not %q", got, want)
		}
	}
	list(changed("/a", "a1", "2026-01-02T00:00:00Z"), changed("/b", "b1", "2099-01-01T00:00:00Z"))
	look("is in the future")
	b.has("/b", "b1")
	list(changed("/a", "a2", "2026-01-03T00:00:00Z"))
	look("")
	b.has("/a", "a2")
	list(changed("/b", "b2", "2026-01-04T00:00:00Z"))
	look("")
	b.has("/b", "b2")

	var st listState
	if _, err := b.home.Ledger.Meta("looks", &st); err != nil {
		t.Fatal(err)
	}
	st.Changed = time.Now().Add(10_000 * time.Hour)
	if err := New(b.home, source, b.Directory, Options{}).saveListState(&st); err != nil {
		t.Fatal(err)
	}
	list(changed("/c", "c1", "2026-01-05T00:00:00Z"))
	look("changes between are lost")
	b.has("/c", "c1")
	list(changed("/c", "c2", "2026-01-06T00:00:00Z"))
	look("")
	b.has("/c", "c2")
}

// A source may add a change late, after changes with later datetimes. What was applied is not
// applied again for that.
func TestLateChange(t *testing.T) {
	b := newBench(t)
	var changes []string
	change := func(name, text, minute string) {
		kind, hash := "deleted", ""
		if text != "" {
			b.set(name, text)
			kind, hash = "updated", fmt.Sprintf(`hash="%s"`, sumOf(text))
		}
		changes = append(changes, fmt.Sprintf(`<url><loc>%s%s</loc><rs:md change="%s" datetime="2026-01-01T12:%s:00Z" %s/></url>`, b.URL, name, kind, minute, hash))
		b.set("/changes.xml", document("changelist", `from="2026-01-01T00:00:00Z"`, changes...))
	}
	b.set("/kept", "as the list has it")
	b.set("/list.xml", document("resourcelist", `at="2026-01-01T12:05:00Z"`, fmt.Sprintf(`<url><loc>%s/kept</loc><rs:md hash="%s"/></url>`, b.URL, sumOf("as the list has it"))))
	change("/a", "a1", "10")
	change("/gone", "gone", "20")
	change("/gone", "", "25")
	change("/a", "a2", "30")
	source := &discovery.Source{ResourceList: b.URL + "/list.xml", ChangeList: b.URL + "/changes.xml"}
	b.right(source)
	b.has("a", "a2")
	b.requests("/gone")
	change("/late", "late", "29")
	change("/kept", "before the list", "04")
	b.set("/kept", "as the list has it")
	var deeds []Action
	b.reopen(DirectoryOptions{OnAction: func(d Action) { deeds = append(deeds, d) }})
	b.right(source)
	b.has("late", "late")
	b.has("a", "a2")
	b.has("kept", "as the list has it")
	if len(deeds) != 1 || b.requests("/gone") > 0 {
		t.Errorf("it did %+v", deeds)
	}
}

// A Change List that begins later than the Resource List leaves a hole, until there is a newer
// Resource List: that is read, although the Change List reaches back to each look since.
func TestHole(t *testing.T) {
	b := newBench(t)
	entry := func(name, text, change string) string {
		b.set(name, text)
		return fmt.Sprintf(`<url><loc>%s%s</loc><rs:md %s hash="%s"/></url>`, b.URL, name, change, sumOf(text))
	}
	source := &discovery.Source{ResourceList: b.URL + "/list.xml", ChangeList: b.URL + "/changes.xml"}
	look := func(want string) {
		t.Helper()
		var notes []string
		m := New(b.home, source, b.Directory, Options{HTTP: b.Client(), Logf: func(format string, a ...any) { notes = append(notes, fmt.Sprintf(format, a...)) }})
		if _, err := m.Run(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(notes, "\n"); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("it notes %q, not %q", got, want)
		}
	}
	b.set("/list.xml", document("resourcelist", `at="2026-01-01T00:00:00Z"`, entry("/a", "a1", ""), entry("/b", "b1", "")))
	b.set("/changes.xml", document("changelist", `from="2026-01-03T00:00:00Z"`, entry("/c", "c1", `change="created" datetime="2026-01-03T12:00:00Z"`)))
	look("may be missing until there is a newer list")
	b.has("/c", "c1")
	a2 := entry("/a", "a2", "") // changed on the second of January
	look("")
	b.has("/a", "a1")
	b.set("/list.xml", document("resourcelist", `at="2026-01-04T00:00:00Z"`, a2, entry("/b", "b1", ""), entry("/c", "c1", "")))
	look("")
	b.has("/a", "a2")
	b.requests("/list.xml")
	look("")
	if n := b.requests("/list.xml"); n != 0 {
		t.Errorf("the list was asked for %d times although nothing is missing", n)
	}
}

// A counter is a Sink that counts.
type counter struct {
	n    atomic.Int64
	most int // entries at once
}

func (c *counter) Apply(_ context.Context, entries []feed.Entry) error {
	c.n.Add(int64(len(entries)))
	c.most = max(c.most, len(entries))
	return nil
}

func (*counter) Retry(context.Context, bool) (Backlog, error) { return Backlog{}, nil }

// Change Lists are applied while they are read: no more than one batch of changes is held, in
// however many lists they are. The end of each list comes when its beginning was applied.
func TestChangeListsAreStreamed(t *testing.T) {
	b := newBench(t)
	const lists, each = 5, 3 * listBatch
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(n int) string { return begin.Add(time.Duration(n) * time.Second).Format(time.RFC3339) }
	var sink counter
	b.answers(func(w http.ResponseWriter, r *http.Request) {
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
		testutil.Until(t, "what came was applied, but a batch", func() bool { return sink.n.Load() >= int64(list*each+each-listBatch) })
		if n := sink.n.Load(); n > int64((list+1)*each) {
			t.Errorf("%d changes were applied before they came", n)
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
	if n := sink.n.Load(); n != lists*each || sink.most > listBatch {
		t.Errorf("%d changes were applied, at most %d at once", n, sink.most)
	}
}
