package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/resourcesync"
)

// TestConfiguredSets runs a hub that has these sets and no others.
func TestConfiguredSets(t *testing.T) {
	t.Parallel()
	h := startHub(t, "RSHUB_SETS=articles,data-2.x", "RSHUB_NO_PUSH_SETS=data-2.x")
	until(t, "the sets are made", func() error {
		if head(t, h, "articles") == "" || head(t, h, "data-2.x") == "" {
			return fmt.Errorf("they are not")
		}
		return nil
	})
	for _, way := range allWays {
		f := follow(t, h, way, "articles", "start")
		f.begins(t)
		defer f.has(t, 2)
	}
	publish(t, h, "articles", changes("a", 2))
	for _, test := range []struct{ method, path, body string }{
		{"POST", "/sets/elsewhere/changes", `{"changes":[{"loc":"https://example.org/","change":"created"}]}`},
		{"GET", "/sets/elsewhere/changes", ""}, {"GET", "/sets/elsewhere/changes?since=start", ""}, {"GET", "/sets/elsewhere", ""},
		{"GET", "/sets/elsewhere/changelist.xml", ""}, {"PUT", "/sets/elsewhere", "{}"}, {"DELETE", "/sets/elsewhere", ""},
	} {
		a := must(t, http.StatusNotFound, test.method, h.url+test.path, []byte(test.body), "Content-Type: application/json")
		if p, err := a.problem(); err != nil || !strings.HasSuffix(p.Type, "/no-such-set") {
			t.Errorf("%s %s: %+v, %v", test.method, test.path, p, err)
		}
	}
	_, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(h.topic("elsewhere"), "http"), nil)
	if err == nil || resp == nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("a WebSocket to a set that is not there: %v, %v", resp, err)
	}
	// A set that is shown to clients which stumble over the push channel.
	for set, want := range map[string]int{"articles": 2, "data-2.x": 1} {
		if n := len(document(t, h.url+"/sets/"+set+"/capabilitylist.xml").Items); n != want {
			t.Errorf("the Capability List of %s has %d entries, not %d", set, n, want)
		}
	}
	document(t, h.url+"/sets/data-2.x/changelist.xml")
}

// TestDescription describes a set, and finds that in the documents.
func TestDescription(t *testing.T) {
	t.Parallel()
	h := startHub(t)
	const about = "https://example.org/about?a=1&b=2"
	body := []byte(`{"title":"Grüße <&>","describedby":"` + about + `"}`)
	for range 2 { // the first makes the set
		must(t, http.StatusOK, http.MethodPut, h.url+"/sets/told", body)
	}
	publish(t, h, "told", change("a"))
	check := func() {
		t.Helper()
		v := get[struct{ Title, DescribedBy string }](t, h.url+"/sets/told")
		if v.Title != "Grüße <&>" || v.DescribedBy != about {
			t.Errorf("the set is described as %+v", v)
		}
		if page := must(t, http.StatusOK, http.MethodGet, h.url+"/", nil); !strings.Contains(string(page.body), "Grüße &lt;&amp;&gt;") {
			t.Errorf("the page for people has no title: %s", page.body)
		}
		described := func(where string, links []resourcesync.Link) {
			t.Helper()
			for _, l := range links {
				if l.Rel == "describedby" && l.Href == about {
					return
				}
			}
			t.Errorf("the %s is not described: %+v", where, links)
		}
		described("Source Description", document(t, h.url+"/.well-known/resourcesync").Items[0].Links)
		described("set's Source Description", document(t, h.url+"/sets/told/.well-known/resourcesync").Items[0].Links)
		described("Capability List", document(t, h.url+"/sets/told/capabilitylist.xml").Links)
	}
	check()
	for _, bad := range []string{`{"name":"x"}`, `{"title":"a\nb"}`, `{"describedby":"about.html"}`, `[]`, ``, `{"title":"` + strings.Repeat("x", 1001) + `"}`} {
		a := must(t, http.StatusBadRequest, http.MethodPut, h.url+"/sets/told", []byte(bad))
		if p, err := a.problem(); err != nil {
			t.Errorf("%s: %+v, %v", bad, p, err)
		}
	}
	check()
	h.kill()
	h.start(t)
	check()
}

