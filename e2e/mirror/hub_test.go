package mirror

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestHubFailures follows a hub that is unavailable, killed, restored from an older backup, and
// whose set is deleted.
func TestHubFailures(t *testing.T) {
	t.Parallel()
	h, o, dir := hubtest.StartHub(t), newOrigin(t), t.TempDir()
	fill(t, h, o, 30)
	p := hubtest.Start(t, nil, nil, hubtest.Rsmirror, "-strip", o.URL, h.Topic("demo"), dir)
	same := func(when string) {
		t.Helper()
		hubtest.Until(t, "the mirror is in sync "+when, func() error {
			if p.Exited() {
				return fmt.Errorf("rsmirror has exited: %s", p.Stderr)
			}
			return o.same(dir)
		})
		rsmirror(t, 0, "audit", dir)
	}
	same("at the start")

	h.Kill()
	h.Wait()
	rsmirror(t, 4, "audit", "-retry", "1s", dir)
	h.Start(t)
	publish(t, h, o.set("/f1", []byte("after it was killed"), nil), o.set("/f2", nil, nil), o.set("/new", []byte("new"), nil))
	same("after the hub was killed")

	h.Stop(t)
	backup := filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(backup, os.DirFS(h.Data)); err != nil {
		t.Fatal(err)
	}
	h.Start(t)
	publish(t, h, o.set("/f3", []byte("not in the backup"), nil), o.set("/f4", nil, nil), o.set("/newer", []byte("newer"), nil))
	same("before the hub is restored")
	h.Stop(t)
	if err := os.RemoveAll(h.Data); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(backup, h.Data); err != nil {
		t.Fatal(err)
	}
	h.Start(t)
	publish(t, h, o.set("/f3", []byte("after the backup"), nil), o.set("/f4", nil, nil), o.set("/newer", []byte("newer still"), nil))
	same("after the hub was restored")

	// A hub without the set knows no resources, and does not claim to know all: the mirror keeps
	// its files.
	hubtest.Must(t, http.StatusNoContent, http.MethodDelete, h.URL+"/sets/demo", nil)
	p.WaitLog("at cursor 0-0")
	if err := o.same(dir); err != nil {
		t.Error(err)
	}
	var lines [][]byte
	for name, content := range o.files {
		lines = append(lines, o.set(name, append(content, '.'), nil))
	}
	publish(t, h, lines...)
	complete(t, h)
	same("after the set was recreated")
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(); code != 0 {
		t.Errorf("exit status = %d, want 0: %s", code, p.Stderr)
	}
}

// TestSetRecreated mirrors a set that is recreated with far fewer resources. The mirror deletes
// nothing until -max-delete allows it.
func TestSetRecreated(t *testing.T) {
	t.Parallel()
	h, o, dir := hubtest.StartHub(t), newOrigin(t), t.TempDir()
	fill(t, h, o, 30)
	once := []string{"-once", "-strip", o.URL, h.Topic("demo"), dir}
	rsmirror(t, 0, once...)
	hubtest.Must(t, http.StatusNoContent, http.MethodDelete, h.URL+"/sets/demo", nil)
	before := maps.Clone(o.files)
	clear(o.files)
	fill(t, h, o, 5)
	now := o.files
	for _, args := range [][]string{once, {"audit", "-repair", dir}} {
		if _, stderr := rsmirror(t, 5, args...); !strings.Contains(stderr, "25 of the 30 known resources") || !strings.Contains(stderr, "-max-delete") {
			t.Errorf("stderr = %q, want another error", stderr)
		}
		o.files = before
		if err := o.same(dir); err != nil {
			t.Errorf("the refused deletions changed the mirror: %v", err)
		}
		o.files = now
	}
	rsmirror(t, 4, "audit", dir)
	rsmirror(t, 0, slices.Concat([]string{"-max-delete", "all"}, once)...)
	rsmirror(t, 0, "audit", dir)
	if err := o.same(dir); err != nil {
		t.Error(err)
	}
}
