//go:build linux

package main

import (
	"bytes"
	"fmt"

	"github.com/nats-io/nats.go"
)

// clusterRate is the changes a second that the latency is measured at.
const clusterRate = 1000

// smallMessage is the size in bytes of a message with one change, about that of the
// content.
const smallMessage = 400

var (
	acrossP50         = metric{name: "p50 ms", limit: 2, over: true}
	messagesPerSecond = metric{name: "messages/s"}
)

// A cluster is two hubs on one Redis and one NATS.
type cluster struct {
	redis *redisServer
	nats  *server
	hubs  []*server
}

// cluster measures the time from before a publish until a follower has read it,
// at the hub that it was published to and at the other one.
func (b *bench) cluster(t *table) error {
	c, err := b.startCluster()
	if err != nil {
		return err
	}
	defer c.stop()
	for _, n := range []int{1, 10} {
		for _, hubs := range []int{1, 2} {
			what, p50 := fmt.Sprintf("batches of %d, published and followed at one hub", n), latency50
			if hubs == 2 {
				what, p50 = fmt.Sprintf("batches of %d, followed at another hub", n), acrossP50
			}
			err := alternate(b,
				func() (delivery, error) { return b.acrossBare(c, n) },
				func() (delivery, error) { return b.across(c, c.hubs[0], c.hubs[hubs-1], n) },
				func(f, o delivery) {
					others := max(f.others, o.others)
					t.add(what, p50, f.p50, o.p50, others)
					t.add(what, latency99, f.p99, o.p99, others)
					t.add(what, messagesPerSecond, f.count/f.seconds, o.count/o.seconds, others)
				})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) startCluster() (c *cluster, err error) {
	c = &cluster{}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if c.redis, err = b.redisServer(); err != nil {
		return c, err
	}
	if c.nats, err = b.natsServer(); err != nil {
		return c, err
	}
	for range 2 {
		hub, err := b.rshub("", "RSHUB_REDIS_URL="+c.redis.url(), "RSHUB_NATS_URL=nats://"+c.nats.addr, "RSHUB_BASE_URL=http://hub.bench.example.org")
		if err != nil {
			return c, err
		}
		c.hubs = append(c.hubs, hub)
	}
	return c, nil
}

func (c *cluster) stop() {
	for _, s := range c.hubs {
		s.stop()
	}
	if c.nats != nil {
		c.nats.stop()
	}
	if c.redis != nil {
		c.redis.stop()
	}
}

// across publishes batches of n over HTTP at one hub, and follows by WebSocket
// at another, or the same. The first change of a batch has the mark.
func (b *bench) across(c *cluster, from, to *server, n int) (d delivery, err error) {
	path := "/sets/" + benchSet + "/changes"
	line, _ := marked(smallMessage)
	ch := channel{server: to, path: path, subscribers: 1, body: append(line, ndjson(b.content.batch(0, n)[1:])...)}
	for range feeds {
		p, err := newPoster(from.addr, path)
		if err != nil {
			return d, err
		}
		defer p.conn.Close()
		ch.posts = append(ch.posts, p.post)
	}
	r, err := newReader(splitFrame)
	if err != nil {
		return d, err
	}
	go r.run()
	defer r.close()
	if err := ch.connect(r); err != nil {
		return d, err
	}
	servers := append([]*server{c.redis.server, c.nats}, c.hubs...)
	return b.drive(r, ch, b.clustered, clusterRate/n, servers...)
}

// acrossBare writes the same to a stream of Redis with go-redis, publishes it
// over NATS, and takes the time until a subscriber of this process has it.
func (b *bench) acrossBare(c *cluster, n int) (d delivery, err error) {
	nc, err := nats.Connect("nats://" + c.nats.addr)
	if err != nil {
		return d, err
	}
	defer nc.Close()
	r, err := newReader(splitFrame)
	if err != nil {
		return d, err
	}
	go r.run() // of nothing, but who waits is woken
	defer r.close()
	s := &subscriber{}
	if _, err := nc.Subscribe(bareStream, func(m *nats.Msg) { r.heard(s, m.Data) }); err != nil {
		return d, err
	}
	if err := nc.Flush(); err != nil {
		return d, err
	}
	mark := append(bytes.Clone(markStart), make([]byte, markLen-len(markStart))...)
	ch := channel{subscribers: 1, body: append(mark, b.content.encode(0, n)...)}
	for range feeds {
		ch.posts = append(ch.posts, func(body []byte) error {
			if err := c.redis.bareAppend(b.ctx, body); err != nil {
				return err
			}
			return nc.Publish(bareStream, body)
		})
	}
	return b.drive(r, ch, b.clustered, clusterRate/n, c.redis.server, c.nats)
}

// heard takes a message that this process did not receive over the reader's sockets.
func (r *reader) heard(s *subscriber, body []byte) {
	at := now()
	r.mu.Lock()
	r.delivered.Add(int64(r.handle(s, body, at)))
	r.mu.Unlock()
	r.moved.Broadcast()
}