// TestDelete deletes a set under its followers.
func TestDelete(t *testing.T) {
	t.Parallel()
	h := startHub(t)
	const set = "doomed"
	publish(t, h, set, changes("a", 10))
	var followers []*follower
	for _, way := range allWays {
		f := follow(t, h, way, set, "start")
		f.has(t, 10)
		followers = append(followers, f)
	}
	must(t, http.StatusNoContent, http.MethodDelete, h.url+"/sets/"+set, nil)
	gone := func(f *follower, how string) {
		t.Helper()
		if end := f.ended(t, how); !strings.HasPrefix(end, errGone.Error()) {
			t.Errorf("the %s ends with %q", f.way, end)
		}
	}
	gone(followers[0], "close 4410")
	gone(followers[1], "event gone")
	gone(followers[2], `"status":410`)
	if end := followers[0].ends[0]; !strings.Contains(end, "read the resources") {
		t.Errorf("the WebSocket is told %q", end)
	}
	// Who comes later with the old cursor learns the same, also once the set is
	// made anew.
	for range 2 {
		old := followers[0].at()
		gone(follow(t, h, byWebSocket, set, old), "close 4410")
		gone(follow(t, h, byEvents, set, old), "410 Gone")
		gone(follow(t, h, byPolling, set, old), `"status":410`)
		publish(t, h, set, changes("new", 3))
	}
	for _, way := range allWays {
		follow(t, h, way, set, "start").has(t, 6)
	}
	same(t, "the walk over all Change Lists", walk(t, h, set), memory(t, h, set))
}

// TestHubPublish publishes to the hub's own URL (Change Notification section 4.1).
func TestHubPublish(t *testing.T) {
	t.Parallel()
	h := startHub(t)
	f := follow(t, h, byWebSocket, "linked", "start")
	notification := `<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
<rs:md capability="change-notification" from="2026-01-01T00:00:00Z" until="2026-01-01T01:00:00Z"/>
<url><loc>https://example.org/a</loc><lastmod>2026-01-01T00:30:00Z</lastmod>
<rs:md change="updated" datetime="2026-01-01T00:30:00Z" hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6" length="8876" type="text/html"/>
<rs:ln rel="describedby" href="https://example.org/a.xml"/></url></urlset>`
	topic, self, hub := h.topic("linked"), `rel="self"`, `rel="hub"`
	for i, links := range [][]string{
		{fmt.Sprintf("Link: <%s>; %s, <%s/hub>; %s", topic, self, h.url, hub)},
		{fmt.Sprintf("Link: <%s/hub>; %s,<%s>;%s", h.url, hub, topic, self)},
		{fmt.Sprintf("Link: <%s>; rel=self", topic), fmt.Sprintf("Link: <https://other.example/hub>; rel=hub, <%s/hub>; type=\"a,b\"; rel=\"x HUB\"", h.url)},
	} {
		a := must(t, http.StatusOK, http.MethodPost, h.url+"/hub", []byte(notification), append(links, "Content-Type: application/xml")...)
		var r receipt
		decode(t, a.body, &r)
		// The same document, with its interval, is the same publish.
		if r.Set != "linked" || r.Count != 1 || r.Replayed != (i > 0) || !strings.HasPrefix(r.Cursor, "1-") {
			t.Errorf("%q: %+v", links, r)
		}
	}
	want, err := parseEntry([]byte(`{"loc":"https://example.org/a","change":"updated","datetime":"2026-01-01T00:30:00Z","lastmod":"2026-01-01T00:30:00Z",
		"hash":"md5:1584abdf8ebdc9802ac0c6a7402c03b6","length":8876,"type":"text/html","ln":[{"rel":"describedby","href":"https://example.org/a.xml"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	sameTexts(t, "the follower", f.has(t, 1), []string{want.text})
	for _, links := range [][]string{
		nil,
		{fmt.Sprintf("Link: <%s>; %s", topic, self)},
		{fmt.Sprintf("Link: <%s/hub>; %s", h.url, hub)},
		{fmt.Sprintf("Link: <%s>; %s, <https://other.example/hub>; %s", topic, self, hub)},
		{fmt.Sprintf("Link: <https://other.example/sets/linked/changes>; %s, <%s/hub>; %s", self, h.url, hub)},
		{fmt.Sprintf("Link: <%s/sets/A B/changes>; %s, <%s/hub>; %s", h.url, self, h.url, hub)},
		{fmt.Sprintf("Link: <%s>; %s, <%s2>; %s, <%s/hub>; %s", topic, self, topic, self, h.url, hub)},
	} {
		a := must(t, http.StatusBadRequest, http.MethodPost, h.url+"/hub", []byte(notification), append(links, "Content-Type: application/xml")...)
		if p, err := a.problem(); err != nil || !strings.Contains(p.Detail, "/hub>") && !strings.Contains(p.Detail, "/sets/SET/changes") {
			t.Errorf("%q: %+v, %v", links, p, err)
		}
	}
	if at := head(t, h, "linked"); !strings.HasPrefix(at, "1-") {
		t.Errorf("the set is at %s", at)
	}
}
