package mirror

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/mirror/filename"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/resourcesync"
)

// An origin serves texts, and counts who asks.
type origin struct {
	*httptest.Server
	mu    sync.Mutex
	files map[string]string
	asked map[string]int
	first http.HandlerFunc // answers instead, if it is set; it may call serve

	positions atomic.Uint64 // the newest in the log
}

func newOrigin(t *testing.T) *origin {
	o := &origin{files: map[string]string{}, asked: map[string]int{}}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		first := o.first
		o.mu.Unlock()
		if first == nil {
			first = o.serve
		}
		first(w, r)
	}))
	t.Cleanup(o.Close)
	return o
}

// serve serves a file.
func (o *origin) serve(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked[r.URL.Path]++
	text, ok := o.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(text))))
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
}

// answers lets something else answer from now on; nil: nothing does.
func (o *origin) answers(first http.HandlerFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.first = first
}

func (o *origin) set(name, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.files[name] = text
}

// requests returns how often a file was asked for since the last call.
func (o *origin) requests(name string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.asked[name]
	o.asked[name] = 0
	return n
}

// entry returns what a hub says of a file that has a text; empty: it was deleted.
func (o *origin) entry(name, text string) feed.Entry {
	n := o.positions.Add(1)
	e := feed.Entry{Cursor: feed.Cursor{Position: n, Micros: int64(n)}, Change: resourcesync.Change{Loc: o.URL + name, Change: resourcesync.Deleted}}
	if text != "" {
		e.Change.Change, e.Change.Hash = resourcesync.Updated, fmt.Sprintf("sha-256:%x", sha256.Sum256([]byte(text)))
	}
	return e
}

// A bench is a Directory of an origin.
type bench struct {
	*Directory
	*origin
	t   *testing.T
	dir string
}

func newBench(t *testing.T) *bench {
	b := &bench{origin: newOrigin(t), t: t, dir: t.TempDir()}
	b.open(DirectoryOptions{})
	t.Cleanup(func() { b.home.Close() })
	return b
}

// open opens the directory, as a new process does.
func (b *bench) open(o DirectoryOptions) {
	b.t.Helper()
	h, err := home.Open(b.dir, false)
	if err != nil {
		b.t.Fatal(err)
	}
	o.Fetch.Attempts, o.Fetch.Client = 1, b.Client()
	o.Names = filename.Names{Strip: b.URL + "/"}
	if b.Directory, err = NewDirectory(h, o); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) reopen(o DirectoryOptions) {
	b.t.Helper()
	if err := b.home.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.open(o)
}

func (b *bench) apply(entries ...feed.Entry) {
	b.t.Helper()
	if err := b.Apply(b.t.Context(), entries); err != nil {
		b.t.Fatal(err)
	}
}

// has fails the test unless a file has a text; empty: unless there is no file.
func (b *bench) has(name, text string) {
	b.t.Helper()
	got, err := os.ReadFile(filepath.Join(b.dir, name))
	if string(got) != text || (err == nil) != (text != "") {
		b.t.Errorf("%s has %q, %v, and ought to have %q", name, got, err, text)
	}
}

func (b *bench) retry() Backlog {
	b.t.Helper()
	left, err := b.Retry(b.t.Context(), true)
	if err != nil {
		b.t.Fatal(err)
	}
	return left
}
