// Package ticket serves tickets: short-lived secrets in a URL or a cookie with which a browser
// follows a set that requires a token. A browser cannot send a header with a WebSocket or an event
// stream.
//
// A ticket has the rights of the caller who requested it, never more. Package access documents
// rights.
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

// A ticket comes in this parameter of a URL, or in this cookie.
const (
	Parameter = "ticket"
	Cookie    = "rshub-ticket"
)

// Take returns the ticket of a request to read, and whether it was in the URL. It removes it
// from there. An Authorization counts more than a ticket.
func Take(r *http.Request) (ticket string, inURL bool) {
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

// maxRequest bounds the body of a request for a ticket, in bytes.
const maxRequest = 1 << 10

// A View is the answer to a request for a ticket.
type View struct {
	Ticket  string `json:"ticket,omitempty"`  // none if the URL needs none, or if it is in a cookie
	Expires string `json:"expires,omitempty"` // when no request may begin with it any more
	URL     string `json:"url"`               // the topic, with the ticket
}

// Serve gives the caller of r a ticket to follow a set with in a browser. A caller that may
// follow the set without a token gets the URL alone. base is the hub's URL. tickets may be
// nil where there are no callers with a name.
func Serve(w http.ResponseWriter, r *http.Request, base feed.Base, set string, tickets *access.Tickets) error {
	if r.Method != http.MethodPost {
		return problem.NotAllowed(r, "POST")
	}
	trail.FromContext(r.Context()).SetAction(trail.Ticket, set)
	if err := access.MayFollow(r.Context(), set); err != nil {
		return err
	}
	lasts, cookie, err := readRequest(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		return err
	}
	view := View{URL: base.Topic(set)}
	if caller := access.FromContext(r.Context()); caller.Name != "" {
		text, expires, err := tickets.New(r.Context(), caller, set, lasts)
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

// cookieOf returns a cookie with a ticket. A browser sends it to nothing but the URLs of the
// set, for no page elsewhere, and no script can read it.
func cookieOf(base feed.Base, set, text string, expires time.Time) *http.Cookie {
	c := &http.Cookie{Name: Cookie, Value: text, Expires: expires, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if u, err := url.Parse(base.Set(set)); err == nil {
		c.Path, c.Secure = u.EscapedPath()+"/", u.Scheme == "https"
	}
	return c
}

// readRequest reads the request for a ticket. An empty body asks for the defaults.
func readRequest(body io.Reader) (lasts time.Duration, cookie bool, err error) {
	asked := struct {
		Seconds int  `json:"seconds"`
		Cookie  bool `json:"cookie"`
	}{Seconds: int(access.TicketLasts / time.Second)}
	text, err := io.ReadAll(body)
	if err != nil {
		return 0, false, err
	}
	if len(text) > 0 {
		err = resourcesync.DecodeJSON(text, &asked)
	}
	if err != nil {
		return 0, false, resourcesync.Invalidf(`the body is nothing or {"seconds": 300, "cookie": true or false}: %v`, err)
	}
	if most := int(access.TicketMost / time.Second); asked.Seconds < 1 || asked.Seconds > most {
		return 0, false, resourcesync.Invalidf("seconds is a number from 1 to %d", most)
	}
	return time.Duration(asked.Seconds) * time.Second, asked.Cookie, nil
}
