package inventory

import (
	"maps"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// Scripts that simulate a failover of Redis: the log is restored to an earlier state, and the
// inventory, which was replicated later, is newer than the log.
const (
	countPages = `local pages = 0
for h = 0, 63 do pages = pages + redis.call('HLEN', 'rshub:{lost}:page' .. h) end
`

	keepTail = countPages + `redis.call('SET', 'rshub:{lost}:pages-was', pages)
for _, k in ipairs({'set', 'packed', 'live', 'known', 'numbers', 'calls0', 'calls1'}) do
	local key = 'rshub:{lost}:' .. k
	redis.call('DEL', key .. '-was')
	if redis.call('EXISTS', key) == 1 then redis.call('COPY', key, key .. '-was') end
end
return 'ok'`

	loseTail = countPages + `if ARGV[1] == 'in progress' and pages <= tonumber(redis.call('GET', 'rshub:{lost}:pages-was')) then return 'no' end
local record = redis.call('HGET', 'rshub:{lost}:set', 'inventory')
for _, k in ipairs({'set', 'packed', 'live', 'known', 'numbers', 'calls0', 'calls1'}) do
	local key = 'rshub:{lost}:' .. k
	redis.call('DEL', key)
	if redis.call('EXISTS', key .. '-was') == 1 then redis.call('COPY', key .. '-was', key) end
end
redis.call('HSET', 'rshub:{lost}:set', 'inventory', record)
return 'ok'`
)

// TestTailLost loses the newest changes of a log during a commit of them, or immediately after
// it. Afterwards the inventory matches the log, without the lost changes.
func TestTailLost(t *testing.T) {
	t.Parallel()
	c := hubtest.StartCluster(t, 2)
	s := newSource("lost")
	s.publish(t, c.Hubs[0], resources(steady, 2_000))
	s.complete(t, c.Hubs[0])
	for round := range 4 {
		for _, h := range c.Hubs {
			s.checkSummary(t, h)
			s.checkBaseline(t, h) // waits for a commit
		}
		c.Redis.Command(t, "EVAL", keepTail, "0")
		kept := newSource(s.set) // knows what was published so far
		kept.log, kept.head = maps.Clone(s.log), s.head
		made := commits(t, c.Hubs...)
		for i := range 4 {
			s.publish(t, c.Hubs[i%2], resources("gone", 1_000*(i+1))[1_000*i:])
		}
		when := []string{"in progress", "finished"}[round%2]
		if when == "finished" {
			waitCommit(t, made, c.Hubs...) // of the changes that will be lost
		}
		for end := time.Now().Add(hubtest.Timeout); c.Redis.Command(t, "EVAL", loseTail, "0", when) != "ok"; {
			if time.Now().After(end) {
				t.Fatal("found no commit in progress")
			}
			if commits(t, c.Hubs...) != made { // the commit finished too early
				when = "finished"
			}
		}
		t.Logf("round %d: the tail is lost with a commit %s", round, when)
		s = kept
		s.publish(t, c.Hubs[round%2], resources("again", 100))
		for _, h := range c.Hubs {
			s.checkSummary(t, h)
			s.checkBaseline(t, h)
		}
	}
}
