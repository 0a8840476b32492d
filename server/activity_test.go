package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/servertest"
	"github.com/rshub/rshub/internal/untiltest"
)

// Details say what the hub knows of a set besides its log.
func TestDetails(t *testing.T) {
	t.Parallel()
	h := start(t, Config{})
	h.Publish("demo")
	get := func(path string) (v setView) {
		_, body := servertest.Do(t, "GET", h.URL+path, "")
		var list struct{ Sets []setView }
		if err := json.Unmarshal([]byte(body), &list); err == nil && len(list.Sets) > 0 {
			return list.Sets[0]
		}
		if err := json.Unmarshal([]byte(body), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := get("/sets"); v.Followers != nil || v.Resources != nil {
		t.Errorf("nobody asked for details: %+v", v)
	}
	for _, path := range []string{"/sets?details=1", "/sets/demo?details=1"} {
		untiltest.Done(t, path+" has details", func() bool {
			v := get(path)
			return v.Resources != nil && *v.Resources == 1 && v.Followers != nil && *v.Followers == 0 && v.Rate != nil
		})
	}
	if v := get("/sets?details=1&prefix=x"); v.Set != "" {
		t.Errorf("a set that does not begin with x is there: %+v", v)
	}
}

// Operators see what happens in all sets, and others only what happens in sets that they
// may follow.
func TestActivity(t *testing.T) {
	known, texts := tokens(t, "publish:*,follow:*,operate", "follow:a")
	h := start(t, Config{Callers: known})
	h.Publish("a", "Authorization", "Bearer "+texts[0])
	h.Publish("b", "Authorization", "Bearer "+texts[0])
	for _, test := range []struct {
		path   string
		status [3]int // of the operator, the follower, and whoever has no token
	}{
		{"/activity", [3]int{200, 403, 401}},
		{"/failures", [3]int{200, 403, 401}},
		{"/sets/a/activity", [3]int{200, 200, 401}},
		{"/sets/b/activity", [3]int{200, 403, 401}},
		{"/sets/none/activity", [3]int{404, 403, 401}},
		{"/sets/a/failures", [3]int{200, 403, 401}},
	} {
		for who, want := range test.status {
			var headers []string
			if who < len(texts) {
				headers = []string{"Authorization", "Bearer " + texts[who]}
			}
			resp, body := servertest.Do(t, "GET", h.URL+test.path, "", headers...)
			if resp.StatusCode != want {
				t.Errorf("%s for caller %d is %d %s", test.path, who, resp.StatusCode, body)
			}
			var hour hourView
			if strings.HasSuffix(test.path, "/activity") && want == http.StatusOK {
				if err := json.Unmarshal([]byte(body), &hour); err != nil || len(hour.Changes) == 0 || len(hour.Changes) != len(hour.Deliveries) || hour.Step != 10 {
					t.Errorf("%s is %s (%v)", test.path, body, err)
				}
			}
		}
	}
}
