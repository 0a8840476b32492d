//go:build linux

package main

import (
	"bytes"
	"fmt"

	"github.com/nats-io/nats.go"
)

// clusterRate is the number of changes per second at which the latency is measured.
const clusterRate = 1000

// smallMessage is the approximate size of a message with one change in bytes.
const smallMessage = 400

// A cluster is two hubs that share one Redis and one NATS.
type cluster struct {
	redis *redisServer
	nats  *server
	hubs  []*server
}

// cluster measures the time from the start of a publish until a follower has received it, at the
// same hub and at another.
func (b *bench) cluster(t *table) {
	c := &cluster{redis: b.redisServer()}
	c.nats = b.startAt(b.build("nats-server"), func(host, port string) []string { return []string{"--addr", host, "--port", port} })
	for range 2 {
		c.hubs = append(c.hubs, b.rshub("", "RSHUB_REDIS_URL=redis://"+c.redis.addr, "RSHUB_NATS_URL=nats://"+c.nats.addr,
			"RSHUB_BASE_URL=http://hub.bench.example.org"))
	}
	for _, n := range []int{1, 10} {
		for to, where := range []string{"the same hub", "another hub"} {
			p50 := latency50
			if to > 0 {
				p50 = p50.should(aim{limit: 2, over: true})
			}
			b.compare(t, fmt.Sprintf("by %d, followed at %s", n, where), []metric{p50, latency99, perSecond("messages")},
				func() sample { return c.bare(b, n) },
				func() sample { return c.across(b, c.hubs[0], c.hubs[to], n) })
		}
	}
}

// across publishes batches of n over HTTP at one hub, and follows by WebSocket
// at another, or the same. The first change of a batch has the mark.
func (c *cluster) across(b *bench, from, to *server, n int) sample {
	posts, r := b.posters(feeds, from.addr, setPath, inLines), b.newReader()
	must(r.connect(to.addr, setPath, false, 1))
	line, _ := marked(smallMessage)
	line = append(line, ndjson(b.changes.batch(0, n)[1:])...)
	return b.deliver(r, channel{posts, line, 2 * b.length, clusterRate / n}, append([]*server{c.redis.server, c.nats}, c.hubs...)...)
}

// bare writes the same to a stream of Redis with go-redis, publishes it
// over NATS, and takes the time until a subscriber of this process has it.
func (c *cluster) bare(b *bench, n int) sample {
	nc := have(nats.Connect("nats://" + c.nats.addr))
	defer nc.Close()
	r, s := b.newReader(), &subscriber{}
	have(nc.Subscribe(bareStream, func(m *nats.Msg) { r.heard(s, m.Data, len(m.Data)) }))
	must(nc.Flush())
	mark := append(bytes.Clone(markStart), make([]byte, markLen-len(markStart))...)
	ch := channel{body: append(mark, blocks(b.changes.batch(0, n))...), length: 2 * b.length, rate: clusterRate / n}
	for range feeds {
		ch.posts = append(ch.posts, func(body []byte) error {
			if err := c.redis.bareAppend(b.ctx, body); err != nil {
				return err
			}
			return nc.Publish(bareStream, body)
		})
	}
	return b.deliver(r, ch, c.redis.server, c.nats)
}
