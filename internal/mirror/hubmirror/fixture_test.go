package hubmirror

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/mirror"
	"github.com/rshub/rshub/internal/mirror/fetch"
	"github.com/rshub/rshub/internal/mirror/filename"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/source/discovery"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/localhub"
	"github.com/rshub/rshub/internal/testutil/servertest"
	"github.com/rshub/rshub/internal/zst"
	"github.com/rshub/rshub/resourcesync"
)

// A fixture is a hub, an origin of contents, and a directory with the mirrors of all sets of the hub.
type fixture struct {
	t      *testing.T
	hub    string
	client *client.Client
	origin *httptest.Server
	dir    string

	mu       sync.Mutex
	files    map[string]string // contents by path, /SET/NAME
	tries    map[string]int    // numbers of requests for files
	requests []string          // requests to the hub by the mirrors
	away     bool              // whether these fail, except for the connection

	held       map[string]func(*http.Request) // functions that delay requests for files
	damaged    string                         // set that the hub cannot start to follow
	connection io.Closer                      // newest connection to the hub
	errors     map[string]error               // last error of each set
	logged     []string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, hub: localhub.Start(t).URL, dir: t.TempDir(), files: map[string]string{}, tries: map[string]int{}, held: map[string]func(*http.Request){}, errors: map[string]error{}}
	var err error
	if f.client, err = client.New(f.hub, client.Options{}); err != nil {
		t.Fatal(err)
	}
	f.origin = httptest.NewServer(f)
	t.Cleanup(f.origin.Close)
	return f
}

func (f *fixture) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.tries[r.URL.Path]++
	wait := f.held[r.URL.Path]
	f.mu.Unlock()
	if wait != nil {
		wait(r)
	}
	f.mu.Lock()
	text, ok := f.files[r.URL.Path]
	f.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	fmt.Fprint(w, text)
}

// RoundTrip records a request of the mirrors to the hub.
func (f *fixture) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	f.requests = append(f.requests, r.URL.Path)
	away := f.away
	f.mu.Unlock()
	if away && r.URL.Path != "/changes" {
		return nil, errors.New("the hub is away")
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && r.URL.Path == "/changes" {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.connection = resp.Body
		if f.damaged != "" {
			conn := resp.Body.(io.ReadWriteCloser)
			resp.Body = damagedConnection{conn, io.MultiReader(bytes.NewReader(errorMessage(f.damaged)), conn)}
		}
	}
	return resp, err
}

// A damagedConnection is a connection that begins with another text.
type damagedConnection struct {
	io.ReadWriteCloser
	in io.Reader
}

func (c damagedConnection) Read(p []byte) (int, error) { return c.in.Read(p) }

// errorMessage returns the frame in which a hub says that it cannot start to follow a set.
func errorMessage(set string) []byte {
	text := fmt.Appendf(nil, `{"set":%q,"error":{"type":"about:blank","title":"Internal Server Error","status":500,"detail":"the set is damaged"}}`, set)
	payload := zst.Append(nil, text)
	return append(binary.BigEndian.AppendUint16([]byte{0x82, 126}, uint16(len(payload))), payload...) // RFC 6455 section 5.2
}

// hold makes requests for a content wait until the end of the test. The channel receives a value for
// each.
func (f *fixture) hold(path string) (waiting chan struct{}) {
	released := make(chan struct{})
	f.t.Cleanup(func() { close(released) })
	waiting = make(chan struct{}, 1000)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[path] = func(r *http.Request) {
		waiting <- struct{}{}
		select {
		case <-released:
		case <-r.Context().Done():
		}
	}
	return waiting
}

// publishMissing publishes a resource whose content is missing.
func (f *fixture) publishMissing(path string) {
	f.t.Helper()
	c := f.set(path, "missing")
	f.set(path, "")
	f.publishChange(strings.Split(path, "/")[1], c)
}

// setAway sets whether all requests but the one for the connection fail.
func (f *fixture) setAway(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
}

// cut closes the connection.
func (f *fixture) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.connection.Close()
}

// lastError returns the last error of a set.
func (f *fixture) lastError(set string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.errors[set]
}

// takeRequests returns the paths of the requests to the hub since the last call.
func (f *fixture) takeRequests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.requests
	f.requests = nil
	return r
}

// triesOf returns the number of requests for a file.
func (f *fixture) triesOf(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tries[path]
}

// set sets the content of a file, without a publish. The empty text removes it. It returns the change.
func (f *fixture) set(path, text string) resourcesync.Change {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := resourcesync.Change{Loc: f.origin.URL + path, Change: resourcesync.Deleted}
	if delete(f.files, path); text != "" {
		f.files[path] = text
		c.Change, c.Hash = resourcesync.Updated, fmt.Sprintf("sha-256:%x", sha256.Sum256([]byte(text)))
	}
	return c
}

