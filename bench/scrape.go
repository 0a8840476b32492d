//go:build linux

package main

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// serveMetricsFloor serves the metrics that every Go program has.
func serveMetricsFloor(l net.Listener) error {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return http.Serve(l, promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
}

// scrape measures what it costs to read the metrics of a hub that has many sets
// and subscriptions and nothing to do.
func (b *bench) scrape(t *table) error {
	dir, err := b.dir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if _, err := b.fillSubscriptions(dir, b.subscriptions, b.sets); err != nil {
		return err
	}
	hub, err := b.rshub(dir)
	if err != nil {
		return err
	}
	defer hub.stop()
	bare, err := b.floor("metrics")
	if err != nil {
		return err
	}
	defer bare.stop()
	for _, s := range []*server{hub, bare} {
		if err := b.rest(s); err != nil {
			return err
		}
	}
	what := fmt.Sprintf("%s sets, %s subscriptions", format(float64(b.sets)), format(float64(b.subscriptions)))
	type figures struct {
		usage
		bytes int64
	}
	read := func(s *server, url string) func() (figures, error) {
		return func() (f figures, err error) {
			f.usage, err = measure(func() (err error) {
				for range b.scrapes {
					if f.bytes, err = readAll(url); err != nil {
						return err
					}
				}
				return nil
			}, s)
			return f, err
		}
	}
	return alternate(b, read(bare, "http://"+bare.addr+"/metrics"), read(hub, "http://"+hub.ops+"/metrics"), func(floor, ours figures) {
		n := float64(b.scrapes)
		t.add(what, metric{name: "bytes", limit: 1 << 20}, float64(floor.bytes), float64(ours.bytes), notMeasured)
		t.add(what, metric{name: "CPU ms", limit: 50}, 1000*floor.cpu/n, 1000*ours.cpu/n, ours.others)
		t.add(what, metric{name: "ms"}, 1000*floor.seconds/n, 1000*ours.seconds/n, ours.others)
	})
}

// readAll reads an answer, uncompressed, and returns its length.
func readAll(url string) (int64, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return io.Copy(io.Discard, resp.Body)
}

// rest waits until a server has nothing to do.
func (b *bench) rest(s *server) error {
	const idle = 0.02 // seconds of CPU, of which two are steps of the clock
	for used := 1.0; used > idle; {
		before, err1 := cpuOf(s.pid)
		time.Sleep(settle)
		after, err2 := cpuOf(s.pid)
		if err := cmp.Or(err1, err2, b.ctx.Err()); err != nil {
			return err
		}
		used = after - before
	}
	return nil
}
