package source

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

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

// TestWatchOfNothing watches a directory that suddenly looks empty, as when a disk is unmounted:
// watch ends, and nothing is deleted.
func TestWatchOfNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 20 {
		s.write(fmt.Sprint("more/", i), "1")
	}
	w := hubtest.Start(t, s.env(), nil, hubtest.Rspublish, "watch", "-hub", s.hub.URL, "-set", "files", "-settle", "50ms", "-base", base, s.dir)
	s.settled()
	s.remove("more")
	if code := w.Wait(); code != 5 {
		t.Errorf("watch ends with %d: %s", code, w.Stderr.String())
	}
	if n := len(hubtest.Get[struct{ Resources []any }](t, s.hub.URL+"/sets/files/resources").Resources); n != 20 {
		t.Errorf("the hub knows %d files", n)
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
	hubtest.Until(t, "it has synced", func() error {
		if !strings.Contains(w.Stdout.String(), "synced") {
			return errors.New(w.Stdout.String() + w.Stderr.String())
		}
		return nil
	})
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
