package publish

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A pinger is a source with a Change List that pings hubs when the list grows.
type pinger struct {
	url string // URL of the list

	mu       sync.Mutex
	entries  []string // locs
	requests int
}

func startPinger(t *testing.T) *pinger {
	p := &pinger{}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	p.url = s.URL + "/changelist.xml"
	return p
}

// add adds changes to the list, two per second.
func (p *pinger) add(locs ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entries = append(p.entries, locs...)
}

func (p *pinger) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	var b bytes.Buffer
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
<rs:md capability="changelist" from="2026-01-01T00:00:00Z"/>
`)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, loc := range p.entries {
		fmt.Fprintf(&b, `<url><loc>%s</loc><rs:md change="created" datetime="%s"/></url>`+"\n", loc, start.Add(time.Duration(i/2)*time.Second).Format(time.RFC3339))
	}
	b.WriteString("</urlset>\n")
	_, _ = w.Write(b.Bytes())
}

// requestCount returns the number of requests for the list.
func (p *pinger) requestCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// ping sends a ping for a topic to a hub, with either name of the parameter.
func ping(t testing.TB, h *hubtest.Hub, topic, name string) {
	t.Helper()
	form := url.Values{"hub.mode": {"publish"}, name: {topic}}
	hubtest.Must(t, http.StatusNoContent, http.MethodPost, h.URL+"/hub", []byte(form.Encode()), "Content-Type: application/x-www-form-urlencoded")
}

// TestPing has a source that only pings two hubs. Followers receive every change of its Change List
// once.
func TestPing(t *testing.T) {
	t.Parallel()
	c := hubtest.StartCluster(t, 2, hubtest.CallbackEnv...)
	one, two, topic := c.Hubs[0], c.Hubs[1], c.Hubs[0].Topic("pings")
	p := startPinger(t)
	var want []string
	grow := func(n int) {
		var locs []string
		for range n {
			locs = append(locs, fmt.Sprintf("https://example.org/pinged/%d", len(want)+len(locs)+1))
		}
		want = append(want, locs...)
		p.add(locs...)
	}
	arrived := func(f *hubtest.Follower) {
		t.Helper()
		got := f.WaitEntries(t, len(want))
		for i, e := range got {
			if !strings.Contains(e.Text, `"`+want[i]+`"`) {
				t.Fatalf("got change %d %s, want %s", i+1, e.Text, want[i])
			}
		}
	}
	grow(1501) // the second of the last change is not over yet
	hubtest.Must(t, http.StatusOK, http.MethodPut, two.URL+"/sets/pings", []byte(`{"title":"Pings","changelist":"`+p.url+`"}`))
	if v := hubtest.Get[struct{ ChangeList string }](t, one.URL+"/sets/pings"); v.ChangeList != p.url {
		t.Errorf("change list of the set = %q, want %q", v.ChangeList, p.url)
	}
	f := hubtest.Follow(t, two, hubtest.ByWebSocket, "pings", "start")
	f.WaitStart(t)
	ping(t, one, topic, "hub.url")
	arrived(f)

	// Repeated and concurrent pings deliver only new changes.
	before := p.requestCount()
	ping(t, one, topic, "hub.topic")
	ping(t, two, topic, "hub.topic")
	hubtest.Until(t, "a hub has read the list", func() error { // once for both, if the first poll is still in progress
		if p.requestCount() == before {
			return errors.New("not yet")
		}
		return nil
	})
	grow(2)
	ping(t, one, topic, "hub.url")
	arrived(f)
	for range 20 {
		grow(3)
		ping(t, one, topic, "hub.url")
		ping(t, two, topic, "hub.url")
	}
	arrived(f)
	hubtest.WantEntries(t, "the follower", f.WaitEntries(t, len(want)), hubtest.ReadMemory(t, one, "pings"))

	// A killed hub resumes with its state after the restart.
	one.Kill()
	grow(2)
	ping(t, two, topic, "hub.url")
	arrived(f)
	one.Start(t)
	ping(t, one, topic, "hub.url")
	grow(1)
	ping(t, one, topic, "hub.url")
	arrived(f)
	if n := len(hubtest.ReadMemory(t, two, "pings")); n != len(want) {
		t.Errorf("got %d changes, want %d", n, len(want))
	}
}
