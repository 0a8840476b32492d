package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/mirror/fetch"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/resourcesync"
)

// With enough files for syncAll, all files are installed and no temporary files remain.
func TestCommitManyFiles(t *testing.T) {
	b := newFixture(t)
	const n = 3 * minSyncAll
	name := func(i int) string { return fmt.Sprintf("/d%d/%d", i%(minSyncAll+5), i) }
	for _, text := range []string{"old", "new"} {
		var all []feed.Entry
		for i := range n {
			b.set(name(i), text)
			all = append(all, b.entry(name(i), text))
		}
		b.apply(all...)
	}
	for i := range n {
		if got, err := os.ReadFile(filepath.Join(b.dir, name(i))); err != nil || string(got) != "new" {
			t.Errorf("file %s = %q, %v, want %q", name(i), got, err, "new")
		}
	}
	if left, err := os.ReadDir(filepath.Join(b.dir, filepath.FromSlash(home.Parts))); err != nil || len(left) > 0 {
		t.Errorf("temporary files = %v, %v, want none", left, err)
	}
	if c := b.home.Ledger.Counts(); c.Files != n || c.Failures != 0 {
		t.Errorf("Counts() = %+v, want %d files and no failures", c, n)
	}
}

// After an interrupted Apply, each file is complete or does not exist.
func TestApplyInterrupted(t *testing.T) {
	b := newFixture(t)
	const n = 3 * minSyncAll
	var all []feed.Entry
	for i := range n {
		name := fmt.Sprint("/", i)
		b.set(name, "text")
		all = append(all, b.entry(name, "text"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/20" {
			cancel()
		}
		return http.DefaultTransport.RoundTrip(r)
	})}
	b.reopen(DirectoryOptions{Fetcher: fetch.New(fetch.Options{Attempts: 1, Client: c})})
	if err := b.Apply(ctx, all); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	whole := int64(0)
	for i := range n {
		got, err := os.ReadFile(filepath.Join(b.dir, fmt.Sprint(i)))
		if err == nil && string(got) == "text" {
			whole++
		} else if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("file %d = %q, %v, want the whole text or no file", i, got, err)
		}
	}
	if c := b.home.Ledger.Counts(); c.Files != whole || whole == n {
		t.Errorf("got %d files and %d records, want as many records as files, fewer than %d", whole, c.Files, n)
	}
	b.reopen(DirectoryOptions{})
	b.apply(all...)
	if c := b.home.Ledger.Counts(); c.Files != n {
		t.Errorf("Counts().Files in the end = %d, want %d", c.Files, n)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestInterleaveHosts(t *testing.T) {
	var entries []feed.Entry
	for _, loc := range []string{"http://a/1", "http://a/2", "http://a/3", "http://b/1", "http://c/1", "http://b/2"} {
		entries = append(entries, feed.Entry{Change: resourcesync.Change{Loc: loc}})
	}
	var got []string
	for _, e := range interleaveHosts(entries) {
		got = append(got, e.Change.Loc[7:])
	}
	if want := []string{"a/1", "b/1", "c/1", "a/2", "b/2", "a/3"}; !slices.Equal(got, want) {
		t.Errorf("interleaveHosts() = %v, want %v", got, want)
	}
}
