package inventory

import (
	"maps"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// What a failover does to a set, in Redis: the log is as it was, and the inventory, which
// was replicated a moment later, is newer than the log.
const (
	keepTail = `for _, k in ipairs({'set', 'packed', 'live', 'known', 'numbers', 'calls0', 'calls1'}) do
	local key = 'rshub:{lost}:' .. k
	redis.call('DEL', key .. '-was')
	if redis.call('EXISTS', key) == 1 then redis.call('COPY', key, key .. '-was') end
end
return 'ok'`

	loseTail = `local record = redis.call('HGET', 'rshub:{lost}:set', 'inventory')
local attempt = string.match(record, '^%S+ %S+ (%S+) ')
if ARGV[1] == 'under way' and attempt == '0' then return 'no' end
for _, k in ipairs({'set', 'packed', 'live', 'known', 'numbers', 'calls0', 'calls1'}) do
	local key = 'rshub:{lost}:' .. k
	redis.call('DEL', key)
	if redis.call('EXISTS', key .. '-was') == 1 then redis.call('COPY', key .. '-was', key) end
end
redis.call('HSET', 'rshub:{lost}:set', 'inventory', record)
return 'ok'`
)

// TestTailLost loses the newest changes of a log while a commit of them is under way, or as
// soon as it is over. What the set holds afterwards is what its log says, and nothing of
// what was lost.
func TestTailLost(t *testing.T) {
	t.Parallel()
	c := hubtest.StartCluster(t, 2)
	s := newSource("lost")
	s.publish(t, c.Hubs[0], resources(steady, 2_000))
	s.complete(t, c.Hubs[0])
	for round := range 4 {
		for _, h := range c.Hubs {
			s.proved(t, h)
			s.reads(t, h) // so there is a root
		}
		c.Redis.Command(t, "EVAL", keepTail, "0")
		kept := newSource(s.set) // knows what was published so far
		kept.log, kept.head = maps.Clone(s.log), s.head
		made := commits(t, c.Hubs...)
		for i := range 4 {
			s.publish(t, c.Hubs[i%2], resources("gone", 1_000*(i+1))[1_000*i:])
		}
		when := []string{"under way", "over"}[round%2]
		if when == "over" {
			commit(t, made, c.Hubs...) // of what will be lost
		}
		for end := time.Now().Add(hubtest.Timeout); c.Redis.Command(t, "EVAL", loseTail, "0", when) != "ok"; {
			if time.Now().After(end) {
				t.Fatal("no commit was under way")
			}
			if commits(t, c.Hubs...) != made { // it was too quick
				when = "over"
			}
		}
		t.Logf("round %d: the tail is lost while a commit is %s", round, when)
		s = kept
		s.publish(t, c.Hubs[round%2], resources("anew", 100))
		for _, h := range c.Hubs {
			s.proved(t, h)
			s.reads(t, h)
		}
	}
}
