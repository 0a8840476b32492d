//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

func TestSplitters(t *testing.T) {
	sizes := []int{0, 1, 125, 126, 1 << 10, 1<<16 - 1, 1 << 16}
	var frames, events []byte
	var want []int
	for _, n := range sizes {
		body := bytes.Repeat([]byte("x"), n)
		frames = appendFrame(frames, opText, body, false)
		events = append(append(append(events, "data: "...), body...), "\n\n"...)
		want = append(want, n)
	}
	for _, test := range []struct {
		name  string
		split splitter
		sent  []byte
		head  int
	}{
		{"frames", splitFrame, frames, 0},
		{"events", splitEvent, events, len("data: ")},
	} {
		for _, piece := range []int{1, 7, 1000, len(test.sent)} {
			var got []int
			var have []byte
			for part := range slices.Chunk(test.sent, piece) {
				have = append(have, part...)
				for {
					m, rest, ok := test.split(have)
					if !ok {
						break
					}
					if m.op != opText {
						t.Errorf("%s: opcode %d", test.name, m.op)
					}
					got = append(got, len(m.body)-test.head)
					have = rest
				}
			}
			if !slices.Equal(got, want) || len(have) > 0 {
				t.Errorf("%s in pieces of %d: messages of %v bytes and %d left, want %v and none", test.name, piece, got, len(have), want)
			}
		}
	}
}

func TestMark(t *testing.T) {
	line, delivered := marked(messageSize)
	if n := len(delivered); n != messageSize {
		t.Errorf("a delivered message has %d bytes, want %d", n, messageSize)
	}
	if c, err := resourcesync.ParseChange(bytes.TrimSpace(line)); err != nil || c.Validate() != nil {
		t.Errorf("the line cannot be published: %v, %v", err, c.Validate())
	}
	for _, p := range [][]byte{line, delivered} {
		stamp(p, 3<<feedShift|77, 1<<40+5)
		seq, at, rest, ok := readMark(append(p, "@@"...))
		if seq != 3<<feedShift|77 || at != 1<<40+5 || !ok || !bytes.HasSuffix(rest, markStart) {
			t.Errorf("readMark = %d, %d, %q, %v", seq, at, rest, ok)
		}
	}
	// A message may have several publishes.
	var r reader
	var s subscriber
	next := bytes.Clone(delivered)
	stamp(delivered, 1, 0)
	stamp(next, 2, 0)
	if n := r.mark(&s, append(delivered, next...), 0); n != 2 || r.disorder != 0 {
		t.Errorf("%d deliveries and %d out of order, want 2 and 0", n, r.disorder)
	}
	if r.mark(&s, next, 0); r.disorder != 1 {
		t.Error("a repeated message was not noticed")
	}
	if _, _, _, ok := readMark([]byte("no mark but @@ in it")); ok {
		t.Error("a mark where there is none")
	}
}

func TestStatistics(t *testing.T) {
	if m := median([]float64{9, 1, 5}); m != 5 {
		t.Errorf("median of three = %v", m)
	}
	if m := median([]float64{4, 1, 2, 9}); m != 3 {
		t.Errorf("median of four = %v", m)
	}
	sorted := make([]uint32, 100)
	for i := range sorted {
		sorted[i] = uint32(i)
	}
	if a, b, c := quantile(sorted, .5), quantile(sorted, .99), quantile(sorted, 1); a != 50 || b != 99 || c != 99 {
		t.Errorf("quantiles = %v, %v, %v", a, b, c)
	}
	if r := ratios([]float64{2, 0, 4}, []float64{3, 1, 1}); !slices.Equal(r, []float64{1.5, .25}) {
		t.Errorf("ratios = %v", r)
	}
	for v, want := range map[float64]string{0: "0", .1234: "0.123", 1.5: "1.50", 15.04: "15.0", 999.6: "1,000", 1234: "1,234", 1234567: "1,234,600"} {
		if s := format(v); s != want {
			t.Errorf("format(%v) = %q, want %q", v, s, want)
		}
	}
}

