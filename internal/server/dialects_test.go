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

// A set whose description names a search engine tells it of changes below the key's folder. It
// stops when the description does not name it any more. When else it is told so is what sets shows.
func TestSearchEngine(t *testing.T) {
	t.Parallel()
	h := start(t, Config{CallbackAllow: loopback})
	told := make(chan []string, 10)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte("0123456789"))
			return
		}
		var body struct{ URLList []string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		told <- body.URLList
	}))
	defer engine.Close()
	url := engine.URL + "/indexnow?key=0123456789&keyLocation=" + engine.URL + "/site/key.txt"
	listed := func(want int) {
		t.Helper()
		testutil.Until(t, "the subscription is there, or gone", func() bool {
			return strings.Count(h.wants(200, "GET", "/sets/demo/subscriptions", ""), `"callback"`) == want
		})
	}
	h.wants(200, "POST", "/sets/demo/changes", `{"loc":"`+engine.URL+`/site/before","change":"created"}`, asNDJSON...)
	h.describes("demo", `{"indexnow":"`+url+`"}`)
	h.describes("demo", `{"indexnow":"`+url+`"}`) // it does no harm
	listed(1)
	lines := []string{`{"loc":"` + engine.URL + `/site/a","change":"created"}`, `{"loc":"` + engine.URL + `/other","change":"created"}`, `{"loc":"` + engine.URL + `/site/b","change":"deleted"}`}
	h.wants(200, "POST", "/sets/demo/changes", strings.Join(lines, "\n"), asNDJSON...)
	if got, want := <-told, []string{engine.URL + "/site/a", engine.URL + "/site/b"}; !slices.Equal(got, want) {
		t.Errorf("the search engine was told %q, want %q", got, want)
	}
	h.wants(400, "PUT", "/sets/demo", `{"indexnow":"https://192.0.2.1/indexnow?key=0123456789"}`)
	h.wants(404, "POST", "/hub", "hub.mode=subscribe&hub.callback="+engine.URL+"/&hub.topic="+strings.TrimSuffix(h.topic("demo"), "changes")+"indexnow", asForm...)
	listed(1)
	h.describes("demo", `{}`)
	listed(0)
}
