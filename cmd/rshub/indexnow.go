package main

import (
	"net/url"
	"regexp"

	"github.com/rshub/rshub/server"
)

var indexNowKey = regexp.MustCompile(`^[a-zA-Z0-9-]{8,128}$`)

// checkIndexNow checks of which sets search engines are told, and how.
func (c *config) checkIndexNow(p *problems) {
	checkSets(p, "RSHUB_INDEXNOW_SETS", c.IndexNowSets)
	seen := map[string]bool{}
	for _, set := range c.IndexNowSets {
		if seen[set] {
			p.add("RSHUB_INDEXNOW_SETS", "has %s twice", set)
		}
		seen[set] = true
	}
	if len(c.IndexNowSets) == 0 {
		if c.IndexNowKey != "" || c.IndexNowKeyLocation != "" {
			p.add("RSHUB_INDEXNOW_SETS", "is empty, and other variables of IndexNow are set: name the sets of which engines are told")
		}
		return
	}
	if !indexNowKey.MatchString(c.IndexNowKey) {
		p.add("RSHUB_INDEXNOW_KEY", "is not 8 to 128 letters, digits and hyphens")
	}
	for _, v := range []struct{ name, url string }{{"RSHUB_INDEXNOW_KEY_LOCATION", c.IndexNowKeyLocation}, {"RSHUB_INDEXNOW_ENDPOINT", c.IndexNowEndpoint}} {
		if u, err := url.Parse(v.url); v.url != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
			p.add(v.name, "is %q; it is a URL that begins with https:// or http://", v.url)
		}
	}
}

// indexNow returns of which sets search engines are told.
func (c *config) indexNow() server.IndexNow {
	return server.IndexNow{Sets: c.IndexNowSets, Key: c.IndexNowKey, KeyLocation: c.IndexNowKeyLocation, Endpoint: c.IndexNowEndpoint}
}
