package relay_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/source/relay"
	"github.com/rshub/rshub/internal/testutil/pipetest"
)

// Only the address of a site is known, and its list moves.
func TestSiteOfMovingList(t *testing.T) {
	s := new(site)
	w := newWorld(t, s)
	w.opts.Find = func(ctx context.Context) (relay.Source, error) { return relay.Find(ctx, w.getter(), w.url) }
	s.put("/", "<html>hello")
	s.put("/robots.txt", "Sitemap: /a.xml\nSitemap: /b.xml\n")
	s.put("/a.xml", listOf("a1@2026-01-01", "a2@2026-01-01"))
	s.put("/b.xml", listOf("b1@2026-01-01", "a2@2026-01-01"))
	w.begin("/")
	if res := w.pollWant("compared 3 0 0"); !res.Complete {
		t.Errorf("Poll() = %+v, want a complete one", res)
	}
	w.pollWant("unchanged 0 0 0")
	s.put("/b.xml", listOf("b1@2026-02-01", "a2@2026-01-01"))
	w.pollWant("compared 0 1 0")
	s.put("/robots.txt", "User-agent: *\nDisallow:")
	w.pollWant("robots.txt names no sitemap")
	s.drop("/robots.txt")
	s.drop("/a.xml")
	w.pollWant("the answer is 404") // nothing else exists either
	s.put("/sitemap.xml", listOf("a1@2026-01-01", "b1@2026-02-01"))
	w.pollWant("compared 0 0 1")
	w.pollWant("unchanged 0 0 0")
	w.wantLocs("a1", "b1")
	if len(w.notes) != 1 || !strings.Contains(w.notes[0], "at another URL") {
		t.Errorf("got notes %q", w.notes)
	}
	s.put("/sitemap.xml", listOf())
	w.pollWant("the source lists no resources")
}

// After a source has moved, the deletions of the day still count.
func TestMovedSourceKeepsDeletions(t *testing.T) {
	s := new(site)
	w := newWorld(t, s)
	w.opts.Find = func(ctx context.Context) (relay.Source, error) { return relay.Find(ctx, w.getter(), w.url) }
	s.put("/", "<html>hello")
	s.put("/robots.txt", "Sitemap: /a.xml\n")
	s.put("/a.xml", listOf(strings.Fields("a b c d e f g h i j k l")...))
	w.begin("/")
	w.pollWant("compared 12 0 0")
	s.put("/a.xml", listOf("a", "b", "c", "d"))
	w.pollWant("compared 0 0 8")
	s.drop("/robots.txt")
	s.drop("/a.xml")
	s.put("/sitemap.xml", listOf("a"))
	w.pollWant("3 more of the 12 known resources would be deleted, after 8 within a day")
	w.wantLocs("a", "b", "c", "d")
}

// The lists move, and at the new place do not reach back to their Resource List. The hub knows
// later changes than that list, so nothing older is published.
func TestMovedIncompleteLists(t *testing.T) {
	s := both()
	w := newWorld(t, s)
	w.opts.Find = func(ctx context.Context) (relay.Source, error) { return relay.Find(ctx, w.getter(), w.url+"/cap.xml") }
	list := resourcesAt(10, "a@"+minute(1), "b@"+minute(2))
	s.put("/list.xml", list)
	s.put("/changes.xml", changesOf(0, "b deleted 11", "c created 12"))
	w.begin("/cap.xml")
	w.pollWant("compared 2 0 0")
	s.drop("/list.xml")
	s.drop("/changes.xml")
	s.put("/moved/list.xml", list)
	s.put("/moved/changes.xml", changesOf(13, "d created 14"))
	s.put("/cap.xml", strings.ReplaceAll(s.docs["/cap.xml"], "HOST/", "HOST/moved/"))
	w.pollWant("changes 1 0 0")
	w.wantLocs("a", "c", "d")
}

// While a server is busy, Find starts over when the server allows it.
func TestFindBusyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network pipetest.Network
		defer network.Close()
		n := 0
		network.Serve("a.example:80", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if n++; n == 1 {
				w.Header().Set("Retry-After", "77")
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			_, _ = io.WriteString(w, listOf("a"))
		}))
		transport := network.Transport()
		defer transport.CloseIdleConnections()
		var notes []string
		g := &harvest.Getter{Client: &http.Client{Transport: transport}, Tries: 2, Note: func(err error, _ time.Duration) { notes = append(notes, err.Error()) }}
		begin := time.Now()
		source, err := relay.Find(t.Context(), g, "http://a.example/list?key=SECRET")
		if err != nil || source.ResourceList == "" || time.Since(begin) < 77*time.Second || len(notes) != 1 || strings.Contains(notes[0], "SECRET") {
			t.Errorf("after %v: Find() = %+v, %v with notes %q, want a list after 77 s, and one note without the secret", time.Since(begin), source, err, notes)
		}
	})
}

func TestFindNoSource(t *testing.T) {
	s := new(site)
	w := newWorld(t, s)
	s.put("/page", "<html><body>hello</body></html>")
	s.put("/list.txt", "https://a.example/1\n")
	if _, err := relay.Find(t.Context(), w.getter(), w.url+"/page"); err == nil || !strings.Contains(err.Error(), "find a source at the URL") {
		t.Errorf("Find() error = %v, want it to name the URL", err)
	}
	if source, err := relay.Find(t.Context(), w.getter(), w.url+"/list.txt"); err != nil || source.ResourceList == "" {
		t.Errorf("Find() = %+v, %v, want a Resource List", source, err)
	}
}

// The API catalog of a site names a repository. Callers that only read lists get the sitemap.
func TestFindInCatalog(t *testing.T) {
	t.Parallel()
	s := http.NewServeMux()
	s.HandleFunc("/.well-known/api-catalog", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/linkset+json")
		_, _ = io.WriteString(w, `{"linkset":[{"anchor":"/odd/oai","service-doc":[{"href":"http://www.openarchives.org/OAI/2.0/openarchivesprotocol.htm"}]}]}`)
	})
	s.HandleFunc("/odd/oai", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/"><Identify><repositoryName>Odd</repositoryName><baseURL>x</baseURL>`+
			`<earliestDatestamp>2026-01-01</earliestDatestamp><deletedRecord>no</deletedRecord><granularity>YYYY-MM-DD</granularity></Identify></OAI-PMH>`)
	})
	s.HandleFunc("/sitemap.xml", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, listOf("a@2026-01-01")) })
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	getter := &harvest.Getter{Client: server.Client(), Tries: 1}
	got, err := relay.Find(t.Context(), getter, server.URL)
	if err != nil || got.Repository == nil || got.Repository.URL != server.URL+"/odd/oai" {
		t.Errorf("Find = %+v, %v, want the repository %s/odd/oai", got, err, server.URL)
	}
	got, err = relay.FindList(t.Context(), getter, server.URL)
	if want := (relay.Source{ResourceList: server.URL + "/sitemap.xml"}); err != nil || got != want {
		t.Errorf("FindList = %+v, %v, want %+v", got, err, want)
	}
}
