package server

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/running"
)

// elements returns the names of a page's elements in order, and its links. It
// fails where one is not closed, or closed wrongly.
func elements(t *testing.T, page string) (names, links []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict = false
	d.AutoClose, d.Entity = []string{"meta", "link", "br"}, xml.HTMLEntity
	depth := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			if depth != 0 {
				t.Errorf("%d elements are not closed", depth)
			}
			return names, links
		}
		if err != nil {
			t.Fatalf("the page is no HTML: %v", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			depth++
			names = append(names, e.Name.Local)
			for _, a := range e.Attr {
				if a.Name.Local == "href" {
					links = append(links, a.Value)
				}
			}
		case xml.EndElement:
			depth--
		}
	}
}

func TestPage(t *testing.T) {
	h := start(t, Config{})
	_, empty := running.Do(t, "GET", h.URL+"/", "")
	elements(t, empty)
	if !strings.Contains(empty, "The first publish to a set makes it") {
		t.Errorf("the page of a new hub is %s", empty)
	}
	for set, description := range map[string]string{
		"evil": `{"title":"<script>alert(1)</script>","describedby":"https://example.org/%3Cscript%3E"}`,
		"good": `{"title":"Fish & chips","describedby":"https://example.org/?a=1&b=2"}`,
	} {
		if resp, body := running.Do(t, "PUT", h.URL+"/sets/"+set, description); resp.StatusCode != http.StatusOK {
			t.Fatalf("PUT: %d %s", resp.StatusCode, body)
		}
	}
	h.Publish("good")
	resp, page := running.Do(t, "GET", h.URL+"/", "")
	names, links := elements(t, page)
	for _, name := range names {
		if name == "script" {
			t.Errorf("a title became a script:\n%s", page)
		}
	}
	want := map[string]bool{h.URL + "/sets/good/resources": true, "https://example.org/?a=1&b=2": true, h.URL + "/sets/good/capabilitylist.xml": true, h.URL + "/sets": true, h.URL + "/.well-known/resourcesync": true}
	for _, link := range links {
		delete(want, link)
		if strings.HasPrefix(link, "javascript") {
			t.Errorf("a link runs %s", link)
		}
		if strings.HasPrefix(link, h.URL) {
			if resp, _ := running.Do(t, "GET", link, ""); resp.StatusCode != http.StatusOK {
				t.Errorf("%s is %d", link, resp.StatusCode)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("these links are missing: %v", want)
	}
	for _, text := range []string{"&lt;script&gt;", "Fish &amp; chips", ">1</td>"} {
		if !strings.Contains(page, text) {
			t.Errorf("%s is missing:\n%s", text, page)
		}
	}
	policy := resp.Header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, part) {
			t.Errorf("the policy %q lacks %s", policy, part)
		}
	}
	// The policy forbids what is not in the page itself.
	if m := regexp.MustCompile(`(?i)\s(src|on\w+)=`).FindString(page); m != "" {
		t.Errorf("the page has%s", m)
	}
}

// The page says how to read what a set holds, if there is a set that has an inventory.
func TestPageOfInventories(t *testing.T) {
	h := start(t, Config{})
	reads := func(set string) {
		t.Helper()
		_, page := running.Do(t, "GET", h.URL+"/", "")
		for _, path := range []string{"/changes?since=baseline'", "/resources'", "/audit'", "/resourcelist.xml<"} {
			url := h.URL + "/sets/" + set + path
			if strings.Contains(page, url) != (set != "") || set == "" && strings.Contains(page, path) {
				t.Errorf("%s of set %q is there: %t", path, set, strings.Contains(page, path))
			}
		}
	}
	reads("demo") // there is no set yet
	h.Publish("a")
	h.Publish("b")
	reads("a")
	for _, step := range [][2]string{{"a", "b"}, {"b", ""}} {
		if resp, body := running.Do(t, "PUT", h.URL+"/sets/"+step[0], `{"inventory":"off"}`); resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		reads(step[1])
	}
	h.Stop()
	h = start(t, Config{NoInventory: true})
	reads("")
}

// Links stay within the hub when it is reached below a path, through a proxy.
func TestPageBelowAPath(t *testing.T) {
	h := start(t, Config{BaseURL: "https://example.org/rs/"})
	h.Publish("demo")
	_, page := running.Do(t, "GET", h.URL+"/", "")
	if !strings.Contains(page, "'https://example.org/rs/hub' -d hub.mode=subscribe -d 'hub.topic=https://example.org/rs/sets/demo/changes'") {
		t.Error("the page does not say how to subscribe a callback")
	}
	_, links := elements(t, page)
	for _, link := range links {
		if !strings.HasPrefix(link, "https://example.org/rs/") && !strings.HasPrefix(link, "https://www.openarchives.org/") {
			t.Errorf("a link leads to %s", link)
		}
	}
}

func TestPageWithManySets(t *testing.T) {
	sets := make([]string, maxShown+3)
	for i := range sets {
		sets[i] = fmt.Sprintf("set%04d", i)
	}
	h := start(t, Config{Sets: sets})
	h.Publish(sets[len(sets)-1]) // they are made in order
	for {
		_, body := running.Do(t, "GET", h.URL+"/sets?limit=10000", "")
		var answer struct{ Sets []setView }
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatal(err)
		}
		if len(answer.Sets) == len(sets) {
			break
		}
	}
	_, page := running.Do(t, "GET", h.URL+"/", "")
	if n := strings.Count(page, "<tr><td>"); n != maxShown || !strings.Contains(page, "And 3 more") {
		t.Errorf("the page shows %d sets", n)
	}
}
