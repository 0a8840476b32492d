package operate

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// fillUp publishes until the hub dies, restarts it without the limit, and checks that it has all
// acknowledged changes. If a small publish took the last space, large ones are refused and no
// write fails; then makeRoom frees some space.
func fillUp(t *testing.T, h *hubtest.Hub, makeRoom func() error, restart func()) {
	t.Helper()
	const set = "limited"
	p := hubtest.StartPublisher(t, h, set, "keyless", false)
	l := hubtest.GeneratedLoad(t, 2000) // barely compressible
	hubtest.Until(t, "a write fails", func() error {
		a, err := hubtest.Request(http.MethodPost, h.Topic("filling"), bytes.NewReader(l.NDJSON(0, len(l.Lines))), "Content-Type: application/x-ndjson")
		switch {
		case err != nil:
			return nil // the hub died
		case a.Status == http.StatusInsufficientStorage && makeRoom != nil:
			p.Finish() // otherwise it takes that space, too
			return makeRoom()
		case a.Status != http.StatusOK:
			t.Fatalf("publish to a full disk = %d, want 200 or 507: %s", a.Status, a.Body)
		}
		return errors.New("publishes succeed")
	})
	p.Finish()
	restart()
	all := hubtest.ReadMemory(t, h, set)
	p.Check(t, all)
	hubtest.Publish(t, h, set, hubtest.Change("after"))
	if n := len(hubtest.ReadMemory(t, h, set)); n != len(all)+1 {
		t.Errorf("got %d changes, want %d", n, len(all)+1)
	}
}

// wantOneLine checks that a hub logged a failed write in one line, without a stack trace.
func wantOneLine(t *testing.T, text, contains string) {
	t.Helper()
	if strings.Contains(text, "goroutine ") {
		t.Errorf("log has a stack trace")
	}
	n := 0
	for line := range strings.Lines(text) {
		if strings.Contains(line, contains) && strings.Contains(line, "change memory") {
			n++
		}
	}
	t.Log(trial.Tail(text))
	if n != 1 {
		t.Errorf("got %d lines about a failed write of the change memory (%s), want 1:\n%s", n, contains, trial.Tail(text))
	}
}

// TestFileLimit exceeds a limit on the size of files, so that a write fails.
func TestFileLimit(t *testing.T) {
	t.Parallel()
	h := hubtest.NewHub(t)
	// In units of 1,024 bytes in bash, and of 512 in sh.
	h.Process = hubtest.Start(t, h.Env, nil, "/bin/sh", "-c", `ulimit -f 1000; exec "$0"`, hubtest.Rshub)
	h.WaitRunning()
	fillUp(t, h, nil, func() {
		if code := h.Wait(); code != 1 {
			t.Errorf("exit status of the hub = %d, want 1", code)
		}
		wantOneLine(t, h.Stderr.String(), "file too large")
		h.Start(t)
	})
}

// TestDiskIsFull fills a small disk.
func TestDiskIsFull(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("unshare", "-m", "mount", "-t", "tmpfs", "none", t.TempDir()).CombinedOutput(); err != nil {
		t.Skipf("cannot mount file systems: %v: %s", err, out)
	}
	h := hubtest.NewHub(t, "RSHUB_DISK_RESERVE=1B")
	if err := os.Mkdir(h.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	// The mount is in its own namespace, and is removed with the processes. After the first hub
	// has exited, the disk is enlarged for the second one.
	const script = `mount -t tmpfs -o size=6m none "$1" && head -c 65536 /dev/zero >"$1/ballast" || exit 9
"$0"; echo "the first hub exited with $?" >&2
mount -o remount,size=400m "$1" && exec "$0"`
	h.Process = hubtest.Start(t, h.Env, nil, "unshare", "-m", "sh", "-c", script, hubtest.Rshub, h.Data)
	h.WaitRunning()
	ballast := fmt.Sprintf("/proc/%d/root%s/ballast", h.Cmd.Process.Pid, h.Data)
	makeRoom := func() error {
		return errors.Join(errors.New("freed some space"), os.Remove(ballast))
	}
	fillUp(t, h, makeRoom, func() {
		h.WaitLog("the first hub exited with 1")
		first, _, _ := strings.Cut(h.Stderr.String(), "the first hub exited with 1")
		wantOneLine(t, first, "no space left on device")
		hubtest.Until(t, "the second hub listens", func() error {
			if strings.Count(h.Stderr.String(), `"rshub is running"`) < 2 {
				return fmt.Errorf("got no log line about it")
			}
			return nil
		})
	})
}
