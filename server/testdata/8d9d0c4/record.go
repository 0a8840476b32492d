// Command record writes the test data beside it with the programs of commit 8d9d0c4:
//
//	go run record.go PROGRAMS
//
// PROGRAMS is a directory with rshub of that commit, see README.md.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const base = "https://hub.example.org"

// An answer is what the hub answered to a GET.
type answer struct {
	URL    string `json:"url"` // without base
	Accept string `json:"accept,omitempty"`
	Status int    `json:"status"`
	ETag   string `json:"etag,omitempty"`
	Link   string `json:"link,omitempty"`
	Body   string `json:"body"`
}

// A publish is a publish that had an idempotency key, and its answer.
type publish struct {
	Set         string `json:"set"`
	Key         string `json:"key"`
	ContentType string `json:"contentType"`
	Body        string `json:"body"`
	Answer      string `json:"answer"`
}

// A recording is all that must be answered from one memory.
type recording struct {
	Time          time.Time       `json:"time"` // a moment after the last change
	Gets          []answer        `json:"gets"`
	Publishes     []publish       `json:"publishes"`
	Subscriptions json.RawMessage `json:"subscriptions"` // as an operator sees them
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("go run record.go PROGRAMS")
	}
	rshub, err := filepath.Abs(filepath.Join(os.Args[1], "rshub"))
	check(err)
	tmp, err := os.MkdirTemp("", "record")
	check(err)
	defer os.RemoveAll(tmp)
	all := map[string]recording{}

	disk := &hub{program: rshub, env: []string{"RSHUB_DATA=" + filepath.Join(tmp, "data")}}
	all["disk"] = disk.record(func() {
		cmd := exec.Command(rshub, "backup", filepath.Join(tmp, "backup"))
		cmd.Env, cmd.Stderr = append(os.Environ(), "RSHUB_OPS_LISTEN="+disk.ops), os.Stderr
		check(cmd.Run())
	})
	archive("data.tar.gz", filepath.Join(tmp, "data"))
	archive("backup.tar.gz", filepath.Join(tmp, "backup"))

	dir := filepath.Join(tmp, "redis")
	check(os.Mkdir(dir, 0o700))
	address := free()
	_, port, _ := net.SplitHostPort(address)
	redis := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "yes", "--aof-use-rdb-preamble", "no")
	check(redis.Start())
	await("redis-server listens", func() bool {
		c, err := net.Dial("tcp", address)
		return err == nil && c.Close() == nil
	})
	all["redis"] = (&hub{program: rshub, env: []string{"RSHUB_REDIS_URL=redis://" + address}}).record(func() {})
	check(redis.Process.Signal(syscall.SIGTERM))
	check(redis.Wait())
	archive("redis.tar.gz", dir)

	b, err := json.MarshalIndent(all, "", "\t")
	check(err)
	var z bytes.Buffer
	w, _ := gzip.NewWriterLevel(&z, gzip.BestCompression)
	_, err = w.Write(append(b, '\n'))
	check(err)
	check(w.Close())
	check(os.WriteFile("answers.json.gz", z.Bytes(), 0o644))
}

// A hub is a running rshub.
type hub struct {
	program     string
	env         []string
	listen, ops string
	cmd         *exec.Cmd
}

func (h *hub) start(env ...string) {
	h.listen, h.ops = free(), free()
	h.cmd = exec.Command(h.program)
	h.cmd.Stderr = os.Stderr
	h.cmd.Env = slices.Concat(os.Environ(), h.env, []string{
		"RSHUB_LISTEN=" + h.listen, "RSHUB_OPS_LISTEN=" + h.ops, "RSHUB_BASE_URL=" + base, "RSHUB_CHANGELIST_SIZE=10",
		"RSHUB_RETENTION_AGE=0", "RSHUB_CALLBACK_ALLOW=127.0.0.0/8",
	}, env)
	check(h.cmd.Start())
	await("rshub is ready", func() bool {
		resp, err := http.Get("http://" + h.ops + "/readyz")
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == 200
	})
}

