package discovery_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rshub/rshub/internal/source/discovery"
	"github.com/rshub/rshub/internal/source/harvest"
)

const wellKnownCatalog = "/.well-known/api-catalog"

// catalogOf returns an API catalog with contexts.
func catalogOf(contexts ...string) string {
	return "Content-Type: application/linkset+json;profile=\"https://www.rfc-editor.org/info/rfc9727\"\n" +
		`{"linkset":[` + strings.Join(contexts, ",") + `]}`
}

// specified returns a context whose service-doc is a specification, as FAIRiCat has it.
func specified(anchor, specification string, more ...string) string {
	return `{"anchor":"` + anchor + `","service-doc":[{"href":"` + specification + `","type":"text/html"}]` + strings.Join(more, "") + `}`
}

const (
	specRS  = "http://www.openarchives.org/rs/1.1/resourcesync"
	specOAI = "https://www.openarchives.org/OAI/openarchivesprotocol.html"
	specMap = "https://www.sitemaps.org/protocol.html"

	identify = `<?xml version="1.0"?><OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/"><responseDate>2026-01-01T00:00:00Z</responseDate>` +
		`<request verb="Identify">BASE/odd/oai</request><Identify><repositoryName>Odd</repositoryName><baseURL>BASE/odd/oai</baseURL>` +
		`<protocolVersion>2.0</protocolVersion><earliestDatestamp>2026-01-01</earliestDatestamp><deletedRecord>no</deletedRecord>` +
		`<granularity>YYYY-MM-DD</granularity></Identify></OAI-PMH>`
)

