package relay_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/internal/source/relay"
	"github.com/rshub/rshub/internal/testutil/localhub"
	"github.com/rshub/rshub/internal/testutil/servertest"
	"github.com/rshub/rshub/resourcesync"
)

// A hub is a set of a hub in this process.
type hub struct {
	reconcile.Set
	fails int // number of the next publish that fails after the hub has accepted it; zero means none
}

var errLost = errors.New("the answer was lost")

func (h *hub) Publish(ctx context.Context, key string, changes []resourcesync.Change) (feed.Cursor, error) {
	at, err := h.Set.Publish(ctx, key, changes)
	if err != nil {
		return feed.Cursor{}, err
	}
	if h.fails--; h.fails == 0 {
		return feed.Cursor{}, errLost
	}
	return at, nil
}

// A world is a hub, a source, and a relay between them. The test moves its clock.
type world struct {
	t     *testing.T
	base  string // of the hub
	hub   *hub
	relay *relay.Relay
	url   string // of the source
	clock time.Time
	opts  relay.Options
	state []byte // as stored
	notes []string
	gaps  []string
}

func newWorld(t *testing.T, source http.Handler) *world {
	t.Helper()
	return newWorldOf(t, localhub.Start(t), source)
}

func newWorldOf(t *testing.T, running *servertest.Hub, source http.Handler) *world {
	t.Helper()
	c, err := client.New(running.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(source)
	t.Cleanup(web.Close)
	w := &world{t: t, base: running.URL, hub: &hub{Set: reconcile.Set{Client: c, Name: "demo"}}, url: web.URL, clock: time.Now().UTC()}
	w.opts = relay.Options{
		Dir:  t.TempDir(),
		Now:  func() time.Time { return w.clock },
		Note: func(s string) { w.notes = append(w.notes, s) },
		Gap:  func(err error) { w.gaps = append(w.gaps, err.Error()) },
		Save: func(st *relay.State) (err error) {
			w.state, err = json.Marshal(st)
			return err
		},
	}
	return w
}

// begin starts with the source at a path.
func (w *world) begin(path string) {
	w.t.Helper()
	source, err := relay.Find(w.t.Context(), w.getter(), w.url+path)
	if err != nil {
		w.t.Fatal(err)
	}
	w.open(&relay.State{Source: source})
}

func (w *world) getter() *harvest.Getter {
	return &harvest.Getter{Client: http.DefaultClient, Tries: 1}
}

func (w *world) open(st *relay.State) { w.relay = relay.New(w.hub, w.getter(), st, w.opts) }

// restart continues with the stored state.
func (w *world) restart() {
	w.t.Helper()
	st := new(relay.State)
	if err := json.Unmarshal(w.state, st); err != nil {
		w.t.Fatal(err)
	}
	w.open(st)
}

// pollWant polls, as in a new process.
func (w *world) pollWant(want string) relay.Result {
	w.t.Helper()
	if w.state != nil {
		w.restart()
	}
	res, err := w.relay.Poll(w.t.Context())
	got := fmt.Sprintf("%s %d %d %d", res.Method, res.Created, res.Updated, res.Deleted)
	if err != nil {
		got = err.Error()
	}
	if got != want && (err == nil || !strings.Contains(got, want)) {
		w.t.Errorf("Poll() = %q, want %q", got, want)
	}
	return res
}

// wantLocs checks the contents of the hub: the locs below the source, and the change of each.
func (w *world) wantLocs(want ...string) {
	w.t.Helper()
	_, body := servertest.Do(w.t, http.MethodGet, w.base+"/sets/demo/resources", "", "Accept", "application/json")
	var page struct{ Resources []struct{ Loc string } }
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, r := range page.Resources {
		all = append(all, strings.TrimPrefix(r.Loc, "https://a.example/"))
	}
	if !slices.Equal(all, want) {
		w.t.Errorf("hub has %q, want %q", all, want)
	}
}

// A site is a web server with documents.
type site struct {
	mu   sync.Mutex
	docs map[string]string
}

func (s *site) put(path, doc string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.docs == nil {
		s.docs = map[string]string{}
	}
	s.docs[path] = doc
}

func (s *site) drop(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.docs, path)
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	doc, ok := s.docs[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	doc = strings.ReplaceAll(doc, "HOST", "http://"+r.Host)
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(doc)))
	w.Header().Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = io.WriteString(w, doc)
}

