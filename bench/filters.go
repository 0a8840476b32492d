//go:build linux

package main

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"slices"
	"time"
)

var (
	filteredCPU     = metric{name: "CPU µs/publish", limit: 2, ratio: true}
	filteredLatency = metric{name: "p50 ms"}
	filteredLate    = metric{name: "p99 ms"}
)

// filters measures a publish that one of many followers wants, each of which follows
// with a prefix of its own. Floor: the same hub with one of these followers.
func (b *bench) filters(t *table) error {
	if need := uint64(b.wanting + 500); need > b.maxOpen {
		return fmt.Errorf("%d connections need as many open files, and the limit is %d: raise ulimit -n", b.wanting, b.maxOpen)
	}
	return alternate(b,
		func() (delivery, error) { return b.deliverWanted(1) },
		func() (delivery, error) { return b.deliverWanted(b.wanting) },
		func(floor, ours delivery) {
			what := fmt.Sprintf("%d followers, a prefix each", b.wanting)
			others := max(floor.others, ours.others)
			t.add(what, filteredCPU, 1e6*floor.cpu/floor.count, 1e6*ours.cpu/ours.count, others)
			t.add(what, filteredLatency, floor.p50, ours.p50, others)
			t.add(what, filteredLate, floor.p99, ours.p99, others)
		})
}

// wanted returns the prefix of the i-th follower.
func wanted(i int) string { return fmt.Sprintf("https://bench.example.org/%05d/", i) }

// deliverWanted publishes changes, one after the other, each of which one of n followers
// wants. The next is published when that one has the last. That another follower gets it
// is an error.
func (b *bench) deliverWanted(n int) (d delivery, err error) {
	dir, err := b.dir()
	if err != nil {
		return d, err
	}
	defer os.RemoveAll(dir)
	s, err := b.rshub(dir, "RSHUB_SETS="+benchSet)
	if err != nil {
		return d, err
	}
	defer s.stop()
	r, err := newReader(splitFrame)
	if err != nil {
		return d, err
	}
	r.handle = func(_ *subscriber, body []byte, at int64) (deliveries int) {
		_, sent, rest, ok := readMark(body)
		if !ok {
			return 0
		}
		r.latencies = append(r.latencies, uint32(max(0, at-sent)/1000))
		if _, _, _, more := readMark(rest); more {
			r.disorder++
		}
		return 1
	}
	go r.run()
	defer r.close()
	path := "/sets/" + benchSet + "/changes"
	if err := r.connect(s.addr, func(i int) string { return path + "?prefix=" + url.QueryEscape(wanted(i)) }, false, n); err != nil {
		return d, err
	}
	p, err := newPoster(s.addr, path)
	if err != nil {
		return d, err
	}
	defer p.conn.Close()
	publish := func(i int) error {
		line, _ := markedAt(wanted(i*7919%n), messageSize)
		stamp(line, uint32(i), now())
		return cmp.Or(p.post(line), r.await(b.ctx, int64(i+1)))
	}
	published := 0
	for ; published < warmUp; published++ {
		if err := publish(published); err != nil {
			return d, fmt.Errorf("warm-up: %w", err)
		}
	}
	d.usage, err = measure(func() error {
		for begin := time.Now(); time.Since(begin) < b.filtered || published < 2*warmUp; published++ {
			if err := publish(published); err != nil {
				return err
			}
		}
		return nil
	}, s)
	if err = cmp.Or(err, r.check()); err != nil {
		return d, err
	}
	if got := r.delivered.Load(); got != int64(published) {
		return d, fmt.Errorf("%d publishes, each of which one follower wants, were delivered %d times", published, got)
	}
	times := r.latencies[warmUp:]
	d.count = float64(len(times))
	slices.Sort(times)
	d.p50, d.p99 = quantile(times, .5)/1000, quantile(times, .99)/1000
	return d, nil
}
