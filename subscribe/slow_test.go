//go:build unix

package subscribe_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/metricstest"
	"github.com/rshub/rshub/internal/zst"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/subscribe"
)

// Buffer sizes that fill quickly.
const (
	smallSend = 16 << 10
	smallRead = 64 << 10
)

// smallBuffers returns a dialer with small buffers and segments. With the large segments of the
// loopback interface, small buffers would make it slow.
func smallBuffers(size int) dialer {
	return dialer{readBuffer: size, control: func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 1400)
		})
		return errors.Join(cerr, err)
	}}
}

// TestStalledClient checks that a client that stops reading delays no other. Later reads are
// in order, and it misses nothing if it resumes from its last cursor.
func TestStalledClient(t *testing.T) {
	t.Parallel()
	_, err := zst.Decode(zst.Append(nil, []byte("x"))) // creates the shared decoder outside of the synctest bubbles
	ok(t, err)
	for _, query := range []string{"", "?prefix=https:"} {
		t.Run(query, func(t *testing.T) {
			t.Parallel()
			if testing.Short() { // takes seconds with sockets
				synctest.Test(t, func(t *testing.T) {
					stalledClient(t, query, settings{fake: true, Options: subscribe.Options{WriteTimeout: 100 * time.Millisecond}})
				})
				return
			}
			stalledClient(t, query, settings{sendBuffer: smallSend, Options: subscribe.Options{WriteTimeout: 3 * time.Second}})
		})
	}
}

func stalledClient(t *testing.T, query string, o settings) {
	reg := prometheus.NewRegistry()
	o.Metrics = reg
	s := newSite(t, o)
	s.publish(1)
	stalled := s.follow(query, smallBuffers(smallRead))
	stream, _ := s.streamOver("HTTP/1.1", query, smallBuffers(smallRead))
	others := []*client{s.dial(query, dialer{}), s.dial(query, dialer{protocol: "rs.xml"}), s.dial(query, dialer{protocol: "rs.json+zstd"}), s.dial("", dialer{})}
	for _, c := range others {
		c.next()
	}
	var end feed.Cursor
	const missed = 10
	for range missed {
		end = s.publishLarge(100_000)
		for _, c := range others { // while the others stall
			c.readTo(end)
		}
	}
	testutil.Until(t, "both are disconnected", func() bool {
		got := metricstest.Values(t, reg)
		return got[by("followers", "websocket")] == float64(len(others)) && got[by("followers", "eventstream")] == 0
	})
	err := readAll(stalled)
	ce, closed := errors.AsType[*websocket.CloseError](err)
	switch {
	case closed && ce.Code == 4408:
		if cursor, _, _ := strings.Cut(ce.Text, " "); cursor != stalled.cursor {
			t.Errorf("got close reason %q, want cursor %s", ce.Text, stalled.cursor)
		}
	case closed && ce.Code == websocket.CloseAbnormalClosure, errors.Is(err, io.ErrUnexpectedEOF), isReset(err): // closed without a close frame
	default:
		t.Errorf("stalled client: got error %v, want a close with 4408 or a broken connection", err)
	}
	if position(stalled.cursor) == end.Position {
		t.Error("stalled client received everything")
	}
	again := s.dial(query+orQuery(query)+"since="+stalled.cursor, dialer{})
	again.readTo(end)
	if stalled.entries+again.entries != missed {
		t.Errorf("got %d entries before and %d after resuming, want %d", stalled.entries, again.entries, missed)
	}
	if err := readAll(stream); err == io.EOF || position(stream.cursor) == end.Position {
		t.Errorf("stalled stream: got error %v at %s, want a broken connection", err, stream.cursor)
	}
	resumed := s.stream(query, "Last-Event-ID", stream.cursor)
	resumed.readTo(end)
	if stream.entries+resumed.entries != missed {
		t.Errorf("stream: got %d entries before and %d after resuming, want %d", stream.entries, resumed.entries, missed)
	}
}

func isReset(err error) bool {
	_, ok := errors.AsType[*net.OpError](err)
	return ok
}

func orQuery(query string) string {
	if query == "" {
		return "?"
	}
	return "&"
}

// A batchCounter passes on copies of batches, because the hub caches its own, and counts the copies
// that are still referenced.
type batchCounter struct {
	subscribe.Follower
	mu      sync.Mutex
	batches []weak.Pointer[feed.Batch]
}