const opening = `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">`

// listOf returns a sitemap of NAME or NAME@LASTMOD.
func listOf(resources ...string) string {
	var b strings.Builder
	b.WriteString(opening)
	for _, r := range resources {
		name, lastmod, _ := strings.Cut(r, "@")
		fmt.Fprintf(&b, "<url><loc>https://a.example/%s</loc>", name)
		if lastmod != "" {
			fmt.Fprintf(&b, "<lastmod>%s</lastmod>", lastmod)
		}
		b.WriteString("</url>")
	}
	return b.String() + "</urlset>"
}

func TestList(t *testing.T) {
	s := new(site)
	w := newWorld(t, s)
	s.put("/sitemap.xml", listOf("a@2026-01-01", "b@2026-01-01", "c", "a@2026-01-01"))
	w.begin("/sitemap.xml")
	if res := w.pollWant("compared 3 0 0"); !res.Complete || res.Listed != 3 {
		t.Errorf("Poll() = %+v, want a complete comparison of 3", res)
	}
	w.wantLocs("a", "b", "c")
	w.pollWant("unchanged 0 0 0")
	s.put("/sitemap.xml", listOf("a@2026-02-01", "c", "d"))
	w.pollWant("compared 1 1 1")
	w.wantLocs("a", "c", "d")
	w.pollWant("unchanged 0 0 0")

	// A broken list deletes nothing, and the next poll finds the changes that it missed.
	whole := listOf("c", "d", "e")
	for _, broken := range []string{"", whole[:len(whole)-20], "<html/>", "oops"} {
		s.put("/sitemap.xml", broken)
		w.pollWant("the list (")
	}
	s.put("/sitemap.xml", listOf())
	w.pollWant("the source lists no resources")
	w.wantLocs("a", "c", "d")
	s.put("/sitemap.xml", whole)
	w.hub.fails = 1
	w.pollWant("the answer was lost")
	w.pollWant("compared 0 0 0") // the hub had it
	w.wantLocs("c", "d", "e")

	// A server that reports no change is not believed forever.
	w.pollWant("unchanged 0 0 0")
	w.clock = w.clock.Add(25 * time.Hour)
	w.pollWant("compared 0 0 0")

	// The hub lost everything.
	if err := w.forget(); err != nil {
		t.Fatal(err)
	}
	w.pollWant("compared 3 0 0")
	w.wantLocs("c", "d", "e")
}

// forget deletes the set at the hub.
func (w *world) forget() error {
	resp, body := servertest.Do(w.t, http.MethodDelete, w.base+"/sets/demo", "")
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	return nil
}

// A site that writes the time of the request as lastmod is published twice, and no more.
func TestListWithRequestTimes(t *testing.T) {
	s := new(site)
	w := newWorld(t, s)
	names := func(day int, n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("%02d@2026-01-%02d", i, day))
		}
		return all
	}
	s.put("/sitemap.xml", listOf(names(1, 20)...))
	w.begin("/sitemap.xml")
	w.pollWant("compared 20 0 0")
	s.put("/sitemap.xml", listOf(names(2, 20)...))
	w.pollWant("compared 0 20 0")
	s.put("/sitemap.xml", listOf(names(3, 20)...))
	w.pollWant("compared 0 20 0")
	s.put("/sitemap.xml", listOf(names(4, 21)...))
	w.pollWant("compared 1 0 0")
	s.put("/sitemap.xml", listOf(names(5, 20)...))
	w.pollWant("compared 0 0 1")
	if len(w.notes) != 1 || !strings.Contains(w.notes[0], "lastmod changes") {
		t.Errorf("got notes %q", w.notes)
	}
}

// changesOf returns a Change List that starts at a minute, of NAME CHANGE MINUTE.
func changesOf(from int, changes ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `%s<rs:md capability="changelist" from="%s"/>`, opening, minute(from))
	for _, c := range changes {
		f := strings.Fields(c)
		var m int
		fmt.Sscan(f[2], &m)
		fmt.Fprintf(&b, `<url><loc>https://a.example/%s</loc><rs:md change="%s" datetime="%s"/><rs:ln rel="via" href="https://b.example/%[1]s"/></url>`, f[0], f[1], minute(m))
	}
	return b.String() + "</urlset>"
}

func minute(m int) string {
	return time.Date(2026, 1, 1, 12, m, 0, 0, time.UTC).Format(time.RFC3339)
}

