package client_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/resourcesync"
)

func TestNew(t *testing.T) {
	for _, test := range []struct{ url, token, want string }{
		{"https://hub.example.org", "t0ken", ""},
		{"http://[::1]:8080/hub/", "", ""},
		{"", "", "must be like"},
		{"hub.example.org", "", "must be like"},
		{"ftp://hub.example.org", "", "must be like"},
		{"http:///x", "", "must be like"},
		{"http://me:secret@h:x", "", "must be like"},
		{"https://me:secret@hub.example.org", "", "a user and password"},
		{"https://hub.example.org?a=b", "", "a query"},
		{"https://hub.example.org#a", "", "a fragment"},
		{"https://hub.example.org", "secret\nword", "one word"},
		{"https://hub.example.org", "sécret", "one word"},
	} {
		c, err := client.New(test.url, client.Options{Token: test.token})
		if (err == nil) != (test.want == "") || (c == nil) != (err != nil) {
			t.Errorf("%q with %q: %v", test.url, test.token, err)
		}
		if err != nil && (!strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%q: %v, want %s", test.url, err, test.want)
		}
	}
}

// Each request says who asks.
func TestRequests(t *testing.T) {
	s := newSite(t)
	for _, test := range []struct {
		options     client.Options
		auth, agent string
	}{
		{client.Options{}, "", "rshub-client"},
		{client.Options{Token: "t0ken", UserAgent: "mirror/1", HTTP: http.DefaultClient}, "Bearer t0ken", "mirror/1"},
	} {
		c := newClient(t, s.URL+"/", test.options)
		if _, err := c.Publish(t.Context(), "demo", "", []resourcesync.Change{{Loc: "urn:a", Change: resourcesync.Updated}}); err != nil {
			t.Fatal(err)
		}
		for _, err := range c.Follow(t.Context(), "demo", "start", client.FollowOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		requests := s.asked()
		for _, r := range requests[len(requests)-2:] {
			if r.Header.Get("Authorization") != test.auth || r.Header.Get("User-Agent") != test.agent || r.URL.Path != "/sets/demo/changes" {
				t.Errorf("%s %s with %v", r.Method, r.URL, r.Header)
			}
		}
	}
	if http.DefaultClient.CheckRedirect != nil {
		t.Error("the given http.Client was changed")
	}
}
