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

// A website has a sitemap at each path, with as many pages as it is told.
type website struct {
	*httptest.Server
	mu    sync.Mutex
	pages int
	asked map[string]int // by path
}

func newWebsite(t *testing.T) *website {
	w := &website{pages: 3, asked: map[string]int{}}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked[r.URL.Path]++
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

func (w *website) grows() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pages++
}

// A polled is what GET /sets/{set} says of a set with a source.
type polled struct {
	Source string
	Looked *struct {
		Time, Result, Error      string
		Listed, Created, Deleted int
	}
}

// describe describes a set with a source at a hub.
func describe(t *testing.T, h *hubtest.Hub, set, source string) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"source": source, "every": "1m"})
	if err != nil {
		t.Fatal(err)
	}
	hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/"+set, body, hubtest.AsJSON)
}

// looked waits until a hub says that the source of a set was looked at after a time, and
// that it has so many pages.
func looked(t *testing.T, h *hubtest.Hub, set, source string, after time.Time, pages int) (l polled) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for last := ""; ; time.Sleep(100 * time.Millisecond) {
		a, err := hubtest.Request(http.MethodGet, h.URL+"/sets/"+set, nil)
		if err == nil {
			last = string(a.Body)
			l = polled{}
			err = json.Unmarshal(a.Body, &l)
		}
		if err == nil && l.Source == source && l.Looked != nil && l.Looked.Result == "ok" && l.Looked.Listed == pages {
			if at, err := time.Parse(time.RFC3339, l.Looked.Time); err == nil && at.After(after) {
				return l
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s was not looked at: %s, %v", set, last, err)
		}
	}
}

// TestPoll has two hubs poll the sources of sets, whichever hub was told of them. One hub is
// killed, and the other polls all. Both say the same of the last look.
func TestPoll(t *testing.T) {
	t.Parallel()
	w := newWebsite(t)
	c := hubtest.StartCluster(t, 2, "RSHUB_CALLBACK_ALLOW=127.0.0.0/8")
	const sets = 8
	name := func(i int) string { return fmt.Sprint("set", i) }
	begin := time.Now().Add(-time.Second)
	for i := range sets {
		describe(t, c.Hubs[i%2], name(i), w.URL+"/"+name(i)+".xml")
	}
	for i := range sets {
		source := w.URL + "/" + name(i) + ".xml"
		one, other := looked(t, c.Hubs[0], name(i), source, begin, 3), looked(t, c.Hubs[1], name(i), source, begin, 3)
		if *one.Looked != *other.Looked || one.Looked.Created != 3 {
			t.Errorf("of %s one hub says %+v, and the other %+v", name(i), one.Looked, other.Looked)
		}
	}
	w.mu.Lock()
	for path, n := range w.asked {
		if strings.HasPrefix(path, "/set") && n > 2 { // to find out what it is, and to read it
			t.Errorf("%s was asked for %d times at first", path, n)
		}
	}
	w.mu.Unlock()

	// A set gets another source from a hub that may not be the one that polls it.
	begin = time.Now().Add(-time.Second)
	for i := range sets {
		describe(t, c.Hubs[i%2], name(i), w.URL+"/"+name(i)+"-new.xml")
	}
	for i := range sets {
		l := looked(t, c.Hubs[1-i%2], name(i), w.URL+"/"+name(i)+"-new.xml", begin, 3)
		if l.Looked.Created != 3 || l.Looked.Deleted != 3 {
			t.Errorf("of %s the look says %+v", name(i), l.Looked)
		}
	}

	c.Hubs[0].Kill()
	w.grows()
	begin = time.Now()
	for i := range sets {
		l := looked(t, c.Hubs[1], name(i), w.URL+"/"+name(i)+"-new.xml", begin, 4)
		if l.Looked.Created != 1 {
			t.Errorf("of %s the look says %+v", name(i), l.Looked)
		}
	}
}
