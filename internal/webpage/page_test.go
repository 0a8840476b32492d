package webpage

import (
	"context"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
)

func TestWantsAndVisits(t *testing.T) {
	const browsers, firefox = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
	for _, test := range []struct {
		name, accept, agent, dest string
		wants, visits             bool
	}{
		{"nothing", "", "", "", false, false},
		{"curl", "*/*", "curl/8.14.1", "", false, false},
		{"curl that asks for HTML", "text/html", "curl/8.14.1", "", true, false},
		{"a client of JSON", "application/json, text/html;q=0.5", firefox, "", false, false},
		{"a client of XML", "application/xml, text/html;q=0.9", firefox, "", true, false},
		{"Java", "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", "Java/21.0.2", "", true, false},
		{"a browser", browsers, firefox, "document", true, true},
		{"a browser at an origin that is not safe", browsers, firefox, "", true, true},
		{"a script", browsers, firefox, "empty", true, false},
		{"a frame", browsers, firefox, "iframe", true, false},
	} {
		r := httptest.NewRequest("GET", "/sets/demo", nil)
		for name, value := range map[string]string{"Accept": test.accept, "User-Agent": test.agent, "Sec-Fetch-Dest": test.dest} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if w, v := Wants(r), Visits(r); w != test.wants || v != test.visits {
			t.Errorf("%s: wants %t, visits %t; want %t, %t", test.name, w, v, test.wants, test.visits)
		}
	}
}

var (
	imports = regexp.MustCompile(`(?m)from "\./([^"]+)"`)
	loads   = regexp.MustCompile(`\bimport\(|\burl\("?http|@import|\.innerHTML|\.outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\("style"|[{,] style: "`)
)

// The scripts load each other, and nothing else. They never make HTML of a text.
func TestAssetsStandAlone(t *testing.T) {
	imported := map[string]bool{"main.js": true}
	for name, a := range assets {
		if a.mediaType == "" {
			t.Errorf("%s has no media type", name)
		}
		for _, m := range imports.FindAllSubmatch(a.plain, -1) {
			imported[string(m[1])] = true
			if _, ok := assets[string(m[1])]; !ok {
				t.Errorf("%s imports %s, which is not there", name, m[1])
			}
		}
		if m := loads.Find(a.plain); m != nil {
			t.Errorf("%s has %s", name, m)
		}
	}
	for _, name := range modules {
		if !imported[name] {
			t.Errorf("nothing imports %s", name)
		}
	}
}

// URLs of a view lead to the hub, however deep the view is.
func TestRoots(t *testing.T) {
	s := New(nil, feed.Base("https://hub.example.org/rs"), Options{Version: "v1"})
	for path, root := range map[string]string{"/.well-known/resourcesync": "./../", "/sets/demo/changelist.xml": "./../../", "/sets/demo/.well-known/resourcesync": "./../../../"} {
		w := httptest.NewRecorder()
		s.ServeDocument(w, httptest.NewRequest("GET", path, nil), "demo")
		if body := w.Body.String(); !strings.Contains(body, `src="`+root+"page/"+version+`/main.js"`) || !strings.Contains(body, `data-base="https://hub.example.org/rs"`) {
			t.Errorf("%s: %s", path, body)
		}
	}
}

// states are the sets of a hub.
type states []feed.State

func (s states) Visible(context.Context) ([]feed.State, error) { return s, nil }

func (s states) State(context.Context, string) (feed.State, error) {
	return feed.State{}, feed.ErrNoSet
}

// overview returns the view of a hub with these sets.
func (s states) overview(t *testing.T, o Options) string {
	t.Helper()
	w := httptest.NewRecorder()
	if err := New(s, "https://hub.example.org/rs", o).Overview(w, httptest.NewRequest("GET", "/", nil)); err != nil {
		t.Fatal(err)
	}
	return w.Body.String()
}

var links = regexp.MustCompile(`(?:href|src)="([^"]*)"`)

// Links stay within the hub when it is reached below a path, through a proxy. Of many sets the page
// shows the first.
func TestOverview(t *testing.T) {
	sets := make(states, MaxShown+3)
	for i := range sets {
		sets[i].Set = fmt.Sprintf("set%04d", i)
	}
	html := sets.overview(t, Options{})
	if n := strings.Count(html, "<tr><td>"); n != MaxShown || !strings.Contains(html, "And 3 more") {
		t.Errorf("the page shows %d sets", n)
	}
	if !strings.Contains(html, "'https://hub.example.org/rs/hub' -d hub.mode=subscribe -d 'hub.topic=https://hub.example.org/rs/sets/set0000/changes'") {
		t.Error("the page does not say how to subscribe a callback")
	}
	for _, m := range links.FindAllStringSubmatch(html, -1) {
		within := strings.HasPrefix(m[1], "#") || strings.HasPrefix(m[1], "./") || strings.HasPrefix(m[1], "https://hub.example.org/rs/")
		if !within && !strings.HasPrefix(m[1], "https://www.openarchives.org/") {
			t.Errorf("a link leads to %s", m[1])
		}
	}
}

// The page says how to read what a set holds, if there is a set that has an inventory.
func TestHeld(t *testing.T) {
	set := func(name string, held bool) feed.State {
		return feed.State{Set: name, Description: feed.Description{NoInventory: !held}}
	}
	for _, test := range []struct {
		sets  states
		holds bool
		want  string // the set that it says it of
	}{
		{nil, true, "demo"}, {states{set("a", true), set("b", true)}, true, "a"}, {states{set("a", false), set("b", true)}, true, "b"},
		{states{set("a", false), set("b", false)}, true, ""}, {nil, false, ""}, {states{set("a", true)}, false, ""},
	} {
		html := test.sets.overview(t, Options{Holds: test.holds})
		for _, path := range []string{"/changes?since=baseline'", "/resources'", "/audit'", "/resourcelist.xml<"} {
			if strings.Contains(html, path) != (test.want != "") || test.want != "" && !strings.Contains(html, "https://hub.example.org/rs/sets/"+test.want+path) {
				t.Errorf("of %v the page says how to read %s: %t", test, path, strings.Contains(html, path))
			}
		}
	}
}
