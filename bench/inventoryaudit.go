//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	hubclient "github.com/rshub/rshub/client"
)

// inventoryAudit measures an audit that finds both ends equal, and one that finds ten
// faults.
func (b *bench) inventoryAudit(t *table) error {
	const faults = 10
	for _, n := range []collection{faults, collection(b.resources)} {
		d, err := b.inventoryDir(n, 0, faults)
		if err != nil {
			return err
		}
		err = b.inventoryAuditOf(t, d, []int{0, faults})
		if err == nil && n > fillSize {
			err = d.in(func(m *inventoryMemory) error { return b.update(m.log, benchSet, n, b.waiting()/2) })
			if err == nil {
				what := fmt.Sprintf("%s resources, %s changes wait", format(float64(n)), format(float64(b.waiting()/2)))
				err = d.withHub(func(hub *server) error { return b.inventoryLook(t, what, hub) })
			}
		}
		if err = cmp.Or(err, d.remove()); err != nil {
			return err
		}
	}
	return nil
}

// withHub calls do with a hub on the directory.
func (d *inventoryDir) withHub(do func(hub *server) error) error {
	hub, err := d.hub()
	if err != nil {
		return err
	}
	defer hub.stop()
	return do(hub)
}

func (b *bench) inventoryAuditOf(t *table, d *inventoryDir, faults []int) error {
	return d.withHub(func(hub *server) error {
		what := format(float64(d.n)) + " resources"
		if err := b.inventoryLook(t, what, hub); err != nil {
			return err
		}
		for i, count := range faults {
			a := &auditor{bench: b, hub: hub, own: hubclient.Always(d.own[i]), faults: count}
			if err := a.compare(t, fmt.Sprintf("%s, %d faults", what, count)); err != nil {
				return err
			}
		}
		return nil
	})
}

// inventoryLook measures the request that an audit begins with.
func (b *bench) inventoryLook(t *table, what string, hub *server) error {
	dir, err := b.dir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := "/sets/" + benchSet + "/audit"
	body, _, err := get(hub, fetch{path: path}, "")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "look"), body, 0o644)
	}
	if err != nil {
		return err
	}
	floor, err := b.floor("documents", dir)
	if err != nil {
		return err
	}
	defer floor.stop()
	look := func(s *server, path string) func() (fetched, error) {
		return func() (f fetched, err error) {
			defer client.CloseIdleConnections()
			if err := b.rest(s); err != nil {
				return f, err
			}
			if _, _, err := get(s, fetch{path: path}, ""); err != nil { // connects
				return f, err
			}
			f.usage, err = measure(func() error {
				for range b.looks {
					begin := time.Now()
					if _, _, err := get(s, fetch{path: path}, ""); err != nil {
						return err
					}
					f.ms = append(f.ms, float64(time.Since(begin).Nanoseconds())/1e6)
				}
				return nil
			}, s)
			return f, err
		}
	}
	what += ", one look"
	return alternate(b, look(floor, "/look"), look(hub, path), func(f, o fetched) {
		n, others := float64(b.looks), max(f.others, o.others)
		t.add(what, metric{name: "bytes", limit: 1024}, float64(len(body)), float64(len(body)), notMeasured)
		t.add(what, metric{name: "ms, p50", limit: 1}, median(f.ms), median(o.ms), others)
		t.add(what, metric{name: "CPU ms"}, 1e3*f.cpu/n, 1e3*o.cpu/n, others)
	})
}

// An auditor compares a destination with a hub, again and again.
type auditor struct {
	*bench
	hub    *server
	own    hubclient.Own
	faults int
}

// An audited is what one comparison took, of several.
type audited struct {
	usage
	requests, bytes float64
}

