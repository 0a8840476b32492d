package fetch

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// The validators of a content that has just changed are unreliable: it may change again within
// the same second, and many servers derive the ETag from the second and the length.
func TestYoungContentHasNoValidators(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]struct{ tag, wantRange string }{0: {"", ""}, time.Minute: {`"1"`, "bytes=10-"}} {
		t.Run(age.String(), func(t *testing.T) {
			b := newFixture(t, Options{}, func(n int, w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Last-Modified", time.Now().Add(-age).UTC().Format(http.TimeFormat))
				if n == 2 {
					sendPart(w, `"1"`)
				}
				return false
			})
			got, err := b.get(Request{})
			b.wantContent(got, err)
			if got.ETag != want.tag || (got.Modified != "") != (want.tag != "") {
				t.Errorf("Get() of a content %v old = %+v, want ETag %q", age, got, want.tag)
			}
			b.wantContent(b.get(Request{}))
			if got := b.last.Load().Header.Get("Range"); got != want.wantRange {
				t.Errorf("Range for a content %v old = %q, want %q", age, got, want.wantRange)
			}
		})
	}
}

// Contents are requested unencoded. An encoded response is wrong, unless the metadata of the
// source shows that this form is meant. A cache may have it for other clients.
func TestContentEncoding(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change resourcesync.Change
		right  bool
	}{
		{"no metadata", resourcesync.Change{}, false},
		{"encoding", resourcesync.Change{Encoding: "gzip"}, true},
		{"other encoding", resourcesync.Change{Encoding: "br"}, false},
		{"length", resourcesync.Change{Length: length(len(content))}, true},
		{"hash", resourcesync.Change{Hash: fmt.Sprintf("sha-256:%x", sha256.Sum256([]byte(content)))}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var always atomic.Bool
			b := newFixture(t, Options{}, func(_ int, w http.ResponseWriter, r *http.Request) bool {
				if always.Load() || r.Header.Get("Cache-Control") != "no-cache" {
					w.Header().Set("Content-Encoding", "gzip")
				}
				return false
			})
			test.change.Loc = b.URL + "/a"
			b.wantContent(b.get(Request{Change: &test.change}))
			if n := b.requests.Load(); (n == 1) != test.right {
				t.Errorf("got %d requests with %s, want one: %v", n, test.name, test.right)
			}
			always.Store(true)
			if got, err := b.get(Request{Change: &test.change}); test.right {
				b.wantContent(got, err)
			} else {
				wantFailure(t, err, "gzip")
			}
		})
	}
}

// Without a hash, only the age of a cached copy shows whether it is stale. So copies older than
// the change are not accepted.
func TestStaleCache(t *testing.T) {
	t.Parallel()
	const age = 60 // seconds; age of the cached copy
	for _, test := range []struct {
		name   string
		change resourcesync.Change
		since  time.Duration // age of the change
		stale  bool          // whether a stale copy is accepted
	}{
		{"unknown time", resourcesync.Change{}, 0, false},
		{"recent change", resourcesync.Change{}, 5 * time.Second, false},
		{"old change", resourcesync.Change{}, time.Hour, true},
		{"hash", resourcesync.Change{Hash: fmt.Sprintf("sha-256:%x", sha256.Sum256([]byte("old")))}, time.Second, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newFixture(t, Options{}, func(_ int, w http.ResponseWriter, r *http.Request) bool {
				maxAge := age
				_, _ = fmt.Sscanf(r.Header.Get("Cache-Control"), "max-age=%d", &maxAge)
				if maxAge >= age {
					_, _ = io.WriteString(w, "old")
				}
				return maxAge >= age
			})
			w := Request{Change: &test.change}
			if w.Change.Loc = b.URL + "/a"; test.since > 0 {
				w.Changed = time.Now().Add(-test.since)
			}
			if got, err := b.get(w); err != nil || (got.Size == 3) != test.stale {
				t.Errorf("Get() with %s = %+v, %v, want the stale copy: %v", test.name, got, err, test.stale)
			}
		})
	}
}
