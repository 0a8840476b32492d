package server

import (
	"net/http"
	"testing"

	"github.com/rshub/rshub/internal/servertest"
)

// What is for operators needs their right, and probes need none.
func TestOpsNeedOperate(t *testing.T) {
	known, texts := tokens(t, "operate", "publish:*,follow:*")
	h := start(t, Config{Callers: known})
	for _, path := range []string{"/backup", "/debug/pprof/", "/debug/pprof/heap"} {
		resp, body := servertest.Do(t, "GET", h.Ops+path, "")
		checkProblem(t, resp, body, http.StatusUnauthorized, "unauthorized")
	}
	for _, path := range []string{"/healthz", "/readyz"} { // probes have no token
		if resp, _ := servertest.Do(t, "GET", h.Ops+path, ""); resp.StatusCode != http.StatusOK {
			t.Errorf("%s is %d", path, resp.StatusCode)
		}
	}
	for _, path := range []string{"/backup", "/debug/pprof/heap"} {
		resp, body := servertest.Do(t, "GET", h.Ops+path, "", "Authorization", "Bearer "+texts[1])
		checkProblem(t, resp, body, http.StatusForbidden, "forbidden")
		if resp, _ := servertest.Do(t, "GET", h.Ops+path, "", "Authorization", "Bearer "+texts[0]); resp.StatusCode != http.StatusOK {
			t.Errorf("%s is %d for operators", path, resp.StatusCode)
		}
	}
}