func (f *batchCounter) Follow(ctx context.Context, set string, after feed.Cursor) iter.Seq2[[]*feed.Batch, error] {
	return func(yield func([]*feed.Batch, error) bool) {
		for batches, err := range f.Follower.Follow(ctx, set, after) {
			copies := make([]*feed.Batch, len(batches))
			f.mu.Lock()
			for i, b := range batches {
				copies[i] = &feed.Batch{Set: b.Set, After: b.After, Cursor: b.Cursor, Entries: b.Entries, Diverged: b.Diverged}
				f.batches = append(f.batches, weak.Make(copies[i]))
			}
			f.mu.Unlock()
			if !yield(copies, err) {
				return
			}
		}
	}
}

func (f *batchCounter) referenced() (n int) {
	runtime.GC()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.batches {
		if b.Value() != nil {
			n++
		}
	}
	return n
}

// TestStalledMemory checks that the server retains only the next bytes for a stalled client.
func TestStalledMemory(t *testing.T) {
	t.Parallel()
	f := &batchCounter{}
	s := newSite(t, settings{
		Options: subscribe.Options{WriteTimeout: time.Minute}, sendBuffer: smallSend,
		follower: func(h subscribe.Follower) subscribe.Follower { f.Follower = h; return f },
	})
	end := s.publish(1)
	var stalled []*client
	var streams []*stream
	for _, query := range []string{"", "?prefix=https:", "?since=start"} {
		stalled = append(stalled, s.follow(query, smallBuffers(smallRead)))
		events, _ := s.streamOver("HTTP/1.1", query, smallBuffers(smallRead))
		streams = append(streams, events)
	}
	other := s.dial("", dialer{})
	for range 10 {
		end = s.publishLarge(200_000)
		other.readTo(end)
	}
	for _, c := range stalled {
		c.nextChanges() // they meet a full window again
		c.nextChanges()
	}
	for _, c := range streams {
		c.nextChanges()
		c.nextChanges()
	}
	other.ws.Close()
	testutil.Until(t, "missed batches are released", func() bool { return f.referenced() == 0 })
	for _, c := range stalled {
		c.readTo(end)
	}
	for _, c := range streams {
		c.readTo(end)
	}
}

// TestSlowClientGetsCursor checks that a client that reads again in time gets the rest of the frame,
// and then a close frame with its cursor.
func TestSlowClientGetsCursor(t *testing.T) {
	t.Parallel()
	const stuck = "?since=now&prefix=https:" // this client does not read again in time
	for _, query := range []string{"", "?prefix=https:", stuck} {
		synctest.Test(t, func(t *testing.T) {
			const timeout = time.Second
			s := newSite(t, settings{fake: true, Options: subscribe.Options{WriteTimeout: timeout}})
			s.publish(1)
			slow := &throttle{step: 1 << 30}
			c := s.follow(query, dialer{slow: slow})
			end := s.publishLarge(200_000)
			started := make([]byte, 20_000)
			if _, err := io.ReadFull(slow.Reader, started); err != nil {
				t.Fatal(err)
			}
			behind := s.publishLarge(200_000)
			time.Sleep(timeout * 22 / 10) // too slow after 15/10, and for the rest after 25/10
			slow.Reader = io.MultiReader(bytes.NewReader(started), slow.Reader)
			if query == stuck {
				time.Sleep(timeout * 3)
				if err := readAll(c); websocket.IsCloseError(err, 4408) || c.cursor == end.String() {
					t.Errorf("stuck client: got %v at %s, want a broken connection before %v", err, c.cursor, end)
				}
				return
			}
			reason := c.closed(4408)
			if !strings.HasPrefix(reason, end.String()+" too slow") || c.cursor != end.String() {
				t.Errorf("got close reason %q at %s, want too slow at %v", reason, c.cursor, end)
			}
			again := s.dial(query+orQuery(query)+"since="+end.String(), dialer{})
			again.readTo(behind)
		})
	}
}

// TestSlowButSteady checks that a client that reads slowly but steadily gets everything. The short
// test uses fake time, because a busy machine may not be steady.
func TestSlowButSteady(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		synctest.Test(t, func(t *testing.T) { slowButSteady(t, settings{fake: true}) })
		return
	}
	slowButSteady(t, settings{sendBuffer: smallSend})
}

func slowButSteady(t *testing.T, o settings) {
	const timeout = 500 * time.Millisecond
	o.WriteTimeout = timeout
	s := newSite(t, o)
	s.publish(1)
	slow := &throttle{step: 20_000, pause: timeout / 20}
	d := smallBuffers(smallRead)
	d.slow = slow
	c := s.follow("", d)
	events := s.followEvents("")
	events.r.Reset(&throttle{Reader: events.resp.Body, step: 20_000, pause: timeout / 20})
	end := s.publishLarge(2_000_000)
	var wg sync.WaitGroup
	wg.Go(func() {
		events.readTo(end)
	})
	start := time.Now()
	c.readTo(end)
	if took := time.Since(start); took < 2*timeout {
		t.Errorf("took %v, want at least %v", took, 2*timeout)
	}
	wg.Wait()
}

