package server

import (
	"net/http"
	"strings"
	"testing"
)

// A set on the disk that reaches its quota refuses changes; other sets accept them.
func TestQuotaOnDisk(t *testing.T) {
	t.Parallel()
	h := start(t, Config{SetQuota: 1})
	h.Publish("demo")
	// The store counts the newest changes only once they are flushed, which it does when it opens.
	h.Stop()
	h = start(t, Config{SetQuota: 1, Data: h.data})
	h.Publish("demo")
	h.waitForLog("have reached the quota")
	if detail := h.wantProblem(http.StatusInsufficientStorage, "set-full", "POST", "/sets/demo/changes", aLine, asNDJSON...); !strings.Contains(detail, "set demo, or all sets of its creator together, reached the limit") {
		t.Error(detail)
	}
	h.Publish("other")
}
