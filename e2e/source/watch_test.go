package source

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func hash(b []byte) string { return fmt.Sprintf("sha-256:%x", sha256.Sum256(b)) }

// watch starts rspublish watch.
func (s *site) watch() *hubtest.Process {
	s.Helper()
	return hubtest.Start(s.T, s.env(), nil, hubtest.Rspublish, "watch", "-hub", s.hub.URL, "-set", "files", "-settle", "50ms", "-max-delete", "all", "-retry", "2s", "-base", base, s.dir)
}

// settled waits until a dry run finds no difference. It asks past the watch, so it uses a
// state of its own.
func (s *site) settled() {
	s.Helper()
	hubtest.Until(s.T, "the hub knows what is in the directory", func() error {
		code, out, stderr := hubtest.Run(s.T, []string{"XDG_CACHE_HOME=" + s.cache + "/other"}, nil, hubtest.Rspublish,
			"sync", "-hub", s.hub.URL, "-set", "files", "-settle", "0", "-dry-run", "-max-delete", "all", "-base", base, s.dir)
		if code != 0 || out != "" {
			return fmt.Errorf("%d: %.300s%.300s", code, out, stderr)
		}
		return nil
	})
}

// change does something at random in the directory. Errors are those of what is not there.
func (s *site) change(r *rand.Rand) {
	path := func(depth int) string {
		p := s.dir
		for range depth {
			p = filepath.Join(p, fmt.Sprint("d", r.IntN(3)))
		}
		return p
	}
	dir := path(r.IntN(4))
	file := filepath.Join(dir, fmt.Sprint("f", r.IntN(6)))
	switch r.IntN(12) {
	case 0:
		_ = os.Remove(file)
	case 1:
		if dir != s.dir {
			_ = os.RemoveAll(dir)
		}
	case 2:
		to := path(1 + r.IntN(3))
		if dir != s.dir {
			_ = os.MkdirAll(filepath.Dir(to), 0o755)
			_ = os.Rename(dir, to)
		}
	case 3:
		_ = os.Rename(file, filepath.Join(path(r.IntN(3)), fmt.Sprint("f", r.IntN(6))))
	case 4: // a directory is swapped for another one
		next := filepath.Join(path(0), "next~")
		_ = os.MkdirAll(filepath.Join(next, "d0"), 0o755)
		_ = os.WriteFile(filepath.Join(next, "d0", "f0"), fmt.Append(nil, r.Uint64()), 0o644)
		if dir != s.dir {
			_ = os.Rename(dir, filepath.Join(path(0), "old~"))
			_ = os.Rename(next, dir)
		}
		_ = os.RemoveAll(filepath.Join(path(0), "old~"))
		_ = os.RemoveAll(next)
	case 5: // a file becomes a directory
		_ = os.Remove(file)
		_ = os.MkdirAll(file, 0o755)
		_ = os.WriteFile(filepath.Join(file, "in"), []byte("1"), 0o644)
	case 6: // as rsync does it
		_ = os.WriteFile(file+"~", fmt.Append(nil, r.Uint64()), 0o644)
		_ = os.Rename(file+"~", file)
	default:
		_ = os.MkdirAll(dir, 0o755)
		f, err := os.Create(file)
		if err != nil {
			return
		}
		for range 1 + r.IntN(3) { // in parts
			_, _ = fmt.Fprintln(f, r.Uint64())
		}
		_ = f.Close()
	}
}

// TestWatch changes a directory at random, while the watch is killed, and the hub. In the
// end the hub knows exactly what is there.
func TestWatch(t *testing.T) {
	t.Parallel()
	r := hubtest.Random(t)
	s := newSite(t)
	for range 30 {
		s.change(r)
	}
	w := s.watch()
	rounds := 4
	if os.Getenv("RSHUB_E2E_FULL") != "" {
		rounds = 40
	}
	for round := range rounds {
		for range 10 + r.IntN(60) {
			s.change(r)
			time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond) // the pace of changes, not a wait for anything
		}
		switch round % 4 {
		case 0:
			w.Kill()
			s.change(r)
			w = s.watch()
		case 1:
			s.hub.Kill()
			for range 20 {
				s.change(r)
			}
			s.hub.Start(t)
		case 2:
			s.hub.Kill()
			w.Kill()
			s.change(r)
			w = s.watch()
			s.hub.Start(t)
		}
		s.settled()
	}
	s.write("at the end", "1")
	s.settled()
	s.proved()
	w.Signal(syscall.SIGTERM)
	if code := w.Wait(); code != 0 {
		t.Errorf("watch ends with %d: %s", code, w.Stderr.String())
	}
}

