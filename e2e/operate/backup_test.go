package operate

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestBackup backs up a memory that is being written to, and starts a hub from the copy.
func TestBackup(t *testing.T) {
	t.Parallel()
	const set = "kept"
	h := hubtest.StartHub(t, "RSHUB_CHANGELIST_SIZE=500")
	p := hubtest.StartPublisher(t, h, set, "keyed", true)
	begin := hubtest.Follow(t, h, hubtest.ByWebSocket, set, "start")
	begin.WaitEntries(t, 2000)
	dir := filepath.Join(t.TempDir(), "copy")
	env := []string{"RSHUB_OPS_LISTEN=" + strings.TrimPrefix(h.Ops, "http://")}
	before := begin.Count()
	code, stdout, stderr := hubtest.Run(t, env, nil, hubtest.Rshub, "backup", dir)
	if code != 0 || !strings.Contains(stdout, "RSHUB_DATA="+dir) {
		t.Fatalf("rshub backup exited with %d: %s%s", code, stdout, stderr)
	}
	t.Log(stdout)
	if n := begin.Count(); n <= before {
		begin.WaitEntries(t, n+10)
	}
	p.Finish()
	all := hubtest.ReadMemory(t, h, set)
	p.Check(t, all)

	second := hubtest.NewHub(t)
	second.Data = dir
	second.Env = append(second.Env, "RSHUB_DATA="+dir)
	second.Start(t)
	copied := hubtest.ReadMemory(t, second, set)
	if len(copied) < before || len(copied) >= len(all) {
		t.Fatalf("got %d changes in the copy, want at least %d and fewer than %d", len(copied), before, len(all))
	}
	hubtest.WantEntries(t, "the copy", copied, all[:len(copied)])
	t.Logf("the copy has %d of %d changes", len(copied), len(all))

	// A follower ahead of the copy gets a divergence, and then all new changes.
	ahead := hubtest.Follow(t, second, hubtest.ByWebSocket, set, begin.CurrentCursor())
	hubtest.Until(t, "the follower gets a divergence", func() error {
		ahead.Mu.Lock()
		defer ahead.Mu.Unlock()
		if ahead.Diverged == 0 {
			return fmt.Errorf("got none; errors %q", ahead.Errs)
		}
		return nil
	})
	hubtest.Publish(t, second, set, hubtest.Changes("new", 10))
	ahead.WaitEntries(t, 10)
	// A follower behind the copy does not get one.
	old, err := begin.Hub.CursorOf(all[len(copied)/2])
	if err != nil {
		t.Fatal(err)
	}
	f := hubtest.Follow(t, second, hubtest.ByWebSocket, set, old)
	now := hubtest.ReadMemory(t, second, set)
	hubtest.WantEntries(t, "the follower behind", f.WaitEntries(t, len(now)-len(copied)/2-1), now[len(copied)/2+1:])
	if f.Diverged > 0 {
		t.Error("the follower behind got a divergence")
	}
}
