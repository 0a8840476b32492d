package source

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// waitSynced waits until a dry run finds no difference. It runs concurrently with the watch, so it
// uses another cache directory.
func (s *site) waitSynced() {
	s.Helper()
	hubtest.Until(s.T, "the hub has the state of the directory", func() error {
		code, out, stderr := hubtest.Run(s.T, []string{"XDG_CACHE_HOME=" + s.cache + "/other"}, nil, hubtest.Rspublish,
			"sync", "-hub", s.hub.URL, "-set", "files", "-settle", "0", "-dry-run", "-max-delete", "all", "-base", base, s.dir)
		if code != 0 || out != "" {
			return fmt.Errorf("%d: %.300s%.300s", code, out, stderr)
		}
		return nil
	})
}

// TestWatchEmptyDirectory watches a directory that becomes empty, as if a disk was unmounted: watch
// exits, and no resource is deleted.
func TestWatchEmptyDirectory(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 20 {
		s.write(fmt.Sprint("more/", i), "1")
	}
	w := hubtest.Start(t, s.env(), nil, hubtest.Rspublish, "watch", "-hub", s.hub.URL, "-set", "files", "-settle", "50ms", "-base", base, s.dir)
	s.waitSynced()
	// At once, because watch publishes the deletions so far if a slow machine pauses between them.
	if err := os.Rename(filepath.Join(s.dir, "more"), filepath.Join(t.TempDir(), "more")); err != nil {
		t.Fatal(err)
	}
	if code := w.Wait(); code != 5 {
		t.Errorf("exit status of watch = %d, want 5: %s", code, w.Stderr.String())
	}
	if n := len(hubtest.Get[struct{ Resources []any }](t, s.hub.URL+"/sets/files/resources").Resources); n != 20 {
		t.Errorf("got %d resources, want 20", n)
	}
}

// limited returns a program and its first arguments that run rspublish with limits of inotify, such
// as max_inotify_watches=3. The limits apply to a new user namespace.
func limited(t *testing.T, limits ...string) (program string, first []string) {
	t.Helper()
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip("unshare is not installed: cannot limit inotify")
	}
	script := ""
	for _, b := range limits {
		name, value, _ := strings.Cut(b, "=")
		script += fmt.Sprintf("echo %s > /proc/sys/user/%s && ", value, name)
	}
	if out, err := exec.Command(unshare, "-Ur", "sh", "-c", script+"true").CombinedOutput(); err != nil {
		t.Skipf("cannot limit inotify: %v: %s", err, out)
	}
	return unshare, []string{"-Ur", "sh", "-c", script + `exec "$@"`, "sh", hubtest.Rspublish}
}

// TestWatchLimit watches more directories than the system allows. The program reports that, and
// finds the changes of unwatched directories by its syncs.
func TestWatchLimit(t *testing.T) {
	t.Parallel()
	program, first := limited(t, "max_inotify_watches=3")
	s := newSite(t)
	for i := range 10 {
		s.write(fmt.Sprintf("%d/a", i), "1")
	}
	w := hubtest.Start(t, s.env(), nil, program, append(first, "watch", "-hub", s.hub.URL, "-set", "files", "-settle", "50ms", "-every", "2s", "-base", base, s.dir)...)
	hubtest.Until(t, "watch has synced", func() error {
		if !strings.Contains(w.Stdout.String(), "synced") {
			return errors.New(w.Stdout.String() + w.Stderr.String())
		}
		return nil
	})
	for i := range 10 {
		s.write(fmt.Sprintf("%d/b", i), "1")
	}
	s.write("new/deep/er", "1")
	s.waitSynced()
	s.wantInSync()
	w.Signal(syscall.SIGTERM)
	if code := w.Wait(); code != 0 {
		t.Errorf("exit status of watch = %d, want 0", code)
	}
	if text := w.Stderr.String(); !strings.Contains(text, "8 directories are not watched") || !strings.Contains(text, "every 2s (-every)") || !strings.Contains(text, "sysctl fs.inotify.max_user_watches=") {
		t.Errorf("stderr = %q, want a warning with the limit and the interval", text)
	}

	program, first = limited(t, "max_inotify_instances=0")
	code, out, stderr := hubtest.Run(t, s.env(), nil, program, append(first, "watch", "-hub", s.hub.URL, "-set", "files", "-base", base, s.dir)...)
	if code != 3 || !strings.Contains(stderr, "sysctl fs.inotify.max_user_instances=") || !strings.Contains(stderr, "rspublish sync") {
		t.Errorf("exit status without inotify instances = %d, want 3 and advice: %s%s", code, out, stderr)
	}
}
