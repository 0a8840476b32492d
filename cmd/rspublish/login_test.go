package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestLogin checks that user and password are sent only to the source, even after redirects, and
// that they are removed from the URL, which is printed and stored.
func TestLogin(t *testing.T) {
	t.Parallel()
	echoCredentials := func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		w.Header().Set("Who", user+":"+password)
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
		}
	}
	source := httptest.NewServer(http.HandlerFunc(echoCredentials))
	defer source.Close()
	other := httptest.NewServer(http.HandlerFunc(echoCredentials))
	defer other.Close()
	host := strings.TrimPrefix(source.URL, "http://")
	for _, test := range []struct{ url, envValue, want string }{
		{"http://anna:a%20b@" + host + "/list?x", "", "anna:a b"},
		{source.URL + "/list?x", "anna:a:b", "anna:a:b"},
		{"http://anna@" + host + "/list?x", "berta:b", "anna:"},
		{source.URL + "/list?x", "", ":"},
	} {
		var c config
		plain, err := c.extractLogin(test.url, test.envValue)
		if err != nil || plain != source.URL+"/list?x" {
			t.Errorf("extractLogin(%s) = %q, %v, want %s/list?x", test.url, plain, err, source.URL)
		}
		for target, want := range map[string]string{
			plain: test.want, source.URL + "/elsewhere": test.want, other.URL: ":", source.URL + "/?to=" + other.URL: ":", other.URL + "/?to=" + source.URL: test.want,
		} {
			resp, err := c.sourceClient().Get(target)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if got := resp.Header.Get("Who"); got != want {
				t.Errorf("credentials of %s and %q sent to %s = %q, want %q", test.url, test.envValue, target, got, want)
			}
		}
	}
	for _, bad := range []string{"https://anna:secret@", "https://anna:secret@h:port/", "http://a b:secret@h/"} {
		if plain, err := new(config).extractLogin(bad, ""); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("extractLogin(%s) = %q, %v, want an error without the password", bad, plain, err)
		}
	}
}
