package mirror

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestDiskIsFull fills the small disk of a mirror. The mirror exits with an error, its files are
// intact, and with more space it continues.
func TestDiskIsFull(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("unshare", "-m", "mount", "-t", "tmpfs", "none", t.TempDir()).CombinedOutput(); err != nil {
		t.Skipf("cannot mount file systems: %v: %s", err, out)
	}
	h, o, dir, room := hubtest.StartHub(t), newOrigin(t), t.TempDir(), filepath.Join(t.TempDir(), "room")
	r := rand.New(rand.NewPCG(5, 6))
	var lines [][]byte
	for i := range 60 {
		lines = append(lines, o.set(fmt.Sprintf("/d%d/f%d", i%7, i), random(r, 400_000), nil))
	}
	publish(t, h, lines...)
	complete(t, h)
	// The mount is in its own namespace, and is removed with the processes.
	const script = `dir="$1" room="$2"; shift 2
mount -t tmpfs -o size=8m none "$dir" || exit 9
"$0" -once "$@" "$dir"; echo "the first run exited with $?" >&2
"$0" "$@" "$dir"; echo "the second run exited with $?" >&2
until [ -e "$room" ]; do sleep 0.05; done
mount -o remount,size=100m "$dir" && exec "$0" "$@" "$dir"`
	p := hubtest.Start(t, nil, nil, "unshare", "-m", "sh", "-c", script, hubtest.Rsmirror, dir, room, "-strip", o.URL, h.Topic("demo"))
	p.WaitLog("the first run exited with 3")
	p.WaitLog("the second run exited with 3")
	for run := range strings.SplitSeq(strings.TrimSuffix(p.Stderr.String(), "the second run exited with 3\n"), "the first run exited with 3\n") {
		if !strings.Contains(run, "no space left on device") || strings.Contains(run, "goroutine ") {
			t.Errorf("got output %q, want one line about the full disk", run)
		}
	}

	inside := fmt.Sprintf("/proc/%d/root%s", p.Cmd.Process.Pid, dir)
	files := 0
	err := hubtest.EachFile(inside, func(name string, b []byte) error {
		files++
		if !bytes.Equal(b, o.files["/"+name]) {
			return fmt.Errorf("content of %s (%d bytes) is wrong", name, len(b))
		}
		return nil
	})
	if err != nil || files == 0 || files == len(o.files) {
		t.Errorf("got %d files on a full disk, %v, want some but not all", files, err)
	}

	publish(t, h, o.set("/d0/f0", []byte("small"), nil), o.set("/d1/f1", nil, nil))
	if err := os.WriteFile(room, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	hubtest.Until(t, "the mirror has all files", func() error { return o.same(inside) })
	rsmirror(t, 0, "audit", inside)
	requests := 0
	for _, n := range o.requests {
		requests += n
	}
	t.Logf("%d files on the full disk, %d requests for %d files in total", files, requests, len(o.files))
}