func TestAims(t *testing.T) {
	for _, test := range []struct {
		m           metric
		floor, ours float64
		want        string
	}{
		{metric{}, 1, 100, ""},
		{metric{limit: 12}, 1, 11, "met"},
		{metric{limit: 12}, 1, 13, "MISSED"},
		{metric{limit: 12, least: true}, 1, 13, "met"},
		{metric{limit: 12, least: true}, 1, 11, "MISSED"},
		{metric{limit: 1.6, ratio: true}, 10, 15, "met"},
		{metric{limit: 1.6, ratio: true}, 10, 17, "MISSED"},
		{metric{limit: 2, over: true}, 10, 11, "met"},
		{metric{limit: 2, over: true}, 10, 13, "MISSED"},
	} {
		var tab table
		tab.add("case", test.m, test.floor, test.ours, 0)
		if got := tab.rows[0].verdict(); got != test.want {
			t.Errorf("%+v with %v and %v: %q, want %q", test.m, test.floor, test.ours, got, test.want)
		}
	}
}

// A delivery to real sockets, through the floor and the reader.
func TestDeliver(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { _ = (&fanoutFloor{}).serve(l) }()
	for _, events := range []bool{false, true} {
		split := splitFrame
		if events {
			split = splitEvent
		}
		r, err := newReader(split)
		if err != nil {
			t.Fatal(err)
		}
		go r.run()
		const subscribers, messages = 20, 50
		if err := r.connect(l.Addr().String(), always("/"), events, subscribers); err != nil {
			t.Fatal(err)
		}
		f, err := newFeeder(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, body := marked(messageSize)
		one := publisher{post: f.post, body: body}
		for i := range int64(messages) {
			if err := one.publish(); err != nil {
				t.Fatal(err)
			}
			if err := r.await(context.Background(), (i+1)*subscribers); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.check(); err != nil {
			t.Error(err)
		}
		one.seq += 5 // as if five were lost
		if err := one.publish(); err != nil {
			t.Fatal(err)
		}
		if err := r.await(context.Background(), (messages+1)*subscribers); err != nil {
			t.Fatal(err)
		}
		if r.check() == nil {
			t.Error("lost messages were not noticed")
		}
		f.conn.Close()
		r.close()
	}
}

func TestCatchUpCheck(t *testing.T) {
	batch := func(after uint64, n int) []byte {
		return feed.NewBatch("s", feed.Cursor{Position: after, Micros: int64(after)},
			feed.Cursor{Position: after + uint64(n), Micros: int64(after) + int64(n)}, synthetic()[:n]).JSON()
	}
	var r reader
	var s subscriber
	if n := r.batch(&s, batch(0, 10), 0) + r.batch(&s, batch(10, 3), 0); n != 13 || r.disorder != 0 {
		t.Errorf("%d changes and %d out of order, want 13 and 0", n, r.disorder)
	}
	if r.batch(&s, batch(14, 3), 0); r.disorder != 1 {
		t.Error("a hole was not noticed")
	}
}

func TestCommitter(t *testing.T) {
	c, err := newCommitter(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.f.Close()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 20 {
				if err := c.append(fmt.Appendf(nil, "%02d\n", i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if info, err := c.f.Stat(); err != nil || info.Size() != 16*20*3 {
		t.Errorf("size %v, %v", info.Size(), err)
	}
}

// Deliveries to real sockets, through the floor and the sink.
func TestCallbacks(t *testing.T) {
	serve := func(serve func(net.Listener) error) *server {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() { _ = serve(l) }()
		return &server{addr: l.Addr().String(), end: func() {}}
	}
	const callbacks, changes = 30, 7
	sink := serve(serveSink)
	floor := serve(func(l net.Listener) error { return serveCallbackFloor(l, sink.addr, callbacks, benchSecret) })
	conn, err := net.Dial("tcp", floor.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := &caller{server: floor, sink: sink, to: callbacks, feed: callbackFeed{conn}}
	for range 5 {
		c.sent += 2 * changes
		if err := c.feed.post(2, changes, notification(synthetic()[:changes])); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := c.arrived(""); err != nil || r.Deliveries == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	r, err := http.NewRequest(http.MethodPost, callbackURL(sink.addr, 0), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("RS-Previous", "1") // was before
	r.Header.Set("RS-Position", "2")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if _, err := c.arrived(""); err == nil {
		t.Error("a repeated delivery was not noticed")
	}
}
