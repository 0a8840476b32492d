package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCopyCallbacks moves a memory with its subscriptions from the disk to two
// hubs on Redis, and back. Every callback gets every change once: those that keep
// up, those that were dead all the time, and those that were not asked yet.
func TestCopyCallbacks(t *testing.T) {
	t.Parallel()
	const set = "moved"
	redis := startRedis(t)
	onDisk := startWebSub(t)
	topic := onDisk.topic(set)
	publish(t, onDisk, set, changes("first", 20))
	here, dead, late := newDestination(t, 4), newDestination(t, 1), newDestination(t, 1)
	here.start(t)
	dead.start(t, "-refuse")
	good, lost, new := here.urls("/here/", 40), dead.urls("/dead/", 5), late.urls("/late/", 5)
	for _, d := range []struct {
		*destination
		urls []string
	}{{here, good}, {dead, lost}, {late, new}} {
		if n := len(subscribeAll(t, topic, d.urls, onDisk)); n != len(d.urls) {
			t.Fatalf("%d of %d subscriptions were accepted", n, len(d.urls))
		}
		if d.process != nil {
			d.verified(t, d.urls)
		}
	}
	publish(t, onDisk, set, changes("on-disk", 20))
	here.allTook(t, good, memory(t, onDisk, set))
	onDisk.stop(t)
	dead.kill()

	url := "redis://" + redis.addr
	copies := func(from, to string) {
		t.Helper()
		code, stdout, stderr := run(t, nil, nil, rshubBin, "copy", "--from", from, "--to", to)
		if code != 0 || !strings.Contains(stdout, "subscriptions") {
			t.Fatalf("the copy ended with %d: %s%s", code, stdout, stderr)
		}
		t.Log(stdout)
	}
	copies(onDisk.data, url)
	dead.start(t)
	late.start(t)
	first := &hub{host: onDisk.host, url: onDisk.url, data: t.TempDir()}
	first.env = append(slices.Clone(onDisk.env), "RSHUB_REDIS_URL="+url, "RSHUB_BASE_URL="+onDisk.url)
	first.start(t)
	second := newHub(t, append(slices.Clone(callable), "RSHUB_REDIS_URL="+url, "RSHUB_BASE_URL="+onDisk.url)...)
	second.start(t)
	late.verified(t, new)
	publish(t, second, set, changes("in-redis", 20))
	all := memory(t, first, set)
	check := func() {
		t.Helper()
		for _, d := range []struct {
			*destination
			urls []string
		}{{here, good}, {dead, lost}, {late, new}} {
			if n := d.allTook(t, d.urls, all); n > 0 {
				t.Errorf("%d deliveries are repeated", n)
			}
		}
	}
	check()
	if n := len(subscriptionsOf(t, second, set)); n != 50 {
		t.Errorf("there are %d subscriptions", n)
	}
	second.stop(t)
	first.stop(t)

	dir := filepath.Join(t.TempDir(), "back")
	copies(url, dir)
	back := &hub{host: onDisk.host, url: onDisk.url, data: dir}
	back.env = append(slices.Clone(onDisk.env), "RSHUB_DATA="+dir, "RSHUB_BASE_URL="+onDisk.url)
	back.start(t)
	publish(t, back, set, changes("back", 20))
	all = memory(t, back, set)
	check()
	for path, r := range here.reports(t) {
		if r.Verified != 1 {
			t.Errorf("%s was verified %d times", path, r.Verified)
		}
	}
}

// TestBackupCallbacks starts a hub from a backup: it goes on calling where the
// backup was made.
func TestBackupCallbacks(t *testing.T) {
	t.Parallel()
	const set = "kept"
	h := startWebSub(t)
	d := newDestination(t, 2)
	d.start(t)
	urls := d.urls("/kept/", 10)
	publish(t, h, set, changes("first", 20))
	if n := len(subscribeAll(t, h.topic(set), urls, h)); n != len(urls) {
		t.Fatalf("%d subscriptions were accepted", n)
	}
	d.allTook(t, urls, memory(t, h, set))
	dir := filepath.Join(t.TempDir(), "copy")
	code, _, stderr := run(t, []string{"RSHUB_OPS_LISTEN=" + strings.TrimPrefix(h.ops, "http://")}, nil, rshubBin, "backup", dir)
	if code != 0 {
		t.Fatalf("rshub backup ended with %d: %s", code, stderr)
	}
	h.kill()
	second := newHub(t, callable...)
	second.env = append(second.env, "RSHUB_DATA="+dir)
	second.start(t)
	publish(t, second, set, changes("restored", 20))
	d.allTook(t, urls, memory(t, second, set))
	for path, r := range d.reports(t) {
		if r.Verified != 1 {
			t.Errorf("%s was verified %d times", path, r.Verified)
		}
	}
}
