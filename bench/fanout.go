//go:build linux

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	messageSize = 1024
	pace        = 20 // messages a second
	window      = 16 // messages that are unfinished at most, when not paced
	warmUp      = 5  // messages
	settle      = 1500 * time.Millisecond
)

var (
	deliveriesPerSecond = metric{name: "deliveries/s"}
	pacedCPU            = metric{name: "CPU µs/delivery", limit: 1.6, ratio: true}
	saturatedCPU        = metric{name: "CPU µs/delivery", limit: 0.8, ratio: true}
	streamedCPU         = metric{name: "CPU µs/delivery", limit: 1.25, ratio: true}
	latency50           = metric{name: "p50 ms"}
	latency99           = metric{name: "p99 ms"}
	perConnection       = metric{name: "KB/connection", limit: 3}
	peakUnderLoad       = metric{name: "MiB, peak RSS"}
)

// A channel is the way in which messages come into a server and out of it.
type channel struct {
	server      *server
	path        string // of subscribers
	header      string // of subscribers' requests besides, whole lines
	events      bool
	subscribers int
	posts       []func(body []byte) error // one for each publisher
	body        []byte                    // with a mark
}

// connect connects the subscribers.
func (c channel) connect(r *reader) error {
	return r.connect(c.server.addr, always(c.path), c.events, c.subscribers)
}

// A publisher publishes numbered messages, one after the other.
type publisher struct {
	post func(body []byte) error
	body []byte
	seq  uint32
}

func (c channel) feeds() []*publisher {
	out := make([]*publisher, len(c.posts))
	for i, post := range c.posts {
		out[i] = &publisher{post, bytes.Clone(c.body), uint32(i) << feedShift}
	}
	return out
}

func (f *publisher) publish() error {
	f.seq++
	stamp(f.body, f.seq, now())
	return f.post(f.body)
}

// A delivery has the time and the CPU that a server took to deliver.
type delivery struct {
	usage
	count    float64
	p50, p99 float64 // ms from before the publish until the message was read
	peak     float64 // the most resident bytes of the servers since they began
}

// deliver publishes rate messages a second for a while, and waits until all have arrived.
// If rate is 0, it publishes as fast as the window allows. A message that is lost or out of
// order is an error.
func (b *bench) deliver(c channel, length time.Duration, rate int) (delivery, error) {
	split := splitFrame
	if c.events {
		split = splitEvent
	}
	r, err := newReader(split)
	if err != nil {
		return delivery{}, err
	}
	r.header = c.header
	go r.run()
	defer r.close()
	if err := c.connect(r); err != nil {
		return delivery{}, err
	}
	return b.drive(r, c, length, rate, c.server)
}

// drive is deliver when the subscribers are connected.
func (b *bench) drive(r *reader, c channel, length time.Duration, rate int, servers ...*server) (d delivery, err error) {
	n := int64(c.subscribers)
	most := int64(max(window, rate)) // a second's worth
	fs := c.feeds()
	for i := range int64(warmUp) {
		if err := cmp.Or(fs[0].publish(), r.await(b.ctx, (i+1)*n)); err != nil {
			return d, fmt.Errorf("warm-up: %w", err)
		}
	}
	r.reset()
	d.usage, err = measure(func() error {
		var sent atomic.Int64
		var wg sync.WaitGroup
		errs := make(chan error, len(fs))
		begin := time.Now()
		for _, f := range fs {
			wg.Go(func() {
				for time.Since(begin) < length {
					i := sent.Add(1) - 1
					if rate > 0 {
						time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(rate))))
					}
					if err := cmp.Or(r.await(b.ctx, (i-most+1)*n), f.publish()); err != nil {
						errs <- err
						return
					}
				}
			})
		}
		wg.Wait()
		close(errs)
		return cmp.Or(<-errs, r.await(b.ctx, sent.Load()*n))
	}, servers...)
	if err = cmp.Or(err, r.check()); err != nil {
		return d, err
	}
	slices.Sort(r.latencies)
	d.count = float64(len(r.latencies))
	d.p50, d.p99 = quantile(r.latencies, .5)/1000, quantile(r.latencies, .99)/1000
	for _, s := range servers {
		peak, err := peakOf(s.pid)
		if err != nil {
			return d, err
		}
		d.peak += peak
	}
	return d, nil
}

// delivered adds what a round measured.
func (t *table) delivered(what string, cpu metric, floor, ours delivery) {
	others := max(floor.others, ours.others)
	t.add(what, cpu, 1e6*floor.cpu/floor.count, 1e6*ours.cpu/ours.count, others)
	t.add(what, deliveriesPerSecond, floor.count/floor.seconds, ours.count/ours.seconds, others)
	t.add(what, latency50, floor.p50, ours.p50, others)
	t.add(what, latency99, floor.p99, ours.p99, others)
	t.add(what, peakUnderLoad, floor.peak/(1<<20), ours.peak/(1<<20), others)
}

