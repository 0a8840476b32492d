// Package ticket serves tickets: short-lived secrets in a URL or a cookie with which a browser
// follows a set that requires a token. A browser cannot send a header with a WebSocket or an event
// stream.
//
// A ticket has at most the rights of the caller that requested it. Package access documents rights.
package ticket

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/trail"
	"github.com/rshub/rshub/resourcesync"
)

// Parameter is the URL parameter with a ticket, and Cookie the cookie with one.
const (
	Parameter = "ticket"
	Cookie    = "rshub-ticket"
)

// FromRequest returns the ticket of a read request, and whether it was in the URL. It removes the
// ticket from the URL. A request with an Authorization header has no ticket.
func FromRequest(r *http.Request) (ticket string, inURL bool) {
	if strings.Contains(r.URL.RawQuery, Parameter) {
		if q := r.URL.Query(); q.Has(Parameter) {
			ticket = q.Get(Parameter)
			q.Del(Parameter)
			u := *r.URL
			u.RawQuery = q.Encode()
			r.URL, r.RequestURI = &u, u.RequestURI()
		}
	}
	switch {
	case r.Header.Get("Authorization") != "" || r.Method != http.MethodGet && r.Method != http.MethodHead:
		return "", false
	case ticket != "":
		return ticket, true
	case r.Header["Cookie"] == nil:
		return "", false
	}
	cookie, err := r.Cookie(Cookie)
	if err != nil {
		return "", false
	}
	return cookie.Value, false
}

// maxRequest is the maximum size of the body of a ticket request in bytes.
const maxRequest = 1 << 10

// A View is the response to a ticket request.
type View struct {
	Ticket  string `json:"ticket,omitempty"`  // empty if the URL needs none, or if it is in a cookie
	Expires string `json:"expires,omitempty"` // end of validity for new requests
	URL     string `json:"url"`               // topic, or URL to follow many sets, including the ticket
}

// Serve issues a ticket to the caller of r for following a set in a browser, or all sets that the
// caller may follow if set is empty. A caller that may follow without a token gets only the URL. base
// is the URL of the hub. tickets may be nil if no callers have names.
func Serve(w http.ResponseWriter, r *http.Request, base feed.Base, set string, tickets *access.Tickets) error {
	if r.Method != http.MethodPost {
		return problem.NotAllowed(r, "POST")
	}
	trail.FromContext(r.Context()).SetAction(trail.Ticket, set)
	view := View{URL: base.Changes()}
	if set != "" {
		if err := access.MayFollow(r.Context(), set); err != nil {
			return err
		}
		view.URL = base.Topic(set)
	}
	lifetime, cookie, err := readRequest(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		return err
	}
	if caller := access.FromContext(r.Context()); caller.Name != "" {
		text, expires, err := tickets.New(r.Context(), caller, set, lifetime)
		if err != nil {
			return err
		}
		view.Expires = string(resourcesync.AppendTime(nil, expires))
		if cookie {
			http.SetCookie(w, cookieOf(base, set, text, expires))
		} else {
			view.Ticket = text
			view.URL += "?" + url.Values{Parameter: {text}}.Encode()
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(view)
}

// cookieOf returns a cookie with a ticket. A browser sends it only to the URLs of the set, or to the
// URL to follow many sets if set is empty, and only for pages of the same site, and scripts cannot
// read it.
func cookieOf(base feed.Base, set, text string, expires time.Time) *http.Cookie {
	c := &http.Cookie{Name: Cookie, Value: text, Expires: expires, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	own := base.Set(set) + "/"
	if set == "" {
		own = base.Changes()
	}
	if u, err := url.Parse(own); err == nil {
		c.Path, c.Secure = u.EscapedPath(), u.Scheme == "https"
	}
	return c
}

// readRequest reads a ticket request. An empty body selects the defaults.
func readRequest(body io.Reader) (lifetime time.Duration, cookie bool, err error) {
	request := struct {
		Seconds int  `json:"seconds"`
		Cookie  bool `json:"cookie"`
	}{Seconds: int(access.DefaultTicketLifetime / time.Second)}
	text, err := io.ReadAll(body)
	if err != nil {
		return 0, false, err
	}
	if len(text) > 0 {
		err = resourcesync.DecodeJSON(text, &request)
	}
	if err != nil {
		return 0, false, resourcesync.Invalidf(`invalid body: %v; want nothing or {"seconds": 300, "cookie": true or false}`, err)
	}
	if most := int(access.MaxTicketLifetime / time.Second); request.Seconds < 1 || request.Seconds > most {
		return 0, false, resourcesync.Invalidf("invalid seconds; want 1 to %d", most)
	}
	return time.Duration(request.Seconds) * time.Second, request.Cookie, nil
}
