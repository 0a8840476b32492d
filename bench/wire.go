//go:build linux

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	hubclient "github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/feed/compressed"
)

var (
	wireBytes      = metric{name: "bytes/message", ratio: true}
	wireBytesOf100 = metric{name: "bytes/message", limit: 0.25, ratio: true}
	wireCPU        = metric{name: "CPU µs/publish", limit: 1.5, ratio: true}
	pageBytes      = metric{name: "bytes/page", limit: 0.25, ratio: true}
	pageCPU        = metric{name: "CPU µs/page, hub and client", limit: 1.5, ratio: true}
)

// wire measures what compressed messages save and cost: publishes of real changes over HTTP,
// one after the other, each of which every follower gets. Floor: the same hub, whose
// followers ask for plain messages.
func (b *bench) wire(t *table) error {
	t.heads = [2]string{"plain", "zstd"}
	for _, n := range []int{1, 10, 100} {
		for _, followers := range []int{1, 100} {
			err := alternate(b,
				func() (wired, error) { return b.wireWith(feed.JSON, n, followers) },
				func() (wired, error) { return b.wireWith(compressed.ShortJSON(), n, followers) },
				func(plain, packed wired) {
					what := fmt.Sprintf("batches of %d, WebSockets: %d", n, followers)
					size := wireBytes
					if n == 100 {
						size = wireBytesOf100
					}
					others := max(plain.others, packed.others)
					t.add(what, size, plain.bytes/plain.count, packed.bytes/packed.count, others)
					t.add(what, wireCPU, 1e6*plain.cpu/plain.publishes, 1e6*packed.cpu/packed.publishes, others)
				})
			if err != nil {
				return err
			}
		}
	}
	return b.wirePages(t)
}

// A wired is what messages took.
type wired struct {
	usage
	publishes, count, bytes float64 // count: of messages
}

// wireWith publishes batches of n changes to followers that ask for a format.
func (b *bench) wireWith(f *feed.Format, n, followers int) (w wired, err error) {
	dir, err := b.dir()
	if err != nil {
		return w, err
	}
	defer os.RemoveAll(dir)
	s, err := b.rshub(dir, "RSHUB_SETS="+benchSet)
	if err != nil {
		return w, err
	}
	defer s.stop()
	r, err := newReader(splitFrame)
	if err != nil {
		return w, err
	}
	var count, size atomic.Int64
	var last, text []byte // all followers get the same message
	r.header = "Sec-WebSocket-Protocol: " + f.Name + "\r\n"
	r.handle = func(s *subscriber, body []byte, at int64) int {
		if !bytes.Equal(body, last) {
			last, text = append(last[:0], body...), append(text[:0], body...)
			if f.Pack != nil {
				if text, err = compressed.Open(text[:0], body); err != nil {
					r.disorder++
				}
			}
		}
		changes := r.batch(s, text, at)
		if changes > 0 {
			count.Add(1)
			size.Add(int64(len(body)))
		}
		return changes
	}
	go r.run()
	defer r.close()
	path := "/sets/" + benchSet + "/changes"
	if err := r.connect(s.addr, always(path), false, followers); err != nil {
		return w, err
	}
	p, err := newPosterWith(s.addr, path, jsonHead)
	if err != nil {
		return w, err
	}
	defer p.conn.Close()
	published := 0
	publish := func() error {
		body := document(b.content.batch(published, n))
		published++
		return cmp.Or(p.post(body), r.await(b.ctx, int64(published*n*followers)))
	}
	for range warmUp {
		if err := publish(); err != nil {
			return w, fmt.Errorf("warm-up: %w", err)
		}
	}
	before, messages, sent := published, count.Load(), size.Load()
	w.usage, err = measure(func() error {
		for begin := time.Now(); time.Since(begin) < b.wired; {
			if err := publish(); err != nil {
				return err
			}
		}
		return nil
	}, s)
	w.publishes, w.count, w.bytes = float64(published-before), float64(count.Load()-messages), float64(size.Load()-sent)
	return w, cmp.Or(err, r.check())
}

// wirePages measures the Go client, which catches up by pages of 100.
func (b *bench) wirePages(t *table) error {
	const limit = 100
	dir, err := b.dir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	behind := b.behind / 5
	if err := b.fillDisk(dir, behind, limit, 10_000); err != nil {
		return err
	}
	s, err := b.rshub(dir)
	if err != nil {
		return err
	}
	defer s.stop()
	read := func(plain bool) (w wired, err error) {
		wire := &counted{plain: plain}
		c, err := hubclient.New("http://"+s.addr, hubclient.Options{HTTP: &http.Client{Transport: wire}})
		if err != nil {
			return w, err
		}
		w.usage, err = measure(func() error {
			got := 0
			for batch, err := range c.Follow(b.ctx, benchSet, "start", hubclient.FollowOptions{Limit: limit}) {
				if err != nil {
					return err
				}
				if got += len(batch.Entries); got >= behind {
					break
				}
			}
			return nil
		}, s)
		w.count, w.bytes = float64(behind/limit), float64(wire.bytes.Load())
		return w, err
	}
	return alternate(b,
		func() (wired, error) { return read(true) },
		func() (wired, error) { return read(false) },
		func(plain, packed wired) {
			const what = "pages of 100, client.Follow"
			others := max(plain.others, packed.others)
			t.add(what, pageBytes, plain.bytes/plain.count, packed.bytes/packed.count, others)
			t.add(what, pageCPU, 1e6*(plain.cpu+plain.own)/plain.count, 1e6*(packed.cpu+packed.own)/packed.count, others)
		})
}

// A counted transport counts the bytes of bodies as they come.
type counted struct {
	plain bool // it asks for bodies as they are
	bytes atomic.Int64
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.plain {
		r = r.Clone(r.Context())
		r.Header.Set("Accept-Encoding", "identity")
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(resp.Body, c), resp.Body}
	}
	return resp, err
}

func (c *counted) Write(p []byte) (int, error) {
	c.bytes.Add(int64(len(p)))
	return len(p), nil
}