func TestChangeList(t *testing.T) {
	s := new(site)
	w := newWorld(t, s)
	s.put("/changes.xml", changesOf(0, "a created 1", "b created 2", "a updated 3"))
	w.begin("/changes.xml")
	w.pollWant("changes 2 1 0")
	w.pollWant("unchanged 0 0 0")
	s.put("/changes.xml", changesOf(0, "a created 1", "b created 2", "a updated 3", "late created 2", "b deleted 4", "c created 4"))
	w.pollWant("changes 2 0 1")
	w.wantLocs("a", "c", "late")
	// The response is lost: the next poll does not publish again.
	s.put("/changes.xml", changesOf(0, "b deleted 4", "c created 4", "d created 5"))
	w.hub.fails = 1
	w.pollWant("the answer was lost")
	w.pollWant("changes 1 0 0")
	batches, cursor := 0, ""
	for b, err := range w.hub.Client.Follow(t.Context(), "demo", "start", client.FollowOptions{Wait: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Entries {
			if c := b.Entries[i].Change; len(c.Links) != 1 || c.Links[0].Rel != "via" || c.Datetime.IsZero() {
				t.Errorf("got change %+v", c)
			}
			batches++
		}
		if cursor = b.Cursor.String(); batches >= 7 {
			break
		}
	}
	if !strings.HasPrefix(cursor, "7-") {
		t.Errorf("head of the log = %s, want position 7", cursor)
	}
	s.put("/changes.xml", changesOf(60, "e created 61"))
	w.pollWant("changes 1 0 0")
	if len(w.notes) != 1 || !strings.Contains(w.notes[0], "changes in between are missing") {
		t.Errorf("got notes %q", w.notes)
	}
	s.put("/changes.xml", strings.Replace(changesOf(60, "f created 62"), `change="created"`, "", 1))
	w.pollWant("entry 1 (https://a.example/f): change is missing")
	w.wantLocs("a", "c", "d", "e", "late")
}

// A change with a datetime in the future is published, and hides no later change.
func TestChangeInTheFuture(t *testing.T) {
	later := func(doc string, minutes ...int) string {
		for _, m := range minutes {
			doc = strings.ReplaceAll(doc, `datetime="`+minute(m)+`"`, `datetime="2099-01-01T00:00:00Z"`)
		}
		return doc
	}
	s := new(site)
	w := newWorld(t, s)
	s.put("/changes.xml", changesOf(0, "a created 1"))
	w.begin("/changes.xml")
	w.pollWant("changes 1 0 0")
	s.put("/changes.xml", later(changesOf(0, "a created 1", "b created 59"), 59))
	w.pollWant("changes 1 0 0")
	if len(w.notes) != 1 || !strings.Contains(w.notes[0], "datetime is in the future") {
		t.Errorf("got notes %q", w.notes)
	}
	s.put("/changes.xml", later(changesOf(0, "a created 1", "b created 59", "c created 2", "a deleted 58"), 59, 58))
	w.pollWant("changes 1 0 1")
	w.wantLocs("b", "c")
	for i := range 3 { // it is not published again with the other changes
		s.put("/changes.xml", later(changesOf(0, "a created 1", "b created 59", "c created 2", "a deleted 58", fmt.Sprintf("d%d created %d", i, 3+i)), 59, 58))
		w.pollWant("changes 1 0 0")
	}
	s.put("/changes.xml", later(changesOf(0, "a created 1", "b created 59", "c created 2", "a deleted 58", "d2 created 5", "b deleted 6"), 59, 58))
	w.pollWant("changes 0 0 1") // b is deleted after its change in the future
	// A mark in the future is ignored.
	st := new(relay.State)
	if err := json.Unmarshal(w.state, st); err != nil {
		t.Fatal(err)
	}
	st.Mark.Datetime = w.clock.Add(1000 * time.Hour)
	var err error
	if w.state, err = json.Marshal(st); err != nil {
		t.Fatal(err)
	}
	s.put("/changes.xml", changesOf(0, "e created 40"))
	w.pollWant("changes 1 0 0")
}

// A resource changes twice within one second of a source whose datetimes have whole seconds, before
// a poll and after it. The second change is not mistaken for the first, although they have
// properties in common.
func TestChangesOfOneSecond(t *testing.T) {
	for name, versions := range map[string][2]string{
		"hash":    {`hash="md5:` + strings.Repeat("a", 32) + `"`, `hash="md5:` + strings.Repeat("b", 32) + `"`},
		"length":  {`length="1"`, `length="2"`},
		"lastmod": {"2026-01-01T12:00:00.1Z", "2026-01-01T12:00:00.2Z"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := func(version string) string {
				lastmod := ""
				if name == "lastmod" {
					lastmod, version = "<lastmod>"+version+"</lastmod>", ""
				}
				return fmt.Sprintf(`<url><loc>https://a.example/a</loc>%s<rs:md change="updated" datetime="%s" %s/></url>`, lastmod, minute(1), version)
			}
			list := func(changes ...string) string {
				return changesOf(0)[:len(changesOf(0))-len("</urlset>")] + strings.Join(changes, "") + "</urlset>"
			}
			s := new(site)
			w := newWorld(t, s)
			s.put("/changes.xml", list(changed(versions[0])))
			w.begin("/changes.xml")
			w.pollWant("changes 0 1 0")
			s.put("/changes.xml", list(changed(versions[0]), changed(versions[1])))
			w.pollWant("changes 0 1 0")
			s.put("/changes.xml", list(changed(versions[0]), changed(versions[1]))+"\n")
			w.pollWant("changes 0 0 0")
		})
	}
}

