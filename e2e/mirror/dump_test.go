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

// A shelf serves a directory with dumps, and counts requests.
type shelf struct {
	*httptest.Server
	dir string

	mu    sync.Mutex
	asked map[string]int
}

func newShelf(t *testing.T) *shelf {
	s := &shelf{dir: filepath.Join(t.TempDir(), "out"), asked: map[string]int{}}
	files := http.FileServer(http.Dir(s.dir))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked[r.URL.Path]++
		s.mu.Unlock()
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// contents returns the contents of all files below a directory. The names in a mirror are
// escaped, as in URLs.
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

// TestDumps packs a directory, and mirrors it from the packages alone, because nothing answers
// at the URLs of the files. The mirror is packed in turn, and mirrored. At last a hub, which
// knows the directory from rspublish sync, proves that a mirror made from dumps is equal.
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
	from := newShelf(t)
	pack := func(flags ...string) {
		t.Helper()
		args := append([]string{"dump", "-base", base, "-out-url", from.URL, "-settle", "0", "-package-count", "10", "-package-size", "1MiB", "-keep", "2"}, flags...)
		if code, stdout, stderr := hubtest.Run(t, nil, nil, hubtest.Rspublish, append(args, dir, from.dir)...); code != 0 {
			t.Fatalf("rspublish %q ended with %d: %s%s", args, code, stdout, stderr)
		}
	}
	same := func(source *shelf, to string) {
		t.Helper()
		rsmirror(t, 0, "-once", "-strip", base, source.URL+"/capabilitylist.xml", to)
		if has, want := contents(t, to), contents(t, dir); !maps.Equal(has, want) {
			t.Fatalf("the mirror has %d files, the directory %d, and they differ", len(has), len(want))
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
	for name, n := range from.asked {
		if strings.HasSuffix(name, ".zip") && n != 1 {
			t.Errorf("%s was asked for %d times", name, n)
		}
		if strings.HasPrefix(name, "/resourcedump-") && strings.HasSuffix(name, "-1.zip") {
			dumps++
		}
	}
	if dumps != 1 {
		t.Errorf("the mirror has read %d Resource Dumps, and the Change Dump had all changes", dumps)
	}

	rsmirror(t, 0, "audit", copied)

	// A new mirror, from the newest Resource Dump and the changes since.
	same(from, filepath.Join(t.TempDir(), "new"))

	again := newShelf(t)
	rsmirror(t, 0, "dump", "-out-url", again.URL+"/", copied, again.dir)
	same(again, filepath.Join(t.TempDir(), "again"))

	h := hubtest.StartHub(t)
	if code, _, stderr := hubtest.Run(t, []string{"XDG_CACHE_HOME=" + t.TempDir()}, nil, hubtest.Rspublish, "sync", "-hub", h.URL, "-set", "files", "-settle", "0", "-base", base, dir); code != 0 {
		t.Fatalf("rspublish sync ended with %d: %s", code, stderr)
	}
	if err := os.RemoveAll(filepath.Join(copied, ".rsmirror")); err != nil {
		t.Fatal(err)
	}
	stdout, _ := rsmirror(t, 0, "-once", "-adopt", "-json", "-strip", base, h.Topic("files"), copied)
	var summary struct{ Files, Fetched, Kept, Removed, Missing int }
	if err := json.Unmarshal([]byte(stdout), &summary); err != nil || summary.Fetched+summary.Removed+summary.Missing != 0 || summary.Files != len(contents(t, dir)) {
		t.Errorf("with the hub, it says %s, %v", stdout, err)
	}
	rsmirror(t, 0, "audit", copied)
}

// TestDumpsKilled kills rspublish dump at any moment. What it has published is valid each time,
// and the last run goes on.
func TestDumpsKilled(t *testing.T) {
	t.Parallel()
	const base = "https://files.example.org/"
	r := hubtest.Random(t)
	dir, copied, out := t.TempDir(), t.TempDir(), newShelf(t)
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
				t.Fatalf("rspublish ended with %d: %s", code, stderr)
			}
		} else {
			p := hubtest.Start(t, nil, nil, hubtest.Rspublish, args...)
			packages := func() int {
				names, _ := filepath.Glob(filepath.Join(out.dir, "*.zip")) // the pattern is right
				return len(names)
			}
			before, more := packages(), 1+r.IntN(20)
			hubtest.Until(t, "there are packages", func() error {
				if n := packages() - before; n < more && !p.Ended() {
					return fmt.Errorf("%d of %d", n, more)
				}
				return nil
			})
			p.Kill()
			p.Wait()
		}
		rsmirror(t, 0, "-once", "-max-delete", "all", "-strip", base, out.URL+"/capabilitylist.xml", copied)
	}
	if !maps.Equal(contents(t, copied), contents(t, dir)) {
		t.Error("the mirror has not what the directory has")
	}
}

// TestDumpOfAMirror packs mirrors that lack something, and one that is at work.
func TestDumpOfAMirror(t *testing.T) {
	t.Parallel()
	h, o, dir, out := hubtest.StartHub(t), newOrigin(t), t.TempDir(), filepath.Join(t.TempDir(), "out")
	dump := func(code int, says string) {
		t.Helper()
		if stdout, stderr := rsmirror(t, code, "dump", "-out-url", "https://dumps.example.org/", dir, out); !strings.Contains(stdout+stderr, says) {
			t.Errorf("it says %s%s, and not %s", stdout, stderr, says)
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
	hubtest.Until(t, "the mirror has all", func() error { return o.same(dir) })
	hubtest.Until(t, "the dump has all", func() error {
		if code, stdout, stderr := hubtest.Run(t, nil, nil, hubtest.Rsmirror, "dump", "-out-url", "https://dumps.example.org/", dir, out); code != 0 {
			return fmt.Errorf("it ends with %d: %s%s", code, stdout, stderr)
		}
		return nil
	})
	dump(0, "no changes in 3 resources")
	if p.Ended() {
		t.Error("the mirror has ended")
	}
}
