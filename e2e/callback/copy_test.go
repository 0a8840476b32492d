package callback

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestCopyCallbacks moves a memory with its subscriptions from the disk to two hubs on Redis.
// Every callback receives every change once: callbacks that keep up, that were down all the
// time, and that were not verified yet.
func TestCopyCallbacks(t *testing.T) {
	t.Parallel()
	const set = "moved"
	redis := hubtest.StartRedis(t)
	onDisk := hubtest.StartWebSub(t)
	topic := onDisk.Topic(set)
	hubtest.Publish(t, onDisk, set, hubtest.Changes("first", 20))
	here, dead, late := hubtest.NewDestination(t, 4), hubtest.NewDestination(t, 1), hubtest.NewDestination(t, 1)
	here.Start(t)
	dead.Start(t, "-refuse")
	good, lost, new := here.URLs("/here/", 40), dead.URLs("/dead/", 5), late.URLs("/late/", 5)
	for _, d := range []struct {
		*hubtest.Destination
		urls []string
	}{{here, good}, {dead, lost}, {late, new}} {
		if n := len(hubtest.SubscribeAll(t, topic, d.urls, onDisk)); n != len(d.urls) {
			t.Fatalf("got %d accepted subscriptions, want %d", n, len(d.urls))
		}
		if d.Process != nil {
			d.WaitVerified(t, d.urls)
		}
	}
	hubtest.Publish(t, onDisk, set, hubtest.Changes("on-disk", 20))
	here.WaitDelivered(t, good, hubtest.ReadMemory(t, onDisk, set))
	onDisk.Stop(t)
	dead.Kill()

	url := "redis://" + redis.Addr
	code, stdout, stderr := hubtest.Run(t, nil, nil, hubtest.Rshub, "copy", "--from", onDisk.Data, "--to", url)
	if code != 0 || !strings.Contains(stdout, "subscriptions") {
		t.Fatalf("rshub copy exited with %d: %s%s", code, stdout, stderr)
	}
	dead.Start(t)
	late.Start(t)
	first := &hubtest.Hub{Host: onDisk.Host, URL: onDisk.URL, Data: t.TempDir()}
	first.Env = append(slices.Clone(onDisk.Env), "RSHUB_REDIS_URL="+url, "RSHUB_BASE_URL="+onDisk.URL)
	first.Start(t)
	second := hubtest.NewHub(t, append(slices.Clone(hubtest.CallbackEnv), "RSHUB_REDIS_URL="+url, "RSHUB_BASE_URL="+onDisk.URL)...)
	second.Start(t)
	late.WaitVerified(t, new)
	hubtest.Publish(t, second, set, hubtest.Changes("in-redis", 20))
	all := hubtest.ReadMemory(t, first, set)
	for _, d := range []struct {
		*hubtest.Destination
		urls []string
	}{{here, good}, {dead, lost}, {late, new}} {
		if n := d.WaitDelivered(t, d.urls, all); n > 0 {
			t.Errorf("got %d repeated deliveries, want 0", n)
		}
	}
	if n := len(hubtest.SubscriptionsOf(t, second, set)); n != 50 {
		t.Errorf("got %d subscriptions, want 50", n)
	}
	for path, r := range here.Reports(t) {
		if r.Verified != 1 {
			t.Errorf("%s was verified %d times, want once", path, r.Verified)
		}
	}
}

// TestBackupCallbacks starts a hub from a backup. It continues the deliveries at the state of
// the backup.
func TestBackupCallbacks(t *testing.T) {
	t.Parallel()
	const set = "kept"
	h := hubtest.StartWebSub(t)
	d := hubtest.NewDestination(t, 2)
	d.Start(t)
	urls := d.URLs("/kept/", 10)
	hubtest.Publish(t, h, set, hubtest.Changes("first", 20))
	if n := len(hubtest.SubscribeAll(t, h.Topic(set), urls, h)); n != len(urls) {
		t.Fatalf("got %d accepted subscriptions, want %d", n, len(urls))
	}
	d.WaitDelivered(t, urls, hubtest.ReadMemory(t, h, set))
	dir := filepath.Join(t.TempDir(), "copy")
	code, _, stderr := hubtest.Run(t, []string{"RSHUB_OPS_LISTEN=" + strings.TrimPrefix(h.Ops, "http://")}, nil, hubtest.Rshub, "backup", dir)
	if code != 0 {
		t.Fatalf("rshub backup exited with %d: %s", code, stderr)
	}
	h.Kill()
	second := hubtest.NewHub(t, hubtest.CallbackEnv...)
	second.Env = append(second.Env, "RSHUB_DATA="+dir)
	second.Start(t)
	hubtest.Publish(t, second, set, hubtest.Changes("restored", 20))
	d.WaitDelivered(t, urls, hubtest.ReadMemory(t, second, set))
	for path, r := range d.Reports(t) {
		if r.Verified != 1 {
			t.Errorf("%s was verified %d times, want once", path, r.Verified)
		}
	}
}