// A resource returns to an earlier state within one datetime of the source, so an entry of the list
// is repeated exactly. The second one is a separate change.
func TestSameChangeAgain(t *testing.T) {
	s := new(site)
	w := newWorld(t, s)
	s.put("/changes.xml", changesOf(0, "a created 1", "a deleted 1"))
	w.begin("/changes.xml")
	w.pollWant("changes 1 0 1")
	for i, list := range []string{changesOf(0, "a created 1", "a deleted 1", "a created 1"), changesOf(0, "a created 1", "a deleted 1", "a created 1", "b created 2")} {
		s.put("/changes.xml", list)
		w.pollWant("changes 1 0 0")
		w.wantLocs([]string{"a", "b"}[:i+1]...)
	}
	s.put("/changes.xml", changesOf(0, "a created 1", "a deleted 1", "a created 1", "b created 2", "a deleted 2"))
	w.pollWant("changes 0 0 1")
	w.wantLocs("b")
}

// A Change List that lacks older changes in one poll and has them again in the next, as during
// rotation, does not restore deleted resources.
func TestOldChangesReappear(t *testing.T) {
	s := new(site)
	w := newWorld(t, s)
	s.put("/changes.xml", changesOf(0, "a created 1", "b created 2", "a deleted 3"))
	w.begin("/changes.xml")
	w.pollWant("changes 2 0 1")
	s.put("/changes.xml", changesOf(3, "a deleted 3"))
	w.pollWant("changes 0 0 0")
	s.put("/changes.xml", changesOf(0, "a created 1", "b created 2", "a deleted 3", "c created 4"))
	w.pollWant("changes 1 0 0")
	w.wantLocs("b", "c")
}

// A source has both: the Resource List is the start, and repairs missing changes.
func TestResourceAndChangeLists(t *testing.T) {
	s := new(site)
	w := newWorld(t, s)
	list := func(at int, resources ...string) string {
		return strings.Replace(listOf(resources...), opening, opening+`<rs:ln rel="up" href="HOST/cap.xml"/><rs:md capability="resourcelist" at="`+minute(at)+`"/>`, 1)
	}
	s.put("/cap.xml", opening+`<rs:md capability="capabilitylist"/><url><loc>HOST/list.xml</loc><rs:md capability="resourcelist"/></url><url><loc>HOST/changes.xml</loc><rs:md capability="changelist"/></url></urlset>`)
	s.put("/list.xml", list(10, "a@"+minute(1), "b@"+minute(2)))
	s.put("/changes.xml", changesOf(0, "b created 2", "gone deleted 8", "c created 11"))
	w.begin("/cap.xml")
	w.pollWant("compared 3 0 0")
	w.wantLocs("a", "b", "c")
	s.put("/changes.xml", changesOf(0, "b created 2", "gone deleted 8", "c created 11", "a deleted 12"))
	w.pollWant("changes 0 0 1")
	// The Change List was cut off before the published changes.
	s.put("/changes.xml", changesOf(30, "e created 31"))
	s.put("/list.xml", list(32, "b@"+minute(2), "c@"+minute(11), "d@"+minute(20), "e@"+minute(31)))
	res := w.pollWant("compared 2 0 0") // e was published by its change; c had no lastmod there, so it cannot be compared
	if res.Cursor.IsZero() || len(w.notes) != 1 {
		t.Errorf("Poll() = %+v with notes %q, want a cursor and one note", res, w.notes)
	}
	w.wantLocs("b", "c", "d", "e")
	w.pollWant("unchanged 0 0 0")
}

