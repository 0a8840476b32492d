package hubtest

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Metric returns the value of a series of a hub, such as rshub_followers{kind="websocket"}, or 0
// if there is none.
func Metric(t testing.TB, h *Hub, series string) float64 {
	t.Helper()
	for line := range strings.Lines(string(Must(t, http.StatusOK, http.MethodGet, h.Ops+"/metrics", nil).Body)) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return v
		}
	}
	return 0
}
