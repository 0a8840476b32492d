package dump

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/dump/place"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/memorytest"
	"github.com/rshub/rshub/internal/until"
	"github.com/rshub/rshub/inventory/live"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/resourcesync"
)

// set is the set of the tests. Its Change Lists have listSize changes.
const (
	set      = "demo"
	listSize = 10
)

// A world is a change memory with inventories, an origin with contents, and a place.
type world struct {
	*Maker
	t      testing.TB
	memory *disklog.Log
	live   *live.Live
	place  *faultyPlace
	opts   Options
	job    job

	origin *httptest.Server
	mu     sync.Mutex
	texts  map[string]http.HandlerFunc // by path
	asked  map[string]int
}

// A faultyPlace is a place that fails when it is told to.
type faultyPlace struct {
	place.Place
	fail func(name string) error // before Create; nil: never
	away bool                    // Open fails
}

func (p *faultyPlace) Open(ctx context.Context, name string) (place.File, error) {
	if p.away {
		return nil, errors.New("the place is away")
	}
	return p.Place.Open(ctx, name)
}

func (p *faultyPlace) Create(ctx context.Context, name string) (place.Writer, error) {
	if p.fail != nil {
		if err := p.fail(name); err != nil {
			return nil, err
		}
	}
	return p.Place.Create(ctx, name)
}

func newWorld(t testing.TB, change ...func(*Options)) *world {
	return newWorldOf(t, listSize, change...)
}

func newWorldOf(t testing.TB, listSize int, change ...func(*Options)) *world {
	w := &world{t: t, memory: memorytest.Open(t), texts: map[string]http.HandlerFunc{}, asked: map[string]int{}}
	w.origin = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		h := w.texts[r.URL.Path]
		w.asked[r.URL.Path]++
		w.mu.Unlock()
		if h == nil {
			http.NotFound(rw, r)
			return
		}
		h(rw, r)
	}))
	t.Cleanup(w.origin.Close)
	claims, err := claim.OpenLocal(t.Context(), w.memory.Keep("inventory"), live.Shards)
	w.ok(err)
	w.live = live.New(w.memory, w.memory.Inventories(), claims, live.Options{Poll: 5 * time.Millisecond, List: time.Nanosecond})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.live.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	dir, err := place.Open(t.TempDir())
	w.ok(err)
	t.Cleanup(func() { w.ok(dir.Close()) })
	w.place = &faultyPlace{Place: dir}
	w.opts = Options{
		List: func(ctx context.Context, set string, at feed.Cursor) (Resources, error) {
			l, err := w.live.ResourceList(ctx, set, at)
			if err != nil {
				return nil, err
			}
			return l.Held, nil
		},
		Newest: func(ctx context.Context, set string, from feed.Cursor) (Resources, func(), error) {
			h, err := w.live.State(ctx, set, from, time.Minute)
			if err != nil {
				return nil, nil, err
			}
			return h, h.Release, nil
		},
		Client: w.origin.Client(), Dir: t.TempDir(), Interval: time.Nanosecond, Tries: 2, Pause: time.Millisecond, Grace: time.Hour,
	}
	for _, f := range change {
		f(&w.opts)
	}
	w.restart()
	w.ok(w.memory.Make(t.Context(), set, feed.Description{Dumps: true}, listSize))
	return w
}

// restart makes another Maker on the same place, as after a restart or on another hub.
func (w *world) restart() {
	w.Maker, w.job = New(w.memory, w.place, "https://hub.example.org", w.opts), job{}
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// has makes the origin answer with a text.
func (w *world) has(path, text string) {
	w.serves(path, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(rw, text)
	})
}

func (w *world) serves(path string, h http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts[path] = h
}

func (w *world) requests(path string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[path]
}

// change returns a change of a resource at the origin. With a text it has its hash and length.
func (w *world) change(kind resourcesync.ChangeType, path, text string) resourcesync.Change {
	c := resourcesync.Change{Loc: w.origin.URL + path, Change: kind}
	if text != "" {
		n := int64(len(text))
		c.Length, c.Hash = &n, fmt.Sprintf("sha-256:%x", sha256.Sum256([]byte(text)))
	}
	return c
}

// put makes the origin have a text, and returns the change.
func (w *world) put(path, text string) resourcesync.Change {
	w.has(path, text)
	return w.change(resourcesync.Updated, path, text)
}

// publish adds changes to the log.
func (w *world) publish(changes ...resourcesync.Change) feed.Cursor {
	w.t.Helper()
	a, err := w.memory.Append(w.t.Context(), set, changelog.Publish{Changes: changes})
	w.ok(err)
	return a[0].Cursor
}

// listed waits until the newest Resource List is at the head.
func (w *world) listed() {
	w.t.Helper()
	w.ok(w.live.Complete(w.t.Context(), set, true))
	st, err := w.memory.State(w.t.Context(), set)
	w.ok(err)
	until.Done(w.t, "the Resource List is at the head", func() bool {
		l, err := w.live.ResourceList(w.t.Context(), set, feed.Cursor{})
		return err == nil && l.Cursor() == st.Head
	})
}

// make makes the dumps that are due.
func (w *world) make() error {
	_, err := w.work(w.t.Context(), set, &w.job)
	return err
}

