package inventory

import (
	"fmt"
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
	for round := range size(4, 40) {
		for _, h := range c.Hubs {
			s.proved(t, h)
			s.reads(t, h) // so there is a root
		}
		c.Redis.Tell(t, "EVAL", keepTail, "0")
		kept := s.forked(fmt.Sprint("life", round))
		made := commits(t, c.Hubs[0]) + commits(t, c.Hubs[1])
		for i := range 4 {
			s.publish(t, c.Hubs[i%2], resources(fmt.Sprint("gone", i), 1_000))
		}
		when := []string{"under way", "over"}[round%2]
		if when == "over" {
			hubtest.Until(t, "a root is made of what will be lost", func() error {
				if commits(t, c.Hubs[0])+commits(t, c.Hubs[1]) == made {
					return fmt.Errorf("it is not")
				}
				return nil
			})
		}
		for end := time.Now().Add(hubtest.Patience); c.Redis.Tell(t, "EVAL", loseTail, "0", when) != "ok"; {
			if time.Now().After(end) {
				t.Fatal("no commit was under way")
			}
			if commits(t, c.Hubs[0])+commits(t, c.Hubs[1]) != made { // it was too quick
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

// forked returns a source that knows what s has published so far, with a name of its own.
func (s *source) forked(name string) *source {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := newSource(s.set)
	f.name, f.log, f.head = name, maps.Clone(s.log), s.head
	return f
}