func (h *hub) stop() {
	check(h.cmd.Process.Signal(syscall.SIGTERM))
	check(h.cmd.Wait())
}

// record fills the memory of a hub and records its answers. Before the hub stops,
// record calls last.
func (h *hub) record(last func()) (r recording) {
	h.start()
	// many: one list that retention removes, two closed lists and an open one, keys.
	r.keyed(h, "many", "first", "application/json", document("many", 0, 24))
	r.keyed(h, "many", "lines", "application/x-ndjson", lines("many", 24, 5))
	var deliveries atomic.Int32
	callback := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && deliveries.Add(1) > 1 {
			w.WriteHeader(http.StatusServiceUnavailable) // so that the subscription stays behind
		}
		fmt.Fprint(w, r.URL.Query().Get("hub.challenge"))
	}))
	defer callback.Close()
	h.do(http.MethodPost, "/hub", "application/x-www-form-urlencoded", "", url.Values{
		"hub.mode": {"subscribe"}, "hub.topic": {base + "/sets/many/changes"}, "hub.callback": {callback.URL + "/cb"},
		"hub.secret": {"secret"}, "hub.lease_seconds": {"2678400"}, "rs.since": {"start"}, "rs.prefix": {"https://example.org/many/"},
	}.Encode())
	await("the callback has a delivery", func() bool { return deliveries.Load() > 0 })
	for i := 29; i < 36; i++ {
		h.do(http.MethodPost, "/sets/many/changes", "application/json", "", document("many", i, 1))
	}
	r.keyed(h, "many", "last", "application/json", document("many", 36, 1))

	// anew: deleted and made anew.
	h.do(http.MethodPost, "/sets/anew/changes", "application/json", "", document("old", 0, 12))
	h.do(http.MethodDelete, "/sets/anew", "", "", "")
	r.keyed(h, "anew", "again", "application/json", document("anew", 0, 13))

	// deleted: deleted only. described: described, without changes.
	h.do(http.MethodPost, "/sets/deleted/changes", "application/json", "", document("deleted", 0, 3))
	h.do(http.MethodDelete, "/sets/deleted", "", "", "")
	h.do(http.MethodPut, "/sets/described", "application/json", "",
		`{"title":"A set","describedby":"https://example.org/about","changelist":"https://example.org/changelist.xml"}`)

	h.stop()
	h.start("RSHUB_RETENTION_COUNT=20") // it applies to all sets, and only many is longer
	await("retention has removed a list", func() bool {
		return strings.Contains(h.get("/sets/many", "").Body, `"changes":27`)
	})
	await("the delivery has failed", func() bool { return deliveries.Load() > 1 })

	paths := []string{"/.well-known/resourcesync", "/sets/many/changelist.xml?from=" + from(h)}
	for _, set := range []string{"many", "anew", "described", "deleted"} {
		s := "/sets/" + set
		paths = append(paths, s, s+"/.well-known/resourcesync", s+"/capabilitylist.xml", s+"/changelist.xml", s+"/changelist-index.xml", s+"/changes")
		for _, list := range regexp.MustCompile(base+`(/sets/[a-z]+/changelist-[0-9]+-[0-9]+\.xml)`).FindAllStringSubmatch(h.get(s+"/changelist-index.xml", "").Body, -1) {
			paths = append(paths, list[1])
			if first := strings.Replace(list[1], "-2.xml", "-1.xml", 1); set == "many" && first != list[1] {
				paths = append(paths, first) // gone
			}
		}
	}
	for _, p := range paths {
		r.Gets = append(r.Gets, h.get(p, ""))
	}
	cursor := regexp.MustCompile(`"cursor":"([0-9-]+)"`)
	for _, p := range r.Publishes { // the first page after a cursor that somebody was given
		c := cursor.FindStringSubmatch(p.Answer)
		if c == nil {
			log.Fatalf("no cursor in %s", p.Answer)
		}
		r.Gets = append(r.Gets, h.get("/sets/"+p.Set+"/changes?since="+c[1], "application/json"))
	}
	r.Gets = append(r.Gets, h.get("/sets/many/changes?since=start", "application/json"), h.get("/sets/many/changes?since=0-0", "application/json"),
		h.get("/sets/anew/changes?since=0-0", "application/json"))
	r.Subscriptions = json.RawMessage(h.get("/sets/many/subscriptions", "").Body)
	for i, p := range r.Publishes { // sent again, it gets the answer that must be given from now on
		r.Publishes[i].Answer = h.do(http.MethodPost, "/sets/"+p.Set+"/changes", p.ContentType, p.Key, p.Body)
	}
	last()
	h.stop()
	r.Time = time.Now().UTC()
	return r
}

