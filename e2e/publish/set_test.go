package publish

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
	"github.com/rshub/rshub/resourcesync"
)

// TestConfiguredSets runs a hub that has these sets and no others.
func TestConfiguredSets(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t, "RSHUB_SETS=articles,data-2.x", "RSHUB_NO_PUSH_SETS=data-2.x")
	hubtest.Until(t, "the sets are made", func() error {
		if hubtest.Head(t, h, "articles") == "" || hubtest.Head(t, h, "data-2.x") == "" {
			return fmt.Errorf("they are not")
		}
		return nil
	})
	for _, way := range hubtest.AllWays {
		f := hubtest.Follow(t, h, way, "articles", "start")
		f.Begins(t)
		defer f.Has(t, 2)
	}
	hubtest.Publish(t, h, "articles", hubtest.Changes("a", 2))
	for _, test := range []struct{ method, path, body string }{
		{"POST", "/sets/elsewhere/changes", `{"changes":[{"loc":"https://example.org/","change":"created"}]}`},
		{"GET", "/sets/elsewhere/changes", ""}, {"GET", "/sets/elsewhere/changes?since=start", ""}, {"GET", "/sets/elsewhere", ""},
		{"GET", "/sets/elsewhere/changelist.xml", ""}, {"PUT", "/sets/elsewhere", "{}"}, {"DELETE", "/sets/elsewhere", ""},
	} {
		a := hubtest.Must(t, http.StatusNotFound, test.method, h.URL+test.path, []byte(test.body), "Content-Type: application/json")
		if p, err := hubtest.ProblemOf(a); err != nil || !strings.HasSuffix(p.Type, "/no-such-set") {
			t.Errorf("%s %s: %+v, %v", test.method, test.path, p, err)
		}
	}
	_, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(h.Topic("elsewhere"), "http"), nil)
	if err == nil || resp == nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("a WebSocket to a set that is not there: %v, %v", resp, err)
	}
	// A set that is shown to clients which stumble over the push channel.
	for set, want := range map[string]int{"articles": 2, "data-2.x": 1} {
		if n := len(hubtest.Document(t, h.URL+"/sets/"+set+"/capabilitylist.xml").Items); n != want {
			t.Errorf("the Capability List of %s has %d entries, not %d", set, n, want)
		}
	}
	hubtest.Document(t, h.URL+"/sets/data-2.x/changelist.xml")
}

