package fetch

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

const content = "the content of a resource"

// A fixture is a server with one content, and a Fetcher.
type fixture struct {
	*httptest.Server
	t        *testing.T
	file     *os.File
	fetcher  *Fetcher
	requests atomic.Int32
	last     atomic.Pointer[http.Request]
}

// newFixture returns a fixture. handle is called with the number of each request, from 1. If it
// returns false, the server sends the content.
func newFixture(t *testing.T, o Options, handle func(n int, w http.ResponseWriter, r *http.Request) bool) *fixture {
	b := &fixture{t: t}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(b.requests.Add(1))
		b.last.Store(r)
		if handle != nil && handle(n, w, r) {
			return
		}
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
	}))
	t.Cleanup(b.Close)
	var err error
	if b.file, err = os.Create(filepath.Join(t.TempDir(), "file")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.file.Close() })
	if o.RetryPause == 0 {
		o.RetryPause = time.Millisecond
	}
	o.Client = b.Client()
	b.fetcher = New(o)
	return b
}

func (b *fixture) change() *resourcesync.Change { return &resourcesync.Change{Loc: b.URL + "/a"} }

func (b *fixture) get(w Request) (*Result, error) {
	if w.Change == nil {
		w.Change = b.change()
	}
	return b.fetcher.Get(b.t.Context(), w, b.file)
}

// wantContent fails the test unless Get returned the content.
func (b *fixture) wantContent(got *Result, err error) {
	b.t.Helper()
	text, rerr := os.ReadFile(b.file.Name())
	if err != nil || rerr != nil || string(text) != content || got.Size != int64(len(content)) || got.SHA256 != fmt.Sprintf("%x", sha256.Sum256([]byte(content))) {
		b.t.Errorf("Get() = %+v, %v, file %.60q, want the content %q", got, err, text, content)
	}
}

func wantFailure(t *testing.T, err error, text string) *Failure {
	t.Helper()
	f, ok := errors.AsType[*Failure](err)
	if !ok || !strings.Contains(err.Error(), text) {
		t.Fatalf("Get() = %v, want a Failure with %q", err, text)
	}
	return f
}

func length(n int) *int64 {
	l := int64(n)
	return &l
}

func TestHashes(t *testing.T) {
	t.Parallel()
	b := newFixture(t, Options{}, nil)
	text := []byte(content)
	good := fmt.Sprintf("md5:%x SHA256:%X sha-512:%x crc:12", md5.Sum(text), sha256.Sum256(text), sha512.Sum512(text))
	c := b.change()
	c.Hash, c.Length = good, length(len(content))
	b.wantContent(b.get(Request{Change: c}))
	for _, bad := range []string{"md5:00", "sha-256:00", good + " sha-1:00"} {
		c.Hash = bad
		b.requests.Store(0)
		_, err := b.get(Request{Change: c})
		wantFailure(t, err, "want")
		if n := b.requests.Load(); n != 2 || b.last.Load().Header.Get("Cache-Control") != "no-cache" {
			t.Errorf("got %d requests for a wrong content, want 2, the last with no-cache", n)
		}
	}
	if s := NewSum("crc:12 x"); s.HasHash() || s.Check(nil) != nil {
		t.Error("HasHash() of unknown hashes = true, want false")
	}
}

func TestLengths(t *testing.T) {
	t.Parallel()
	endless := func(_ int, w http.ResponseWriter, r *http.Request) bool {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<14)); err != nil {
				break
			}
		}
		return true
	}
	b := newFixture(t, Options{MaxSize: 1 << 20}, endless)
	_, err := b.get(Request{})
	wantFailure(t, err, "the maximum size")
	if info, _ := b.file.Stat(); info.Size() > 1<<20+1 {
		t.Errorf("got %d written bytes, want at most one more than 1 MiB", info.Size())
	}
	c := b.change()
	c.Length = length(100)
	_, err = b.get(Request{Change: c})
	wantFailure(t, err, "the length that the source names")
	c.Length = length(2 << 20)
	b.requests.Store(0)
	_, err = b.get(Request{Change: c})
	wantFailure(t, err, "at most")
	if b.requests.Load() > 0 {
		t.Error("got a request for a content that is too large")
	}
	b = newFixture(t, Options{}, nil)
	c = b.change()
	c.Length = length(len(content) + 1)
	_, err = b.get(Request{Change: c})
	wantFailure(t, err, "bytes")
}

