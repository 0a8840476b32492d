package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBackup copies the memory while it is written to, and starts a hub from
// the copy.
func TestBackup(t *testing.T) {
	t.Parallel()
	const set = "kept"
	h := startHub(t, "RSHUB_CHANGELIST_SIZE=500")
	p := publishing(t, h, set, "keyed", true)
	begin := follow(t, h, byWebSocket, set, "start")
	begin.has(t, 2000)
	dir := filepath.Join(t.TempDir(), "copy")
	env := []string{"RSHUB_OPS_LISTEN=" + strings.TrimPrefix(h.ops, "http://")}
	before := begin.count()
	code, stdout, stderr := run(t, env, nil, rshubBin, "backup", dir)
	if code != 0 || !strings.Contains(stdout, "RSHUB_DATA="+dir) {
		t.Fatalf("rshub backup ended with %d: %s%s", code, stdout, stderr)
	}
	t.Log(stdout)
	if n := begin.count(); n <= before {
		begin.has(t, n+10)
	}
	if code, _, stderr := run(t, env, nil, rshubBin, "backup", dir); code != 1 || !strings.Contains(stderr, "exists") {
		t.Errorf("a backup into a directory that exists ended with %d: %s", code, stderr)
	}
	p.finish()
	all := memory(t, h, set)
	p.check(t, all)
	if left, _ := filepath.Glob(filepath.Join(h.data, ".rshub-backup-*")); len(left) > 0 {
		t.Errorf("the backup left %q", left)
	}

	second := newHub(t)
	second.data = dir
	second.env = append(second.env, "RSHUB_DATA="+dir)
	second.start(t)
	copied := memory(t, second, set)
	if len(copied) < before || len(copied) >= len(all) {
		t.Fatalf("the copy has %d changes; there were %d before and %d after it", len(copied), before, len(all))
	}
	same(t, "the copy", copied, all[:len(copied)])
	t.Logf("the copy has %d of %d changes", len(copied), len(all))

	// Who is ahead of the copy is told so, and misses nothing of what follows,
	// whether the copy has gone on since or not.
	ahead := begin.at()
	for _, n := range []int{0, 10, len(all)} {
		if n > 0 {
			publish(t, second, set, changes(fmt.Sprint("new", n), n))
		}
		now := memory(t, second, set)
		for _, way := range allWays {
			t.Run(fmt.Sprintf("%s after %d", way, n), func(t *testing.T) {
				f := follow(t, second, way, set, ahead)
				until(t, "it is told that the memory diverged", func() error {
					f.mu.Lock()
					defer f.mu.Unlock()
					if f.diverged == 0 {
						return fmt.Errorf("it is not; it has %d entries up to %s; %q", len(f.entries), f.cursor, f.ends)
					}
					return nil
				})
				publish(t, second, set, change("last"))
				now = append(now, memory(t, second, set)[len(now)])
				until(t, "it has the newest change", func() error {
					if e := f.seen(); len(e) == 0 || e[len(e)-1] != now[len(now)-1] {
						return fmt.Errorf("it has %d entries up to %s", len(e), f.at())
					}
					return nil
				})
				got := f.seen()
				if len(got) > len(now) {
					t.Fatalf("it has %d entries of %d", len(got), len(now))
				}
				same(t, "who was ahead", got, now[len(now)-len(got):])
				if first := got[0].position; first > uint64(len(copied))+1 {
					t.Errorf("it goes on at position %d, and the copy ended at %d", first, len(copied))
				}
			})
		}
	}
	// Who is not ahead notices nothing.
	old, err := begin.hub.cursorOf(all[len(copied)/2])
	if err != nil {
		t.Fatal(err)
	}
	f := follow(t, second, byWebSocket, set, old)
	now := memory(t, second, set)
	same(t, "who was behind", f.has(t, len(now)-len(copied)/2-1), now[len(copied)/2+1:])
	if f.diverged > 0 {
		t.Error("who was behind is told that the memory diverged")
	}
}

// TestBackupWithoutHub asks for a backup where nobody listens.
func TestBackupWithoutHub(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "copy")
	code, _, stderr := run(t, []string{"RSHUB_OPS_LISTEN=" + freePort(t)}, nil, rshubBin, "backup", dir)
	if code != 1 || !strings.Contains(stderr, "is it running?") {
		t.Errorf("it ended with %d: %s", code, stderr)
	}
	if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}
