package inventory

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestDamagedPages overwrites the pages of an inventory. A reader gets an error that names the
// page, and no resources; the inventory is rebuilt from the log.
func TestDamagedPages(t *testing.T) {
	t.Parallel()
	c := hubtest.StartCluster(t, 1)
	h := c.Hubs[0]
	s := newSource("damaged")
	s.publish(t, h, resources(steady, 3_000))
	s.complete(t, h)
	s.checkComplete(t, h)
	hubtest.Until(t, "the inventory is stored in pages", func() error {
		if m := hubtest.Get[struct{ Count int }](t, h.Topic(s.set)+"?since=baseline&limit=1"); m.Count < 3_000 {
			return fmt.Errorf("got baseline of %d resources", m.Count)
		}
		return nil
	})
	h.Stop(t)
	// Overwrites all pages with the same text.
	damaged := c.Redis.Command(t, "EVAL", `local n = 0
for h = 0, 63 do
	local key = 'rshub:{damaged}:page' .. h
	for _, page in ipairs(redis.call('HKEYS', key)) do
		redis.call('HSET', key, page, 'not a page')
		n = n + 1
	end
end
return tostring(n)`, "0")
	if damaged == "0" {
		t.Fatal("found no pages")
	}
	h.Start(t) // with an empty page cache
	resources := h.URL + "/sets/" + s.set + "/resources?limit=10"
	p, err := hubtest.ProblemOf(hubtest.Must(t, http.StatusServiceUnavailable, http.MethodGet, resources, nil))
	if err != nil || !strings.HasSuffix(p.Type, "/damaged") || !strings.Contains(p.Detail, "page ") {
		t.Fatalf("got problem %+v, %v, want a damaged page", p, err)
	}
	h.WaitLog("rebuilding a damaged inventory from the log")
	hubtest.Until(t, "the inventory rebuilt from the whole log is complete", func() error { // it is not immediately after the damaged one was dropped
		if l := s.checkSummary(t, h); !l.Complete {
			return trial.ErrNotYet
		}
		return nil
	})
	s.checkBaseline(t, h)
}
