package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tell runs a command in Redis and returns its answer; an error fails the test.
func (r *redisServer) tell(t *testing.T, words ...string) string {
	t.Helper()
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(w), w)
	}
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	line = strings.TrimSpace(line)
	if err == nil && strings.HasPrefix(line, "$") {
		n, _ := strconv.Atoi(line[1:])
		b := make([]byte, max(n, 0))
		_, err = io.ReadFull(in, b)
		line = string(b)
	}
	if err != nil || strings.HasPrefix(line, "-") {
		t.Fatalf("Redis answers %q with %q: %v", words, line, err)
	}
	return line
}

// TestRedisEmptied empties Redis behind the hubs' backs, once while nobody
// publishes and once under load.
func TestRedisEmptied(t *testing.T) {
	t.Parallel()
	const set = "emptied"
	c := startCluster(t, 2)
	everybody := func() (followers []*follower) {
		for _, h := range c.hubs {
			for _, way := range allWays {
				followers = append(followers, follow(t, h, way, set, "start"))
			}
		}
		return followers
	}
	gone := func(followers []*follower) {
		t.Helper()
		for _, f := range followers {
			how := map[string]string{byWebSocket: "close 4410", byEvents: "gone", byPolling: `"status":410`}[f.way]
			if end := f.ended(t, how); !strings.HasPrefix(end, errGone.Error()) {
				t.Errorf("the %s ends with %q", f.way, end)
			}
		}
	}

	publish(t, c.hubs[0], set, changes("quiet", 30))
	quiet := everybody()
	for _, f := range quiet {
		f.has(t, 30)
	}
	old := memory(t, c.hubs[1], set)
	allSaw(t, quiet, old)
	c.redis.tell(t, "FLUSHALL")
	gone(quiet)
	allSaw(t, quiet, old)

	// Publishing makes the set anew.
	publishers := []*publisher{publishing(t, c.hubs[0], set, "lost0", true), publishing(t, c.hubs[1], set, "lost1", true)}
	goesOn(t, 20, publishers...)
	loaded := everybody()
	for _, f := range loaded {
		f.has(t, 100)
	}
	// Who was there before learns the same now that there are other entries.
	for i, f := range quiet {
		gone([]*follower{follow(t, c.hubs[i%2], f.way, set, f.at())})
	}
	c.redis.tell(t, "FLUSHALL")
	goesOn(t, 20, publishers...)
	gone(loaded)
	for _, p := range publishers {
		p.finish()
	}
	// All have seen a beginning of the one memory that was lost.
	longest := loaded[0].seen()
	for _, f := range loaded {
		if s := f.seen(); len(s) > len(longest) {
			longest = s
		}
	}
	for _, f := range loaded {
		s := f.seen()
		same(t, "the "+f.way, s, longest[:len(s)])
	}

	p := publishing(t, c.hubs[1], set, "kept", true)
	last := everybody()
	goesOn(t, 20, p)
	p.finish()
	all := memory(t, c.hubs[0], set)
	if all[0].datetime <= longest[len(longest)-1].datetime {
		t.Errorf("the new set begins at %s, and the old one ended at %s", all[0].datetime, longest[len(longest)-1].datetime)
	}
	p.check(t, all)
	allSaw(t, last, all)
	for _, h := range c.hubs {
		same(t, "the walk over all Change Lists", walk(t, h, set), all)
		if v := ready(t, h); !v.Ready || !v.Checks["memory"].OK {
			t.Errorf("readyz says %+v", v)
		}
	}
}

// TestPrefixes has two installations, of two hubs each, on one Redis and one
// NATS.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	const set = "same.name"
	redis, nats := startRedis(t), startNATS(t)
	type installation struct {
		hubs       []*hub
		followers  []*follower
		publishers []*publisher
	}
	var all []*installation
	for _, prefix := range []string{"rshub", "rshub-changes"} {
		in := &installation{}
		for range 2 {
			base := ""
			if len(in.hubs) > 0 {
				base = in.hubs[0].url
			}
			in.hubs = append(in.hubs, joinCluster(t, base, redis.addr, nats.addr, "RSHUB_PREFIX="+prefix, "RSHUB_CHANGELIST_SIZE=200"))
		}
		publish(t, in.hubs[0], "only-"+prefix, change("x"))
		all = append(all, in)
	}
	for i, in := range all {
		for j, h := range in.hubs {
			for _, way := range allWays {
				in.followers = append(in.followers, follow(t, h, way, set, "start"))
			}
			in.publishers = append(in.publishers, publishing(t, h, set, fmt.Sprintf("in%d-%d", i, j), true))
		}
	}
	for _, in := range all {
		goesOn(t, 30, in.publishers...)
	}
	for i, in := range all {
		for _, p := range in.publishers {
			p.finish()
		}
		entries := memory(t, in.hubs[1], set)
		count := 0
		for _, p := range in.publishers {
			p.check(t, entries)
			for _, b := range p.batches {
				count += len(b.texts)
			}
		}
		if count != len(entries) {
			t.Errorf("installation %d has %d changes, and %d were published to it", i, len(entries), count)
		}
		allSaw(t, in.followers, entries)
		for _, h := range in.hubs {
			same(t, "the walk over all Change Lists", walk(t, h, set), entries)
			v := get[struct{ Sets []struct{ Set, Head string } }](t, h.url+"/sets")
			if len(v.Sets) != 2 {
				t.Errorf("installation %d has the sets %+v", i, v.Sets)
			}
		}
	}
	// What is deleted in one stays in the other, and who follows there hears
	// nothing of it.
	other := all[1].followers[0].seen()
	must(t, http.StatusNoContent, http.MethodDelete, all[0].hubs[0].url+"/sets/"+set, nil)
	all[0].followers[0].ended(t, "4410")
	all[0].followers[3].ended(t, "4410")
	publish(t, all[1].hubs[1], set, change("after"))
	for _, f := range all[1].followers {
		f.has(t, len(other)+1)
		if len(f.ends) > 0 {
			t.Errorf("the %s of the other installation was ended: %q", f.way, f.ends)
		}
	}
	if at := head(t, all[0].hubs[1], set); at != "" {
		t.Errorf("the deleted set is at %s", at)
	}
}
