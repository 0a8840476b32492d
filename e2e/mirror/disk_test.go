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

// TestDiskIsFull fills the disk of a mirror, a small one of its own. The mirror says so and
// ends; what it has is right; with more room it goes on.
func TestDiskIsFull(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("unshare", "-m", "mount", "-t", "tmpfs", "none", t.TempDir()).CombinedOutput(); err != nil {
		t.Skipf("file systems cannot be mounted here: %v: %s", err, out)
	}
	h, o, dir, room := hubtest.StartHub(t), newOrigin(t), t.TempDir(), filepath.Join(t.TempDir(), "room")
	r := rand.New(rand.NewPCG(5, 6))
	var lines [][]byte
	for i := range 60 {
		lines = append(lines, o.set(fmt.Sprintf("/d%d/f%d", i%7, i), random(r, 400_000), nil))
	}
	publish(t, h, lines...)
	complete(t, h)
	// The mount is in a namespace of its own, and goes away with the processes.
	const script = `dir="$1" room="$2"; shift 2
mount -t tmpfs -o size=8m none "$dir" || exit 9
"$0" -once "$@" "$dir"; echo "the first run ended with $?" >&2
"$0" "$@" "$dir"; echo "the second run ended with $?" >&2
until [ -e "$room" ]; do sleep 0.05; done
mount -o remount,size=100m "$dir" && exec "$0" "$@" "$dir"`
	p := hubtest.Start(t, nil, nil, "unshare", "-m", "sh", "-c", script, hubtest.Rsmirror, dir, room, "-strip", o.URL, h.Topic("demo"))
	p.WaitLog("the first run ended with 3")
	p.WaitLog("the second run ended with 3")
	for run := range strings.SplitSeq(strings.TrimSuffix(p.Stderr.String(), "the second run ended with 3\n"), "the first run ended with 3\n") {
		if !strings.Contains(run, "no space left on device") || strings.Contains(run, "goroutine ") {
			t.Errorf("it does not say what is wrong, in one line: %s", run)
		}
	}

	inside := fmt.Sprintf("/proc/%d/root%s", p.Cmd.Process.Pid, dir)
	files := 0
	err := hubtest.EachFile(inside, func(name string, b []byte) error {
		files++
		if !bytes.Equal(b, o.files["/"+name]) {
			return fmt.Errorf("%s has %d bytes, and is not right", name, len(b))
		}
		return nil
	})
	if err != nil || files == 0 || files == len(o.files) {
		t.Errorf("on a full disk there are %d files: %v", files, err)
	}

	publish(t, h, o.set("/d0/f0", []byte("small"), nil), o.set("/d1/f1", nil, nil))
	if err := os.WriteFile(room, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	hubtest.Until(t, "the mirror has all", func() error { return o.same(inside) })
	rsmirror(t, 0, "audit", inside)
	asked := 0
	for _, n := range o.asked {
		asked += n
	}
	t.Logf("%d files on the full disk; %d requests for %d files in all", files, asked, len(o.files))
}