// deliverFloor and deliverOurs each start a server for one delivery.
func (b *bench) deliverFloor(connections int, events bool, length time.Duration, rate int) (d delivery, err error) {
	s, err := b.floor("fanout")
	if err != nil {
		return d, err
	}
	defer s.stop()
	_, body := marked(messageSize)
	c := channel{server: s, path: "/", events: events, subscribers: connections, body: body}
	for range publishersFor(rate) {
		f, err := newFeeder(s.addr)
		if err != nil {
			return d, err
		}
		defer f.conn.Close()
		c.posts = append(c.posts, f.post)
	}
	return b.deliver(c, length, rate)
}

// publishersFor returns how many publishers there are. One of them alone waits for
// an fsync most of the time, which saturates nothing.
func publishersFor(rate int) int {
	if rate == pace {
		return 1
	}
	return feeds
}

func (b *bench) deliverOurs(connections int, events bool, length time.Duration, rate int) (d delivery, err error) {
	dir, err := b.dir()
	if err != nil {
		return d, err
	}
	defer os.RemoveAll(dir)
	s, err := b.rshub(dir)
	if err != nil {
		return d, err
	}
	defer s.stop()
	path := "/sets/" + benchSet + "/changes"
	line, _ := marked(messageSize)
	c := channel{server: s, path: path, events: events, subscribers: connections, body: line}
	for range publishersFor(rate) {
		p, err := newPoster(s.addr, path)
		if err != nil {
			return d, err
		}
		defer p.conn.Close()
		c.posts = append(c.posts, p.post)
	}
	return b.deliver(c, length, rate)
}

// fanout measures WebSockets: paced, saturated, and saturated with many more of them.
func (b *bench) fanout(t *table) error {
	for _, load := range []struct {
		connections, rate int
		length            time.Duration
		cpu               metric
		what              string
	}{
		{b.connections, pace, b.paced, pacedCPU, fmt.Sprintf("%d/s", pace)},
		{b.connections, 0, b.saturated, saturatedCPU, "saturated"},
		{b.crowd, 0, b.saturated, saturatedCPU, "saturated"},
	} {
		err := alternate(b,
			func() (delivery, error) { return b.deliverFloor(load.connections, false, load.length, load.rate) },
			func() (delivery, error) { return b.deliverOurs(load.connections, false, load.length, load.rate) },
			func(floor, ours delivery) {
				t.delivered(fmt.Sprintf("%d connections, %s", load.connections, load.what), load.cpu, floor, ours)
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// events measures event streams, paced.
func (b *bench) events(t *table) error {
	return alternate(b,
		func() (delivery, error) { return b.deliverFloor(b.connections, true, b.paced, pace) },
		func() (delivery, error) { return b.deliverOurs(b.connections, true, b.paced, pace) },
		func(floor, ours delivery) {
			t.delivered(fmt.Sprintf("%d streams, %d/s", b.connections, pace), streamedCPU, floor, ours)
		})
}

// idleConnections measures the memory of connections to which nothing is sent.
func (b *bench) idleConnections(t *table) error {
	if need := uint64(b.idle + 500); need > b.maxOpen {
		return fmt.Errorf("%d connections need as many open files, and the limit is %d: raise ulimit -n", b.idle, b.maxOpen)
	}
	return alternate(b,
		func() (float64, error) {
			s, err := b.floor("fanout")
			if err != nil {
				return 0, err
			}
			return b.hold(s, "/")
		},
		func() (float64, error) {
			dir, err := b.dir()
			if err != nil {
				return 0, err
			}
			s, err := b.rshub(dir, "RSHUB_SETS="+benchSet)
			if err != nil {
				return 0, err
			}
			return b.hold(s, "/sets/"+benchSet+"/changes")
		},
		func(floor, ours float64) {
			t.add(fmt.Sprintf("%d connections", b.idle), perConnection, floor, ours, notMeasured)
		})
}

// hold returns the KB by which a server grows for each idle connection, and
// stops the server.
func (b *bench) hold(s *server, path string) (float64, error) {
	defer s.stop()
	r, err := newReader(splitFrame)
	if err != nil {
		return 0, err
	}
	go r.run()
	defer r.close()
	before, err := rssOf(s.pid)
	if err != nil {
		return 0, err
	}
	if err := r.connect(s.addr, always(path), false, b.idle); err != nil {
		return 0, err
	}
	time.Sleep(settle)
	after, err := rssOf(s.pid)
	return (after - before) / 1024 / float64(b.idle), cmp.Or(err, r.check())
}