// TestDescription describes a set, and finds that in the documents.
func TestDescription(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	const about = "https://example.org/about?a=1&b=2"
	body := []byte(`{"title":"Grüße <&>","describedby":"` + about + `"}`)
	for range 2 { // the first makes the set
		hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/told", body)
	}
	hubtest.Publish(t, h, "told", hubtest.Change("a"))
	check := func() {
		t.Helper()
		v := hubtest.Get[struct{ Title, DescribedBy string }](t, h.URL+"/sets/told")
		if v.Title != "Grüße <&>" || v.DescribedBy != about {
			t.Errorf("the set is described as %+v", v)
		}
		if page := hubtest.Must(t, http.StatusOK, http.MethodGet, h.URL+"/", nil); !strings.Contains(string(page.Body), "Grüße &lt;&amp;&gt;") {
			t.Errorf("the page for people has no title: %s", page.Body)
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
		described("Source Description", hubtest.Document(t, h.URL+"/.well-known/resourcesync").Items[0].Links)
		described("set's Source Description", hubtest.Document(t, h.URL+"/sets/told/.well-known/resourcesync").Items[0].Links)
		described("Capability List", hubtest.Document(t, h.URL+"/sets/told/capabilitylist.xml").Links)
	}
	check()
	for _, bad := range []string{`{"name":"x"}`, `{"title":"a\nb"}`, `{"describedby":"about.html"}`, `[]`, ``, `{"title":"` + strings.Repeat("x", 1001) + `"}`} {
		a := hubtest.Must(t, http.StatusBadRequest, http.MethodPut, h.URL+"/sets/told", []byte(bad))
		if p, err := hubtest.ProblemOf(a); err != nil {
			t.Errorf("%s: %+v, %v", bad, p, err)
		}
	}
	check()
	h.Kill()
	h.Start(t)
	check()
}

// TestDelete deletes a set under its followers.
func TestDelete(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	const set = "doomed"
	hubtest.Publish(t, h, set, hubtest.Changes("a", 10))
	var followers []*hubtest.Follower
	for _, way := range hubtest.AllWays {
		f := hubtest.Follow(t, h, way, set, "start")
		f.Has(t, 10)
		followers = append(followers, f)
	}
	hubtest.Must(t, http.StatusNoContent, http.MethodDelete, h.URL+"/sets/"+set, nil)
	gone := func(f *hubtest.Follower, how string) {
		t.Helper()
		if end := f.Ended(t, how); !strings.HasPrefix(end, hubtest.ErrGone.Error()) {
			t.Errorf("the %s ends with %q", f.Way, end)
		}
	}
	gone(followers[0], "close 4410")
	gone(followers[1], "event gone")
	gone(followers[2], `"status":410`)
	if end := followers[0].Ends[0]; !strings.Contains(end, "read the resources") {
		t.Errorf("the WebSocket is told %q", end)
	}
	// Who comes later with the old cursor learns the same, also once the set is
	// made anew.
	for range 2 {
		old := followers[0].At()
		gone(hubtest.Follow(t, h, hubtest.ByWebSocket, set, old), "close 4410")
		gone(hubtest.Follow(t, h, hubtest.ByEvents, set, old), "410 Gone")
		gone(hubtest.Follow(t, h, hubtest.ByPolling, set, old), `"status":410`)
		hubtest.Publish(t, h, set, hubtest.Changes("new", 3))
	}
	for _, way := range hubtest.AllWays {
		hubtest.Follow(t, h, way, set, "start").Has(t, 6)
	}
	hubtest.Same(t, "the walk over all Change Lists", hubtest.Walk(t, h, set), hubtest.Memory(t, h, set))
}

// TestHubPublish publishes to the hub's own URL (Change Notification section 4.1).
func TestHubPublish(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	f := hubtest.Follow(t, h, hubtest.ByWebSocket, "linked", "start")
	notification := `<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
<rs:md capability="change-notification" from="2026-01-01T00:00:00Z" until="2026-01-01T01:00:00Z"/>
<url><loc>https://example.org/a</loc><lastmod>2026-01-01T00:30:00Z</lastmod>
<rs:md change="updated" datetime="2026-01-01T00:30:00Z" hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6" length="8876" type="text/html"/>
<rs:ln rel="describedby" href="https://example.org/a.xml"/></url></urlset>`
	topic, self, hub := h.Topic("linked"), `rel="self"`, `rel="hub"`
	for i, links := range [][]string{
		{fmt.Sprintf("Link: <%s>; %s, <%s/hub>; %s", topic, self, h.URL, hub)},
		{fmt.Sprintf("Link: <%s/hub>; %s,<%s>;%s", h.URL, hub, topic, self)},
		{fmt.Sprintf("Link: <%s>; rel=self", topic), fmt.Sprintf("Link: <https://other.example/hub>; rel=hub, <%s/hub>; type=\"a,b\"; rel=\"x HUB\"", h.URL)},
	} {
		a := hubtest.Must(t, http.StatusOK, http.MethodPost, h.URL+"/hub", []byte(notification), append(links, "Content-Type: application/xml")...)
		var r hubtest.Receipt
		hubtest.Decode(t, a.Body, &r)
		// The same document, with its interval, is the same publish.
		if r.Set != "linked" || r.Count != 1 || r.Replayed != (i > 0) || !strings.HasPrefix(r.Cursor, "1-") {
			t.Errorf("%q: %+v", links, r)
		}
	}
	want, err := trial.ParseEntry([]byte(`{"loc":"https://example.org/a","change":"updated","datetime":"2026-01-01T00:30:00Z","lastmod":"2026-01-01T00:30:00Z",
		"hash":"md5:1584abdf8ebdc9802ac0c6a7402c03b6","length":8876,"type":"text/html","ln":[{"rel":"describedby","href":"https://example.org/a.xml"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	hubtest.SameTexts(t, "the follower", f.Has(t, 1), []string{want.Text})
	for _, links := range [][]string{
		nil,
		{fmt.Sprintf("Link: <%s>; %s", topic, self)},
		{fmt.Sprintf("Link: <%s/hub>; %s", h.URL, hub)},
		{fmt.Sprintf("Link: <%s>; %s, <https://other.example/hub>; %s", topic, self, hub)},
		{fmt.Sprintf("Link: <https://other.example/sets/linked/changes>; %s, <%s/hub>; %s", self, h.URL, hub)},
		{fmt.Sprintf("Link: <%s/sets/A B/changes>; %s, <%s/hub>; %s", h.URL, self, h.URL, hub)},
		{fmt.Sprintf("Link: <%s>; %s, <%s2>; %s, <%s/hub>; %s", topic, self, topic, self, h.URL, hub)},
	} {
		a := hubtest.Must(t, http.StatusBadRequest, http.MethodPost, h.URL+"/hub", []byte(notification), append(links, "Content-Type: application/xml")...)
		if p, err := hubtest.ProblemOf(a); err != nil || !strings.Contains(p.Detail, "/hub>") && !strings.Contains(p.Detail, "/sets/SET/changes") {
			t.Errorf("%q: %+v, %v", links, p, err)
		}
	}
	if at := hubtest.Head(t, h, "linked"); !strings.HasPrefix(at, "1-") {
		t.Errorf("the set is at %s", at)
	}
}
