package dump

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/mirror/fetch"
	"github.com/rshub/rshub/resourcesync"
)

// Contents come in the order of their entries, more of them than are fetched ahead, among
// deletions, and however much they reserve. An error of whoever takes them ends it.
func TestGather(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path)
	}))
	defer origin.Close()
	const n = 3 * ahead
	for _, known := range []int64{0, aheadBytes / 3, 2 * aheadBytes} {
		g := &gatherer{
			fetcher: fetch.New(fetch.Options{Client: origin.Client(), Tries: 1}), check: func(string, string) error { return nil },
			dir: t.TempDir(), most: 4 * aheadBytes,
		}
		items := func(yield func(item, error) bool) {
			for i := range n {
				e := &feed.Entry{Cursor: feed.Cursor{Position: uint64(i)}, Change: resourcesync.Change{Loc: fmt.Sprintf("%s/%d", origin.URL, i), Change: resourcesync.Updated}}
				if i%3 == 0 {
					e.Change.Change = resourcesync.Deleted
				}
				if known > 0 {
					e.Change.Length = &known // which is wrong, so each is missing
				}
				if !yield(item{entry: e}, nil) {
					return
				}
			}
		}
		next := uint64(0)
		err := g.each(t.Context(), items, func(got *gathered) error {
			if got.entry.Position != next {
				t.Fatalf("%d comes, want %d", got.entry.Position, next)
			}
			next++
			switch deleted := got.entry.Change.Change == resourcesync.Deleted; {
			case deleted != (got.content == nil && got.why == "") && known == 0:
				t.Errorf("%d: %v %q", got.entry.Position, got.content, got.why)
			case !deleted && known > 0 && !strings.Contains(got.why, "the source says"):
				t.Errorf("%d: %q", got.entry.Position, got.why)
			case got.content != nil:
				in, err := got.content.reader()
				text, rerr := io.ReadAll(in)
				if err != nil || rerr != nil || string(text) != fmt.Sprint("/", got.entry.Position) {
					t.Errorf("%d: %q %v %v", got.entry.Position, text, err, rerr)
				}
			}
			return nil
		})
		if err != nil || next != n {
			t.Errorf("with %d bytes each: %d came, %v", known, next, err)
		}
		stop := errors.New("stop")
		seen := 0
		if err := g.each(t.Context(), items, func(*gathered) error {
			if seen++; seen == n/2 {
				return stop
			}
			return nil
		}); !errors.Is(err, stop) || seen != n/2 {
			t.Errorf("it ends with %v after %d", err, seen)
		}
	}
}

// A content is in memory while it is small, and in one file after that, however often it is used.
func TestContent(t *testing.T) {
	c := &content{dir: t.TempDir()}
	defer c.close()
	for i, size := range []int{0, 10, smallContent, smallContent + 1, 5, 3 * smallContent, 0} {
		text := strings.Repeat(fmt.Sprint(i), size)
		if err := c.reset(); err != nil {
			t.Fatal(err)
		}
		for rest := text; rest != ""; {
			n := min(len(rest), 1000)
			if _, err := io.WriteString(c, rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if large := size > smallContent; large != (c.large != nil) {
			t.Errorf("%d bytes are in a file: %v", size, c.large != nil)
		}
		in, err := c.reader()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(in); err != nil || string(got) != text {
			t.Errorf("%d bytes became %d, %v", size, len(got), err)
		}
		if _, err := c.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); err != nil || string(got) != text {
			t.Errorf("%d bytes, read again, became %d, %v", size, len(got), err)
		}
	}
}
