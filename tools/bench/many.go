//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/gorilla/websocket"
)

const (
	setsEach  = 100    // sets that each of many connections follows
	setsOfOne = 10_000 // sets that a single connection follows
)

// connectMany adds n subscribers that follow benchSet and other sets on a WebSocket each. All
// subscribers follow the same sets; nothing is published to the others.
func (r *reader) connectMany(addr string, n, sets int) error {
	r.subscribers = int64(n)
	return inParallel(32, n, func(int) error {
		c, _, err := websocket.DefaultDialer.Dial("ws://"+addr+"/changes", nil)
		if err != nil {
			return err
		}
		for i := range sets {
			set := benchSet
			if i > 0 {
				set = fmt.Sprintf("other-%d", i)
			}
			if err := c.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"follow":%q}`, set)); err != nil {
				return err
			}
		}
		for range sets {
			_, text, err := c.ReadMessage()
			if err == nil && member(text, `"cursor":"`) == "" {
				err = fmt.Errorf("got message %s, want a starting cursor", text)
			}
			if err != nil {
				return err
			}
		}
		r.addWebSocket(c)
		return nil
	})
}

// many compares connections that follow many sets with connections that follow one set.
func (b *bench) many(t *table) {
	line, _ := marked(messageSize)
	cpu := cpuEach("delivery").should(aim{limit: 1.1, ratio: true})
	through := func(connect func(*reader, *server) error, writers, rate int) sample {
		s := b.rshub(b.dir())
		posts, r := b.posters(writers, s.addr, setPath, inLines), b.newReader()
		must(connect(r, s))
		time.Sleep(settle)
		return b.deliver(r, channel{posts, line, 3 * b.length, rate}, s)
	}
	for _, row := range []struct {
		what                             string
		connections, sets, rate, writers int
	}{
		{fmt.Sprintf("%d connections, %d sets each, %d/s", b.connections, setsEach, pace), b.connections, setsEach, pace, 1},
		{fmt.Sprintf("%d connections, %d sets each, saturated", b.connections, setsEach), b.connections, setsEach, 0, feeds},
		{fmt.Sprintf("a connection, %d sets, saturated", setsOfOne), 1, setsOfOne, 0, feeds},
	} {
		b.compare(t, row.what, []metric{cpu, perSecond("deliveries"), latency50, latency99},
			func() sample {
				return through(func(r *reader, s *server) error { return r.connect(s.addr, setPath, false, row.connections) }, row.writers, row.rate)
			},
			func() sample {
				return through(func(r *reader, s *server) error { return r.connectMany(s.addr, row.connections, row.sets) }, row.writers, row.rate)
			})
	}
	idle := func(connect func(*reader, *server) error) sample {
		s := b.rshub(b.dir())
		before := rssOf(s.pid)
		r := b.newReader()
		must(connect(r, s))
		time.Sleep(settle)
		grown := rssOf(s.pid) - before
		must(r.check())
		return sample{memory: grown, count: float64(b.idle)}
	}
	b.compare(t, fmt.Sprintf("%d follows, %d on each connection", b.idle, setsEach), []metric{memoryEach("KB/follow", 1024).should(aim{limit: 1.1, ratio: true})},
		func() sample {
			return idle(func(r *reader, s *server) error { return r.connect(s.addr, setPath, false, b.idle) })
		},
		func() sample {
			return idle(func(r *reader, s *server) error { return r.connectMany(s.addr, b.idle/setsEach, setsEach) })
		})
}
