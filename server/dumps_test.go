package server

import (
	"archive/zip"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/discovery"
	"github.com/rshub/rshub/internal/apitest"
	"github.com/rshub/rshub/internal/redistest"
	"github.com/rshub/rshub/internal/running"
	"github.com/rshub/rshub/internal/until"
	"github.com/rshub/rshub/mirror"
)

// An origin is a website whose pages have their own paths as contents.
func newOrigin(t *testing.T) *httptest.Server {
	o := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/none") {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, "the content of "+r.URL.Path)
	}))
	t.Cleanup(o.Close)
	return o
}

var local = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// dumped makes a set with dumps, of pages of an origin, and waits until there are dumps of it. It returns
// the URLs of the first package of each.
func dumped(t *testing.T, h *running.Hub, origin string, paths ...string) (resources, changes string) {
	t.Helper()
	var body strings.Builder
	for _, path := range paths {
		body.WriteString(`{"loc":"` + origin + path + `","change":"created"}` + "\n")
	}
	if resp, text := running.Do(t, "PUT", h.URL+"/sets/demo", `{"dumps":"on"}`, "Content-Type", "application/json"); resp.StatusCode != http.StatusOK {
		t.Fatalf("PUT: %d %s", resp.StatusCode, text)
	}
	if resp, text := running.Do(t, "POST", h.URL+"/sets/demo/changes", body.String(), "Content-Type", "application/x-ndjson"); resp.StatusCode != http.StatusOK {
		t.Fatalf("publish: %d %s", resp.StatusCode, text)
	}
	until.Done(t, "the set is complete", func() bool { // hubs that have just started do not know each other yet
		resp, _ := running.Do(t, "PUT", h.URL+"/sets/demo", `{"complete":true}`, "Content-Type", "application/json")
		return resp.StatusCode == http.StatusOK
	})
	wait := func(name string) (loc string) {
		t.Helper()
		until.Done(t, name+" is there", func() bool {
			resp, text := running.Do(t, "GET", h.URL+"/sets/demo/"+name, "")
			if resp.StatusCode != http.StatusOK {
				return false
			}
			var doc struct {
				URL []struct {
					Loc string `xml:"loc"`
				} `xml:"url"`
			}
			if err := xml.Unmarshal([]byte(text), &doc); err != nil || len(doc.URL) == 0 {
				t.Fatalf("%s: %v %s", name, err, text)
			}
			loc = doc.URL[0].Loc
			return true
		})
		return loc
	}
	return wait("resourcedump.xml"), wait("changedump.xml")
}

// A hub makes dumps of a set that wants them, names them in the Capability List, and a mirror
// that is made from the Resource Dump has the same bytes.
func TestDumps(t *testing.T) {
	place, origin := t.TempDir(), newOrigin(t)
	h := start(t, Config{ContentPlace: place, ChangeListSize: 3, CallbackAllow: local})
	if _, text := running.Do(t, "GET", h.URL+"/sets/demo/capabilitylist.xml", ""); strings.Contains(text, "dump") {
		t.Errorf("before: %s", text)
	}
	resources, changes := dumped(t, h.Hub, origin.URL, "/a.txt", "/b/c.txt", "/d")
	if _, text := running.Do(t, "GET", h.URL+"/sets/demo/capabilitylist.xml", ""); !strings.Contains(text, h.URL+"/sets/demo/resourcedump.xml") || !strings.Contains(text, h.URL+"/sets/demo/changedump.xml") {
		t.Errorf("the Capability List names no dumps: %s", text)
	}
	if _, text := running.Do(t, "GET", h.URL+"/sets/demo", ""); !strings.Contains(text, `"dumps":"on"`) {
		t.Errorf("the set is %s", text)
	}
	for _, url := range []string{resources, changes} {
		resp, text := running.Do(t, "GET", url, "")
		z, err := zip.NewReader(strings.NewReader(text), int64(len(text)))
		if err != nil || len(z.File) != 4 || resp.Header.Get("Content-Type") != "application/zip" {
			t.Errorf("%s: %d %v", url, resp.StatusCode, err)
		}
	}

	dir := t.TempDir()
	home, err := mirror.OpenHome(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	origin.Close() // all comes out of the packages
	files, err := mirror.NewDirectory(home, mirror.DirectoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m := mirror.New(home, &discovery.Source{ResourceDump: h.URL + "/sets/demo/resourcedump.xml"}, files, mirror.Options{HTTP: http.DefaultClient, Patience: time.Second})
	if left, err := m.Run(t.Context(), true); err != nil || left.Resources > 0 {
		t.Fatalf("the mirror: %+v %v", left, err)
	}
	for name, want := range map[string]string{"a.txt": "/a.txt", "b/c.txt": "/b/c.txt", "d": "/d"} {
		var found []string
		_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, _ error) error {
			if strings.HasSuffix(path, "/"+name) {
				text, _ := os.ReadFile(path)
				found = append(found, string(text))
			}
			return nil
		})
		if len(found) != 1 || found[0] != "the content of "+want {
			t.Errorf("%s is %q", name, found)
		}
	}
}

