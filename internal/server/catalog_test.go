package server

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/testutil/servertest"
)

func TestCatalog(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, base string }{
		{"at the root", "https://hub.example.org"},
		{"below a path", "https://example.org/rs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := start(t, Config{BaseURL: tt.base})
			h.Publish("demo")
			resp, body := servertest.Do(t, "GET", h.URL+"/.well-known/api-catalog", "")
			link := `<` + tt.base + `/.well-known/api-catalog>; rel="api-catalog"`
			if got := resp.Header.Get("Link"); resp.StatusCode != http.StatusOK || got != link {
				t.Errorf("GET = %d, Link %q, want 200, %q", resp.StatusCode, got, link)
			}
			if got, want := resp.Header.Get("Content-Type"), `application/linkset+json;profile="https://www.rfc-editor.org/info/rfc9727"`; got != want {
				t.Errorf("Content-Type = %q, want %q", got, want)
			}
			var catalog struct {
				Linkset []map[string]json.RawMessage `json:"linkset"`
			}
			if err := json.Unmarshal([]byte(body), &catalog); err != nil {
				t.Fatal(err)
			}
			links := map[string][]string{} // targets, by anchor and relation
			for _, context := range catalog.Linkset {
				for rel, value := range context {
					var targets []linkTarget
					if rel == "anchor" {
						continue
					}
					if err := json.Unmarshal(value, &targets); err != nil {
						t.Errorf("%s: %v", rel, err)
					}
					id := strings.Trim(string(context["anchor"]), `"`) + " " + rel
					for _, to := range targets {
						links[id] = append(links[id], to.Href)
					}
				}
			}
			for id, want := range map[string][]string{
				"/.well-known/api-catalog item":          {tt.base + "/.well-known/resourcesync", tt.base + "/", tt.base + "/hub"},
				"/.well-known/resourcesync service-doc":  {"http://www.openarchives.org/rs/1.1/resourcesync"},
				"/.well-known/resourcesync service-meta": {tt.base + "/.well-known/resourcesync"},
				"/ service-desc":                         {tt.base + "/openapi.json"},
				"/ service-doc":                          {tt.base + "/"},
				"/hub service-desc":                      {tt.base + "/openapi.json"},
				"/hub service-doc":                       {"https://www.w3.org/TR/websub/"},
			} {
				if got := links[tt.base+id]; !slices.Equal(got, want) {
					t.Errorf("links of %s = %q, want %q", id, got, want)
				}
			}
			if strings.Contains(body, "demo") {
				t.Errorf("catalog names a set: %s", body)
			}
			head, empty := servertest.Do(t, "HEAD", h.URL+"/.well-known/api-catalog", "")
			if head.StatusCode != http.StatusOK || head.Header.Get("Link") != link || head.Header.Get("Etag") != resp.Header.Get("Etag") || empty != "" {
				t.Errorf("HEAD = %d, %v, %q, want 200, the header of GET and no body", head.StatusCode, head.Header, empty)
			}
			same, _ := servertest.Do(t, "GET", h.URL+"/.well-known/api-catalog", "", "If-None-Match", resp.Header.Get("Etag"))
			if same.StatusCode != http.StatusNotModified {
				t.Errorf("GET with If-None-Match = %d, want 304", same.StatusCode)
			}
			description, _ := servertest.Do(t, "GET", h.URL+"/.well-known/resourcesync", "")
			if got := description.Header.Get("Link"); got != link {
				t.Errorf("Link of the Source Description = %q, want %q", got, link)
			}
		})
	}
}
