package discovery

import (
	"net/url"
	"strings"
	"testing"
)

// FuzzLinkset checks that the URLs of a linkset are bounded and absolute, whatever the input.
func FuzzLinkset(f *testing.F) {
	for _, seed := range []string{
		`{"linkset":[{"anchor":"/oai","service-doc":[{"href":"https://www.openarchives.org/OAI/openarchivesprotocol.html"}],"service-meta":[{"href":"/oai?verb=Identify"}]}]}`,
		`{"linkset":[{"anchor":"","item":[{"href":"a","type":"application/linkset+json","profile":"http://www.sitemaps.org/"}],"api-catalog":"b"}]}`,
		`{"linkset":[{"service-doc":{"href":"http://www.openarchives.org/rs/","profile":["x",1]},"sitemap":[null,1,"c"]}]}`,
		`{"linkset":{}}`, `[]`, ``,
	} {
		f.Add(seed)
	}
	base := &url.URL{Scheme: "https", Host: "example.org", Path: "/.well-known/api-catalog"}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := readLinkset(strings.NewReader(text), base)
		if err != nil {
			t.Fatalf("readLinkset(%q) = %v", text, err)
		}
		if l == nil {
			return
		}
		all := [][]string{l.nested}
		for kind, services := range l.services {
			if len(services) > maxServices {
				t.Errorf("services of kind %d: got %d, want at most %d", kind, len(services), maxServices)
			}
			for _, s := range services {
				if len(s) == 0 || len(s) > maxDescs+1 {
					t.Errorf("URLs of a service: got %d, want 1 to %d", len(s), maxDescs+1)
				}
				all = append(all, s)
			}
		}
		if len(l.nested) > maxNested {
			t.Errorf("nested catalogs: got %d, want at most %d", len(l.nested), maxNested)
		}
		for _, urls := range all {
			for _, at := range urls {
				if u, err := url.Parse(at); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
					t.Errorf("URL %q: got %v, %v, want one of http or https", at, u, err)
				}
			}
		}
	})
}
