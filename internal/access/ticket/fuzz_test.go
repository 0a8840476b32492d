package ticket

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// FromRequest removes the ticket from the URL before anything can log it, and nothing else.
func FuzzFromRequest(f *testing.F) {
	for _, s := range []string{"ticket=abc", "since=start&ticket=abc&limit=1", "ticket=a&ticket=b", "TICKET=abc", "t%69cket=abc", "ticket", "xticket=abc", "prefix=ticket", "ticket=%zz", "ticket=abc;since=1", "%ticket=1", "ticket=a%00b", "a=b&ticket=&c"} {
		f.Add(s, "")
		f.Add("", s)
	}
	f.Add("ticket=abc", `rshub-ticket="abc"`)
	f.Fuzz(func(t *testing.T, query, cookie string) {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete} {
			r := httptest.NewRequest(method, "/sets/a/changes", nil)
			r.URL.RawQuery, r.RequestURI = query, "/sets/a/changes?"+query
			r.Header.Set("Cookie", "other=1; rshub-ticket="+cookie)
			before := r.URL.Query()
			ticket, inURL := FromRequest(r)
			if method != http.MethodGet && method != http.MethodHead && ticket != "" {
				t.Errorf("FromRequest(%s) = %q, want no ticket", method, ticket)
			}
			if inURL && (ticket == "" || ticket != before.Get(Parameter)) {
				t.Errorf("FromRequest(%q) = %q, want the ticket in the URL", query, ticket)
			}
			if before.Has(Parameter) && strings.Contains(query, Parameter) {
				after := r.URL.Query()
				if after.Has(Parameter) || r.URL.RequestURI() != r.RequestURI {
					t.Errorf("FromRequest(%q) leaves %q and %q", query, r.URL, r.RequestURI)
				}
				if before.Del(Parameter); !maps.EqualFunc(before, after, slices.Equal) {
					t.Errorf("FromRequest(%q): got the query %v, want all other parameters", query, after)
				}
			}
			r.Header.Set("Authorization", "x")
			if ticket, _ := FromRequest(r); ticket != "" {
				t.Errorf("FromRequest() with an Authorization = %q, want no ticket", ticket)
			}
		}
	})
}

// An accepted request is within its limits.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{``, `{}`, `{"seconds":3600,"cookie":true}`, `{"seconds":1e3}`, `{"seconds":-1}`, `{"seconds":99999999999999999999}`, `{"seconds":60}{}`, `null`, `[]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		if lifetime, _, err := readRequest(strings.NewReader(body)); err == nil && (lifetime < time.Second || lifetime > time.Hour) {
			t.Errorf("readRequest(%q) = %v, want 1s to 1h", body, lifetime)
		}
	})
}
