package server

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/running"
	"github.com/rshub/rshub/internal/until"
)

// A set in whole seconds says so. All documents that lead from the Source Description of a
// running hub are without fractions, and what is not such a document stays exact.
func TestWholeSeconds(t *testing.T) {
	h := start(t, Config{})
	set := h.URL + "/sets/demo"
	put := func(body string) string {
		t.Helper()
		resp, body := running.Do(t, "PUT", set, body)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		return body
	}
	if body := put(`{"seconds":"whole"}`); !strings.Contains(body, `"seconds":"whole"`) {
		t.Errorf("PUT says %s", body)
	}
	h.Publish("demo")
	put(`{"complete":true}`)
	get := func(url, accept string) string {
		t.Helper()
		resp, body := running.Do(t, "GET", url, "", "Accept", accept)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s is %d %s", url, resp.StatusCode, body)
		}
		return body
	}
	until.Done(t, "there is a Resource List", func() bool {
		resp, _ := running.Do(t, "GET", set+"/resourcelist.xml", "")
		return resp.StatusCode == http.StatusOK
	})
	fraction, loc := regexp.MustCompile(`:\d\d\.\d+Z`), regexp.MustCompile(`<loc>(`+regexp.QuoteMeta(h.URL)+`[^<]*)</loc>`)
	walk := func() (seen map[string]string) {
		seen = map[string]string{}
		todo := []string{h.URL + "/.well-known/resourcesync", set + "/changelist.xml"}
		for len(todo) > 0 {
			url := todo[0]
			todo = todo[1:]
			if _, ok := seen[url]; ok {
				continue
			}
			seen[url] = get(url, "application/xml")
			for _, m := range loc.FindAllStringSubmatch(seen[url], -1) {
				todo = append(todo, m[1])
			}
		}
		return seen
	}
	whole := walk()
	for url, body := range whole {
		if fraction.MatchString(body) {
			t.Errorf("%s is %s", url, body)
		}
	}
	if len(whole) != 8 {
		t.Errorf("the documents are %v", whole)
	}
	for _, path := range []string{"/changes?since=start", "/resources", ""} {
		if body := get(set+path, "application/json"); !fraction.MatchString(body) {
			t.Errorf("%s is %s", path, body)
		}
	}
	// The description that follows leaves it out, so the documents are exact again.
	if body := put(`{"title":"exact"}`); strings.Contains(body, "seconds") {
		t.Errorf("PUT says %s", body)
	}
	exact := walk()
	for _, name := range []string{"/changelist.xml", "/changelist-index.xml", "/resourcelist.xml", "/changes"} {
		if !fraction.MatchString(exact[set+name]) {
			t.Errorf("%s is %s", name, exact[set+name])
		}
	}
}