// TestHalfWritten writes a file slowly. Nobody hears of it before it is whole.
func TestHalfWritten(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.write("a", "1")
	w := hubtest.Start(t, s.env(), nil, hubtest.Rspublish, "watch", "-hub", s.hub.URL, "-set", "files", "-settle", "1s", "-base", base, s.dir)
	s.said(w, "synced")
	f, err := os.Create(filepath.Join(s.dir, "slow"))
	if err != nil {
		t.Fatal(err)
	}
	for range 25 {
		if _, err := f.WriteString("part\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(80 * time.Millisecond) // the pace of the writer
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s.said(w, "published to files: 1 created, 0 updated, 0 deleted")
	s.proved()
	if out := w.Stdout.String(); strings.Count(out, "published to files") != 1 {
		t.Errorf("it published several versions: %s", out)
	}

	// An unmounted directory looks empty: watch ends, and nothing is deleted.
	for i := range 20 {
		s.write(fmt.Sprint("more/", i), "1")
	}
	s.settled()
	s.remove("more")
	if code := w.Wait(); code != 5 {
		t.Errorf("watch ends with %d: %s", code, w.Stderr.String())
	}
}

// limited returns a program and its first arguments that run rspublish with bounds of
// inotify, such as max_inotify_watches=3. The bounds hold in a user namespace of its own.
func limited(t *testing.T, bounds ...string) (program string, first []string) {
	t.Helper()
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip("there is no unshare to bound what a program may watch")
	}
	script := ""
	for _, b := range bounds {
		name, value, _ := strings.Cut(b, "=")
		script += fmt.Sprintf("echo %s > /proc/sys/user/%s && ", value, name)
	}
	if out, err := exec.Command(unshare, "-Ur", "sh", "-c", script+"true").CombinedOutput(); err != nil {
		t.Skipf("the system does not let this user bound what a program may watch: %v: %s", err, out)
	}
	return unshare, []string{"-Ur", "sh", "-c", script + `exec "$@"`, "sh", hubtest.Rspublish}
}

// TestWatchLimit watches more directories than the system allows. The program says so, and
// finds by its syncs what it is not told.
func TestWatchLimit(t *testing.T) {
	t.Parallel()
	program, first := limited(t, "max_inotify_watches=3")
	s := newSite(t)
	for i := range 10 {
		s.write(fmt.Sprintf("%d/a", i), "1")
	}
	w := hubtest.Start(t, s.env(), nil, program, append(first, "watch", "-hub", s.hub.URL, "-set", "files", "-settle", "50ms", "-every", "2s", "-base", base, s.dir)...)
	s.said(w, "synced")
	for i := range 10 {
		s.write(fmt.Sprintf("%d/b", i), "1")
	}
	s.write("new/deep/er", "1")
	s.settled()
	s.proved()
	w.Signal(syscall.SIGTERM)
	if code := w.Wait(); code != 0 {
		t.Errorf("watch ends with %d", code)
	}
	if text := w.Stderr.String(); !strings.Contains(text, "8 directories are not watched") || !strings.Contains(text, "every 2s (-every)") || !strings.Contains(text, "sysctl fs.inotify.max_user_watches=") {
		t.Errorf("it says %s", text)
	}

	program, first = limited(t, "max_inotify_instances=0")
	code, out, stderr := hubtest.Run(t, s.env(), nil, program, append(first, "watch", "-hub", s.hub.URL, "-set", "files", "-base", base, s.dir)...)
	if code != 3 || !strings.Contains(stderr, "sysctl fs.inotify.max_user_instances=") || !strings.Contains(stderr, "rspublish sync") {
		t.Errorf("without any room it ends with %d: %s%s", code, out, stderr)
	}
}

// said waits until a process says a text on its standard output.
func (s *site) said(p *hubtest.Process, text string) {
	s.Helper()
	hubtest.Until(s.T, fmt.Sprintf("it says %q", text), func() error {
		if !strings.Contains(p.Stdout.String(), text) {
			return errors.New(p.Stdout.String() + p.Stderr.String())
		}
		return nil
	})
}
