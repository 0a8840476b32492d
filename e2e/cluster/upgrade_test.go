package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// before is the last commit whose lists know no epochs.
const before = "8d9d0c4"

// oldRshub builds rshub as it was at the commit before, from the history of this
// repository.
func oldRshub(t *testing.T) string {
	t.Helper()
	const root = "../.."
	if exec.Command("git", "-C", root, "cat-file", "-e", before+"^{commit}").Run() != nil {
		t.Skipf("the history here lacks commit %s, which this test builds: git fetch --unshallow", before)
	}
	dir := t.TempDir()
	archive, source, program := filepath.Join(dir, "source.tar"), filepath.Join(dir, "source"), filepath.Join(dir, "rshub")
	if err := os.Mkdir(source, 0o700); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-trimpath", "-o", program, "./cmd/rshub")
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	for _, cmd := range []*exec.Cmd{
		exec.Command("git", "-C", root, "archive", "-o", archive, before),
		exec.Command("tar", "-xf", archive, "-C", source),
		build,
	} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	return program
}

// TestUpgrade replaces two hubs of an earlier version with two of this one, while both
// versions take changes, are followed and call callbacks. Nothing is lost, and
// everything comes in order.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	const set = "upgraded"
	program := oldRshub(t)
	redis, nats := hubtest.StartRedis(t), hubtest.StartNATS(t)
	var hubs []*hubtest.Hub // two old ones, then two new ones
	for range 4 {
		hubs = append(hubs, hubtest.NewHub(t, hubtest.Callable...))
	}
	base := hubs[3].URL // links lead there, also at the end
	for _, h := range hubs {
		h.Env = append(h.Env, "RSHUB_BASE_URL="+base, "RSHUB_REDIS_URL=redis://"+redis.Addr, "RSHUB_NATS_URL=nats://"+nats.Addr, "RSHUB_CHANGELIST_SIZE=50")
	}
	for _, h := range hubs[:2] {
		h.Program = program
		h.Start(t)
	}
	publishers := []*hubtest.Publisher{hubtest.Publishing(t, hubs[0], set, "old", true)}
	hubtest.GoesOn(t, 10, publishers...)
	d := hubtest.NewDestination(t, 4)
	d.Start(t)
	callbacks := d.URLs("/healthy/", 24)
	topic := base + "/sets/" + set + "/changes"
	if n := len(hubtest.SubscribeAll(t, topic, callbacks[:12], hubs[:2]...)); n != 12 {
		t.Fatalf("old hubs accepted %d of 12 subscriptions", n)
	}
	first := hubtest.Document(t, hubs[0].URL+"/sets/"+set+"/changelist-index.xml").Items[0].Loc

	for _, h := range hubs[2:] {
		h.Start(t)
	}
	if n := len(hubtest.SubscribeAll(t, topic, callbacks[12:], hubs[2:]...)); n != 12 {
		t.Fatalf("new hubs accepted %d of 12 subscriptions", n)
	}
	d.Verified(t, callbacks)
	publishers = append(publishers, hubtest.Publishing(t, hubs[2], set, "new", true))
	followers := map[*hubtest.Hub][]*hubtest.Follower{}
	for i, h := range hubs {
		for _, way := range hubtest.AllWays {
			if way == hubtest.ByEvents && i < 2 {
				continue // an old hub begins with an event without data, which the follower refuses
			}
			followers[h] = append(followers[h], hubtest.Follow(t, h, way, set, "start"))
		}
	}
	hubtest.GoesOn(t, 50, publishers...)
	publishers[0].Finish()
	hubtest.GoesOn(t, 10, publishers[1])

	// Old hubs deliver what new hubs take, and the other way round.
	so := hubtest.Memory(t, hubs[3], set)
	for _, h := range hubs {
		for _, f := range followers[h] {
			hubtest.Same(t, "the "+f.Way, f.Has(t, len(so))[:len(so)], so)
		}
	}
	for _, h := range hubs[:2] {
		h.Stop(t)
		hubtest.GoesOn(t, 20, publishers[1])
	}
	publishers[1].Finish()
	all := hubtest.Memory(t, hubs[3], set)
	for _, p := range publishers {
		p.Check(t, all)
	}
	allSaw(t, slices.Concat(followers[hubs[2]], followers[hubs[3]]), all)
	for _, h := range hubs[:2] {
		for _, f := range followers[h] {
			seen := f.Seen()
			hubtest.Same(t, "who followed at a hub that is gone", seen, all[:min(len(seen), len(all))])
		}
	}
	repeats := d.AllTook(t, callbacks, all)
	if now := hubtest.Document(t, hubs[3].URL+"/sets/"+set+"/changelist-index.xml").Items[0].Loc; now != first {
		t.Errorf("the first list is %s, and was %s", now, first)
	}
	t.Logf("%d changes; %d deliveries were repeated", len(all), repeats)
}
