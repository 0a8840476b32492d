package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A website serves a sitemap at each path, with a variable number of pages.
type website struct {
	*httptest.Server
	mu       sync.Mutex
	pages    int
	requests map[string]int // by path
}

func newWebsite(t *testing.T) *website {
	w := &website{pages: 3, requests: map[string]int{}}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.requests[r.URL.Path]++
		if !strings.HasSuffix(r.URL.Path, ".xml") {
			http.NotFound(rw, r)
			return
		}
		fmt.Fprint(rw, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`)
		for i := range w.pages {
			fmt.Fprintf(rw, "<url><loc>https://example.org%s/%d</loc></url>", r.URL.Path, i)
		}
		fmt.Fprint(rw, "</urlset>")
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *website) addPage() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pages++
}

// A polledSet is the response of GET /sets/{set} for a set with a source.
type polledSet struct {
	Source string
	Looked *struct {
		Time, Result, Error      string
		Listed, Created, Deleted int
	}
}

// describe sets the source of a set at a hub.
func describe(t *testing.T, h *hubtest.Hub, set, source string) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"source": source, "every": "1m"})
	if err != nil {
		t.Fatal(err)
	}
	hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/"+set, body, hubtest.AsJSON)
}

// waitPolled waits until a hub reports that it polled the source of a set after a time, and found
// a number of pages.
func waitPolled(t *testing.T, h *hubtest.Hub, set, source string, after time.Time, pages int) (l polledSet) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for last := ""; ; time.Sleep(100 * time.Millisecond) {
		a, err := hubtest.Request(http.MethodGet, h.URL+"/sets/"+set, nil)
		if err == nil {
			last = string(a.Body)
			l = polledSet{}
			err = json.Unmarshal(a.Body, &l)
		}
		if err == nil && l.Source == source && l.Looked != nil && l.Looked.Result == "ok" && l.Looked.Listed == pages {
			if at, err := time.Parse(time.RFC3339, l.Looked.Time); err == nil && at.After(after) {
				return l
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("source of %s was not polled: %s, %v", set, last, err)
		}
	}
}

// TestPoll has two hubs share the polling of sources, independently of the hub that received the
// description. One hub is killed, and the other polls all sources. Both report the same last poll.
func TestPoll(t *testing.T) {
	t.Parallel()
	w := newWebsite(t)
	c := hubtest.StartCluster(t, 2, "RSHUB_CALLBACK_ALLOW=127.0.0.0/8")
	const sets = 8
	name := func(i int) string { return fmt.Sprint("set", i) }
	start := time.Now().Add(-time.Second)
	for i := range sets {
		describe(t, c.Hubs[i%2], name(i), w.URL+"/"+name(i)+".xml")
	}
	for i := range sets {
		source := w.URL + "/" + name(i) + ".xml"
		one, other := waitPolled(t, c.Hubs[0], name(i), source, start, 3), waitPolled(t, c.Hubs[1], name(i), source, start, 3)
		if *one.Looked != *other.Looked || one.Looked.Created != 3 {
			t.Errorf("last poll of %s at the two hubs = %+v and %+v, want the same with 3 created", name(i), one.Looked, other.Looked)
		}
	}
	w.mu.Lock()
	for path, n := range w.requests {
		if strings.HasPrefix(path, "/set") && n > 2 { // for discovery, and for the poll
			t.Errorf("got %d initial requests for %s, want at most 2", n, path)
		}
	}
	w.mu.Unlock()

	// Another hub than the one that polls a set may receive its new source.
	start = time.Now().Add(-time.Second)
	for i := range sets {
		describe(t, c.Hubs[i%2], name(i), w.URL+"/"+name(i)+"-new.xml")
	}
	for i := range sets {
		l := waitPolled(t, c.Hubs[1-i%2], name(i), w.URL+"/"+name(i)+"-new.xml", start, 3)
		if l.Looked.Created != 3 || l.Looked.Deleted != 3 {
			t.Errorf("last poll of %s = %+v, want other counts", name(i), l.Looked)
		}
	}

	c.Hubs[0].Kill()
	w.addPage()
	start = time.Now()
	for i := range sets {
		l := waitPolled(t, c.Hubs[1], name(i), w.URL+"/"+name(i)+"-new.xml", start, 4)
		if l.Looked.Created != 1 {
			t.Errorf("last poll of %s = %+v, want other counts", name(i), l.Looked)
		}
	}
}
