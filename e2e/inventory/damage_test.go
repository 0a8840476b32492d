package inventory

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestDamagedPages puts something else in place of the pages of an inventory. A reader is
// told which page it is, and no resource; the inventory is made anew from the log.
func TestDamagedPages(t *testing.T) {
	t.Parallel()
	c := hubtest.StartCluster(t, 1)
	h := c.Hubs[0]
	s := newSource("damaged")
	s.publish(t, h, resources(steady, 3_000))
	s.complete(t, h)
	s.completely(t, h)
	hubtest.Until(t, "the inventory is in pages", func() error {
		if m := hubtest.Get[struct{ Count int }](t, h.Topic(s.set)+"?since=baseline&limit=1"); m.Count < 3_000 {
			return fmt.Errorf("a baseline has %d resources", m.Count)
		}
		return nil
	})
	h.Stop(t)
	// All pages are the same text afterwards.
	damaged := c.Redis.Command(t, "EVAL", `local n = 0
for h = 0, 63 do
	local key = 'rshub:{damaged}:page' .. h
	for _, page in ipairs(redis.call('HKEYS', key)) do
		redis.call('HSET', key, page, 'this is no page')
		n = n + 1
	end
end
return tostring(n)`, "0")
	if damaged == "0" {
		t.Fatal("there are no pages")
	}
	h.Start(t) // which has no page in memory
	resources := h.URL + "/sets/" + s.set + "/resources?limit=10"
	p, err := hubtest.ProblemOf(hubtest.Must(t, http.StatusServiceUnavailable, http.MethodGet, resources, nil))
	if err != nil || !strings.HasSuffix(p.Type, "/damaged") || !strings.Contains(p.Detail, "page ") {
		t.Fatalf("what is damaged is answered with %+v: %v", p, err)
	}
	h.WaitLog("rebuilding a damaged inventory from the log")
	hubtest.Until(t, "what was made anew from the whole log is complete", func() error { // just after the inventory is dropped, it is not
		if l := s.proved(t, h); !l.Complete {
			return trial.ErrNotYet
		}
		return nil
	})
	s.reads(t, h)
}