// TestPartialWrites checks that streams continue after partial writes, for frames with all three
// lengths of header.
func TestPartialWrites(t *testing.T) {
	t.Parallel()
	random := testutil.Rand(t)
	s := newSite(t, settings{sendBuffer: smallSend})
	s.publish(1)
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, query := range []string{"", "?since=start", "?prefix=https:", ""} {
		d := smallBuffers(smallRead >> i)
		d.protocol = []string{"rs.json", "rs.xml"}[i%2]
		c := s.dial(query, d)
		wg.Go(func() {
			if err := readToEnd(c); err != nil {
				t.Errorf("WebSocket %q: got error %v after %d entries", query, err, c.entries)
			}
		})
		events, _ := s.streamOver("HTTP/1.1", query, smallBuffers(smallRead>>i))
		wg.Go(func() {
			if err := readToEnd(events); err != nil {
				t.Errorf("stream %q: got error %v after %d entries", query, err, events.entries)
			}
		})
	}
	rounds := 120
	if testing.Short() {
		rounds = 50
	}
	for range rounds {
		switch random.IntN(4) {
		case 0:
			s.publishLarge(random.IntN(120_000))
		case 1:
			s.publish(1 + random.IntN(300))
		default:
			s.publish(1)
		}
	}
	s.publishEnd()
}

// publishEnd publishes the change that readToEnd waits for.
func (s *site) publishEnd() feed.Cursor {
	s.Helper()
	return s.publishChanges(change("1end", resourcesync.Created, "text/html"))
}

func readToEnd(c reader) error {
	for {
		m, err := c.read()
		if err != nil {
			return err
		}
		if n := len(m.Changes); n > 0 && m.Changes[n-1].Loc == "https://example.org/1end" {
			return nil
		}
	}
}

// TestRandomConnections connects and disconnects at random while changes are published. Each client
// must receive consecutive positions from where it started.
func TestRandomConnections(t *testing.T) {
	seed := testutil.Seed(t)
	s := newSite(t, settings{Options: subscribe.Options{Heartbeat: 20 * time.Second}, sendBuffer: 16 << 10})
	s.publish(1)
	queries := []string{"", "", "?since=start", "?prefix=https://example.org/1", "?change=created", "?type=text/html&since=start"}
	var wg sync.WaitGroup
	var seen atomic.Int64
	clients := 200
	if testing.Short() {
		clients = 50
	}
	for i := range clients {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			since := ""
			for {
				query := queries[i%len(queries)]
				if since != "" {
					query = "?" + strings.Join([]string{strings.TrimPrefix(strings.ReplaceAll(query, "since=start", ""), "?"), "since=" + since}, "&")
				}
				var d dialer
				if random.IntN(8) == 0 {
					d = smallBuffers(smallRead)
				}
				d.protocol = []string{"", "rs.json", "rs.xml", "rs.json+zstd"}[random.IntN(4)]
				c, _, err := s.tryDial(query, d)
				if err != nil {
					t.Errorf("dial %s: got error %v", query, err)
					return
				}
				if m, err := c.read(); err != nil || since != "" && m.Cursor != since {
					t.Errorf("resume from %s: got %v, %v", since, m, err)
					return
				}
				leave := random.IntN(4) > 0
				for n := random.IntN(40); !leave || n > 0; n-- {
					m, err := c.read()
					if err != nil {
						t.Errorf("client %d, %s: got error %v at %s", i, query, err, c.cursor)
						return
					}
					seen.Add(int64(len(m.Changes)))
					if n := len(m.Changes); n > 0 && m.Changes[n-1].Loc == "https://example.org/1end" {
						c.ws.Close()
						return
					}
				}
				since = c.cursor
				if random.IntN(2) == 0 {
					_ = c.ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
				}
				c.ws.Close()
			}
		})
	}
	random := rand.New(rand.NewPCG(seed, 1000))
	for i := range 150 {
		s.publish(1 + random.IntN(5))
		if i%10 == 0 { // matches all filters
			s.publishChanges(change("1x", resourcesync.Created, "text/html"))
		}
		if random.IntN(20) == 0 {
			s.publish(100)
		}
	}
	// The last change matches all filters.
	stop := s.publishRepeatedly(func() { s.publishEnd() })
	wg.Wait()
	stop()
	t.Log("received changes:", seen.Load())
}
