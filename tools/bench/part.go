//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"
)

// A part is a group of measurements that answer one question.
type part struct {
	name, title string    // the title says what is measured, and the floor
	heads       [2]string // of the two columns; default: floor, rshub
	run         func(*bench, *table)
}

var parts = []part{
	{name: "publish", run: (*bench).publish,
		title: "Durable publishes, in process: hub.Publish; floor: append the same blocks to a file, fsync once for all that wait"},
	{name: "publish-http", run: (*bench).publishHTTP,
		title: "Durable publishes over HTTP, on kept connections; floor: net/http that reads the body, then the floor above"},
	{name: "requests", run: (*bench).requests,
		title: "Requests on persistent connections to a trivial handler; floor: net/http, a plain mux with the same response"},
	{name: "fanout", run: (*bench).fanout,
		title: "WebSocket fan-out of messages of 1 KB; floor: the same frame, one write for each connection and message"},
	{name: "events", run: (*bench).events, title: "Event streams, the same messages; floor: as above"},
	{name: "filters", heads: [2]string{"alone", "beside"}, run: (*bench).filters,
		title: "WebSockets with filters: a publish that matches one follower, alone and with many that do not match"},
	{name: "idle", run: (*bench).idleConnections, title: "Memory of idle WebSocket connections; floor: a bare connection for each"},
	{name: "many", heads: [2]string{"one set", "many sets"}, run: (*bench).many,
		title: "WebSockets that follow one set, and WebSockets that follow many, one of which changes"},
	{name: "catchup", run: (*bench).catchup,
		title: "Catching up over WebSocket; floor: the same bytes from memory to each connection"},
	{name: "documents", run: (*bench).documents,
		title: "Documents, time until the last byte; floor: net/http serving the same bytes from memory"},
	{name: "callbacks", run: (*bench).callbacks,
		title: "Deliveries to callbacks, one to each per publish, with the next publish after all responses; " +
			"CPU less that of the same publishes to a set without subscriptions; floor: net/http, a goroutine for each callback"},
	{name: "callback-idle", run: (*bench).idleSubscriptions,
		title: "Memory of idle subscriptions; floor: the bytes of callback, secret and token"},
	{name: "redis", run: (*bench).publishRedis,
		title: "Durable publishes into Redis, in process: hub.Publish; floor: go-redis, one XADD of the same block for each publish"},
	{name: "cluster", run: (*bench).cluster,
		title: "From publish to receipt, 1,000 changes a second over HTTP, followed by one WebSocket; Redis, NATS and two hubs; " +
			"floor: go-redis, one XADD, then publish over NATS to one subscriber"},
	{name: "flat", heads: [2]string{"small", "large"}, run: (*bench).flat,
		title: "Scaling: a memory with 10,000 changes in one set and a larger one; a hub without subscriptions and one with many"},
	{name: "inventory", run: (*bench).inventory,
		title: "An inventory, built in process from a log; floor: decode the same changes, compute the elements of their digests; " +
			"floor of the size: blocks of the log with the same changes, by loc"},
	{name: "inventory-follow", heads: [2]string{"without", "with"}, run: (*bench).inventoryFollow,
		title: "Publishing changes at random places, in process, without an inventory and with one that keeps up"},
	{name: "sync", run: (*bench).sync,
		title: "rspublish sync of an unchanged directory; floor: find -printf of the file attributes that sync needs"},
	{name: "mirror", run: (*bench).mirror,
		title: "rsmirror -once of small files into a new directory, each file durable; floor: net/http with as many requests at a time, " +
			"each file created and renamed, nothing durable"},
	{name: "dump", run: (*bench).dump,
		title: "rspublish dump of a directory for the first time; floor: read each file into one durable ZIP file, with the same compressor"},
}

// A failure ends a part, as t.Fatal ends a test. Only the goroutine that runs the part may panic
// with it; others return errors.
type failure struct{ error }

// must fails the part if err is not nil.
func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// have returns v, and fails the part if err is not nil.
func have[T any](v T, err error) T {
	must(err)
	return v
}

