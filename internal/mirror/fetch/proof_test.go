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

// What a server says of a content that has just changed is no proof: the content may change again
// within that second, and many servers make the ETag of the second and the length.
func TestYoung(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]struct{ tag, asks string }{0: {"", ""}, time.Minute: {`"1"`, "bytes=10-"}} {
		b := newBench(t, Options{}, func(n int, w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Last-Modified", time.Now().Add(-age).UTC().Format(http.TimeFormat))
			if n == 2 {
				cut(w, `"1"`)
			}
			return false
		})
		got, err := b.get(Request{})
		b.right(got, err)
		if got.ETag != want.tag || (got.Modified != "") != (want.tag != "") {
			t.Errorf("of a content that is %v old, %+v is kept", age, got)
		}
		b.right(b.get(Request{}))
		if got := b.last.Load().Header.Get("Range"); got != want.asks {
			t.Errorf("of a content that is %v old, a rest is asked for with Range %q, not %q", age, got, want.asks)
		}
	}
}

// Contents are wanted unencoded. What comes encoded all the same is wrong, unless the source says
// something by which that is what it means. A cache may have it for others.
func TestEncoded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change resourcesync.Change
		right  bool
	}{
		{"nothing", resourcesync.Change{}, false},
		{"the encoding", resourcesync.Change{Encoding: "gzip"}, true},
		{"another encoding", resourcesync.Change{Encoding: "br"}, false},
		{"the length", resourcesync.Change{Length: length(len(content))}, true},
		{"the hash", resourcesync.Change{Hash: fmt.Sprintf("sha-256:%x", sha256.Sum256([]byte(content)))}, true},
	} {
		var always atomic.Bool
		b := newBench(t, Options{}, func(_ int, w http.ResponseWriter, r *http.Request) bool {
			if always.Load() || r.Header.Get("Cache-Control") != "no-cache" {
				w.Header().Set("Content-Encoding", "gzip")
			}
			return false
		})
		test.change.Loc = b.URL + "/a"
		b.right(b.get(Request{Change: &test.change}))
		if n := b.requests.Load(); (n == 1) != test.right {
			t.Errorf("the source says %s: %d requests", test.name, n)
		}
		always.Store(true)
		if got, err := b.get(Request{Change: &test.change}); test.right {
			b.right(got, err)
		} else {
			fails(t, err, "gzip")
		}
	}
}

// Only a hash shows that a cache is late. So it is asked for nothing that is older than the change.
func TestCaches(t *testing.T) {
	t.Parallel()
	const age = 60 // seconds: of what the cache has
	for _, test := range []struct {
		name   string
		change resourcesync.Change
		since  time.Duration // of the change
		late   bool
	}{
		{"nothing is known", resourcesync.Change{}, 0, false},
		{"it has just changed", resourcesync.Change{}, 5 * time.Second, false},
		{"it has not changed for long", resourcesync.Change{}, time.Hour, true},
		{"its hash is known", resourcesync.Change{Hash: fmt.Sprintf("sha-256:%x", sha256.Sum256([]byte("old")))}, time.Second, true},
	} {
		b := newBench(t, Options{}, func(_ int, w http.ResponseWriter, r *http.Request) bool {
			most := age
			_, _ = fmt.Sscanf(r.Header.Get("Cache-Control"), "max-age=%d", &most)
			if most >= age {
				_, _ = io.WriteString(w, "old")
			}
			return most >= age
		})
		w := Request{Change: &test.change}
		if w.Change.Loc = b.URL + "/a"; test.since > 0 {
			w.Changed = time.Now().Add(-test.since)
		}
		if got, err := b.get(w); err != nil || (got.Size == 3) != test.late {
			t.Errorf("%s: Get = %+v, %v", test.name, got, err)
		}
	}
}
