package client_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
)

// FuzzHubMessage checks that FollowAll accepts no message with cursors that contradict themselves.
func FuzzHubMessage(f *testing.F) {
	for _, s := range []string{
		batchJSON("a", 3, 5), batchJSON("a", 3, 3), `{"id":1,` + batchJSON("a", 3, 4)[1:], `{"followed":"*","sets":25}`, `{"unfollowed":"a"}`,
		`{"cursors":{"a":"15-1","b":"0-0"}}`, `{"set":"a","error":{"status":410,"type":"t","title":"Gone","cursor":"8-1"}}`, `{"error":{"status":400}}`,
		`{}`, `[]`, `{"set":"a","after":"3-1","cursor":"2-1","changes":[]}`, `{"set":"a","error":null,"changes":[]}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b, cursors, failed, err := client.ParseMessage(text)
		if err != nil {
			return
		}
		if failed != nil && (failed.Status < 400 || failed.Status > 599 || b != nil || cursors != nil) {
			t.Errorf("got problem %+v with batch %v and cursors %v, want a status of 400 to 599 alone", failed, b, cursors)
		}
		for set, at := range cursors {
			if err := feed.CheckSet(set); err != nil || at.Position > feed.MaxNumber || b != nil {
				t.Errorf("got cursor %v of set %q, want valid ones", at, set)
			}
		}
		if b == nil {
			return
		}
		if err := feed.CheckSet(b.Set); err != nil {
			t.Error(err)
		}
		at := b.After
		for i := range b.Entries {
			if e := b.Entries[i].Cursor; e.Position <= at.Position || e.Micros <= at.Micros {
				t.Errorf("got entry %v after %v, want increasing ones", e, at)
			}
			at = b.Entries[i].Cursor
		}
		if b.Cursor.Position < at.Position || b.Cursor.Micros < at.Micros {
			t.Errorf("got cursor %v after %v, want a later one", b.Cursor, at)
		}
	})
}

// A readConn is a connection with bytes to read, which accepts all writes.
type readConn struct{ io.Reader }

func (readConn) Write(p []byte) (int, error) { return len(p), nil }
func (readConn) Close() error                { return nil }

// FuzzWebSocket checks that any bytes of a server end with an error, without more memory than a
// message may have.
func FuzzWebSocket(f *testing.F) {
	f.Add(slices.Concat(frame(textFrame, []byte("a")), frame(ping, []byte("b")), frame(binaryFrame, make([]byte, 300)), frame(closing, []byte{3, 232})))
	f.Add(slices.Concat([]byte{2, 1, 'x'}, frame(pong, nil), []byte{0, 0}, frame(0, make([]byte, 70_000))))
	f.Add([]byte{0x82, 127, 255, 255, 255, 255, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, sent []byte) {
		sizes, err := client.ReadFrames(t.Context(), readConn{bytes.NewReader(sent)})
		if err == nil {
			t.Error("ReadFrames() = nil, want an error")
		}
		total := 0
		for _, n := range sizes {
			total += n
		}
		if total > len(sent) {
			t.Errorf("got %d bytes of %d", total, len(sent))
		}
	})
}

// A cutNetwork cuts connections.
type cutNetwork struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (n *cutNetwork) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.conns = append(n.conns, conn)
	}
	return conn, err
}

func (n *cutNetwork) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		_ = c.Close()
	}
	n.conns = nil
}

// TestFollowAllRandom checks that each change of each set arrives once and in order, while connections
// are cut, the hub restarts and the follower starts again at random.
func TestFollowAllRandom(t *testing.T) {
	const sets, rounds = 5, 60
	s, random, network := newSite(t), testutil.Rand(t), new(cutNetwork)
	o := newClock().options()
	o.Sleep = func(ctx context.Context, _ time.Duration) error { return sleepShortly(ctx) }
	o.HTTP = &http.Client{Transport: &http.Transport{DialContext: network.dial}}
	c := newClient(t, s.URL, o)
	store := openCursors(t, t.TempDir()+"/cursors")

	published := map[string]int{}
	var disturbances sync.WaitGroup
	r := rand.New(rand.NewPCG(random.Uint64(), 0))
	disturbances.Go(func() {
		for range rounds {
			set := fmt.Sprint("s", r.IntN(sets))
			n := 1 + r.IntN(20)
			s.publishTo(t, set, locs(published[set]+1, published[set]+n)...)
			published[set] += n
			switch r.IntN(10) {
			case 0:
				s.stop()
				s.start()
			case 1, 2, 3:
				network.cut()
			}
		}
		for i := range sets {
			s.publishTo(t, fmt.Sprint("s", i), "urn:end")
		}
	})
	received, ended := map[string][]string{}, 0
	for ended < sets {
		most := 5 + random.IntN(20)
		for b, err := range c.FollowAll(t.Context(), client.FollowAllOptions{All: true, AllSince: "start", Cursors: store}) {
			if err != nil {
				t.Fatal(err)
			}
			if b.Diverged {
				t.Errorf("got a diverged batch of set %s, want none", b.Set)
			}
			if most--; most < 0 {
				break // without an acknowledgment
			}
			for i := range b.Entries {
				loc := b.Entries[i].Change.Loc
				if received[b.Set] = append(received[b.Set], loc); loc == "urn:end" {
					ended++
				}
			}
			if ended == sets {
				break
			}
		}
	}
	disturbances.Wait()
	for i := range sets {
		set := fmt.Sprint("s", i)
		n := published[set]
		if want := append(locs(1, n), "urn:end"); !slices.Equal(received[set], want) {
			t.Errorf("got %d changes of set %s, %q, want urn:1 to urn:%d and urn:end", len(received[set]), set, received[set], n)
		}
	}
}
