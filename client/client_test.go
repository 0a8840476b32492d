package client_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/resourcesync"
)

func TestNew(t *testing.T) {
	for _, tt := range []struct{ name, url, token, want string }{
		{"token", "https://hub.example.org", "t0ken", ""},
		{"path", "http://[::1]:8080/hub/", "", ""},
		{"empty", "", "", "must be like"},
		{"no scheme", "hub.example.org", "", "must be like"},
		{"another scheme", "ftp://hub.example.org", "", "must be like"},
		{"no host", "http:///x", "", "must be like"},
		{"invalid port", "http://me:secret@h:x", "", "must be like"},
		{"password", "https://me:secret@hub.example.org", "", "a user and password"},
		{"query", "https://hub.example.org?a=b", "", "a query"},
		{"fragment", "https://hub.example.org#a", "", "a fragment"},
		{"newline in token", "https://hub.example.org", "secret\nword", "one word"},
		{"non-ASCII token", "https://hub.example.org", "sécret", "one word"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := client.New(tt.url, client.Options{Token: tt.token})
			if (err == nil) != (tt.want == "") || (c == nil) != (err != nil) {
				t.Errorf("New(%q) with token %q = %v, %v", tt.url, tt.token, c, err)
			}
			if err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret")) {
				t.Errorf("New(%q): got error %v, want %q without the secret", tt.url, err, tt.want)
			}
		})
	}
}

// TestRequestHeaders checks that each request has the token and the user agent.
func TestRequestHeaders(t *testing.T) {
	s := newSite(t)
	for _, tt := range []struct {
		options     client.Options
		auth, agent string
	}{
		{client.Options{}, "", "rshub-client"},
		{client.Options{Token: "t0ken", UserAgent: "mirror/1", HTTP: http.DefaultClient}, "Bearer t0ken", "mirror/1"},
	} {
		c := newClient(t, s.URL+"/", tt.options)
		if _, err := c.Publish(t.Context(), "demo", "", []resourcesync.Change{{Loc: "urn:a", Change: resourcesync.Updated}}); err != nil {
			t.Fatal(err)
		}
		for _, err := range c.Follow(t.Context(), "demo", "start", client.FollowOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		requests := s.received()
		for _, r := range requests[len(requests)-2:] {
			if r.Header.Get("Authorization") != tt.auth || r.Header.Get("User-Agent") != tt.agent || r.URL.Path != "/sets/demo/changes" {
				t.Errorf("got %s %s with the header %v, want Authorization %q and User-Agent %q", r.Method, r.URL, r.Header, tt.auth, tt.agent)
			}
		}
	}
	if http.DefaultClient.CheckRedirect != nil {
		t.Error("New modifies Options.HTTP")
	}
}
