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

func TestWantsHTMLAndIsNavigation(t *testing.T) {
	const browsers, firefox = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
	for _, tt := range []struct {
		name, accept, agent, dest string
		wantsHTML, isNavigation   bool
	}{
		{"no header", "", "", "", false, false},
		{"curl", "*/*", "curl/8.14.1", "", false, false},
		{"curl with Accept", "text/html", "curl/8.14.1", "", true, false},
		{"JSON client", "application/json, text/html;q=0.5", firefox, "", false, false},
		{"XML client", "application/xml, text/html;q=0.9", firefox, "", true, false},
		{"Java", "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", "Java/21.0.2", "", true, false},
		{"browser", browsers, firefox, "document", true, true},
		{"browser at an insecure origin", browsers, firefox, "", true, true},
		{"script", browsers, firefox, "empty", true, false},
		{"frame", browsers, firefox, "iframe", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/sets/demo", nil)
			for name, value := range map[string]string{"Accept": tt.accept, "User-Agent": tt.agent, "Sec-Fetch-Dest": tt.dest} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			if got := WantsHTML(r); got != tt.wantsHTML {
				t.Errorf("WantsHTML() = %t, want %t", got, tt.wantsHTML)
			}
			if got := IsNavigation(r); got != tt.isNavigation {
				t.Errorf("IsNavigation() = %t, want %t", got, tt.isNavigation)
			}
		})
	}
}

var (
	imports = regexp.MustCompile(`(?m)from "\./([^"]+)"`)
	loads   = regexp.MustCompile(`\bimport\(|\burl\("?http|@import|\.innerHTML|\.outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\("style"|[{,] style: "`)
)

// TestAssetsStandAlone checks that scripts load only each other, and never create HTML from text.
func TestAssetsStandAlone(t *testing.T) {
	imported := map[string]bool{"main.js": true}
	for name, a := range assets {
		if a.mediaType == "" {
			t.Errorf("%s: got no media type, want one", name)
		}
		for _, m := range imports.FindAllSubmatch(a.plain, -1) {
			imported[string(m[1])] = true
			if _, ok := assets[string(m[1])]; !ok {
				t.Errorf("%s: imports %s, which does not exist", name, m[1])
			}
		}
		if m := loads.Find(a.plain); m != nil {
			t.Errorf("%s: got %s, want no such code", name, m)
		}
	}
	for _, name := range modules {
		if !imported[name] {
			t.Errorf("%s: not imported by any script", name)
		}
	}
}

// TestRoots checks the relative URLs of views at different depths.
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

// states implements Sets.
type states []feed.State

func (s states) Visible(context.Context) ([]feed.State, error) { return s, nil }

func (s states) State(context.Context, string) (feed.State, error) {
	return feed.State{}, feed.ErrNoSet
}

// overview returns the HTML of a hub with these sets.
func (s states) overview(t *testing.T, o Options) string {
	t.Helper()
	w := httptest.NewRecorder()
	if err := New(s, "https://hub.example.org/rs", o).Overview(w, httptest.NewRequest("GET", "/", nil)); err != nil {
		t.Fatal(err)
	}
	return w.Body.String()
}

var links = regexp.MustCompile(`(?:href|src)="([^"]*)"`)

// TestOverview checks that links stay within a hub below a path, and that the list of sets is cut.
func TestOverview(t *testing.T) {
	sets := make(states, MaxShown+3)
	for i := range sets {
		sets[i].Set = fmt.Sprintf("set%04d", i)
	}
	html := sets.overview(t, Options{})
	if n := strings.Count(html, "<tr><td>"); n != MaxShown || !strings.Contains(html, "And 3 more") {
		t.Errorf("got %d sets, want %d and the number of others", n, MaxShown)
	}
	if !strings.Contains(html, "'https://hub.example.org/rs/hub' -d hub.mode=subscribe -d 'hub.topic=https://hub.example.org/rs/sets/set0000/changes'") {
		t.Error("got no command for a callback, want one")
	}
	for _, m := range links.FindAllStringSubmatch(html, -1) {
		within := strings.HasPrefix(m[1], "#") || strings.HasPrefix(m[1], "./") || strings.HasPrefix(m[1], "https://hub.example.org/rs/")
		if !within && !strings.HasPrefix(m[1], "https://www.openarchives.org/") {
			t.Errorf("got a link to %s, want links within the hub", m[1])
		}
	}
}

// TestInventoryCommands checks that commands for inventories use a set that has one.
func TestInventoryCommands(t *testing.T) {
	set := func(name string, held bool) feed.State {
		return feed.State{Set: name, Description: feed.Description{NoInventory: !held}}
	}
	for _, tt := range []struct {
		sets  states
		holds bool
		want  string // set in the commands, or empty
	}{
		{nil, true, "demo"}, {states{set("a", true), set("b", true)}, true, "a"}, {states{set("a", false), set("b", true)}, true, "b"},
		{states{set("a", false), set("b", false)}, true, ""}, {nil, false, ""}, {states{set("a", true)}, false, ""},
	} {
		html := tt.sets.overview(t, Options{Holds: tt.holds})
		for _, path := range []string{"/changes?since=baseline'", "/resources'", "/audit'", "/resourcelist.xml<"} {
			if strings.Contains(html, path) != (tt.want != "") || tt.want != "" && !strings.Contains(html, "https://hub.example.org/rs/sets/"+tt.want+path) {
				t.Errorf("sets %v, inventories %t: got path %s: %t, want set %q", tt.sets, tt.holds, path, strings.Contains(html, path), tt.want)
			}
		}
	}
}