// Contents are fetched from public addresses only, unless the operator allows others.
func TestDumpsOfForbiddenAddresses(t *testing.T) {
	origin := newOrigin(t)
	h := start(t, Config{ContentPlace: t.TempDir(), ChangeListSize: 1})
	resources, _ := dumped(t, h.Hub, origin.URL, "/secret")
	_, text := running.Do(t, "GET", strings.Replace(resources, ".zip", "-missing.xml", 1), "")
	if !strings.Contains(text, "the address is not allowed") && !strings.Contains(text, "not fetch it") {
		t.Errorf("what is missing: %s", text)
	}
}

// Several hubs make one set's dumps once, and all serve them.
func TestDumpsOfTwoHubs(t *testing.T) {
	redis, place, origin := redistest.Start(t), t.TempDir(), newOrigin(t)
	config := Config{RedisURL: "redis://" + redis.Addr, BaseURL: "https://hub.example.org", Hosts: []string{"127.0.0.1"}, ContentPlace: place, ChangeListSize: 3, CallbackAllow: local}
	a, b := start(t, config), start(t, config)
	defer func() {
		if t.Failed() {
			t.Logf("the first hub:\n%s\nthe second:\n%s", a.log, b.log)
		}
	}()
	resources, changes := dumped(t, a.Hub, origin.URL, "/a", "/b", "/c")
	for _, url := range []string{resources, changes} {
		path := strings.TrimPrefix(url, config.BaseURL)
		_, one := running.Do(t, "GET", a.URL+path, "")
		resp, other := running.Do(t, "GET", b.URL+path, "")
		if one != other || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: the other hub answers %d", path, resp.StatusCode)
		}
	}
	for _, h := range []*started{a, b} {
		if n := strings.Count(h.log.String(), "dumps of a set cannot be made"); n > 0 {
			t.Errorf("a hub failed: %s", h.log)
		}
	}
	if n := strings.Count(a.log.String()+b.log.String(), "a dump was made"); n != 2 {
		t.Errorf("%d dumps were made", n)
	}
}

// What cannot be is refused.
func TestDumpsRefused(t *testing.T) {
	h := start(t, Config{})
	for body, want := range map[string]string{
		`{"dumps":"on"}`:                   "RSHUB_CONTENT_PLACE",
		`{"dumps":"yes"}`:                  "on or off",
		`{"dumps":"on","inventory":"off"}`: "without an inventory",
	} {
		resp, text := running.Do(t, "PUT", h.URL+"/sets/demo", body, "Content-Type", "application/json")
		if detail := checkProblem(t, resp, text, 400, "invalid"); !strings.Contains(detail, want) {
			t.Errorf("%s: %s", body, detail)
		}
	}
	for _, c := range []Config{
		{Data: t.TempDir(), ContentPlace: "ftp://a/b"}, {Data: t.TempDir(), ContentPlace: t.TempDir(), NoInventory: true}, {Data: t.TempDir(), ContentPlace: t.TempDir(), DumpPackageCount: 50_001},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

// causeDumps causes the answers of a hub that makes dumps.
func causeDumps(t *testing.T) []*apitest.Recorder {
	place, origin := t.TempDir(), newOrigin(t)
	h := start(t, Config{ContentPlace: place, ChangeListSize: 1, CallbackAllow: local})
	resources, _ := dumped(t, h.Hub, origin.URL, "/a", "/none")
	manifest := strings.Replace(resources, ".zip", "-manifest.xml", 1)
	for _, url := range []string{h.URL + "/sets/demo/resourcedump.xml", h.URL + "/sets/demo/changedump.xml", resources, manifest} {
		for _, headers := range [][]string{nil, {"Range", "bytes=0-5"}, {"Range", "bytes=99999999-"}, {"If-None-Match", "*"}} {
			running.Do(t, "GET", url, "", headers...)
		}
		running.Do(t, "GET", strings.Replace(url, "demo", "other", 1), "")
	}
	if err := os.RemoveAll(place); err != nil {
		t.Fatal(err)
	}
	if resp, text := running.Do(t, "GET", resources, ""); resp.StatusCode != http.StatusGone {
		t.Errorf("a package that is gone: %d %s", resp.StatusCode, text)
	}
	h.Stop()
	return []*apitest.Recorder{h.answers}
}
