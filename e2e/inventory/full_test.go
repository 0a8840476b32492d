package inventory

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestFull fills the disk, or Redis: publishing is refused, and what a set holds can be
// read, compared and followed all the same. With room again, all goes on.
func TestFull(t *testing.T) {
	t.Run("disk", func(t *testing.T) {
		t.Parallel()
		h := hubtest.StartHub(t)
		filled(t, h, func() {
			h.Stop(t)
			h.Start(t, "RSHUB_DISK_RESERVE=1000000TiB")
		}, func() {
			h.Stop(t)
			h.Start(t)
		})
	})
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		c := hubtest.StartCluster(t, 1)
		filled(t, c.Hubs[0], func() { c.Redis.Tell(t, "CONFIG", "SET", "maxmemory", "1") }, func() { c.Redis.Tell(t, "CONFIG", "SET", "maxmemory", "0") })
	})
}

func filled(t *testing.T, h *hubtest.Hub, fill, makeRoom func()) {
	s := newSource("full")
	s.publish(t, h, resources(steady, 3_000))
	s.complete(t, h)
	s.proved(t, h)
	s.reads(t, h)
	fill()
	for range 2 { // the second time from what the hub has in memory
		hubtest.Must(t, http.StatusInsufficientStorage, http.MethodPost, h.Topic(s.set), hubtest.Change("more"), hubtest.AsNDJSON)
		if l := s.proved(t, h); !l.Complete {
			t.Error("the inventory is not complete any more")
		}
		s.reads(t, h)
		a := hubtest.Must(t, http.StatusOK, http.MethodGet, h.URL+"/sets/"+s.set+"/resources", nil, "Accept: application/x-ndjson")
		if n := strings.Count(string(a.Body), "\n"); n != 1+len(s.at(t, s.newestCursor())) {
			t.Errorf("the list of resources has %d lines", n)
		}
		r := open(t, newClientThatWaits(t, h), s.set, newMemory())
		if _, err := catchUp(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		for d, err := range r.Audit(t.Context(), client.AuditOptions{}) {
			t.Fatalf("a destination that joined differs by %v, %v", d, err)
		}
	}
	makeRoom()
	s.publish(t, h, resources("again", 500))
	s.proved(t, h)
	s.reads(t, h)
}

// TestDamagedPages puts something else in place of the pages of an inventory. A reader is
// told which page it is, and no resource; the inventory is made anew from the log.
func TestDamagedPages(t *testing.T) {
	t.Parallel()
	c := hubtest.StartCluster(t, 1)
	h := c.Hubs[0]
	s := newSource("damaged")
	s.publish(t, h, resources(steady, 3_000))
	s.complete(t, h)
	s.proved(t, h)
	s.reads(t, h)
	hubtest.Until(t, "the inventory is in pages", func() error {
		if m := hubtest.Get[message](t, h.Topic(s.set)+"?since=baseline&limit=1"); m.Count < 3_000 {
			return fmt.Errorf("a baseline has %d resources", m.Count)
		}
		return nil
	})
	h.Stop(t)
	// All pages are the same text afterwards.
	damaged := c.Redis.Tell(t, "EVAL", `local n = 0
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
	a, err := hubtest.Request(http.MethodGet, h.URL+"/sets/"+s.set+"/resources?limit=10", nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := hubtest.ProblemOf(a)
	if err != nil || a.Status != http.StatusServiceUnavailable || !strings.HasSuffix(p.Type, "/damaged") || !strings.Contains(p.Detail, "page ") {
		t.Fatalf("what is damaged is answered with %d %s: %v", a.Status, a.Body, err)
	}
	hubtest.Until(t, "the inventory is made anew", func() error {
		a, err := hubtest.Request(http.MethodGet, h.URL+"/sets/"+s.set+"/resources?limit=10", nil)
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("the resources are answered with %d", a.Status)
		}
		return err
	})
	h.Says("a damaged inventory is made anew from the log")
	hubtest.Until(t, "what was made anew from the whole log is complete", func() error { // just after the inventory is dropped, it is not
		if l := s.proved(t, h); !l.Complete {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	s.reads(t, h)
}