// from returns a datetime in the middle of the set many.
func from(h *hub) string {
	m := regexp.MustCompile(`"datetime":"([^"]+)"`).FindAllStringSubmatch(h.get("/sets/many/changes?since=start&limit=100", "application/json").Body, -1)
	return m[len(m)/2][1]
}

// keyed publishes with an idempotency key.
func (r *recording) keyed(h *hub, set, key, contentType, body string) {
	a := h.do(http.MethodPost, "/sets/"+set+"/changes", contentType, key, body)
	r.Publishes = append(r.Publishes, publish{set, key, contentType, body, a})
}

func document(name string, first, n int) string {
	var changes []string
	for i := first; i < first+n; i++ {
		changes = append(changes, fmt.Sprintf(`{"loc":"https://example.org/%s/%d","change":"updated","lastmod":"2026-01-02T03:04:05Z","length":%d,`+
			`"hash":"md5:1584abdf8ebdc9802ac0c6a7402c03b6","ln":[{"rel":"describedby","href":"https://example.org/%[1]s/%[2]d/about"}]}`, name, i, 1000+i))
	}
	return `{"changes":[` + strings.Join(changes, ",") + `]}`
}

func lines(name string, first, n int) string {
	var b strings.Builder
	for i := first; i < first+n; i++ {
		fmt.Fprintf(&b, `{"loc":"https://example.org/%s/%d","change":"created"}`+"\n", name, i)
	}
	return b.String()
}

// do makes a request that must succeed, and returns its answer's body.
func (h *hub) do(method, path, contentType, key, body string) string {
	req, err := http.NewRequest(method, "http://"+h.listen+path, strings.NewReader(body))
	check(err)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	check(err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	check(err)
	if resp.StatusCode > 299 {
		log.Fatalf("%s %s: %s: %s", method, path, resp.Status, b)
	}
	return string(b)
}

func (h *hub) get(path, accept string) answer {
	req, err := http.NewRequest(http.MethodGet, "http://"+h.listen+path, nil)
	check(err)
	req.Header.Set("Accept-Encoding", "identity")
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	resp, err := http.DefaultClient.Do(req)
	check(err)
	defer resp.Body.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(resp.Body)
	check(err)
	a := answer{path, accept, resp.StatusCode, resp.Header.Get("ETag"), resp.Header.Get("Link"), b.String()}
	if a.Status != http.StatusOK {
		a.Body = "" // the texts of errors may change
	}
	return a
}

func archive(name, dir string) {
	f, err := os.Create(name)
	check(err)
	z, _ := gzip.NewWriterLevel(f, gzip.BestCompression)
	t := tar.NewWriter(z)
	check(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		check(err)
		in, err := filepath.Rel(dir, path)
		check(err)
		check(t.WriteHeader(&tar.Header{Name: filepath.ToSlash(in), Mode: 0o600, Size: int64(len(b))}))
		_, err = t.Write(b)
		return err
	}))
	check(t.Close())
	check(z.Close())
	check(f.Close())
}

func free() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	check(l.Close())
	return l.Addr().String()
}

func await(what string, done func() bool) {
	for range 3000 {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	log.Fatal("waited in vain until ", what)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
