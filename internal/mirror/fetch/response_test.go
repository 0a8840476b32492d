package fetch

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// A redirect is followed even if its body never arrives.
func TestRedirectWithStalledBody(t *testing.T) {
	t.Parallel()
	b := newFixture(t, Options{StallTimeout: 100 * time.Millisecond, Attempts: 1}, func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 1 {
			return false
		}
		w.Header().Set("Location", "/b")
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(http.StatusFound)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	})
	b.wantContent(b.get(Request{}))
}

// Errors leave out the reason phrase of a server: it may control a terminal.
func TestStatusErrorHidesReasonPhrase(t *testing.T) {
	t.Parallel()
	b := newFixture(t, Options{Attempts: 1}, func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return true
		}
		fmt.Fprintf(c, "HTTP/1.1 404 \x1b[2J%s\r\nContent-Length: 0\r\n\r\n", strings.Repeat("x", 10_000))
		c.Close()
		return true
	})
	_, err := b.get(Request{})
	if f := wantFailure(t, err, "404 Not Found"); len(f.Error()) > 100 || strings.Contains(f.Error(), "\x1b") {
		t.Errorf("Get() = %.100q, want a short error without control characters", f)
	}
}

// An unresponsive host is paused for a while: otherwise each of its resources would wait for it,
// and so would everything applied with them.
func TestUnresponsiveHostIsPaused(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		unresponsive, requests := true, 0
		f := New(Options{Client: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if requests++; unresponsive && r.URL.Host == "h" {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(content)), Request: r}, nil
		})}})
		get := func(loc string) error {
			file, err := os.Create(filepath.Join(dir, "file"))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			_, err = f.Get(t.Context(), Request{Change: &resourcesync.Change{Loc: loc}}, file)
			return err
		}
		start := time.Now()
		for range 20 {
			wantFailure(t, get("http://h/a"), "does not respond; paused until")
		}
		if took := time.Since(start); took > time.Minute || requests != 1 {
			t.Errorf("got %d requests in %v, want 1 within a minute", requests, took)
		}
		if err := get("http://other/a"); err != nil {
			t.Error(err)
		}
		unresponsive = false
		time.Sleep(time.Minute)
		if err := get("http://h/a"); err != nil {
			t.Error(err)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
