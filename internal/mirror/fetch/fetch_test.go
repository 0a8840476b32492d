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

// A bench is a server with one content, and a Fetcher.
type bench struct {
	*httptest.Server
	t        *testing.T
	file     *os.File
	fetcher  *Fetcher
	requests atomic.Int32
	last     atomic.Pointer[http.Request]
}

// newBench returns a bench. answer answers request n, from 1; false: the content is sent.
func newBench(t *testing.T, o Options, answer func(n int, w http.ResponseWriter, r *http.Request) bool) *bench {
	b := &bench{t: t}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(b.requests.Add(1))
		b.last.Store(r)
		if answer != nil && answer(n, w, r) {
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

func (b *bench) change() *resourcesync.Change { return &resourcesync.Change{Loc: b.URL + "/a"} }

func (b *bench) get(w Request) (*Result, error) {
	if w.Change == nil {
		w.Change = b.change()
	}
	return b.fetcher.Get(b.t.Context(), w, b.file)
}

// right fails the test unless the content came.
func (b *bench) right(got *Result, err error) {
	b.t.Helper()
	text, rerr := os.ReadFile(b.file.Name())
	if err != nil || rerr != nil || string(text) != content || got.Size != int64(len(content)) || got.SHA256 != fmt.Sprintf("%x", sha256.Sum256([]byte(content))) {
		b.t.Errorf("Get = %+v, %v, and the file has %.60q", got, err, text)
	}
}

func fails(t *testing.T, err error, with string) *Failure {
	t.Helper()
	f, ok := errors.AsType[*Failure](err)
	if !ok || !strings.Contains(err.Error(), with) {
		t.Fatalf("the error is %v, and ought to be a Failure with %q", err, with)
	}
	return f
}

func length(n int) *int64 {
	l := int64(n)
	return &l
}

func TestHashes(t *testing.T) {
	t.Parallel()
	b := newBench(t, Options{}, nil)
	text := []byte(content)
	good := fmt.Sprintf("md5:%x SHA256:%X sha-512:%x crc:12", md5.Sum(text), sha256.Sum256(text), sha512.Sum512(text))
	c := b.change()
	c.Hash, c.Length = good, length(len(content))
	b.right(b.get(Request{Change: c}))
	for _, bad := range []string{"md5:00", "sha-256:00", good + " sha-1:00"} {
		c.Hash = bad
		b.requests.Store(0)
		_, err := b.get(Request{Change: c})
		fails(t, err, "the source says")
		if n := b.requests.Load(); n != 2 || b.last.Load().Header.Get("Cache-Control") != "no-cache" {
			t.Errorf("%d requests for a content that is wrong; the last ought to be past all caches", n)
		}
	}
	if s := NewSum("crc:12 x"); s.HasHash() || s.Check(nil) != nil {
		t.Error("an unknown hash was verified")
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
	b := newBench(t, Options{MaxSize: 1 << 20}, endless)
	_, err := b.get(Request{})
	fails(t, err, "are allowed")
	if info, _ := b.file.Stat(); info.Size() > 1<<20+1 {
		t.Errorf("%d bytes were written", info.Size())
	}
	c := b.change()
	c.Length = length(100)
	_, err = b.get(Request{Change: c})
	fails(t, err, "the source says")
	c.Length = length(2 << 20)
	b.requests.Store(0)
	_, err = b.get(Request{Change: c})
	fails(t, err, "at most")
	if b.requests.Load() > 0 {
		t.Error("what is too large was asked for")
	}
	b = newBench(t, Options{}, nil)
	c = b.change()
	c.Length = length(len(content) + 1)
	_, err = b.get(Request{Change: c})
	fails(t, err, "bytes")
}

// cut sends the beginning of the content, or, with the tag "0", of an older one.
func cut(w http.ResponseWriter, tag string) {
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

func TestBrokenOff(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ tag, asks string }{
		{`"1"`, "bytes=10-"}, // the rest is asked for
		{`W/"1"`, ""},        // a weak tag does not say that the bytes are the same
		{`"0"`, "bytes=10-"}, // it has changed since: If-Range gives all of it
		{"", ""},
	} {
		b := newBench(t, Options{}, func(n int, w http.ResponseWriter, _ *http.Request) bool {
			if n == 1 {
				cut(w, test.tag)
			}
			return false
		})
		b.right(b.get(Request{}))
		if got := b.last.Load().Header.Get("Range"); got != test.asks || b.requests.Load() != 2 {
			t.Errorf("after a break with ETag %s: %d requests, Range %q, not %q", test.tag, b.requests.Load(), got, test.asks)
		}
	}
}

// An answer may have less than what was asked for, or the rest of another content, if its server
// does not know If-Range. It is not the end of the content then, even if nobody knows a length or
// a hash.
func TestPartOfTheRest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ ranges, part, tag string }{
		{"bytes 10-14/25", `"1"`, `"1"`}, {"bytes 10-14/*", `"1"`, `"1"`}, {"bytes 9-24/25", `"1"`, `"1"`},
		{"bytes 10-24/25", `"0"`, `"1"`}, {"bytes 10-24/25", `"0"`, ""},
	} {
		b := newBench(t, Options{}, func(n int, w http.ResponseWriter, _ *http.Request) bool {
			switch n {
			case 1:
				cut(w, test.part)
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
		b.right(b.get(Request{}))
	}
}

// A part that is left over is gone on with, also by another Fetcher.
func TestPart(t *testing.T) {
	t.Parallel()
	var well atomic.Bool
	b := newBench(t, Options{Attempts: 2}, func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if !well.Load() && r.Header.Get("Range") == "" {
			cut(w, `"1"`)
		}
		if !well.Load() {
			panic(http.ErrAbortHandler)
		}
		return false
	})
	_, err := b.get(Request{})
	f := fails(t, err, "")
	if f.Part == nil || f.Part.URL != b.URL+"/a" {
		t.Fatalf("the part is %+v", f.Part)
	}
	well.Store(true)
	b.fetcher = New(Options{Client: b.Client()})
	b.right(b.get(Request{Part: f.Part}))
	if got := b.last.Load().Header.Get("Range"); got != "bytes=10-" {
		t.Errorf("Range %q", got)
	}
}

func TestUnchanged(t *testing.T) {
	t.Parallel()
	b := newBench(t, Options{}, nil)
	got, err := b.get(Request{ETag: `"1"`})
	if err != nil || !got.Unchanged {
		t.Errorf("Get = %+v, %v", got, err)
	}
	b.right(b.get(Request{ETag: `"0"`}))
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	for status, requests := range map[int]int32{404: 1, 410: 1, 403: 1, 500: 3, 502: 3, 304: 1, 206: 1} {
		b := newBench(t, Options{}, func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(status)
			return true
		})
		_, err := b.get(Request{})
		fails(t, err, strconv.Itoa(status))
		if n := b.requests.Load(); n != requests {
			t.Errorf("%d: %d requests, not %d", status, n, requests)
		}
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	var most atomic.Int32
	b := newBench(t, Options{Attempts: 1}, func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n <= int(most.Load()) {
			http.Redirect(w, r, "/"+strconv.Itoa(n), http.StatusFound)
			return true
		}
		return false
	})
	most.Store(5)
	b.right(b.get(Request{}))
	b.requests.Store(0)
	most.Store(1000)
	_, err := b.get(Request{})
	fails(t, err, "redirects")
	if n := b.requests.Load(); n != 6 {
		t.Errorf("a redirect that never ends was followed %d times", n)
	}
}

// The host to which a redirect leads has its own bound and its own pauses, and gets no
// password of the first one.
func TestRedirectedHost(t *testing.T) {
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
		t.Errorf("%d requests were under way at the host to which all redirects lead", n)
	}
	if password.Load() {
		t.Error("a host got a password that is not its own")
	}
	for i := range servers {
		fails(t, get(i, "/busy"), map[bool]string{true: "429", false: "asks to wait"}[i == 0])
	}
	if n := refused.Load(); n != 1 {
		t.Errorf("a host that asked to wait was asked %d times, by redirects", n)
	}
}

func TestBusyHost(t *testing.T) {
	t.Parallel()
	b := newBench(t, Options{}, func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n > 1 {
			return false
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	began := time.Now()
	b.right(b.get(Request{}))
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("the host was asked again after %v", took)
	}

	b = newBench(t, Options{}, func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "1000")
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	_, err := b.get(Request{})
	if f := fails(t, err, "asks to wait"); f.RetryAfter < 900*time.Second || f.RetryAfter > 1000*time.Second {
		t.Errorf("another try is of use after %v", f.RetryAfter)
	}
	if _, err = b.get(Request{}); b.requests.Load() != 1 {
		t.Errorf("the host was asked %d times; %v", b.requests.Load(), err)
	}
}

func TestStalled(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	b := newBench(t, Options{StallTimeout: time.Second, Attempts: 1}, func(n int, w http.ResponseWriter, r *http.Request) bool {
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
	fails(t, err, "no answer")
	_, err = b.get(Request{})
	fails(t, err, "less than 1 KiB")
	_, err = b.get(Request{Timeout: 10 * time.Millisecond})
	fails(t, err, "")
}

// No more requests are under way than allowed, and none is lost.
func TestBounds(t *testing.T) {
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
		t.Errorf("%d requests were under way at once", n)
	}
}

// A source whose contents are at ever more hosts takes no memory for those that were asked before,
// whatever they answered. One that asked for a pause is not forgotten before its end.
func TestForgetsHosts(t *testing.T) {
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
			t.Errorf("%d hosts are remembered", n)
		}
		if _, err := h.acquire(t.Context(), "slow"); err == nil {
			t.Error("a host is asked although it wants a pause")
		}
	})
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	b := newBench(t, Options{}, func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		cancel()
		<-r.Context().Done()
		return true
	})
	if _, err := b.fetcher.Get(ctx, Request{Change: b.change()}, b.file); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}
