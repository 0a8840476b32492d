package archive

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	served "github.com/rshub/rshub/documents"
	"github.com/rshub/rshub/dump/place"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/memorytest"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/resourcesync"
)

// set is the set of the tests. Its Change Lists have listSize changes.
const (
	set      = "demo"
	listSize = 4
	base     = feed.Base("https://hub.example.org")
)

// A world is a change memory, its documents, and an archive that looks when it is told to.
type world struct {
	*Archive
	t      testing.TB
	memory *disklog.Log
	docs   *served.Server
	place  *faultyPlace
	opts   Options
}

// A faultyPlace is a place that fails when it is told to.
type faultyPlace struct {
	place.Place
	fail func(name string) error // before Create; nil: never
	away bool                    // everything fails
}

var errAway = errors.New("the place is away")

func (p *faultyPlace) Open(ctx context.Context, name string) (place.File, error) {
	if p.away {
		return nil, errAway
	}
	return p.Place.Open(ctx, name)
}

func (p *faultyPlace) Create(ctx context.Context, name string) (place.Writer, error) {
	if p.away {
		return nil, errAway
	}
	if p.fail != nil {
		if err := p.fail(name); err != nil {
			return nil, err
		}
	}
	return p.Place.Create(ctx, name)
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, memory: memorytest.Open(t)}
	w.docs = served.New(w.memory, base, served.Options{})
	dir, err := place.Open(t.TempDir())
	w.ok(err)
	t.Cleanup(func() { w.ok(dir.Close()) })
	w.place = &faultyPlace{Place: dir}
	w.opts = Options{Write: w.docs.WriteClosed}
	w.restart()
	w.ok(w.memory.Make(t.Context(), set, feed.Description{Archives: true}, listSize))
	return w
}

// restart makes another Archive on the same place, as after a restart or on another hub.
func (w *world) restart() { w.Archive = New(w.memory, w.place, base, w.opts) }

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// publish adds n changes.
func (w *world) publish(n int) {
	w.t.Helper()
	_, err := w.memory.Append(w.t.Context(), set, changelog.Publish{Changes: memorytest.Changes("x", n)})
	w.ok(err)
}

// look looks at all sets as Run does.
func (w *world) look() { w.scan(w.t.Context()) }

// trim lets retention keep as few changes as it may.
func (w *world) trim() {
	w.t.Helper()
	r := changelog.Retention{Count: 1}
	if at, ok := w.Hold(w.t.Context(), set); ok {
		r.Hold = &at
	}
	_, err := w.memory.Trim(w.t.Context(), set, r)
	w.ok(err)
}

func (w *world) state() feed.State {
	w.t.Helper()
	st, err := w.memory.State(w.t.Context(), set)
	w.ok(err)
	return st
}

// get asks for what the archive or the documents have at a URL.
func (w *world) get(url string, headers ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	name := strings.TrimPrefix(url, base.Document(set, ""))
	r := httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, base.Document(set, name), nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	var err error
	if name == "changelist-archive.xml" || name == "resourcelist-archive.xml" || strings.HasPrefix(name, "archive/") {
		err = w.Serve(rec, r, set, name, true)
	} else {
		err = w.docs.ServeSet(rec, r, set, name)
	}
	if err != nil {
		rec.Code = problem.From(err).Status
	}
	return rec
}

// read reads a document, and holds it against the schemas.
func (w *world) read(url string) *resourcesync.Document {
	w.t.Helper()
	rec := w.get(url)
	if rec.Code != http.StatusOK {
		w.t.Fatalf("%s: %d", url, rec.Code)
	}
	fits(w.t, url, rec.Body.Bytes())
	doc, err := resourcesync.ReadXML(rec.Body, resourcesync.Limits{})
	w.ok(err)
	return doc
}

// fits holds a document against the XML schemas, if xmllint is there.
func fits(t testing.TB, name string, text []byte) {
	t.Helper()
	xmllint, err := exec.LookPath("xmllint")
	if err != nil {
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

// files returns how many files the place has of the archive.
func (w *world) files() (n int) {
	for _, err := range w.place.List(w.t.Context(), root) {
		w.ok(err)
		n++
	}
	return n
}