// sendPart sends the start of the content, or with the tag "0" of an older one, and aborts.
func sendPart(w http.ResponseWriter, tag string) {
	begin := content[:10]
	if tag == `"0"` {
		begin = "0123456789"
	}
	if tag != "" {
		w.Header().Set("ETag", tag)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	_, _ = io.WriteString(w, begin)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func TestResume(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ tag, wantRange string }{
		{`"1"`, "bytes=10-"}, // the rest is requested
		{`W/"1"`, ""},        // a weak tag does not prove that the bytes are the same
		{`"0"`, "bytes=10-"}, // it has changed since: If-Range returns all of it
		{"", ""},
	} {
		t.Run(test.tag, func(t *testing.T) {
			b := newFixture(t, Options{}, func(n int, w http.ResponseWriter, _ *http.Request) bool {
				if n == 1 {
					sendPart(w, test.tag)
				}
				return false
			})
			b.wantContent(b.get(Request{}))
			if got := b.last.Load().Header.Get("Range"); got != test.wantRange || b.requests.Load() != 2 {
				t.Errorf("after an interruption with ETag %s: %d requests, Range %q, want 2, %q", test.tag, b.requests.Load(), got, test.wantRange)
			}
		})
	}
}

// A response may have less than the requested rest, or the rest of another content if the server
// ignores If-Range. It is then not taken as the end of the content, even without a length or a
// hash.
func TestResumeWithWrongRange(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ ranges, part, tag string }{
		{"bytes 10-14/25", `"1"`, `"1"`}, {"bytes 10-14/*", `"1"`, `"1"`}, {"bytes 9-24/25", `"1"`, `"1"`},
		{"bytes 10-24/25", `"0"`, `"1"`}, {"bytes 10-24/25", `"0"`, ""},
	} {
		t.Run(test.ranges+" "+test.tag, func(t *testing.T) {
			b := newFixture(t, Options{}, func(n int, w http.ResponseWriter, _ *http.Request) bool {
				switch n {
				case 1:
					sendPart(w, test.part)
				case 2:
					var from, to int
					_, _ = fmt.Sscanf(test.ranges, "bytes %d-%d", &from, &to)
					w.Header().Set("Content-Range", test.ranges)
					if test.tag != "" {
						w.Header().Set("ETag", test.tag)
					}
					w.WriteHeader(http.StatusPartialContent)
					_, _ = io.WriteString(w, content[from:to+1])
					return true
				}
				return false
			})
			b.wantContent(b.get(Request{}))
		})
	}
}

// Another Fetcher can resume a part.
func TestResumePart(t *testing.T) {
	t.Parallel()
	var well atomic.Bool
	b := newFixture(t, Options{Attempts: 2}, func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if !well.Load() && r.Header.Get("Range") == "" {
			sendPart(w, `"1"`)
		}
		if !well.Load() {
			panic(http.ErrAbortHandler)
		}
		return false
	})
	_, err := b.get(Request{})
	f := wantFailure(t, err, "")
	if f.Part == nil || f.Part.URL != b.URL+"/a" {
		t.Fatalf("Part = %+v, want one of %s/a", f.Part, b.URL)
	}
	well.Store(true)
	b.fetcher = New(Options{Client: b.Client()})
	b.wantContent(b.get(Request{Part: f.Part}))
	if got := b.last.Load().Header.Get("Range"); got != "bytes=10-" {
		t.Errorf("Range = %q, want %q", got, "bytes=10-")
	}
}

func TestUnchanged(t *testing.T) {
	t.Parallel()
	b := newFixture(t, Options{}, nil)
	got, err := b.get(Request{ETag: `"1"`})
	if err != nil || !got.Unchanged {
		t.Errorf("Get() = %+v, %v, want Unchanged", got, err)
	}
	b.wantContent(b.get(Request{ETag: `"0"`}))
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	for status, requests := range map[int]int32{404: 1, 410: 1, 403: 1, 500: 3, 502: 3, 304: 1, 206: 1} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			b := newFixture(t, Options{}, func(_ int, w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(status)
				return true
			})
			_, err := b.get(Request{})
			wantFailure(t, err, strconv.Itoa(status))
			if n := b.requests.Load(); n != requests {
				t.Errorf("got %d requests after status %d, want %d", n, status, requests)
			}
		})
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	var most atomic.Int32
	b := newFixture(t, Options{Attempts: 1}, func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n <= int(most.Load()) {
			http.Redirect(w, r, "/"+strconv.Itoa(n), http.StatusFound)
			return true
		}
		return false
	})
	most.Store(5)
	b.wantContent(b.get(Request{}))
	b.requests.Store(0)
	most.Store(1000)
	_, err := b.get(Request{})
	wantFailure(t, err, "redirects")
	if n := b.requests.Load(); n != 6 {
		t.Errorf("got %d requests for an endless redirect, want 6", n)
	}
}

