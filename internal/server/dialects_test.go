package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/testutil"
)

// A set whose description names an IndexNow search engine submits the changes below the folder of the
// key to it, until the description no longer names it.
func TestSearchEngine(t *testing.T) {
	t.Parallel()
	h := start(t, Config{CallbackAllow: loopback})
	submitted := make(chan []string, 10)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte("0123456789"))
			return
		}
		var body struct{ URLList []string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		submitted <- body.URLList
	}))
	defer engine.Close()
	url := engine.URL + "/indexnow?key=0123456789&keyLocation=" + engine.URL + "/site/key.txt"
	waitForSubscriptions := func(want int) {
		t.Helper()
		testutil.Until(t, "the number of subscriptions", func() bool {
			return strings.Count(h.wantStatus(200, "GET", "/sets/demo/subscriptions", ""), `"callback"`) == want
		})
	}
	h.wantStatus(200, "POST", "/sets/demo/changes", `{"loc":"`+engine.URL+`/site/before","change":"created"}`, asNDJSON...)
	h.describe("demo", `{"indexnow":"`+url+`"}`)
	h.describe("demo", `{"indexnow":"`+url+`"}`) // idempotent
	waitForSubscriptions(1)
	lines := []string{`{"loc":"` + engine.URL + `/site/a","change":"created"}`, `{"loc":"` + engine.URL + `/other","change":"created"}`, `{"loc":"` + engine.URL + `/site/b","change":"deleted"}`}
	h.wantStatus(200, "POST", "/sets/demo/changes", strings.Join(lines, "\n"), asNDJSON...)
	if got, want := <-submitted, []string{engine.URL + "/site/a", engine.URL + "/site/b"}; !slices.Equal(got, want) {
		t.Errorf("got the URLs %q, want %q", got, want)
	}
	h.wantStatus(400, "PUT", "/sets/demo", `{"indexnow":"https://192.0.2.1/indexnow?key=0123456789"}`)
	h.wantStatus(404, "POST", "/hub", "hub.mode=subscribe&hub.callback="+engine.URL+"/&hub.topic="+strings.TrimSuffix(h.topic("demo"), "changes")+"indexnow", asForm...)
	waitForSubscriptions(1)
	h.describe("demo", `{}`)
	waitForSubscriptions(0)
}
