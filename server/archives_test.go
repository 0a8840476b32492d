package server

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/internal/apitest"
	"github.com/rshub/rshub/internal/redistest"
	"github.com/rshub/rshub/internal/running"
	"github.com/rshub/rshub/internal/until"
)

// archivedSet makes a set with an archive, and waits until that has two lists. It returns the URL of the first.
func archivedSet(t *testing.T, h *running.Hub) (loc string) {
	t.Helper()
	if resp, text := running.Do(t, "PUT", h.URL+"/sets/demo", `{"archives":"on"}`, "Content-Type", "application/json"); resp.StatusCode != http.StatusOK {
		t.Fatalf("PUT: %d %s", resp.StatusCode, text)
	}
	for range 3 {
		h.Publish("demo")
	}
	until.Done(t, "two lists are archived", func() bool {
		resp, text := running.Do(t, "GET", h.URL+"/sets/demo/changelist-archive.xml", "")
		_, rest, _ := strings.Cut(text, "<loc>")
		loc, _, _ = strings.Cut(rest, "</loc>")
		return resp.StatusCode == http.StatusOK && strings.Count(text, "<loc>") >= 2
	})
	return loc
}

// archivedResources waits until the archive of a set that is complete has a Resource List. It
// returns the URL of the list.
func archivedResources(t *testing.T, h *running.Hub) (loc string) {
	t.Helper()
	until.Done(t, "a Resource List is archived", func() bool {
		resp, text := running.Do(t, "GET", h.URL+"/sets/demo/resourcelist-archive.xml", "")
		_, rest, _ := strings.Cut(text, "<loc>")
		loc, _, _ = strings.Cut(rest, "</loc>")
		return resp.StatusCode == http.StatusOK
	})
	return loc
}

// A hub archives the closed Change Lists of a set that wants it, and names the archive in the
// Capability List.
func TestArchives(t *testing.T) {
	t.Parallel()
	h := start(t, Config{ContentPlace: t.TempDir(), ChangeListSize: 1, Retention: changelog.Retention{Count: 1}})
	loc := archivedSet(t, h.Hub)
	if resp, text := running.Do(t, "GET", loc, ""); resp.StatusCode != http.StatusOK || !strings.Contains(text, `capability="changelist"`) {
		t.Errorf("an archived list: %d %s", resp.StatusCode, text)
	}
	if _, text := running.Do(t, "GET", h.URL+"/sets/demo/capabilitylist.xml", ""); !strings.Contains(text, "<loc>"+h.URL+"/sets/demo/changelist-archive.xml</loc><rs:md capability=\"changelist-archive\"") {
		t.Errorf("the Capability List does not name the archive: %s", text)
	}
	if resp, text := running.Do(t, "PUT", h.URL+"/sets/demo", `{"archives":"on","complete":true}`, "Content-Type", "application/json"); resp.StatusCode != http.StatusOK {
		t.Fatalf("PUT: %d %s", resp.StatusCode, text)
	}
	list := archivedResources(t, h.Hub)
	if resp, text := running.Do(t, "GET", list, ""); resp.StatusCode != http.StatusOK || !strings.Contains(text, `capability="resourcelist"`) || !strings.Contains(text, "<loc>https://example.org/a</loc>") {
		t.Errorf("an archived Resource List: %d %s", resp.StatusCode, text)
	}
	if _, text := running.Do(t, "GET", h.URL+"/sets/demo/capabilitylist.xml", ""); !strings.Contains(text, "<loc>"+h.URL+"/sets/demo/resourcelist-archive.xml</loc><rs:md capability=\"resourcelist-archive\"") {
		t.Errorf("the Capability List does not name the archive of Resource Lists: %s", text)
	}
	if _, text := running.Do(t, "GET", h.URL+"/sets/demo", ""); !strings.Contains(text, `"archives":"on"`) {
		t.Errorf("the set is %s", text)
	}
}

// Several hubs archive a list once, and all serve it.
func TestArchivesOfTwoHubs(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	config := Config{RedisURL: "redis://" + redis.Addr, BaseURL: "https://hub.example.org", Hosts: []string{"127.0.0.1"}, ContentPlace: t.TempDir(), ChangeListSize: 1}
	a, b := start(t, config), start(t, config)
	path := strings.TrimPrefix(archivedSet(t, a.Hub), config.BaseURL)
	until.Done(t, "both hubs have the list", func() bool {
		one, text := running.Do(t, "GET", a.URL+path, "")
		two, other := running.Do(t, "GET", b.URL+path, "")
		return one.StatusCode == http.StatusOK && two.StatusCode == http.StatusOK && text == other
	})
	for _, h := range []*started{a, b} {
		if strings.Contains(h.log.String(), "cannot be archived") {
			t.Errorf("a hub failed: %s", h.log)
		}
	}
}

// What cannot be is refused.
func TestArchivesRefused(t *testing.T) {
	h := start(t, Config{})
	for body, want := range map[string]string{`{"archives":"on"}`: "RSHUB_CONTENT_PLACE", `{"archives":"yes"}`: "on or off"} {
		resp, text := running.Do(t, "PUT", h.URL+"/sets/demo", body, "Content-Type", "application/json")
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", body, resp.StatusCode, text)
		}
	}
}

// causeArchives causes the answers of archives.
func causeArchives(t *testing.T) []*apitest.Recorder {
	place := t.TempDir()
	h := start(t, Config{ContentPlace: place, ChangeListSize: 1})
	list := archivedSet(t, h.Hub)
	running.Do(t, "GET", h.URL+"/sets/demo/resourcelist-archive.xml", "")
	running.Do(t, "PUT", h.URL+"/sets/demo", `{"archives":"on","complete":true}`, "Content-Type", "application/json")
	resources := archivedResources(t, h.Hub)
	for _, url := range []string{h.URL + "/sets/demo/changelist-archive.xml", list, h.URL + "/sets/demo/resourcelist-archive.xml", resources} {
		for _, headers := range [][]string{nil, {"Range", "bytes=0-5"}, {"Range", "bytes=99999999-"}, {"If-None-Match", "*"}} {
			running.Do(t, "GET", url, "", headers...)
		}
		running.Do(t, "GET", strings.Replace(url, "demo", "other", 1), "")
	}
	if err := os.RemoveAll(place); err != nil {
		t.Fatal(err)
	}
	if resp, text := running.Do(t, "GET", list, ""); resp.StatusCode != http.StatusGone {
		t.Logf("a list that is gone: %d %s", resp.StatusCode, text)
	}
	h.Stop()
	return []*apitest.Recorder{h.answers}
}
