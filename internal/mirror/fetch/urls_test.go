package fetch

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rshub/rshub/resourcesync"
)

// The URLs of a content are requested in order until one has the right content.
func TestURLs(t *testing.T) {
	t.Parallel()
	sum := fmt.Sprintf("sha-256:%x", sha256.Sum256([]byte(content)))
	for _, test := range []struct {
		name            string
		duplicatesFirst bool
		hash            string // hash that the source names
		missing         string // paths with status 404
		wrong           string // paths with another content
		want            string
	}{
		{"loc", false, sum, "", "", "/a"},
		{"loc is missing", false, sum, "/a", "", "/a /1"},
		{"duplicates by pri", false, sum, "/a /1 /2 /3", "", "/a /1 /2 /3 /4"},
		{"duplicates first", true, sum, "", "", "/1"},
		{"duplicates first, by pri, then loc", true, sum, "/1 /2", "/3 /4", "/1 /2 /3 /4 /a"},
		{"duplicates first, without a hash", true, "", "/1", "/2", "/1 /2"},
		{"wrong content at loc", false, sum, "/1 /2 /3 /4", "/a", "/a /1 /2 /3 /4 /memento"},
		{"wrong content at loc, duplicates first", true, sum, "/1 /2 /3 /4", "/a", "/1 /2 /3 /4 /a /memento"},
		{"wrong content everywhere", false, "md5:00 " + sum, "", "/a /1 /2 /3 /4 /memento", "/a /1 /2 /3 /4 /memento"},
		{"memento without a hash", false, "", "/a /1 /2 /3 /4", "", "/a /1 /2 /3 /4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var mu sync.Mutex
			var requested []string
			has := func(paths, path string) bool { return slices.Contains(strings.Fields(paths), path) }
			b := newFixture(t, Options{DuplicatesFirst: test.duplicatesFirst}, func(_ int, w http.ResponseWriter, r *http.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				if !slices.Contains(requested, r.URL.Path) { // a wrong content is requested twice, the second time past caches
					requested = append(requested, r.URL.Path)
				}
				switch {
				case has(test.missing, r.URL.Path):
					http.NotFound(w, r)
				case has(test.wrong, r.URL.Path):
					_, _ = io.WriteString(w, "wrong content")
				default:
					return false
				}
				return true
			})
			c := b.change()
			c.Hash = test.hash
			link := func(rel, path string, pri int, hash string) {
				c.Links = append(c.Links, resourcesync.Link{Rel: rel, Href: b.URL + path, Pri: pri, Hash: hash})
			}
			link("memento", "/memento", 1, "md5:01 "+strings.ToUpper(sum))
			link("memento", "/older", 1, "md5:01")
			link("memento", "/unknown", 1, "")
			c.Links = append(c.Links, resourcesync.Link{Rel: "duplicate", Href: "ftp://example.org/", Pri: 1})
			link("duplicate", "/3", 0, "")
			link("duplicate", "/4", 999_999, "") // same as no pri
			link("duplicate", "/2", 999_998, "")
			link("duplicate", "/1", 1, "")
			link("describedby", "/never", 1, sum)
			got, err := b.get(Request{Change: c})
			mu.Lock()
			defer mu.Unlock()
			if want := strings.Fields(test.want); !slices.Equal(requested, want) {
				t.Errorf("requested URLs = %q, %v, want %q", requested, err, want)
			}
			if err == nil && requested[len(requested)-1] != "/a" && (got.ETag != "" || got.Modified != "") {
				t.Errorf("validators = %q and %q, want none of another URL than loc", got.ETag, got.Modified)
			}
			if strings.HasPrefix(test.hash, "md5:00") {
				wantFailure(t, err, "md5:00")
			}
		})
	}
}

// A part is dropped when another URL was requested, because the file no longer has it.
func TestPartIsDroppedForAnotherURL(t *testing.T) {
	t.Parallel()
	b := newFixture(t, Options{Attempts: 1}, func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/a" {
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "the first part")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		http.NotFound(w, r)
		return true
	})
	c := b.change()
	_, err := b.get(Request{Change: c})
	if f := wantFailure(t, err, "interrupted"); f.Part == nil {
		t.Error("Part of an interrupted content = nil")
	}
	c.Links = []resourcesync.Link{{Rel: "duplicate", Href: b.URL + "/gone"}}
	_, err = b.get(Request{Change: c})
	if f := wantFailure(t, err, "interrupted"); f.Part != nil {
		t.Errorf("Part = %+v, want nil: the file no longer has it", f.Part)
	}
}

// A content from a package replaces a longer part entirely.
func TestPackedReplacesPart(t *testing.T) {
	b := newFixture(t, Options{}, nil)
	if _, err := b.file.WriteString(strings.Repeat("the beginning of another version ", 10)); err != nil {
		t.Fatal(err)
	}
	packed := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }
	b.wantContent(b.get(Request{Change: b.change(), Part: &Part{URL: b.URL + "/a", ETag: `"0"`}, Packed: packed}))
}