// both returns a site with a Resource List and a Change List.
func both() *site {
	s := new(site)
	s.put("/cap.xml", opening+`<rs:md capability="capabilitylist"/><url><loc>HOST/list.xml</loc><rs:md capability="resourcelist"/></url><url><loc>HOST/changes.xml</loc><rs:md capability="changelist"/></url></urlset>`)
	return s
}

// resourcesAt returns a Resource List created at a minute, in the form of listOf.
func resourcesAt(at int, resources ...string) string {
	return strings.Replace(listOf(resources...), opening, opening+`<rs:md capability="resourcelist" at="`+minute(at)+`"/>`, 1)
}

// A nightly Resource List is compared together with the changes since: no outdated state is
// published.
func TestStaleResourceList(t *testing.T) {
	s := both()
	w := newWorld(t, s)
	s.put("/list.xml", resourcesAt(10, "a@"+minute(1), "b@"+minute(2), "c@"+minute(3)))
	changes := []string{"a deleted 11", "d created 12", "b updated 13", "e created 14", "e deleted 15"}
	s.put("/changes.xml", changesOf(0, changes...))
	w.begin("/cap.xml")
	w.pollWant("compared 3 0 0") // the current b, c and d
	w.wantLocs("b", "c", "d")
	for i := range 3 {
		w.clock = w.clock.Add(25 * time.Hour)
		w.pollWant("compared 0 0 0")
		changes = append(changes, fmt.Sprintf("n%d created %d", i, 20+i))
		s.put("/changes.xml", changesOf(0, changes...))
		w.pollWant("changes 1 0 0")
	}
	w.clock = w.clock.Add(25 * time.Hour)
	w.pollWant("compared 0 0 0")
	w.wantLocs("b", "c", "d", "n0", "n1", "n2")

	// The Change Lists do not reach back to the list: a comparison would revert their changes.
	s.put("/changes.xml", changesOf(21, "n1 created 21", "n2 created 22", "c deleted 30"))
	w.clock = w.clock.Add(25 * time.Hour)
	w.pollWant("changes 0 0 1")
	w.wantLocs("b", "d", "n0", "n1", "n2")
	w.pollWant("unchanged 0 0 0")
	if n := len(w.notes); n != 1 || !strings.Contains(w.notes[0], "does not reach back to the Resource List") {
		t.Errorf("got notes %q", w.notes)
	}
	s.put("/list.xml", resourcesAt(40, "b@"+minute(13), "n2@"+minute(22), "x@"+minute(39)))
	s.put("/changes.xml", changesOf(21, "n1 created 21", "n2 created 22", "c deleted 30", "y created 41"))
	w.clock = w.clock.Add(61 * time.Minute)
	w.pollWant("compared 2 0 3")
	w.wantLocs("b", "n2", "x", "y")
}

// A refused comparison does not hold back the changes of the Change Lists.
func TestRefusedComparison(t *testing.T) {
	s := both()
	w := newWorld(t, s)
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("%02d@%s", i, minute(1)))
	}
	s.put("/list.xml", resourcesAt(10, names...))
	s.put("/changes.xml", changesOf(0))
	w.begin("/cap.xml")
	w.pollWant("compared 30 0 0")
	s.put("/list.xml", resourcesAt(20, names[:10]...))
	var changes []string
	for i := range 3 {
		changes = append(changes, fmt.Sprintf("new%d created %d", i, 30+i))
		s.put("/changes.xml", changesOf(0, changes...))
		w.clock = w.clock.Add(25 * time.Hour)
		if res := w.pollWant("20 of the "); res.Created != 1 {
			t.Errorf("poll %d: Poll() = %+v, want one created resource", i, res)
		}
	}
	var err error
	if w.opts.MaxDelete, err = reconcile.ParseBound("20"); err != nil {
		t.Fatal(err)
	}
	w.pollWant("compared 0 0 20")
}