func (a *auditor) compare(t *table, what string) error {
	dir, err := a.dir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	record := &wire{keep: true}
	if err := a.audit(record); err != nil {
		return err
	}
	for i, e := range record.kept {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), e.answer, 0o644); err != nil {
			return err
		}
	}
	floor, err := a.floor("answers", dir)
	if err != nil {
		return err
	}
	defer floor.stop()
	times := max(3, a.looks/10)
	repeat := func(s *server, once func(*wire) error) func() (audited, error) {
		return func() (u audited, err error) {
			if err := a.rest(s); err != nil {
				return u, err
			}
			w := &wire{}
			u.usage, err = measure(func() error {
				for range times {
					if err := once(w); err != nil {
						return err
					}
				}
				return nil
			}, s)
			n := float64(times)
			u.requests, u.bytes = float64(w.requests.Load())/n, float64(w.bytes.Load())/n
			u.cpu, u.seconds = u.cpu/n, u.seconds/n
			return u, err
		}
	}
	return alternate(a.bench, repeat(floor, func(w *wire) error { return a.replay(w, floor, record.kept) }), repeat(a.hub, a.audit), func(f, o audited) {
		others := max(f.others, o.others)
		t.add(what, metric{name: "round trips", limit: 5}, f.requests, o.requests, notMeasured)
		t.add(what, metric{name: "KB, both ways", limit: 200}, f.bytes/1000, o.bytes/1000, notMeasured)
		t.add(what, metric{name: "CPU of the hub, ms", limit: 100}, 1e3*f.cpu, 1e3*o.cpu, others)
		t.add(what, milliseconds, 1e3*f.seconds, 1e3*o.seconds, others)
	})
}

// audit compares once, over a new connection.
func (a *auditor) audit(w *wire) error {
	h := w.client()
	defer h.CloseIdleConnections()
	c, err := hubclient.New("http://"+a.hub.addr, hubclient.Options{HTTP: h})
	if err != nil {
		return err
	}
	found := 0
	for _, err := range c.Audit(a.ctx, benchSet, a.own, hubclient.AuditOptions{}) {
		if err != nil {
			return err
		}
		found++
	}
	if found != a.faults {
		return fmt.Errorf("WRONG: the audit found %d faults of %d", found, a.faults)
	}
	return nil
}

// replay sends the same requests to the floor.
func (a *auditor) replay(w *wire, floor *server, all []exchange) error {
	h := w.client()
	defer h.CloseIdleConnections()
	for i, e := range all {
		req, err := http.NewRequestWithContext(a.ctx, http.MethodPost, fmt.Sprintf("http://%s/%d", floor.addr, i), bytes.NewReader(e.question))
		if err != nil {
			return err
		}
		resp, err := h.Do(req)
		if err != nil {
			return err
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if err = cmp.Or(err, resp.Body.Close()); err != nil || n != int64(len(e.answer)) {
			return fmt.Errorf("the floor answered %d of %d bytes: %v", n, len(e.answer), err)
		}
	}
	return nil
}

// newAnswersFloor answers each path with the file of that name, when it has read what was
// asked.
func newAnswersFloor(dir string) (http.Handler, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	for _, f := range files {
		body, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		mux.HandleFunc("POST /"+f.Name(), func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err == nil {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(body)
			}
		})
	}
	return mux, nil
}

// A wire counts the requests and the bytes of HTTP clients.
type wire struct {
	requests, bytes atomic.Int64

	keep bool // what is sent and answered; by one client
	kept []exchange
}

type exchange struct{ question, answer []byte }

// client returns a client whose connections are counted.
func (w *wire) client() *http.Client {
	return &http.Client{Timeout: 4 * answerTime, Transport: &wireTransport{w, &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return wireConn{c, w}, nil
		},
	}}}
}

type wireTransport struct {
	*wire
	next *http.Transport
}

func (t *wireTransport) CloseIdleConnections() { t.next.CloseIdleConnections() }

func (t *wireTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.requests.Add(1)
	if !t.keep {
		return t.next.RoundTrip(req)
	}
	var e exchange
	if req.Body != nil {
		var err error
		if e.question, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(e.question))
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	e.answer, err = io.ReadAll(resp.Body)
	if err = cmp.Or(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(e.answer))
	t.kept = append(t.kept, e)
	return resp, nil
}

type wireConn struct {
	net.Conn
	wire *wire
}

func (c wireConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.wire.bytes.Add(int64(n))
	return n, err
}

func (c wireConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.wire.bytes.Add(int64(n))
	return n, err
}
