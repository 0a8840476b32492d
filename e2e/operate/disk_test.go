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

// fillUp publishes until the hub dies, starts it again without the limit, and
// checks that it has what it acknowledged. Where a small publish took the very
// last room, large ones are refused and none fails; makeRoom gives them some.
func fillUp(t *testing.T, h *hubtest.Hub, makeRoom func() error, restart func()) {
	t.Helper()
	const set = "limited"
	p := hubtest.StartPublisher(t, h, set, "keyless", false)
	l := hubtest.GeneratedLoad(t, 2000) // random enough not to be compressed away
	hubtest.Until(t, "a write fails", func() error {
		a, err := hubtest.Request(http.MethodPost, h.Topic("filling"), bytes.NewReader(l.NDJSON(0, len(l.Lines))), "Content-Type: application/x-ndjson")
		switch {
		case err != nil:
			return nil // the hub died of it
		case a.Status == http.StatusInsufficientStorage && makeRoom != nil:
			p.Finish() // it would take that room too
			return makeRoom()
		case a.Status != http.StatusOK:
			t.Fatalf("a publish to a full disk is answered %d: %s", a.Status, a.Body)
		}
		return errors.New("publishes succeed")
	})
	p.Finish()
	restart()
	all := hubtest.ReadMemory(t, h, set)
	p.Check(t, all)
	hubtest.Publish(t, h, set, hubtest.Change("after"))
	if n := len(hubtest.ReadMemory(t, h, set)); n != len(all)+1 {
		t.Errorf("the memory has %d changes, not %d", n, len(all)+1)
	}
}

// oneClearLine checks how a hub ended whose write failed.
func oneClearLine(t *testing.T, text, contains string) {
	t.Helper()
	if strings.Contains(text, "goroutine ") {
		t.Errorf("the hub ended with a stack trace")
	}
	n := 0
	for line := range strings.Lines(text) {
		if strings.Contains(line, contains) && strings.Contains(line, "change memory") {
			n++
		}
	}
	t.Log(trial.Tail(text))
	if n != 1 {
		t.Errorf("%d lines say that a write of the change memory failed and why (%s), not one:\n%s", n, contains, trial.Tail(text))
	}
}

// TestFileLimit runs into a limit on the size of files, where a write fails.
func TestFileLimit(t *testing.T) {
	t.Parallel()
	h := hubtest.NewHub(t)
	// In units of 1,024 bytes in bash, and of 512 in sh.
	h.Process = hubtest.Start(t, h.Env, nil, "/bin/sh", "-c", `ulimit -f 1000; exec "$0"`, hubtest.Rshub)
	h.WaitRunning()
	fillUp(t, h, nil, func() {
		if code := h.Wait(); code != 1 {
			t.Errorf("the hub ended with %d", code)
		}
		oneClearLine(t, h.Stderr.String(), "file too large")
		h.Start(t)
	})
}

// TestDiskIsFull really fills a disk, a small one of its own.
func TestDiskIsFull(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("unshare", "-m", "mount", "-t", "tmpfs", "none", t.TempDir()).CombinedOutput(); err != nil {
		t.Skipf("file systems cannot be mounted here: %v: %s", err, out)
	}
	h := hubtest.NewHub(t, "RSHUB_DISK_RESERVE=1B")
	if err := os.Mkdir(h.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	// The mount is in a namespace of its own, and goes away with the processes.
	// When the first hub has ended, the disk is made larger for the second.
	const script = `mount -t tmpfs -o size=6m none "$1" && head -c 65536 /dev/zero >"$1/ballast" || exit 9
"$0"; echo "the first hub ended with $?" >&2
mount -o remount,size=400m "$1" && exec "$0"`
	h.Process = hubtest.Start(t, h.Env, nil, "unshare", "-m", "sh", "-c", script, hubtest.Rshub, h.Data)
	h.WaitRunning()
	ballast := fmt.Sprintf("/proc/%d/root%s/ballast", h.Cmd.Process.Pid, h.Data)
	makeRoom := func() error {
		return errors.Join(errors.New("the ballast is gone"), os.Remove(ballast))
	}
	fillUp(t, h, makeRoom, func() {
		h.WaitLog("the first hub ended with 1")
		first, _, _ := strings.Cut(h.Stderr.String(), "the first hub ended with 1")
		oneClearLine(t, first, "no space left on device")
		hubtest.Until(t, "the second hub listens", func() error {
			if strings.Count(h.Stderr.String(), `"rshub is running"`) < 2 {
				return fmt.Errorf("it does not say so")
			}
			return nil
		})
	})
}
