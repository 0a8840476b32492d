package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/servertest"
	"github.com/rshub/rshub/internal/untiltest"
)

// Whoever made a request sees that it was refused and why, and so do operators. Others do not.
func TestRequestsOfSubscribers(t *testing.T) {
	known, texts := tokens(t, "publish:*,follow:*,operate", "follow:a", "follow:a")
	h := start(t, Config{Callers: known, CallbackAllow: loopback})
	bearer := func(who int) []string { return bearer(texts[who]) }
	h.Publish("a", bearer(0)...)
	callback := httptest.NewServer(http.NotFoundHandler())
	defer callback.Close()
	form := "hub.mode=subscribe&hub.topic=" + h.URL + "/sets/a/changes&hub.callback=" + callback.URL + "/here%3Fsecret%3D1"
	h.wants(http.StatusAccepted, "POST", "/hub", form, append(bearer(1), "Content-Type", "application/x-www-form-urlencoded")...)
	get := func(who int) (requests []askedView) {
		t.Helper()
		resp, body := servertest.Do(t, "GET", h.URL+"/sets/a/requests", "", bearer(who)...)
		var answer struct{ Requests []askedView }
		if err := json.Unmarshal([]byte(body), &answer); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		return answer.Requests
	}
	untiltest.Done(t, "the request is refused", func() bool {
		all := get(1)
		return len(all) == 1 && all[0].State == "refused"
	})
	for _, who := range []int{0, 1} {
		if r := get(who); len(r) != 1 || r[0].Status != 404 || r[0].Mode != "subscribe" || !strings.Contains(r[0].Error, "no confirmation") || r[0].Callback != callback.URL+"/here?secret=1" {
			t.Errorf("caller %d sees %+v", who, r)
		}
	}
	if r := get(2); len(r) != 0 {
		t.Errorf("somebody else sees %+v", r)
	}
	body := h.wants(200, "GET", "/failures", "", bearer(0)...)
	if !strings.Contains(body, callback.URL+`/here"`) || strings.Contains(body, "secret") {
		t.Errorf("the failures are %s", body)
	}
	h.refuses(http.StatusUnauthorized, "unauthorized", "GET", "/sets/a/requests", "")
}
