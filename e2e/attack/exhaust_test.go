package attack

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// bombs are documents that are small until they are unpacked.
func bombs() []attack {
	links := `,{"loc":"a:b","change":"updated","ln":[` + strings.Repeat(`{"rel":"a","href":"b:c"},`, 99) + `{"rel":"a","href":"b:c"}]}`
	bomb := func(name, mediaType string, parts ...string) attack {
		body := gzipped(parts...)
		return attack{name, func(a *attacker) {
			a.parallel(3, func(int) {
				a.request(http.MethodPost, a.hub.Topic("evil"), body, a.auth, "Content-Type: "+mediaType, "Content-Encoding: gzip")
			})
			a.only(413, 429, 503)
		}}
	}
	return []attack{
		bomb("bombs of JSON", "application/json", `{"changes":[{"loc":"a:b","change":"updated"}`, strings.Repeat(links, 19_000), "]}"),
		bomb("bombs of XML", "application/xml", `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><url`, strings.Repeat(` a=""`, 9_000_000)),
		bomb("bombs of gzip", "application/json", `{"changes":[{"loc":"`, strings.Repeat("a", 80<<20)),
	}
}

// floods are requests that are small, and many.
func floods() []attack {
	return []attack{
		{"a flood of sets", func(a *attacker) {
			a.parallel(8, func(i int) {
				a.request(http.MethodPut, fmt.Sprintf("%s/sets/evil-%d", a.hub.URL, i), []byte(`{"title":"`+strings.Repeat("evil ", 100)+`"}`), a.auth, "Content-Type: application/json")
			})
			a.only(200, 429)
			if a.statuses[200] > 201 {
				a.t.Errorf("%d sets were made", a.statuses[200])
			}
			list := hubtest.Must(a.t, http.StatusOK, http.MethodGet, a.hub.URL+"/sets", nil)
			if len(list.Body) > 200<<10 {
				a.t.Errorf("the list of sets has %d bytes", len(list.Body))
			}
		}},
		{"a flood of subscriptions", func(a *attacker) {
			a.parallel(8, func(i int) {
				form := trial.Form("subscribe", fmt.Sprintf("http://%s:9999/%d", lair.IP, i), a.hub.Topic(calmSet)).Encode()
				a.request(http.MethodPost, a.hub.URL+"/hub", []byte(form), trial.AsForm)
			})
			a.only(202, 429)
		}},
		{"guesses of tokens", func(a *attacker) {
			a.parallel(8, func(i int) {
				a.request(http.MethodGet, a.hub.URL+"/sets", nil, fmt.Sprintf("Authorization: Bearer rshub_%d", i))
			})
			a.only(401, 429)
		}},
	}
}