// get makes a request.
func (w *world) get(name string, headers ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequest("GET", "/sets/"+set+"/"+name, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	if err := w.Serve(rec, r, set, name, true); err != nil {
		problem.Write(rec, r, err)
	}
	return rec
}

// document reads a document of the hub.
func (w *world) document(name string) *resourcesync.Document {
	w.t.Helper()
	rec := w.get(name)
	if rec.Code != http.StatusOK {
		w.t.Fatalf("%s: %d %s", name, rec.Code, rec.Body)
	}
	text := rec.Body.Bytes()
	fits(w.t, name, text)
	d, err := resourcesync.ReadXML(bytes.NewReader(text), resourcesync.Limits{})
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", name, err, text)
	}
	return d
}

// nameOf returns the name of a file by its URL.
func (w *world) nameOf(url string) string {
	w.t.Helper()
	name, ok := strings.CutPrefix(url, string(w.base.Set(set))+"/")
	if !ok {
		w.t.Fatalf("%s is not of the set", url)
	}
	return name
}

// A heldPackage is what a package holds: its documents, and the contents by loc and path.
type heldPackage struct {
	manifest, missing *resourcesync.Document
	texts             map[string]string // by path
	whys              [][]string        // of the entries of missing
}

var missingAttr = regexp.MustCompile(`h:missing="([^"]*)"`)

// open reads a package, and compares it with what a document says of it.
func (w *world) open(it *resourcesync.Item) *heldPackage {
	w.t.Helper()
	rec := w.get(w.nameOf(it.Loc))
	body := rec.Body.Bytes()
	if rec.Code != http.StatusOK || int64(len(body)) != *it.Length || fmt.Sprintf("sha-256:%x", sha256.Sum256(body)) != it.Hash {
		w.t.Fatalf("%s: %d, %d bytes, and %d are named", it.Loc, rec.Code, len(body), *it.Length)
	}
	z, err := zip.NewReader(bytes.NewReader(body), int64(len(body)))
	w.ok(err)
	h := &heldPackage{texts: map[string]string{}}
	for _, f := range z.File {
		in, err := f.Open()
		w.ok(err)
		text, err := io.ReadAll(in)
		w.ok(err)
		h.texts["/"+f.Name] = string(text)
	}
	for _, l := range it.Links {
		rec := w.get(w.nameOf(l.Href))
		path, to := "/"+manifestPath, &h.manifest
		if l.Rel == RelMissing {
			path, to = "/"+missingPath, &h.missing
		}
		if rec.Code != http.StatusOK || rec.Body.String() != h.texts[path] {
			w.t.Fatalf("%s and %s differ: %d\n%s\n%s", l.Href, path, rec.Code, rec.Body, h.texts[path])
		}
		fits(w.t, path, rec.Body.Bytes())
		if l.Rel == RelMissing {
			h.whys = missingAttr.FindAllStringSubmatch(rec.Body.String(), -1)
		}
		if *to, err = resourcesync.ReadXML(rec.Body, resourcesync.Limits{}); err != nil {
			w.t.Fatal(err)
		}
		delete(h.texts, path)
	}
	if h.manifest == nil {
		w.t.Fatalf("%s has no manifest: %v", it.Loc, it.Links)
	}
	return h
}

// contents returns what all packages of a document hold, by path of the loc, and why what is
// missing is missing.
func (w *world) contents(d *resourcesync.Document) (texts, whys map[string]string) {
	w.t.Helper()
	texts, whys = map[string]string{}, map[string]string{}
	for i := range d.Items {
		h := w.open(&d.Items[i])
		for _, it := range h.manifest.Items {
			text, ok := h.texts[it.Path]
			if !ok && it.Change.Change != resourcesync.Deleted {
				w.t.Errorf("%s is not in its package, at %q", it.Loc, it.Path)
			}
			texts[strings.TrimPrefix(it.Loc, w.origin.URL)] += text
		}
		if h.missing == nil {
			continue
		}
		for i, it := range h.missing.Items { // a reader leaves out the attributes of the hub
			whys[strings.TrimPrefix(it.Loc, w.origin.URL)] += h.whys[i][1]
		}
	}
	return texts, whys
}

// fits holds a document against the XML schemas, if xmllint is there. The sitemap schema
// allows none without entries.
func fits(t testing.TB, name string, text []byte) {
	t.Helper()
	xmllint, err := exec.LookPath("xmllint")
	if err != nil || !bytes.Contains(text, []byte("<loc>")) {
		return
	}
	schema := "urlset.xsd"
	if bytes.Contains(text, []byte("<sitemapindex")) {
		schema = "sitemapindex.xsd"
	}
	cmd := exec.Command(xmllint, "--nonet", "--noout", "--schema", "../resourcesync/testdata/xsd/"+schema, "-")
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s\n%s", name, err, out, text)
	}
}

// files returns the names of the files that the place has.
func (w *world) files() (names []string) {
	for f, err := range w.place.List(w.t.Context(), dirOf(set)) {
		w.ok(err)
		names = append(names, strings.TrimPrefix(f.Name, dirOf(set)))
	}
	return names
}

// idle fails the test if temporary files are left.
func (w *world) idle() {
	w.t.Helper()
	left, err := os.ReadDir(w.opts.Dir)
	if err != nil || len(left) > 0 {
		w.t.Errorf("temporary files are left: %v %v", left, err)
	}
}
