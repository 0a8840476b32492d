package mirror

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A dumpServer serves a directory with dumps, and counts requests.
type dumpServer struct {
	*httptest.Server
	dir string

	mu       sync.Mutex
	requests map[string]int
}

func newDumpServer(t *testing.T) *dumpServer {
	s := &dumpServer{dir: filepath.Join(t.TempDir(), "out"), requests: map[string]int{}}
	files := http.FileServer(http.Dir(s.dir))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests[r.URL.Path]++
		s.mu.Unlock()
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// contents returns the contents of all files below a directory. Escaped names, as in mirrors and
// URLs, are unescaped.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	if err := hubtest.EachFile(dir, func(name string, b []byte) error {
		name, err := url.PathUnescape(name)
		all[name] = string(b)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestDumps packs a directory, and mirrors it from the packages alone, because the URLs of the
// files do not resolve. Then it packs and mirrors the mirror. Finally, a hub that has the directory
// from rspublish sync confirms that a mirror created from dumps is equal.
func TestDumps(t *testing.T) {
	t.Parallel()
	const base = "https://files.example.org/r/"
	r := hubtest.Random(t)
	dir, copied := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	write := func(name string, content []byte) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	from := newDumpServer(t)
	pack := func(flags ...string) {
		t.Helper()
		args := append([]string{"dump", "-base", base, "-out-url", from.URL, "-settle", "0", "-package-count", "10", "-package-size", "1MiB", "-keep", "2"}, flags...)
		if code, stdout, stderr := hubtest.Run(t, nil, nil, hubtest.Rspublish, append(args, dir, from.dir)...); code != 0 {
			t.Fatalf("rspublish %q exited with %d: %s%s", args, code, stdout, stderr)
		}
	}
	same := func(source *dumpServer, to string) {
		t.Helper()
		rsmirror(t, 0, "-once", "-strip", base, source.URL+"/capabilitylist.xml", to)
		if has, want := contents(t, to), contents(t, dir); !maps.Equal(has, want) {
			t.Fatalf("mirror with %d files differs from directory with %d files", len(has), len(want))
		}
	}
	for i := range 25 {
		write(fmt.Sprintf("d%d/f %d.txt", i%3, i), random(r, r.IntN(3_000)))
	}
	write("ä/large.jpg", random(r, 3<<20))
	write("empty", nil)
	pack()
	same(from, copied)

	for round := range 3 {
		write("d0/f 0.txt", fmt.Appendf(nil, "round %d", round))
		write(fmt.Sprintf("new/%d.html", round), bytes.Repeat([]byte("words "), 1_000))
		if err := os.Remove(filepath.Join(dir, fmt.Sprintf("d1/f %d.txt", 1+3*round))); err != nil {
			t.Fatal(err)
		}
		if round == 1 {
			pack("-full")
		} else {
			pack()
		}
		same(from, copied)
	}

	dumps := 0
	for name, n := range from.requests {
		if strings.HasSuffix(name, ".zip") && n != 1 {
			t.Errorf("got %d requests for %s, want 1", n, name)
		}
		if strings.HasPrefix(name, "/resourcedump-") && strings.HasSuffix(name, "-1.zip") {
			dumps++
		}
	}
	if dumps != 1 {
		t.Errorf("got requests for %d Resource Dumps, want 1: the Change Dump has all changes", dumps)
	}

	rsmirror(t, 0, "audit", copied)

	// A new mirror starts from the newest Resource Dump and the changes since.
	same(from, filepath.Join(t.TempDir(), "new"))

	again := newDumpServer(t)
	rsmirror(t, 0, "dump", "-out-url", again.URL+"/", copied, again.dir)
	same(again, filepath.Join(t.TempDir(), "again"))

	h := hubtest.StartHub(t)
	if code, _, stderr := hubtest.Run(t, []string{"XDG_CACHE_HOME=" + t.TempDir()}, nil, hubtest.Rspublish, "sync", "-hub", h.URL, "-set", "files", "-settle", "0", "-base", base, dir); code != 0 {
		t.Fatalf("rspublish sync exited with %d: %s", code, stderr)
	}
	if err := os.RemoveAll(filepath.Join(copied, ".rsmirror")); err != nil {
		t.Fatal(err)
	}
	stdout, _ := rsmirror(t, 0, "-once", "-adopt", "-json", "-strip", base, h.Topic("files"), copied)
	var summary struct{ Files, Fetched, Kept, Removed, Missing int }
	if err := json.Unmarshal([]byte(stdout), &summary); err != nil || summary.Fetched+summary.Removed+summary.Missing != 0 || summary.Files != len(contents(t, dir)) {
		t.Errorf("summary with the hub = %s, %v, want only kept files", stdout, err)
	}
	rsmirror(t, 0, "audit", copied)
}

// TestDumpsKilled kills rspublish dump at random times. Its published dump is valid each time, and
// the last run continues.
func TestDumpsKilled(t *testing.T) {
	t.Parallel()
	const base = "https://files.example.org/"
	r := hubtest.Random(t)
	dir, copied, out := t.TempDir(), t.TempDir(), newDumpServer(t)
	args := []string{"dump", "-base", base, "-out-url", out.URL, "-settle", "0", "-package-count", "20", "-full", "-max-delete", "all", dir, out.dir}
	for round := range 8 {
		for range 150 {
			name := filepath.Join(dir, fmt.Sprint(r.IntN(300)))
			if err := os.WriteFile(name, random(r, r.IntN(20_000)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if round == 0 || round == 7 {
			if code, _, stderr := hubtest.Run(t, nil, nil, hubtest.Rspublish, args...); code != 0 {
				t.Fatalf("rspublish exited with %d: %s", code, stderr)
			}
		} else {
			p := hubtest.Start(t, nil, nil, hubtest.Rspublish, args...)
			packages := func() int {
				names, _ := filepath.Glob(filepath.Join(out.dir, "*.zip")) // the pattern is valid
				return len(names)
			}
			before, more := packages(), 1+r.IntN(20)
			hubtest.Until(t, "new packages exist", func() error {
				if n := packages() - before; n < more && !p.Exited() {
					return fmt.Errorf("got %d of %d", n, more)
				}
				return nil
			})
			p.Kill()
			p.Wait()
		}
		rsmirror(t, 0, "-once", "-max-delete", "all", "-strip", base, out.URL+"/capabilitylist.xml", copied)
	}
	if !maps.Equal(contents(t, copied), contents(t, dir)) {
		t.Error("the mirror differs from the directory")
	}
}

// TestDumpOfMirror packs incomplete mirrors, and a running one.
func TestDumpOfMirror(t *testing.T) {
	t.Parallel()
	h, o, dir, out := hubtest.StartHub(t), newOrigin(t), t.TempDir(), filepath.Join(t.TempDir(), "out")
	dump := func(code int, says string) {
		t.Helper()
		if stdout, stderr := rsmirror(t, code, "dump", "-out-url", "https://dumps.example.org/", dir, out); !strings.Contains(stdout+stderr, says) {
			t.Errorf("output of rsmirror dump = %q, want %q", stdout+stderr, says)
		}
	}
	publish(t, h, o.set("/a", []byte("a"), nil), o.set("/b", []byte("b"), status(http.StatusForbidden)), o.set("/c", []byte("c"), nil))
	complete(t, h)
	once := []string{"-once", "-strip", o.URL, h.Topic("demo"), dir}
	rsmirror(t, 1, once...)
	dump(1, o.URL+"/b: ")
	publish(t, h, o.set("/a", []byte("newer"), status(http.StatusForbidden)), o.set("/b", []byte("b"), nil))
	rsmirror(t, 1, once...)
	dump(1, "packed an older version of 1 resource")

	publish(t, h, o.set("/a", []byte("newer"), nil))
	p := hubtest.Start(t, nil, nil, hubtest.Rsmirror, "-strip", o.URL, h.Topic("demo"), dir)
	hubtest.Until(t, "the mirror has all files", func() error { return o.same(dir) })
	hubtest.Until(t, "the dump has all files", func() error {
		if code, stdout, stderr := hubtest.Run(t, nil, nil, hubtest.Rsmirror, "dump", "-out-url", "https://dumps.example.org/", dir, out); code != 0 {
			return fmt.Errorf("exit status %d: %s%s", code, stdout, stderr)
		}
		return nil
	})
	dump(0, "no changes in 3 resources")
	if p.Exited() {
		t.Error("the mirror has exited")
	}
}
