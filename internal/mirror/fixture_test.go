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
	"github.com/rshub/rshub/internal/mirror/fetch"
	"github.com/rshub/rshub/internal/mirror/filename"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/resourcesync"
)

// An origin is a server that serves texts and counts requests.
type origin struct {
	*httptest.Server
	mu      sync.Mutex
	files   map[string]string
	counts  map[string]int
	handler http.HandlerFunc // replaces serve, which it may call; nil if not set

	positions atomic.Uint64 // newest position in the log
}

func newOrigin(t *testing.T) *origin {
	o := &origin{files: map[string]string{}, counts: map[string]int{}}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		h := o.handler
		o.mu.Unlock()
		if h == nil {
			h = o.serve
		}
		h(w, r)
	}))
	t.Cleanup(o.Close)
	return o
}

// serve serves a file.
func (o *origin) serve(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts[r.URL.Path]++
	text, ok := o.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(text))))
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
}

// handle replaces the handler. nil restores serve.
func (o *origin) handle(h http.HandlerFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.handler = h
}

func (o *origin) set(name, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.files[name] = text
}

// requestCount returns the number of requests for a file since the last call.
func (o *origin) requestCount(name string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.counts[name]
	o.counts[name] = 0
	return n
}

// entry returns the hub's entry for a file with a text. The empty text means that it was deleted.
func (o *origin) entry(name, text string) feed.Entry {
	n := o.positions.Add(1)
	e := feed.Entry{Cursor: feed.Cursor{Position: n, Micros: int64(n)}, Change: resourcesync.Change{Loc: o.URL + name, Change: resourcesync.Deleted}}
	if text != "" {
		e.Change.Change, e.Change.Hash = resourcesync.Updated, fmt.Sprintf("sha-256:%x", sha256.Sum256([]byte(text)))
	}
	return e
}

// A fixture is a Directory that mirrors an origin.
type fixture struct {
	*Directory
	*origin
	t   *testing.T
	dir string
}

func newFixture(t *testing.T) *fixture {
	b := &fixture{origin: newOrigin(t), t: t, dir: t.TempDir()}
	b.open(DirectoryOptions{})
	t.Cleanup(func() { b.home.Close() })
	return b
}

// open opens the directory as a new process does.
func (b *fixture) open(o DirectoryOptions) {
	b.t.Helper()
	h, err := home.Open(b.dir, false)
	if err != nil {
		b.t.Fatal(err)
	}
	if o.Fetcher == nil {
		o.Fetcher = fetch.New(fetch.Options{Attempts: 1, Client: b.Client()})
	}
	o.Names = filename.Names{Strip: b.URL + "/"}
	if b.Directory, err = NewDirectory(h, o); err != nil {
		b.t.Fatal(err)
	}
}

func (b *fixture) reopen(o DirectoryOptions) {
	b.t.Helper()
	if err := b.home.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.open(o)
}

func (b *fixture) apply(entries ...feed.Entry) {
	b.t.Helper()
	if err := b.Apply(b.t.Context(), entries); err != nil {
		b.t.Fatal(err)
	}
}

// wantFile fails the test unless a file has a text. The empty text means that the file must not exist.
func (b *fixture) wantFile(name, text string) {
	b.t.Helper()
	got, err := os.ReadFile(filepath.Join(b.dir, name))
	if string(got) != text || (err == nil) != (text != "") {
		b.t.Errorf("file %s = %q, %v, want %q", name, got, err, text)
	}
}

func (b *fixture) retry() Backlog {
	b.t.Helper()
	left, err := b.Retry(b.t.Context(), true)
	if err != nil {
		b.t.Fatal(err)
	}
	return left
}
