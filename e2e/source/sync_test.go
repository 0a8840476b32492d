package source

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/inventory/auditor"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/diskpages"
	"github.com/rshub/rshub/resourcesync"
)

const base = "https://example.org/files/"

// A site is a hub, a directory, and the recorded requests to the hub.
type site struct {
	*testing.T
	hub        *hubtest.Hub
	dir, cache string
	proxy      *httptest.Server

	mu       sync.Mutex
	requests []string // "GET /path"
}

func newSite(t *testing.T) *site {
	s := &site{T: t, hub: hubtest.StartHub(t), dir: t.TempDir(), cache: t.TempDir()}
	to, err := url.Parse(s.hub.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(to)
	s.proxy = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(s.proxy.Close)
	return s
}

// takeRequests returns the requests since the last call.
func (s *site) takeRequests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.requests
	s.requests = nil
	return all
}

func (s *site) write(name, content string) {
	s.Helper()
	name = filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		s.Fatal(err)
	}
}

func (s *site) remove(name string) {
	s.Helper()
	if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
		s.Fatal(err)
	}
}

// env returns the environment of all runs of rspublish.
func (s *site) env() []string { return []string{"XDG_CACHE_HOME=" + s.cache} }

// A summary is the output of rspublish sync -json.
type summary struct {
	Listed, Created, Updated, Deleted, Unknown, Gaps, Kept int
	Complete                                               bool
}

// sync runs rspublish sync, fails the test unless it exits with code, and returns its output.
func (s *site) sync(code int, args ...string) (summary, string) {
	s.Helper()
	args = append(append([]string{"sync", "-hub", s.proxy.URL, "-set", "files", "-settle", "0", "-json"}, args...), "-base", base, s.dir)
	got, out, stderr := hubtest.Run(s.T, s.env(), nil, hubtest.Rspublish, args...)
	if got != code {
		s.Fatalf("rspublish %q exited with %d, want %d: %s%s", args, got, code, out, stderr)
	}
	var sum summary
	if !slices.Contains(args, "-dry-run") {
		hubtest.Decode(s.T, []byte(out), &sum)
	}
	return sum, out + stderr
}

// wantInSync fails the test unless the hub has exactly the files of the directory, according to an
// audit with an independent list.
func (s *site) wantInSync() {
	s.Helper()
	own, done, err := diskpages.Collect(s.Context(), "own", func(yield func(*feed.Entry, error) bool) {
		err := filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || strings.HasSuffix(path, "~") {
				return err // backup files of editors are excluded
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(s.dir, path)
			if err != nil {
				return err
			}
			loc := base + (&url.URL{Path: rel}).EscapedPath()
			yield(&feed.Entry{Change: resourcesync.Change{Loc: loc, Change: resourcesync.Updated, Hash: fmt.Sprintf("sha-256:%x", sha256.Sum256(b))}}, nil)
			return nil
		})
		if err != nil {
			yield(nil, err)
		}
	})
	if err != nil {
		s.Fatal(err)
	}
	defer done()
	c, err := client.New(s.hub.URL, client.Options{})
	if err != nil {
		s.Fatal(err)
	}
	complete := false
	o := auditor.Options{By: digest.ByContent, Settle: 1, OnSummary: func(l audit.Summary) { complete = l.Complete }}
	for d, err := range auditor.Audit(s.Context(), c, "files", auditor.FixedState(own), o) {
		if err != nil {
			s.Fatal(err)
		}
		s.Errorf("hub and directory differ: %s", d.AppendJSON(nil))
	}
	if !complete {
		s.Error("the set is incomplete, want complete")
	}
}

// TestSync syncs a directory as a user does.
func TestSync(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 1_500 {
		s.write(fmt.Sprintf("%d/file %d.xml", i%10, i), fmt.Sprint(i))
	}
	_, out := s.sync(0, "-dry-run")
	if n := strings.Count(out, `"change":"created"`); n != 1_500 {
		t.Errorf("dry run printed %d changes, want 1500", n)
	}
	if got := s.takeRequests(); slices.ContainsFunc(got, func(r string) bool { return !strings.HasPrefix(r, "GET ") }) {
		t.Errorf("requests of a dry run = %q, want only GET", got)
	}
	if sum, _ := s.sync(0); sum.Created != 1_500 || !sum.Complete {
		t.Errorf("summary = %+v, want other counts", sum)
	}
	s.wantInSync()
	s.takeRequests()
	if sum, _ := s.sync(0); sum != (summary{Listed: 1_500, Complete: true}) {
		t.Errorf("summary without changes = %+v", sum)
	}
	if got := s.takeRequests(); !slices.Equal(got, []string{"GET /sets/files/audit"}) {
		t.Errorf("requests without changes = %q, want one audit", got)
	}

	s.write("3/file 3.xml", "changed")
	s.write("new/ü%", "new")
	s.remove("0/file 0.xml")
	if sum, _ := s.sync(0); sum.Created != 1 || sum.Updated != 1 || sum.Deleted != 1 {
		t.Errorf("summary = %+v, want other counts", sum)
	}
	s.wantInSync()
}

// TestUnreadable syncs a directory that is partly unreadable.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 20 {
		s.write(fmt.Sprint(i), "1")
		s.write(fmt.Sprint("dir/", i), "1")
	}
	s.sync(0)
	s.write("bad\xff", "1")
	if sum, out := s.sync(6); sum.Gaps != 1 || sum.Created != 0 || !strings.Contains(out, "UTF-8") {
		t.Errorf("summary = %+v, want one gap for the invalid name: %s", sum, out)
	}
	s.remove("bad\xff")

	// Root can read everything, unless it drops the capability.
	program, first := hubtest.Rspublish, []string(nil)
	if os.Getuid() == 0 {
		setpriv, err := exec.LookPath("setpriv")
		if err != nil {
			t.Skip("setpriv is not installed: root can read everything")
		}
		program, first = setpriv, []string{"--bounding-set=-dac_override,-dac_read_search", hubtest.Rspublish}
	}
	run := func(want summary) {
		t.Helper()
		args := append(first, "sync", "-hub", s.hub.URL, "-set", "files", "-settle", "0", "-json", "-base", base, s.dir)
		code, out, stderr := hubtest.Run(t, s.env(), nil, program, args...)
		var sum summary
		if err := json.Unmarshal([]byte(out), &sum); err != nil || code != 6 || sum != want || !strings.Contains(stderr, "permission denied") {
			t.Errorf("exit status %d, want 6 and %+v: %s%s", code, want, out, stderr)
		}
	}
	chmod := func(name string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(filepath.Join(s.dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	chmod("7", 0)
	s.remove("8")
	run(summary{Listed: 38, Deleted: 1, Gaps: 1, Kept: 1, Complete: true})
	chmod("dir", 0)
	s.remove("9")
	run(summary{Listed: 17, Gaps: 2, Kept: 22, Complete: true})
	chmod("dir", 0o755)
	chmod("7", 0o644)
	if sum, _ := s.sync(0); sum != (summary{Listed: 38, Deleted: 1, Complete: true}) {
		t.Errorf("summary = %+v, want other counts", sum)
	}
	s.wantInSync()
}
