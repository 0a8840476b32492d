package operate

import (
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestCopy moves a memory from the disk to Redis. Publishers, followers and readers of documents
// do not notice.
func TestCopy(t *testing.T) {
	t.Parallel()
	const set, other = "moved", "a-small" // the small one is copied first
	l := hubtest.GeneratedLoad(t, 20_000)
	h := hubtest.StartHub(t, "RSHUB_CHANGELIST_SIZE=3000")
	half := len(l.Lines) / 2
	hubtest.Publish(t, h, set, l.NDJSON(0, half))
	first := hubtest.Publish(t, h, other, hubtest.Changes("first", 3), "Idempotency-Key: the-first")
	hubtest.Publish(t, h, "gone", hubtest.Changes("gone", 5))
	hubtest.Must(t, http.StatusNoContent, http.MethodDelete, h.URL+"/sets/gone", nil)
	hubtest.Publish(t, h, set, l.NDJSON(half, len(l.Lines)))
	for i := range 20 { // blocks of one change
		hubtest.Publish(t, h, set, l.NDJSON(i, i+1))
	}
	all := hubtest.ReadMemory(t, h, set)
	follower := hubtest.Follow(t, h, hubtest.ByWebSocket, set, "start")
	follower.WaitEntries(t, len(all))
	redis := hubtest.StartRedis(t)
	url := "redis://" + redis.Addr

	h.Stop(t)

	// A copy is killed in the middle.
	p := hubtest.StartProxy(t, redis.Addr)
	p.PauseAfter(250_000)
	c := hubtest.Start(t, nil, nil, hubtest.Rshub, "copy", "--from", h.Data, "--to", "redis://"+p.Addr())
	hubtest.Until(t, "the copy is in the middle", func() error {
		if !p.Paused() {
			return errors.New("not enough data sent yet")
		}
		return nil
	})
	c.Signal(syscall.SIGKILL)
	c.Wait()
	p.SetTarget("") // drops the held data
	inRedis := &hubtest.Hub{Host: h.Host, URL: h.URL, Data: t.TempDir()}
	inRedis.Env = append(h.Env[:len(h.Env):len(h.Env)], "RSHUB_REDIS_URL="+url, "RSHUB_BASE_URL="+h.URL)
	code, _, stderr := hubtest.Run(t, inRedis.Env, nil, hubtest.Rshub)
	if code != 1 || !strings.Contains(stderr, "unfinished copy") {
		t.Errorf("exit status of a hub on an unfinished copy = %d, want 1: %s", code, stderr)
	}
	code, stdout, stderr := hubtest.Run(t, nil, nil, hubtest.Rshub, "copy", "--from", h.Data, "--to", url)
	if code != 0 {
		t.Fatalf("rshub copy exited with %d: %s%s", code, stdout, stderr)
	}
	t.Log(stdout)

	inRedis.Start(t)
	hubtest.WantEntries(t, "the walk over all Change Lists", hubtest.WalkChangeLists(t, inRedis, set), all)
	for _, way := range hubtest.AllTransports {
		old, err := h.CursorOf(all[half])
		if err != nil {
			t.Fatal(err)
		}
		f := hubtest.Follow(t, inRedis, way, set, old)
		hubtest.WantEntries(t, "the "+way, f.WaitEntries(t, len(all)-half-1), all[half+1:])
		if f.Diverged > 0 {
			t.Errorf("the %s got a divergence", way)
		}
	}
	again := hubtest.Publish(t, inRedis, other, hubtest.Changes("first", 3), "Idempotency-Key: the-first")
	first.Replayed = true
	if again != first {
		t.Errorf("receipt of a repeated publish = %+v, want %+v", again, first)
	}
	hubtest.Publish(t, inRedis, set, hubtest.Changes("in-redis", 2000))
	hubtest.Publish(t, inRedis, "gone", hubtest.Change("again"))
	all = append(all, hubtest.ReadMemory(t, inRedis, set)[len(all):]...)
	hubtest.WantEntries(t, "the old follower", follower.WaitEntries(t, len(all)), all)

	if follower.Diverged > 0 {
		t.Error("the old follower got a divergence")
	}
}