// publish sets the content of a file, /SET/NAME, and publishes the change to its set.
func (f *fixture) publish(path, text string) {
	f.t.Helper()
	f.publishChange(strings.Split(path, "/")[1], f.set(path, text))
}

func (f *fixture) publishChange(set string, c resourcesync.Change) {
	f.t.Helper()
	if _, err := f.client.Publish(f.t.Context(), set, "", []resourcesync.Change{c}); err != nil {
		f.t.Error(err)
	}
}

// deleteSet deletes a set of the hub and the files of its resources.
func (f *fixture) deleteSet(set string) {
	f.t.Helper()
	servertest.Do(f.t, http.MethodDelete, f.hub+"/sets/"+set, "")
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.files, func(path, _ string) bool { return strings.HasPrefix(path, "/"+set+"/") })
}

// mirrors opens the mirrors as a new process does. The caller must call closed.
func (f *fixture) mirrors(once bool) (m *Mirrors, closed func()) {
	f.t.Helper()
	h, err := home.Open(f.dir, false)
	if err != nil {
		f.t.Fatal(err)
	}
	fetcher := fetch.New(fetch.Options{Attempts: 1, PerHost: 16})
	c := &http.Client{Transport: f}
	m, err = New(h, Options{
		Hub: f.hub, Client: client.Options{HTTP: c}, Once: once, Timeout: time.Minute, PollInterval: time.Minute, Parallel: 16,
		Dir:  func(set string) string { return filepath.Join(f.dir, set) },
		Open: func(set string) (*Set, error) { return f.openSet(set, c, fetcher) },
		Find: func(ctx context.Context, set string) (*discovery.Source, error) {
			source, err := discovery.Find(ctx, &harvest.Getter{Client: c, Tries: 1}, f.hub+"/sets/"+set+"/changes")
			if err != nil {
				return nil, &mirror.SourceError{Err: err}
			}
			return source, nil
		},
		OnError: func(set string, err error, _ time.Duration) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.errors[set] = err
		},
		Logf: func(format string, args ...any) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.logged = append(f.logged, fmt.Sprintf(format, args...))
		},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	m.limits.minDelay, m.limits.inUse, m.limits.retry = 10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond
	return m, func() {
		if err := h.Close(); err != nil {
			f.t.Error(err)
		}
	}
}

func (f *fixture) openSet(set string, c *http.Client, fetcher *fetch.Fetcher) (*Set, error) {
	h, err := home.Open(filepath.Join(f.dir, set), false)
	if err != nil {
		return nil, err
	}
	all, err := reconcile.ParseBound("all")
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	sink, err := mirror.NewDirectory(h, mirror.DirectoryOptions{Fetcher: fetcher, RetryPause: 10 * time.Millisecond, MaxDelete: all, Names: filename.Names{Strip: f.origin.URL + "/" + set + "/"}})
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	o := mirror.Options{HTTP: c, Hub: client.Options{HTTP: c}, SourceTimeout: time.Minute}
	return &Set{h, sink, mirror.New(h, discovery.HubSource(feed.Base(f.hub), set), sink, o)}, nil
}

// find discovers the source of a set.
func (f *fixture) find(set string) (*discovery.Source, error) {
	return discovery.Find(f.t.Context(), &harvest.Getter{Client: http.DefaultClient, Tries: 1}, f.hub+"/sets/"+set+"/changes")
}

// runOnce lets all mirrors catch up.
func (f *fixture) runOnce() Totals {
	f.t.Helper()
	m, closed := f.mirrors(true)
	defer closed()
	totals, err := m.Run(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return totals
}

// start runs the mirrors until stop is called, which checks that Run returns no error.
func (f *fixture) start(change func(*Mirrors)) (stop func()) {
	f.t.Helper()
	m, closed := f.mirrors(false)
	if change != nil {
		change(m)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := m.Run(ctx)
		done <- err
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Errorf("Run() = %v, want no error", err)
		}
		closed()
	})
	f.t.Cleanup(stop)
	return stop
}

// mirrored returns the mirrored files by path, /SET/NAME.
func (f *fixture) mirrored() map[string]string {
	f.t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(f.dir), ".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case e.Name() == filename.State:
			return fs.SkipDir
		case !e.IsDir():
			text, err := os.ReadFile(filepath.Join(f.dir, path))
			if err == nil {
				files["/"+path] = string(text)
			}
		}
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return files
}

// isMirrored reports whether the mirrors have exactly the files of the origin.
func (f *fixture) isMirrored() bool {
	f.t.Helper()
	got := f.mirrored()
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Equal(got, f.files)
}

// awaitMirrored waits until the mirrors have exactly the files of the origin.
func (f *fixture) awaitMirrored(when string) {
	f.t.Helper()
	testutil.Until(f.t, "the mirrors have the files of the origin "+when, f.isMirrored)
}
