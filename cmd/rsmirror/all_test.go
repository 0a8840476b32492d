package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/internal/mirror"
	"github.com/rshub/rshub/internal/testutil/localhub"
	"github.com/rshub/rshub/internal/testutil/servertest"
	"github.com/rshub/rshub/resourcesync"
)

// An allRun runs rsmirror for all sets of a hub. Each resource has its path as content.
type allRun struct {
	t           *testing.T
	hub, origin string
	dir         string
	away        atomic.Bool // whether the origin has nothing
}

func newAllRun(t *testing.T) *allRun {
	t.Helper()
	r := &allRun{t: t, hub: localhub.Start(t).URL, dir: filepath.Join(t.TempDir(), "all")}
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if r.away.Load() {
			http.NotFound(w, q)
			return
		}
		fmt.Fprint(w, q.URL.Path)
	}))
	t.Cleanup(origin.Close)
	r.origin = origin.URL
	return r
}

// publish publishes a change of each path, /SET/NAME.
func (r *allRun) publish(kind resourcesync.ChangeType, paths ...string) {
	r.t.Helper()
	c, err := client.New(r.hub, client.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, path := range paths {
		change := resourcesync.Change{Loc: r.origin + path, Change: kind}
		if _, err := c.Publish(r.t.Context(), strings.Split(path, "/")[1], "", []resourcesync.Change{change}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// run runs rsmirror and checks its exit code. The output must contain each text, in which DIR and URL
// stand for the directory and the origin.
func (r *allRun) run(code int, args string, want ...string) {
	r.t.Helper()
	var stdout, stderr strings.Builder
	if args == "once" {
		args = "-all -once -json -strip " + r.origin + "/ HUB DIR"
	}
	line := strings.NewReplacer("HUB", r.hub, "DIR", r.dir).Replace(args)
	got := run(r.t.Context(), strings.Fields(line), func(string) string { return "" }, &stdout, &stderr)
	output := strings.NewReplacer(r.dir, "DIR", r.origin, "URL").Replace(stdout.String() + stderr.String())
	if got != code {
		r.t.Errorf("rsmirror %s = %d, want %d: %s", args, got, code, output)
	}
	for _, text := range want {
		if !strings.Contains(output, text) {
			r.t.Errorf("rsmirror %s: got output %s, want %s", args, output, text)
		}
	}
}

func TestAll(t *testing.T) {
	r := newAllRun(t)
	r.publish(resourcesync.Created, "/a/1", "/a/2", "/b/1", "/con/1")
	r.run(0, "once", `{"sets":3,"failed":0,"files":4,"bytes":18,"fetched":4,"kept":0,"removed":0,"missing":0}`)
	for path, text := range map[string]string{"a/a/2": "/a/2", "%~=con/%~=con/1": "/con/1"} {
		if got, err := os.ReadFile(filepath.Join(r.dir, path)); string(got) != text {
			t.Errorf("file %s = %q, %v, want %q", path, got, err, text)
		}
	}
	r.run(0, "audit DIR", "0 missing", "the mirror has 4 files")
	r.run(0, "audit DIR/a", "the mirror has 2 files")
	_, proofs := servertest.Do(t, http.MethodGet, r.hub+"/sets/con/proofs", "")
	if !strings.Contains(proofs, `"name":"rsmirror"`) {
		t.Errorf("the hub has the proofs %s, want one of rsmirror", proofs)
	}

	r.publish(resourcesync.Created, "/new/1")
	servertest.Do(t, http.MethodDelete, r.hub+"/sets/con", "")
	if err := os.WriteFile(filepath.Join(r.dir, "a", "a", "1"), []byte("bad"), 0o666); err != nil {
		t.Fatal(err)
	}
	problems := []string{`{"problem":"damaged","in":"file","loc":"URL/a/1","path":"a/1"`, `"set":"a"}`, `{"problem":"missing","in":"set"`, `{"problem":"extra","in":"set","path":"%~=con"`, `"set":"con"}`}
	r.run(1, "audit DIR", append(problems, "1 missing, 0 stale, 1 damaged, 1 extra, 0 unknown; 0 repaired")...)
	r.run(1, "audit -repair DIR", `{"problem":"missing","in":"set","repaired":true,"set":"new"}`, "2 repaired; the mirror has 4 files")
	if err := os.RemoveAll(filepath.Join(r.dir, "%~=con")); err != nil {
		t.Fatal(err)
	}
	r.run(0, "audit DIR", "0 missing", "the mirror has 4 files")
	if err := os.RemoveAll(filepath.Join(r.dir, "a")); err != nil {
		t.Fatal(err)
	}
	r.run(0, "once", `{"sets":3,"failed":0,"files":4,"bytes":18,"fetched":2,`)

	r.run(3, "-once -strip "+r.origin+"/ HUB DIR", `-all is "true" and cannot be changed to "false"`)
	r.run(3, "dump -out-url https://example.org/dumps/ DIR "+t.TempDir(), "has a mirror of each set of a hub")
}

// TestAllErrors checks that the failure of a set has its exit code, and that other sets are mirrored
// and audited.
func TestAllErrors(t *testing.T) {
	r := newAllRun(t)
	var paths []string
	for i := range 20 {
		paths = append(paths, fmt.Sprint("/a/", i))
	}
	r.publish(resourcesync.Created, append(paths, "/b/1")...)
	r.run(0, "once")
	r.publish(resourcesync.Deleted, paths...)
	r.publish(resourcesync.Created, "/b/2")
	r.run(5, "once", `"failed":1,"files":22,`, "rsmirror: set a:", "to allow the deletions, use -max-delete")
	r.run(5, "audit -repair DIR", "rsmirror: set a:")
	if _, err := os.Stat(filepath.Join(r.dir, "b", "b", "2")); err != nil {
		t.Error(err)
	}
	r.run(0, "-max-delete all -all -once -strip "+r.origin+"/ HUB DIR", "2 sets, 2 files, 8 B: 0 fetched, 20 removed, 0 missing; 0 failed")
}

// TestAllNoHub checks that a wrong URL is not stored.
func TestAllNoHub(t *testing.T) {
	r := newAllRun(t)
	r.publish(resourcesync.Created, "/a/1")
	const advice = "; HUB must be the URL of an rshub, such as https://hub.example.org"
	r.run(4, "-all -once "+r.origin+" DIR", "rsmirror: list the sets of URL: ", advice)
	r.run(4, "-all -once HUB/sets/a/changes DIR", "/sets/a/changes: hub refused the request: ", advice)
	r.run(0, "-all -once HUB/? DIR", "1 set, 1 files")
}

// TestAllRepairFails checks that resources that audit -repair could not fetch are missing for -once: a
// file, or a whole mirror that was removed.
func TestAllRepairFails(t *testing.T) {
	for _, removed := range []string{"a/a/1", "a"} {
		t.Run(removed, func(t *testing.T) {
			r := newAllRun(t)
			r.publish(resourcesync.Created, "/a/1", "/b/1")
			r.run(0, "once")
			r.away.Store(true)
			if err := os.RemoveAll(filepath.Join(r.dir, removed)); err != nil {
				t.Fatal(err)
			}
			r.run(1, "audit -repair DIR", `"problem":"missing"`)
			r.run(1, "once", `"missing":1`, "rsmirror: set a: could not fetch 1 resource; the next run will retry")
			r.away.Store(false)
			r.run(0, "once", `"fetched":1,`, `"missing":0`)
		})
	}
}

// TestAllAuditErrors checks that an audit continues after the error of a set: its mirror has other
// settings, so it lacks resources.
func TestAllAuditErrors(t *testing.T) {
	r := newAllRun(t)
	r.publish(resourcesync.Created, "/a/x1", "/a/y1", "/b/1")
	r.run(0, "-once -strip "+r.origin+"/ -prefix "+r.origin+"/a/x HUB/sets/a/changes DIR/a")
	r.run(3, "-adopt -all -once -strip "+r.origin+"/ HUB DIR", "rsmirror: set a: ", "cannot be changed")
	if err := os.Remove(filepath.Join(r.dir, "b", "b", "1")); err != nil {
		t.Fatal(err)
	}
	r.run(3, "audit DIR", "rsmirror: set a: ", "1 missing, 0 stale")
}

// TestAllAuditNewSet checks that an audit does not report a set that a running rsmirror creates between
// the audit's lists of sets and of directories.
func TestAllAuditNewSet(t *testing.T) {
	r := newAllRun(t)
	r.publish(resourcesync.Created, "/a/1")
	r.run(0, "once")
	var stdout, stderr strings.Builder
	noEnv := func(string) string { return "" }
	cfg, err := parseArgs([]string{"audit", r.dir}, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	p := newProgram(cfg, noEnv, &stdout, &stderr)
	p.counts = &auditCounts{kinds: map[mirror.ProblemKind]int{}}
	h, err := p.openAuditHome(t.Context())
	if err == nil {
		err = errors.Join(p.loadSettings(h), h.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	create := sync.OnceFunc(func() {
		r.publish(resourcesync.Created, "/new/1")
		r.run(0, "once")
	})
	p.documents.Transport = closeHook{p.documents.Transport, create}
	if err := p.auditSets(t.Context(), true); err != nil || p.counts.total > 0 {
		t.Errorf("auditSets() = %v with output %s, want nothing", err, stdout.String())
	}
}

// A closeHook calls a function when a connection for changes is closed.
type closeHook struct {
	http.RoundTripper
	closed func()
}

func (c closeHook) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil && r.URL.Path == "/changes" {
		resp.Body = hookedConnection{resp.Body.(io.ReadWriteCloser), c.closed}
	}
	return resp, err
}

type hookedConnection struct {
	io.ReadWriteCloser
	closed func()
}

func (c hookedConnection) Close() error {
	err := c.ReadWriteCloser.Close()
	c.closed()
	return err
}

// TestNoteNew checks that a message of a set is not repeated.
func TestNoteNew(t *testing.T) {
	var stderr strings.Builder
	p := newProgram(&config{}, func(string) string { return "" }, io.Discard, &stderr)
	for range 2 {
		p.forSet("a").noteNew("%s", "polling")
		p.forSet("b").noteNew("%s", "polling")
	}
	p.forSet("a").noteNew("%s", "done")
	p.forSet("a").noteNew("%s", "polling")
	want := "rsmirror: set a: polling\nrsmirror: set b: polling\nrsmirror: set a: done\nrsmirror: set a: polling\n"
	if got := stderr.String(); got != want {
		t.Errorf("got messages %q, want %q", got, want)
	}
}