// runPart runs a part and prints its measurements, even if it failed halfway.
func (b *bench) runPart(p part) (err error) {
	if b.ctx.Err() != nil {
		return b.ctx.Err()
	}
	begin := time.Now()
	t := &table{aimless: b.aimless, heads: p.heads}
	if b.data, err = os.MkdirTemp(b.work, "data-"); err != nil {
		return err
	}
	err = b.scope(func() { p.run(b, t) })
	fmt.Fprintf(b.out, "\n%s: %s (%.0f s)\n", p.name, p.title, time.Since(begin).Seconds())
	if why, ok := errors.AsType[skipError](err); ok {
		err = nil
		defer fmt.Fprintln(b.out, "  SKIPPED:", why)
	}
	err = cmp.Or(err, t.print(b.out), os.RemoveAll(b.data))
	if err != nil {
		err = fmt.Errorf("%s: %w", p.name, err)
		fmt.Fprintln(b.out, "  FAILED:", err)
	}
	return err
}

// dir creates a directory for data. It is removed at the end of the part.
func (b *bench) dir() string { return have(os.MkdirTemp(b.data, "")) }

// later registers a function to be called at the end of the current scope: a measurement, or else
// the part.
func (b *bench) later(end func() error) { b.ends = append(b.ends, end) }

// scope calls do, and then the registered functions in reverse order. It returns the first failure.
func (b *bench) scope(do func()) (err error) {
	before := len(b.ends)
	defer func() {
		switch failed := recover().(type) {
		case nil:
		case failure:
			err = failed.error
		default:
			panic(failed) // a mistake of the bench
		}
		for len(b.ends) > before {
			last := len(b.ends) - 1
			end := b.ends[last]
			b.ends = b.ends[:last]
			err = cmp.Or(err, end())
		}
	}()
	do()
	return nil
}

// compare measures floor and ours once in each round, and adds the figures of both to the table.
// They alternate in being first.
func (b *bench) compare(t *table, what string, figures []metric, floor, ours func() sample) {
	for i := range b.rounds {
		var f, o sample
		steps := []func(){func() { f = floor() }, func() { o = ours() }}
		for k := range steps {
			if err := cmp.Or(b.scope(steps[(i+k)%2]), b.ctx.Err()); err != nil {
				must(fmt.Errorf("%s: %w", what, err))
			}
		}
		for _, m := range figures {
			t.add(what, m, f, o)
		}
	}
}

// A metric computes a figure from a sample, and has its aim.
type metric struct {
	name string
	of   func(sample) float64
	aim
}

// An aim is the limit of a figure.
type aim struct {
	limit float64 // 0: there is no aim
	least bool    // it is a minimum, not a maximum
	ratio bool    // it is for the ratio to the floor
	over  bool    // it is for what comes on top of the floor
}

// should returns the metric with an aim.
func (m metric) should(a aim) metric {
	m.aim = a
	return m
}

// perSecond returns the metric of the rate of the counted items.
func perSecond(what string) metric {
	return metric{name: what + "/s", of: func(s sample) float64 { return s.count / s.seconds }}
}

// cpuEach returns the metric of the servers' CPU time per counted item.
func cpuEach(what string) metric {
	return metric{name: "CPU µs/" + what, of: func(s sample) float64 { return 1e6 * s.cpu / s.count }}
}

// ownEach returns the metric of the bench's own CPU time per counted item.
func ownEach(name string) metric {
	return metric{name: name, of: func(s sample) float64 { return 1e6 * s.own / s.count }}
}

// memoryEach returns the metric of the memory per counted item, in units of the given number of
// bytes.
func memoryEach(name string, unit float64) metric {
	return metric{name: name, of: func(s sample) float64 { return s.memory / unit / s.count }}
}

// each returns the metric of the i-th additional value of a sample.
func each(i int, name string) metric {
	return metric{name: name, of: func(s sample) float64 { return s.each[i] }}
}

var (
	latency50 = metric{name: "p50 ms", of: func(s sample) float64 { return s.p50 }}
	latency99 = metric{name: "p99 ms", of: func(s sample) float64 { return s.p99 }}
)