func TestFindInCatalog(t *testing.T) {
	t.Parallel()
	list := document("urlset", "", "<url><loc>https://example.org/a</loc></url>")
	capabilities := document("urlset", "capabilitylist", entry("BASE/odd/list.xml", "resourcelist"))
	described := document("urlset", "description", entry("BASE/odd/cap.xml", "capabilitylist"))
	files := site{
		"/": "<html>hello", "/odd/map": list, "/odd/cap.xml": capabilities, "/odd/rs": described,
		"/rs/.well-known/resourcesync": described, "/odd/oai?verb=Identify": identify, "/odd/oai2?verb=Identify": identify,
		"/odd/urls": "Content-Type: text/plain\nhttps://example.org/a\n", "/odd/page": "<html>sitemaps",
		"/sitemap.xml": list,
	}
	capable := discovery.Source{CapabilityList: "BASE/odd/cap.xml", ResourceList: "BASE/odd/list.xml"}
	repository := discovery.Source{Repository: "BASE/odd/oai", Sitemap: "BASE/sitemap.xml"}
	fallback := discovery.Source{Sitemap: "BASE/sitemap.xml"}
	for _, tt := range []struct {
		name string
		path string
		more site
		want discovery.Source
	}{
		{"ResourceSync by its specification", "/", site{wellKnownCatalog: catalogOf(specified("/odd/rs", specRS))}, capable},
		{"ResourceSync by service-meta", "/", site{wellKnownCatalog: catalogOf(specified("/", specRS, `,"service-meta":[{"href":"/odd/rs"}]`))}, capable},
		{"ResourceSync by a well-known item", "/", site{wellKnownCatalog: catalogOf(`{"anchor":"/","item":[{"href":"BASE/rs/.well-known/resourcesync"}]}`)}, capable},
		{"ResourceSync by its relation", "/", site{wellKnownCatalog: catalogOf(`{"anchor":"/","resourcesync":[{"href":"/odd/cap.xml"}]}`)}, capable},
		{"ResourceSync named twice", "/", site{wellKnownCatalog: catalogOf(specified("/odd/rs", specRS), specified("/odd/cap.xml", specRS))}, capable},
		{"ResourceSync before the others", "/", site{wellKnownCatalog: catalogOf(specified("/odd/map", specMap), specified("/odd/oai", specOAI), specified("/odd/cap.xml", specRS))}, capable},
		{"a repository", "/", site{wellKnownCatalog: catalogOf(specified("/odd/oai", specOAI))}, repository},
		{"a repository by Identify", "/", site{wellKnownCatalog: catalogOf(`{"anchor":"/","service-meta":[{"href":"odd/../../odd/oai?verb=Identify"}]}`)}, repository},
		{"a repository by a profile", "/", site{wellKnownCatalog: catalogOf(`{"anchor":"/","item":[{"href":"/odd/oai","profile":["http://www.openarchives.org/OAI/2.0/"]}]}`)}, repository},
		{"a repository and a sitemap", "/", site{wellKnownCatalog: catalogOf(specified("/odd/map", specMap), specified("/odd/oai", specOAI))}, discovery.Source{Repository: "BASE/odd/oai", Sitemap: "BASE/odd/map"}},
		{"two repositories", "/", site{wellKnownCatalog: catalogOf(specified("/odd/oai", specOAI), specified("/odd/oai2", specOAI))}, fallback},
		{"not a repository", "/", site{wellKnownCatalog: catalogOf(specified("/odd/map", specOAI))}, fallback},
		{"a sitemap", "/", site{wellKnownCatalog: catalogOf(specified("/odd/map", specMap))}, discovery.Source{Sitemap: "BASE/odd/map"}},
		{"a sitemap as text", "/", site{wellKnownCatalog: catalogOf(specified("/odd/urls", specMap))}, discovery.Source{Sitemap: "BASE/odd/urls"}},
		{"a page about sitemaps", "/", site{wellKnownCatalog: catalogOf(specified("/odd/page", specMap))}, fallback},
		{"two sitemaps", "/", site{wellKnownCatalog: catalogOf(specified("/odd/map", specMap), specified("/odd/urls", specMap))}, fallback},
		{"as application/json", "/", site{wellKnownCatalog: "Content-Type: application/json\n" + `{"linkset":[` + specified("/odd/map", specMap) + `]}`}, discovery.Source{Sitemap: "BASE/odd/map"}},
		{"nested", "/", site{wellKnownCatalog: catalogOf(`{"anchor":"/","api-catalog":"/nested"}`), "/nested": catalogOf(specified("odd/map", specMap))}, discovery.Source{Sitemap: "BASE/odd/map"}},
		{"nested as an item", "/", site{wellKnownCatalog: catalogOf(`{"item":[{"href":"/nested","type":"application/linkset+json"}]}`), "/nested": catalogOf(specified("odd/map", specMap))}, discovery.Source{Sitemap: "BASE/odd/map"}},
		{"nested twice", "/", site{
			wellKnownCatalog: catalogOf(`{"api-catalog":[{"href":"/nested"}]}`), "/nested": catalogOf(`{"api-catalog":[{"href":"/again"}]}`), "/again": catalogOf(specified("odd/map", specMap)),
		}, fallback},
		{"in a circle", "/", site{wellKnownCatalog: catalogOf(`{"api-catalog":[{"href":"` + wellKnownCatalog + `"}]}`)}, fallback},
		{"linked from a page", "/home", site{"/home": "<html><link rel=api-catalog href=/mine>", "/mine": catalogOf(specified("/odd/oai", specOAI))}, discovery.Source{Repository: "BASE/odd/oai"}},
		{"the URL itself", "/mine", site{"/mine": catalogOf(specified("/odd/map", specMap))}, discovery.Source{Sitemap: "BASE/odd/map"}},
		{"after the well-known URI of ResourceSync", "/", site{"/.well-known/resourcesync": described, wellKnownCatalog: catalogOf(specified("/odd/map", specMap))}, capable},
		{"without what it names", "/", site{wellKnownCatalog: catalogOf(specified("/no/rs", specRS), specified("/no/oai", specOAI), specified("/no/map", specMap))}, fallback},
		{"of other schemes", "/", site{wellKnownCatalog: catalogOf(specified("file:///etc/passwd", specRS), specified("ftp://localhost/oai", specOAI), specified("mailto:a", specMap))}, fallback},
		{"a page with status 200", "/", site{wellKnownCatalog: "<html>hello"}, fallback},
		{"not JSON", "/", site{wellKnownCatalog: "Content-Type: application/linkset+json\nhello"}, fallback},
		{"of another shape", "/", site{wellKnownCatalog: "Content-Type: application/json\n" + `{"linkset":{"anchor":1}}`}, fallback},
		{"of other types", "/", site{wellKnownCatalog: catalogOf(`1`, `{"anchor":{},"item":[1,null,{"href":2}],"service-doc":{}}`)}, fallback},
		{"too large", "/", site{wellKnownCatalog: catalogOf(specified("/odd/map", specMap), `"`+strings.Repeat("a", 1<<20)+`"`)}, fallback},
		{"a redirect in a circle", "/", site{wellKnownCatalog: "Location: " + wellKnownCatalog + "\n"}, fallback},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			all := site{}
			for _, s := range []site{files, tt.more} {
				for path, text := range s {
					all[path] = text
				}
			}
			base := all.start(t)
			got, err := discovery.Find(t.Context(), getter(), base+tt.path)
			want := tt.want
			for _, field := range []*string{&want.CapabilityList, &want.ResourceList, &want.Repository, &want.Sitemap} {
				*field = strings.Replace(*field, "BASE", base, 1)
			}
			if err != nil || !reflect.DeepEqual(*got, want) {
				t.Errorf("Find(%s) = %+v, %v, want %+v", tt.path, got, err, want)
			}
		})
	}
}

