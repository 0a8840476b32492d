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

// Where a content is asked for, and in which order: until it is there and right.
func TestPlaces(t *testing.T) {
	t.Parallel()
	sum := fmt.Sprintf("sha-256:%x", sha256.Sum256([]byte(content)))
	for _, test := range []struct {
		name  string
		first bool   // the duplicates come first
		hash  string // that the source names
		gone  string // the paths with nothing, and those with another content
		other string
		want  string
	}{
		{"by default", false, sum, "", "", "/a"},
		{"its place has nothing", false, sum, "/a", "", "/a /1"},
		{"by pri", false, sum, "/a /1 /2 /3", "", "/a /1 /2 /3 /4"},
		{"duplicates first", true, sum, "", "", "/1"},
		{"duplicates first, by pri, then its place", true, sum, "/1 /2", "/3 /4", "/1 /2 /3 /4 /a"},
		{"duplicates first, without a hash", true, "", "/1", "/2", "/1 /2"},
		{"another content by now", false, sum, "/1 /2 /3 /4", "/a", "/a /1 /2 /3 /4 /memento"},
		{"another content, duplicates first", true, sum, "/1 /2 /3 /4", "/a", "/1 /2 /3 /4 /a /memento"},
		{"another content than any other", false, "md5:00 " + sum, "", "/a /1 /2 /3 /4 /memento", "/a /1 /2 /3 /4 /memento"},
		{"no hash that a memento could have", false, "", "/a /1 /2 /3 /4", "", "/a /1 /2 /3 /4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var mu sync.Mutex
			var asked []string
			has := func(paths, path string) bool { return slices.Contains(strings.Fields(paths), path) }
			b := newBench(t, Options{DuplicatesFirst: test.first}, func(_ int, w http.ResponseWriter, r *http.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				if !slices.Contains(asked, r.URL.Path) { // a wrong content is asked for twice, past caches
					asked = append(asked, r.URL.Path)
				}
				switch {
				case has(test.gone, r.URL.Path):
					http.NotFound(w, r)
				case has(test.other, r.URL.Path):
					_, _ = io.WriteString(w, "another content")
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
			link("duplicate", "/4", 999_999, "") // as much as none
			link("duplicate", "/2", 999_998, "")
			link("duplicate", "/1", 1, "")
			link("describedby", "/never", 1, sum)
			got, err := b.get(Request{Change: c})
			mu.Lock()
			defer mu.Unlock()
			if want := strings.Fields(test.want); !slices.Equal(asked, want) {
				t.Errorf("it was asked for at %q, want %q; %v", asked, want, err)
			}
			if err == nil && asked[len(asked)-1] != "/a" && (got.ETag != "" || got.Modified != "") {
				t.Errorf("the validators %q and %q are of another place", got.ETag, got.Modified)
			}
			if strings.HasPrefix(test.hash, "md5:00") {
				fails(t, err, "md5:00")
			}
		})
	}
}

// A part of a content is forgotten when another place was asked for it, too: then it is in the
// file no more.
func TestPartOfAnotherPlace(t *testing.T) {
	t.Parallel()
	b := newBench(t, Options{Attempts: 1}, func(_ int, w http.ResponseWriter, r *http.Request) bool {
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
	if f := fails(t, err, "broke off"); f.Part == nil {
		t.Error("there is no part, and the content broke off")
	}
	c.Links = []resourcesync.Link{{Rel: "duplicate", Href: b.URL + "/gone"}}
	_, err = b.get(Request{Change: c})
	if f := fails(t, err, "broke off"); f.Part != nil {
		t.Errorf("the part %+v is not in the file any more", f.Part)
	}
}

// A content from a package is shorter than the part that is there: nothing of the part stays.
func TestPackedAfterPart(t *testing.T) {
	b := newBench(t, Options{}, nil)
	if _, err := b.file.WriteString(strings.Repeat("the beginning of another version ", 10)); err != nil {
		t.Fatal(err)
	}
	packed := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }
	b.right(b.get(Request{Change: b.change(), Part: &Part{URL: b.URL + "/a", ETag: `"0"`}, Packed: packed}))
}
