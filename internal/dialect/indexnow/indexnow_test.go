package indexnow

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

const key = "0123-abcdEF"

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]Target{
		"https://api.indexnow.org/indexnow?key=0123-abcdEF&keyLocation=https://example.org/0123-abcdEF.txt": {
			"https://api.indexnow.org/indexnow", key, "https://example.org/0123-abcdEF.txt", "example.org", "https://example.org/"},
		"https://engine.example/indexnow?a=1&keyLocation=https%3A%2F%2Fexample.org%3A8443%2Fcatalog%2Fkey.txt&key=0123-abcdEF": {
			"https://engine.example/indexnow?a=1", key, "https://example.org:8443/catalog/key.txt", "example.org:8443", "https://example.org:8443/catalog/"},
		"https://engine.example/indexnow?key=0123-abcdEF&keyLocation=https://example.org": {
			"https://engine.example/indexnow", key, "https://example.org", "example.org", "https://example.org/"},
	} {
		if got, err := ParseTarget(text); err != nil || got != want {
			t.Errorf("ParseTarget(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, rule := range map[string]string{
		"":      "URL of a search engine",
		"://":   "URL of a search engine",
		"https": "URL of a search engine",
		"https://user:pass@engine.example/?key=0123-abcdEF&keyLocation=https://example.org/k": "URL of a search engine",
		"https://engine.example/indexnow":                                                   "key",
		"https://engine.example/indexnow?key=short&keyLocation=https://example.org/k":       "8 to 128",
		"https://engine.example/indexnow?key=0123_abcdEF&keyLocation=https://example.org/k": "8 to 128",
		"https://engine.example/indexnow?key=0123-abcdEF":                                   "keyLocation",
		"https://engine.example/indexnow?key=0123-abcdEF&keyLocation=/k.txt":                "keyLocation",
		"https://engine.example/indexnow?key=0123-abcdEF&keyLocation=ftp://example.org/k":   "keyLocation",
	} {
		if got, err := ParseTarget(text); err == nil || !strings.Contains(err.Error(), rule) {
			t.Errorf("ParseTarget(%q) = %+v, %v, want an error with %q", text, got, err, rule)
		}
	}
}

// A fakeSite is a search engine at /indexnow and a site with a key file.
type fakeSite struct {
	*httptest.Server
	status int
	header http.Header
	file   string
	bodies []string
}

func newFakeSite(t *testing.T) *fakeSite {
	s := &fakeSite{status: 200, header: http.Header{}, file: key + "\n"}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, values := range s.header {
			w.Header()[name] = values
		}
		switch {
		case r.URL.Path == "/key.txt" && r.Method == http.MethodGet:
			w.WriteHeader(s.status)
			_, _ = io.WriteString(w, s.file)
		case r.URL.Path == "/indexnow" && r.Method == http.MethodPost && r.Header.Get("Content-Type") == "application/json; charset=utf-8":
			body, _ := io.ReadAll(r.Body)
			s.bodies = append(s.bodies, string(body))
			w.WriteHeader(s.status)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *fakeSite) target() string {
	return s.URL + "/indexnow?key=" + key + "&keyLocation=" + s.URL + "/key.txt"
}

func TestDeliver(t *testing.T) {
	s := newFakeSite(t)
	b, format := &feed.Batch{Set: "demo"}, NewFormat(http.DefaultTransport)
	for _, loc := range []string{"https://example.org/a?x=1&y=%22", "https://example.org/é", "https://example.org/a?x=1&y=%22"} {
		b.Entries = append(b.Entries, feed.Entry{Change: resourcesync.Change{Loc: loc, Change: resourcesync.Updated}})
	}
	d := &outlet.Delivery{To: &subscription.Subscription{Set: "demo", Form: Form, Callback: s.target()}, Format: format, Body: [][]byte{b.Encode(format.Batch)}, Changes: 3}
	for status, want := range map[int]struct {
		decision outlet.Decision
		after    time.Duration
		err      string // part of the error
	}{
		200: {outlet.Done, 0, ""},
		202: {outlet.Done, 0, ""},
		400: {outlet.Again, 0, "did not accept"},
		403: {outlet.Again, 0, "did not find the key"},
		422: {outlet.Again, 0, "not below " + s.URL + "/"},
		429: {outlet.Again, 90 * time.Second, "too many requests"},
		503: {outlet.Again, 0, "did not accept"},
	} {
		s.status, s.bodies, s.header = status, nil, http.Header{}
		if status == 429 {
			s.header.Set("Retry-After", "90")
		}
		v := format.Outlet.Deliver(t.Context(), d)
		if v.Decision != want.decision || v.After != want.after || !strings.Contains(v.Error, want.err) || v.Status != status {
			t.Errorf("Deliver() with status %d = %+v, want %+v", status, v, want)
		}
		var sent struct {
			Host, Key, KeyLocation string
			URLList                []string
		}
		if len(s.bodies) != 1 || json.Unmarshal([]byte(s.bodies[0]), &sent) != nil || "http://"+sent.Host != s.URL || sent.Key != key || sent.KeyLocation != s.URL+"/key.txt" ||
			!slices.Equal(sent.URLList, []string{"https://example.org/a?x=1&y=%22", "https://example.org/é"}) {
			t.Errorf("got the requests %q, want one with two URLs", s.bodies)
		}
	}
	s.Close()
	if v := format.Outlet.Deliver(t.Context(), d); v.Decision != outlet.Again || v.Error == "" {
		t.Errorf("Deliver() to a stopped engine = %+v, want a retry", v)
	}
}

// A key is confirmed only if it is at the URL where search engines look for it.
func TestConfirm(t *testing.T) {
	s := newFakeSite(t)
	q := &outlet.Question{Request: &subscription.Request{Set: "demo", Form: Form, Callback: s.target()}}
	for _, test := range []struct {
		status   int
		file     string
		decision outlet.Decision
		err      string // part of the error
	}{
		{200, key, outlet.Done, ""},
		{200, "\ufeff" + key + "\r\n", outlet.Done, ""},
		{200, "another key", outlet.Again, "does not contain the key"},
		{404, key, outlet.Again, "Not Found"},
	} {
		s.status, s.file = test.status, test.file
		if v := NewFormat(http.DefaultTransport).Outlet.Confirm(t.Context(), q); v.Decision != test.decision || !strings.Contains(v.Error, test.err) {
			t.Errorf("Confirm() with status %d and file %q = %+v, want %v", test.status, test.file, v, test.decision)
		}
	}
}
