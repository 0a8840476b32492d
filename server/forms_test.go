package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/servertest"
)

// Whatever is wrong with a form, the answer is a line of text; what is neither a
// form nor a publish is told what both are.
func TestErrorsOfForms(t *testing.T) {
	t.Parallel()
	known, texts := tokens(t, "follow:*,publish:*")
	const form = "application/x-www-form-urlencoded"
	open, guarded := start(t, Config{}), start(t, Config{Callers: known})
	for _, test := range []struct {
		h       *started
		path    string
		headers []string
		status  int
		text    bool // else a problem document
		says    string
	}{
		{open, "/hub", []string{"Content-Type", form}, 400, true, "hub.mode"},
		{open, "/hub", []string{"Content-Type", form + "; charset"}, 400, true, "hub.mode"},
		{open, "/subscribe", []string{"Content-Type", form + "; charset=utf-8"}, 400, true, "hub.mode"},
		{open, "/hub", []string{"Content-Type", "multipart/form-data; boundary=x"}, 415, true, form},
		{open, "/subscribe", []string{"Content-Type", "text/plain"}, 415, true, "application/x-ndjson"},
		{open, "/hub", nil, 415, true, form},
		{open, "/hub", []string{"Content-Type", "application/json"}, 400, false, "Link"},
		{open, "/hub", []string{"Content-Type", "text/plain", "Link", "<x>"}, 400, false, "Link"},
		{open, "/hub", []string{"Content-Type", form, "Origin", "https://evil.example"}, 403, true, "evil.example"},
		{open, "/hub", []string{"Content-Type", form, "Host", "evil.example"}, 421, true, "evil.example"},
		{guarded, "/hub", []string{"Content-Type", form, "Authorization", "Bearer rshub_WRONG"}, 401, true, "token"},
		{guarded, "/hub", []string{"Content-Type", "application/xml", "Authorization", "Bearer rshub_WRONG"}, 401, false, "token"},
		{guarded, "/sets/demo/changes", []string{"Content-Type", form, "Authorization", "Bearer rshub_WRONG"}, 401, false, "token"},
		{guarded, "/hub", []string{"Content-Type", form, "Authorization", "Bearer " + texts[0]}, 400, true, "hub.mode"},
	} {
		resp, body := servertest.Do(t, "POST", test.h.URL+test.path, "", test.headers...)
		want := "application/problem+json"
		if test.text {
			want = "text/plain; charset=utf-8"
		}
		if resp.StatusCode != test.status || resp.Header.Get("Content-Type") != want || !strings.Contains(body, test.says) || strings.Count(body, "\n") != 1 {
			t.Errorf("%s with %q is answered %d %s: %s", test.path, test.headers, resp.StatusCode, resp.Header.Get("Content-Type"), body)
		}
		if got := resp.Header.Get("WWW-Authenticate") != ""; got != (test.status == http.StatusUnauthorized) {
			t.Errorf("%s with %q has WWW-Authenticate: %t", test.path, test.headers, got)
		}
	}
}
