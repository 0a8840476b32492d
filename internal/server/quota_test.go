package server

import (
	"net/http"
	"strings"
	"testing"
)

// A set of real data on the disk reaches its quota, and others go on.
func TestQuotaOnDisk(t *testing.T) {
	t.Parallel()
	h := start(t, Config{SetQuota: 1})
	h.Publish("demo")
	// The newest changes are not counted before the store has written them down. It does so
	// when it opens.
	h.Stop()
	h = start(t, Config{SetQuota: 1, Data: h.data})
	h.Publish("demo")
	h.says("have reached the limit of bytes")
	if detail := h.refuses(http.StatusInsufficientStorage, "set-full", "POST", "/sets/demo/changes", aLine, asNDJSON...); !strings.Contains(detail, "set demo, or all sets of its creator together, reached the limit") {
		t.Error(detail)
	}
	h.Publish("other")
}
