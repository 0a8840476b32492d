package attack

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// bombs are attacks with documents that expand when they are decompressed.
func bombs() []attack {
	links := `,{"loc":"a:b","change":"updated","ln":[` + strings.Repeat(`{"rel":"a","href":"b:c"},`, 99) + `{"rel":"a","href":"b:c"}]}`
	bomb := func(name, mediaType string, parts ...string) attack {
		body := gzipped(parts...)
		return attack{name, func(a *attacker) {
			a.parallel(3, func(int) {
				a.request(http.MethodPost, a.hub.Topic("evil"), body, a.auth, "Content-Type: "+mediaType, "Content-Encoding: gzip")
			})
			a.wantStatuses(413, 429, 503)
		}}
	}
	return []attack{
		bomb("JSON bombs", "application/json", `{"changes":[{"loc":"a:b","change":"updated"}`, strings.Repeat(links, 19_000), "]}"),
		bomb("XML bombs", "application/xml", `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><url`, strings.Repeat(` a=""`, 9_000_000)),
		bomb("gzip bombs", "application/json", `{"changes":[{"loc":"`, strings.Repeat("a", 80<<20)),
	}
}

// floods are attacks with many small requests.
func floods() []attack {
	return []attack{
		{"flood of sets", func(a *attacker) {
			a.parallel(8, func(i int) {
				a.request(http.MethodPut, fmt.Sprintf("%s/sets/evil-%d", a.hub.URL, i), []byte(`{"title":"`+strings.Repeat("evil ", 100)+`"}`), a.auth, "Content-Type: application/json")
			})
			a.wantStatuses(200, 429)
			if a.statuses[200] > 201 {
				a.t.Errorf("got %d sets, want at most 201", a.statuses[200])
			}
			list := hubtest.Must(a.t, http.StatusOK, http.MethodGet, a.hub.URL+"/sets", nil)
			if len(list.Body) > 200<<10 {
				a.t.Errorf("got list of sets of %d bytes, want at most %d", len(list.Body), 200<<10)
			}
		}},
		{"flood of subscriptions", func(a *attacker) {
			a.parallel(8, func(i int) {
				form := trial.Form("subscribe", fmt.Sprintf("http://%s:9999/%d", attackerAddr.IP, i), a.hub.Topic(calmSet)).Encode()
				a.request(http.MethodPost, a.hub.URL+"/hub", []byte(form), trial.AsForm)
			})
			a.wantStatuses(202, 429)
		}},
		{"token guessing", func(a *attacker) {
			a.parallel(8, func(i int) {
				a.request(http.MethodGet, a.hub.URL+"/sets", nil, fmt.Sprintf("Authorization: Bearer rshub_%d", i))
			})
			a.wantStatuses(401, 429)
		}},
	}
}
