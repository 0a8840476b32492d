//go:build linux

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

const (
	messageSize = 1024
	pace        = 20 // messages a second
	window      = 16 // messages that are unfinished at most, when not paced
	warmUp      = 5  // messages
)

// A channel is a transport of messages to and from a server.
type channel struct {
	posts  []poster // one for each publisher
	body   []byte   // with a mark
	length time.Duration
	rate   int // messages a second; 0 for as many as the window allows
}

// A publisher publishes consecutively numbered messages.
type publisher struct {
	post poster
	body []byte
	seq  uint32
}

func (p *publisher) publish() error {
	p.seq++
	stamp(p.body, p.seq, now())
	return p.post(p.body)
}

// deliver publishes for a while, and waits until all that was published has arrived. A
// message that is lost or out of order is a failure. It counts deliveries.
func (b *bench) deliver(r *reader, c channel, servers ...*server) sample {
	most := int64(max(window, c.rate)) // a second's worth
	feeds := make([]*publisher, len(c.posts))
	for i, post := range c.posts {
		feeds[i] = &publisher{post, bytes.Clone(c.body), uint32(i) << feedShift}
	}
	for i := range int64(warmUp) {
		must(feeds[0].publish())
		must(r.await(b.ctx, i+1))
	}
	r.reset()
	s := measure(func() {
		var sent atomic.Int64
		begin := time.Now()
		must(inParallel(len(feeds), len(feeds), func(f int) error {
			for time.Since(begin) < c.length {
				i := sent.Add(1) - 1
				if c.rate > 0 {
					time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(c.rate))))
				}
				if err := cmp.Or(r.await(b.ctx, i-most+1), feeds[f].publish()); err != nil {
					return err
				}
			}
			return nil
		}))
		must(r.await(b.ctx, sent.Load()))
	}, servers...)
	must(r.check())
	slices.Sort(r.latencies)
	s.count = float64(len(r.latencies))
	s.p50, s.p99 = quantile(r.latencies, .5)/1000, quantile(r.latencies, .99)/1000
	return s
}

// fan measures the fan-out of messages to all subscribers: paced by one publisher, or saturated by
// several. A single one waits for an fsync most of the time.
func (b *bench) fan(t *table, what string, figure metric, events bool, rate int) {
	writers := feeds
	if rate > 0 {
		writers = 1
	}
	through := func(s *server, path string, body []byte) sample {
		posts, r := b.posters(writers, s.addr, path, inLines), b.newReader()
		must(r.connect(s.addr, path, events, b.connections))
		return b.deliver(r, channel{posts, body, 3 * b.length, rate}, s)
	}
	line, message := marked(messageSize)
	b.compare(t, fmt.Sprintf("%d %s", b.connections, what), []metric{figure, perSecond("deliveries"), latency50, latency99},
		func() sample { return through(b.floor("fanout"), "/", message) },
		func() sample { return through(b.rshub(b.dir()), setPath, line) })
}

// fanout measures WebSockets, paced and saturated.
func (b *bench) fanout(t *table) {
	cpu := cpuEach("delivery")
	b.fan(t, fmt.Sprintf("connections, %d/s", pace), cpu.should(aim{limit: 1.6, ratio: true}), false, pace)
	b.fan(t, "connections, saturated", cpu.should(aim{limit: .8, ratio: true}), false, 0)
}

// events measures event streams, paced.
func (b *bench) events(t *table) {
	b.fan(t, fmt.Sprintf("streams, %d/s", pace), cpuEach("delivery").should(aim{limit: 1.5, ratio: true}), true, pace)
}

// filters measures publishes that match the filter of one follower, while the idle connections each
// have another prefix that does not match.
func (b *bench) filters(t *table) {
	line, _ := marked(messageSize)
	beside := func(others int) sample {
		s := b.rshub(b.dir())
		idle, r := b.newReader(), b.newReader()
		for i := range others {
			must(idle.connect(s.addr, fmt.Sprintf("%s?prefix=https://bench.example.org/%07d", setPath, i), false, 1))
		}
		posts := b.posters(1, s.addr, setPath, inLines)
		must(r.connect(s.addr, setPath+"?prefix=https://bench.example.org/@", false, 1))
		defer func() { must(idle.check()) }()
		return b.deliver(r, channel{posts, line, 3 * b.length, 0}, s)
	}
	b.compare(t, fmt.Sprintf("one follower, next to %d others with other prefixes", b.idle),
		[]metric{cpuEach("publish").should(aim{limit: 2, ratio: true}), perSecond("publishes"), latency50, latency99},
		func() sample { return beside(0) }, func() sample { return beside(b.idle) })
}

// idleConnections measures the memory of connections without messages.
func (b *bench) idleConnections(t *table) {
	hold := func(s *server, path string) sample {
		before := rssOf(s.pid)
		r := b.newReader()
		must(r.connect(s.addr, path, false, b.idle))
		time.Sleep(settle)
		grown := rssOf(s.pid) - before
		must(r.check())
		return sample{memory: grown, count: float64(b.idle)}
	}
	b.compare(t, fmt.Sprintf("%d connections", b.idle), []metric{memoryEach("KB/connection", 1024).should(aim{limit: 8})},
		func() sample { return hold(b.floor("fanout"), "/") },
		func() sample { return hold(b.rshub(b.dir(), "RSHUB_SETS="+benchSet), setPath) })
}