// The target of a redirect has its own limit and its own pauses, and does not get the password
// of the first host.
func TestRedirectTargetHasOwnLimits(t *testing.T) {
	t.Parallel()
	var now, most, refused atomic.Int32
	var password atomic.Bool
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		time.Sleep(time.Millisecond) // a slow server, so that requests are in progress together
		now.Add(-1)
		if r.Header.Get("Authorization") != "" {
			password.Store(true)
		}
		if r.URL.Path == "/busy" {
			refused.Add(1)
			w.Header().Set("Retry-After", "1000")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		_, _ = w.Write([]byte(content))
	}))
	defer target.Close()
	var servers []*httptest.Server
	for range 5 {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, strings.Replace(target.URL, "://", "://x:y@", 1)+r.URL.Path, http.StatusFound)
		}))
		defer s.Close()
		servers = append(servers, s)
	}
	f := New(Options{Parallel: 50, PerHost: 2, Attempts: 1})
	get := func(server int, name string) error {
		file, err := os.Create(filepath.Join(t.TempDir(), "file"))
		if err != nil {
			return err
		}
		defer file.Close()
		loc := strings.Replace(servers[server].URL, "://", "://user:secret@", 1) + name
		_, err = f.Get(t.Context(), Request{Change: &resourcesync.Change{Loc: loc}}, file)
		return err
	}
	errs := make(chan error)
	for i := range 50 {
		go func() { errs <- get(i%len(servers), "/a") }()
	}
	for range 50 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := most.Load(); n > 2 {
		t.Errorf("got %d concurrent requests to the target of all redirects, want at most 2", n)
	}
	if password.Load() {
		t.Error("the target of a redirect got the password of another host")
	}
	for i := range servers {
		wantFailure(t, get(i, "/busy"), map[bool]string{true: "429", false: "asks to wait"}[i == 0])
	}
	if n := refused.Load(); n != 1 {
		t.Errorf("got %d requests to a paused host through redirects, want 1", n)
	}
}

func TestBusyHost(t *testing.T) {
	t.Parallel()
	b := newFixture(t, Options{}, func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n > 1 {
			return false
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	began := time.Now()
	b.wantContent(b.get(Request{}))
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("got a second request after %v, want at least 900ms", took)
	}

	b = newFixture(t, Options{}, func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "1000")
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	_, err := b.get(Request{})
	if f := wantFailure(t, err, "asks to wait"); f.RetryAfter < 900*time.Second || f.RetryAfter > 1000*time.Second {
		t.Errorf("RetryAfter = %v, want 900 s to 1000 s", f.RetryAfter)
	}
	if _, err = b.get(Request{}); b.requests.Load() != 1 {
		t.Errorf("got %d requests to a paused host, %v, want 1", b.requests.Load(), err)
	}
}

func TestStallTimeout(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	b := newFixture(t, Options{StallTimeout: time.Second, Attempts: 1}, func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 2 {
			_, _ = w.Write([]byte("x"))
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-end:
		case <-r.Context().Done():
		}
		return true
	})
	defer close(end)
	_, err := b.get(Request{})
	wantFailure(t, err, "no response")
	_, err = b.get(Request{})
	wantFailure(t, err, "less than 1 KiB")
	_, err = b.get(Request{Timeout: 10 * time.Millisecond})
	wantFailure(t, err, "")
}

// Requests stay within the limits, and none is lost.
func TestConcurrencyLimits(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int32
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		time.Sleep(time.Millisecond) // a slow server, so that requests are in progress together
		now.Add(-1)
		_, _ = w.Write([]byte(content))
	})
	one, other := httptest.NewServer(handler), httptest.NewServer(handler)
	defer one.Close()
	defer other.Close()
	f := New(Options{Parallel: 5, PerHost: 3})
	errs := make(chan error)
	for i := range 60 {
		go func() {
			file, err := os.Create(filepath.Join(t.TempDir(), "file"))
			if err == nil {
				defer file.Close()
				_, err = f.Get(t.Context(), Request{Change: &resourcesync.Change{Loc: []string{one.URL, other.URL}[i%2] + "/"}}, file)
			}
			errs <- err
		}()
	}
	for range 60 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := most.Load(); n > 5 || n < 2 {
		t.Errorf("got %d concurrent requests, want 2 to 5", n)
	}
}

// The memory for hosts is bounded, whatever they respond. A paused host is remembered until its
// pause ends.
func TestHostsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHostLimits(1, 1)
		busy := func(name, after string) {
			t.Helper()
			leave, err := h.acquire(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			defer leave()
			h.recordResponse(name, &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {after}}})
		}
		busy("slow", "3600")
		for i := range 5 * maxHosts {
			busy(strconv.Itoa(i), "1")
			time.Sleep(time.Second / 2)
		}
		if n := len(h.byName); n > maxHosts {
			t.Errorf("got %d remembered hosts, want at most %d", n, maxHosts)
		}
		if _, err := h.acquire(t.Context(), "slow"); err == nil {
			t.Error("acquire() of a paused host = nil, want an error")
		}
	})
}

func TestGetCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	b := newFixture(t, Options{}, func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		cancel()
		<-r.Context().Done()
		return true
	})
	if _, err := b.fetcher.Get(ctx, Request{Change: b.change()}, b.file); !errors.Is(err, context.Canceled) {
		t.Errorf("Get() = %v, want context.Canceled", err)
	}
}