func TestFindInCatalogFails(t *testing.T) {
	t.Parallel()
	const busy = "Retry-After: 60\n"
	list := document("urlset", "capabilitylist")
	several := func(err error) bool {
		several, ok := errors.AsType[*discovery.MultipleSets](err)
		return ok && len(several.Sets) == 2
	}
	for _, tt := range []struct {
		name string
		site site
		is   func(err error) bool
	}{
		{"a busy catalog", site{wellKnownCatalog: busy}, harvest.IsAway},
		{"a busy repository", site{wellKnownCatalog: catalogOf(specified("/oai", specOAI)), "/oai?verb=Identify": busy}, harvest.IsAway},
		{"a busy sitemap", site{wellKnownCatalog: catalogOf(specified("/map", specMap)), "/map": busy}, harvest.IsAway},
		{"a busy nested catalog", site{wellKnownCatalog: catalogOf(`{"api-catalog":[{"href":"/nested"}]}`), "/nested": busy}, harvest.IsAway},
		{"several sets", site{wellKnownCatalog: catalogOf(specified("/a", specRS), specified("/b", specRS)), "/a": list, "/b": list}, several},
		{"several repositories", site{wellKnownCatalog: catalogOf(specified("/a", specOAI), specified("/b", specOAI))}, func(err error) bool {
			return strings.Contains(err.Error(), "names 2 repositories that speak OAI-PMH: use the URL of one, such as http")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.site["/"] = "<html>hello"
			if got, err := discovery.Find(t.Context(), getter(), tt.site.start(t)); err == nil || !tt.is(err) {
				t.Errorf("Find = %+v, %v, want another error", got, err)
			}
		})
	}
}

// A request to an address that the rules forbid is not made, and the search continues.
func TestFindInCatalogChecksAddresses(t *testing.T) {
	t.Parallel()
	base := site{
		"/": "<html>hello", "/sitemap.xml": document("urlset", ""),
		wellKnownCatalog: catalogOf(specified("/forbidden/rs", specRS), specified("/forbidden/oai", specOAI), `{"api-catalog":"/forbidden/catalog"}`),
	}.start(t)
	g := getter()
	var refused atomic.Int32
	g.Check = func(_, target string) error {
		if strings.Contains(target, "/forbidden") {
			refused.Add(1)
			return errors.New("the rules forbid it")
		}
		return nil
	}
	got, err := discovery.Find(t.Context(), g, base)
	if want := (discovery.Source{Sitemap: base + "/sitemap.xml"}); err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("Find = %+v, %v, want %+v", got, err, want)
	}
	if n := refused.Load(); n != 3 {
		t.Errorf("checks that failed: got %d, want 3", n)
	}
}

func TestFindInCatalogAccept(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, isCatalog := r.Header.Get("Accept"), r.URL.Path == wellKnownCatalog
		if strings.HasPrefix(got, "application/linkset+json, ") != isCatalog {
			t.Errorf("Accept for %s = %q, want application/linkset+json first only for the catalog", r.URL.Path, got)
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(s.Close)
	if got, err := discovery.Find(t.Context(), getter(), s.URL); err == nil {
		t.Errorf("Find = %+v, want an error", got)
	}
}
