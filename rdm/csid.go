package rdm

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/resourcesync"
)

// csidScheme begins each Catalog Service ID.
const csidScheme = "x-catalog://"

// csid returns the Catalog Service ID of a set; of the whole hub if set is empty.
func (s *Server) csid(set string) string { return csidScheme + authority(string(s.base)) + "/" + set }

// authority returns host and port of a URL, also if the port is that of its scheme.
func authority(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	port := map[string]string{"https": "443"}[u.Scheme]
	host := strings.ToLower(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + cmp.Or(u.Port(), port, "80")
}

// catalogue returns the set that a Catalog Service ID names, as x-catalog://HOST:PORT/SET
// or by the name of the set alone. HOST:PORT is the hub's own, or that by which the request
// came: the message is not for another server. Without an ID, and without a set in it, the
// message is about the whole hub, and set is empty.
func (s *Server) catalogue(r *http.Request, csid string) (set string, err error) {
	if csid == "" {
		return "", nil
	}
	set = csid
	if len(csid) >= len(csidScheme) && strings.EqualFold(csid[:len(csidScheme)], csidScheme) {
		host, name, _ := strings.Cut(csid[len(csidScheme):], "/")
		scheme, _, _ := strings.Cut(string(s.base), ":")
		given := authority(scheme + "://" + host)
		if given != authority(string(s.base)) && (r.Host == "" || given != authority(scheme+"://"+r.Host)) {
			return "", problem.New(http.StatusNotFound, "no-such-set", "the Catalog-Service-ID names another server than this one, whose catalogues are "+s.csid("SET"))
		}
		if set = name; set == "" {
			return "", nil // the whole hub
		}
	}
	return set, feed.CheckSet(set)
}

// need returns an error if a message that is about a set names none.
func (s *Server) need(m *message, set string) error {
	if set != "" {
		return nil
	}
	return resourcesync.Invalid("a %s names the catalogue that it is about (Catalog-Service-ID, in a URL csid): %s; this hub has no default", m.kind, s.csid("SET"))
}
