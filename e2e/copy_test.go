package e2e

import (
	"bytes"
	"errors"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestCopy moves a memory from the disk to Redis and back. Nobody who publishes,
// follows or reads documents may notice.
func TestCopy(t *testing.T) {
	t.Parallel()
	const set, other = "moved", "a-small" // the small one is copied first
	l := someLoad(t)
	h := startHub(t, "RSHUB_CHANGELIST_SIZE=3000")
	half := len(l.lines) / 2
	publish(t, h, set, l.ndjson(0, half))
	first := publish(t, h, other, changes("first", 3), "Idempotency-Key: the-first")
	publish(t, h, "gone", changes("gone", 5))
	must(t, http.StatusNoContent, http.MethodDelete, h.url+"/sets/gone", nil)
	publish(t, h, set, l.ndjson(half, len(l.lines)))
	for i := range 20 { // blocks of one
		publish(t, h, set, l.ndjson(i, i+1))
	}
	all := memory(t, h, set)
	follower := follow(t, h, byWebSocket, set, "start")
	follower.has(t, len(all))
	redis := startRedis(t)
	url := "redis://" + redis.addr

	// A directory that is in use.
	code, _, stderr := run(t, nil, nil, rshubBin, "copy", "--from", h.data, "--to", url)
	if code != 1 || !strings.Contains(stderr, "stop the hub") {
		t.Errorf("the copy of a memory in use ended with %d: %s", code, stderr)
	}
	before := documents(t, h, set, other)
	h.stop(t)

	// Two copies that end in the middle, one by kill -9 and one on demand.
	for i, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		p := startProxy(t, redis.addr)
		p.holdAfter(250_000)
		c := start(t, nil, nil, rshubBin, "copy", "--from", h.data, "--to", "redis://"+p.addr())
		until(t, "the copy is in the middle", func() error {
			if !p.holds() {
				return errors.New("it has not sent enough")
			}
			return nil
		})
		c.signal(end)
		if code := c.wait(); code == 0 {
			t.Fatalf("copy %d was finished: %s", i, c.stdout.String())
		}
		if end == syscall.SIGTERM && !strings.Contains(c.stderr.String(), "run the same command again") {
			t.Errorf("a copy that was stopped says %q", c.stderr.String())
		}
		p.point("") // what it held is lost
	}
	inRedis := &hub{host: h.host, url: h.url, data: t.TempDir()}
	inRedis.env = append(h.env[:len(h.env):len(h.env)], "RSHUB_REDIS_URL="+url, "RSHUB_BASE_URL="+h.url)
	code, _, stderr = run(t, inRedis.env, nil, rshubBin)
	if code != 1 || !strings.Contains(stderr, "unfinished copy") {
		t.Errorf("a hub that starts on an unfinished copy ended with %d: %s", code, stderr)
	}
	code, stdout, stderr := run(t, nil, nil, rshubBin, "copy", "--from", h.data, "--to", url)
	if code != 0 || !strings.Contains(stdout, "from an earlier run") {
		t.Fatalf("the copy ended with %d: %s%s", code, stdout, stderr)
	}
	t.Log(stdout)
	code, stdout, stderr = run(t, nil, nil, rshubBin, "copy", "--from", h.data, "--to", url)
	if code != 0 || !strings.Contains(stdout, "nothing to do") {
		t.Errorf("the copy of what is copied ended with %d: %s%s", code, stdout, stderr)
	}

	inRedis.start(t)
	alike(t, documents(t, inRedis, set, other), before)
	for _, way := range allWays {
		old, err := h.cursorOf(all[half])
		if err != nil {
			t.Fatal(err)
		}
		f := follow(t, inRedis, way, set, old)
		same(t, "the "+way, f.has(t, len(all)-half-1), all[half+1:])
		if f.diverged > 0 {
			t.Errorf("the %s is told that the memory diverged", way)
		}
	}
	again := publish(t, inRedis, other, changes("first", 3), "Idempotency-Key: the-first")
	first.Replayed = true
	if again != first {
		t.Errorf("what was published before is answered %+v, not %+v", again, first)
	}
	publish(t, inRedis, set, changes("in-redis", 2000))
	publish(t, inRedis, "gone", change("again"))
	all = append(all, memory(t, inRedis, set)[len(all):]...)
	same(t, "who followed all the time", follower.has(t, len(all)), all)

	// A hub has run on it since.
	code, _, stderr = run(t, nil, nil, rshubBin, "copy", "--from", h.data, "--to", url)
	if code != 1 || !strings.Contains(stderr, "not the same any more") {
		t.Errorf("the copy to a memory that has gone on ended with %d: %s", code, stderr)
	}
	before = documents(t, inRedis, set, other, "gone")
	inRedis.stop(t)

	// And back.
	dir := filepath.Join(t.TempDir(), "back")
	code, stdout, stderr = run(t, nil, nil, rshubBin, "copy", "--from", url, "--to", dir)
	if code != 0 {
		t.Fatalf("the copy back ended with %d: %s%s", code, stdout, stderr)
	}
	back := &hub{host: h.host, url: h.url, data: dir}
	back.env = append(h.env[:len(h.env):len(h.env)], "RSHUB_DATA="+dir, "RSHUB_BASE_URL="+h.url)
	back.start(t)
	alike(t, documents(t, back, set, other, "gone"), before)
	publish(t, back, set, change("back"))
	all = append(all, memory(t, back, set)[len(all):]...)
	same(t, "who followed all the time", follower.has(t, len(all)), all)
	if follower.diverged > 0 {
		t.Error("who followed all the time is told that the memory diverged")
	}
}

var locForm = regexp.MustCompile(`<loc>([^<]*)</loc>`)

// documents reads every document of some sets, with its ETag, by its URL.
func documents(t *testing.T, h *hub, sets ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	read := func(u string) []byte {
		a := must(t, http.StatusOK, http.MethodGet, u, nil)
		found[u] = a.header.Get("Etag") + "\n" + string(a.body)
		return a.body
	}
	read(h.url + "/.well-known/resourcesync")
	read(h.url + "/sets")
	for _, set := range sets {
		dir := h.url + "/sets/" + set + "/"
		for _, name := range []string{"changes", "changelist.xml", "capabilitylist.xml", ".well-known/resourcesync"} {
			read(dir + name)
		}
		for _, loc := range locForm.FindAllSubmatch(read(dir+"changelist-index.xml"), -1) {
			read(string(loc[1]))
		}
	}
	return found
}

// alike compares documents.
func alike(t *testing.T, got, want map[string]string) {
	t.Helper()
	for u := range got {
		if _, ok := want[u]; !ok {
			t.Errorf("%s is new", u)
		}
	}
	for u, text := range want {
		if got[u] == text {
			continue
		}
		a, b := bytes.Split([]byte(got[u]), []byte("\n")), bytes.Split([]byte(text), []byte("\n"))
		i := 0
		for i < len(a) && i < len(b) && bytes.Equal(a[i], b[i]) {
			i++
		}
		t.Errorf("%s differs in line %d of %d and %d:\n%s", u, i, len(a), len(b), tail(string(bytes.Join(a[min(i, len(a)):min(i+1, len(a))], nil))))
	}
}
