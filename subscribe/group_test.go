package subscribe

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

func testConn(t *testing.T, s *Server, position uint64) *conn {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	cur := feed.Cursor{Position: position, Micros: int64(position)}
	return &conn{server: s, nc: ours, cursor: cur, lastSent: cur, release: func() {}}
}

// size returns the number of connections.
func (as *audiences) size() (n int) {
	for a := range as.All() {
		n += len(a.Members.conns)
	}
	return n
}

// TestJoin checks that a connection that is behind the group, or has something to write, cannot join,
// because nothing would be written to it before the next change.
func TestJoin(t *testing.T) {
	s := New(nil, nil, Options{})
	for _, test := range []struct {
		name          string
		position      uint64
		change        func(*conn, *group)
		joined, ended bool
	}{
		{"up to date", 5, nil, true, false},
		{"ahead", 6, nil, true, false},
		{"behind", 4, nil, false, false},
		{"pending pong", 5, func(c *conn, _ *group) { c.control = []byte("x") }, false, false},
		{"heartbeat is due", 5, func(c *conn, _ *group) { c.due = true }, false, false},
		{"closing", 5, func(c *conn, _ *group) { c.goodbye(websocket.CloseGoingAway, "") }, false, false},
		{"closed", 5, func(c *conn, _ *group) { c.state = closed }, false, false},
		{"group has ended", 5, func(_ *conn, g *group) { g.ended = true }, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := testConn(t, s, test.position)
			g := &group{cursor: feed.Cursor{Position: 5, Micros: 5}, cancel: func() {}}
			if test.change != nil {
				test.change(c, g)
			}
			joined, ended := g.join(c)
			if joined != test.joined || ended != test.ended || (c.state == live) != joined || g.audiences.size() != map[bool]int{true: 1}[joined] {
				t.Errorf("join = %v, %v, want %v, %v; state %v in a group of %d", joined, ended, test.joined, test.ended, c.state, g.audiences.size())
			}
		})
	}
}

// TestHeartbeatBeforeDiverged checks that a heartbeat before the delivery of a batch that diverged
// does not advance the cursor of a connection.
func TestHeartbeatBeforeDiverged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(silentLog{}, silentLog{}, Options{})
		first, second := testConn(t, s, 5), testConn(t, s, 5)
		beats := &feed.Format{Name: "beats", Append: func(dst []byte, b *feed.Batch, _ string) []byte {
			if b.Diverged { // first is about to receive it
				second.heartbeat(&directWriter{}, 1<<62)
			}
			return append(dst, 'x')
		}}
		g := &group{cancel: func() {}, server: s}
		g.key.format = beats
		for _, c := range []*conn{second, first} { // the last one gets the first delivery
			c.key, c.filter = g.key, feed.Filter{Prefix: "https://example.org/"}
			if joined, _ := g.join(c); !joined {
				t.Fatal("join = false, want true")
			}
		}
		at := feed.Cursor{Position: 7, Micros: 107}
		g.deliverFiltered(&feed.Batch{
			Set: "demo", After: feed.Cursor{Position: 3, Micros: 3}, Cursor: at, Diverged: true,
			Entries: []feed.Entry{{Cursor: at, Change: resourcesync.Change{Loc: "https://example.org/a", Change: resourcesync.Created}}},
		})
		second.mu.Lock()
		cursor := second.cursor
		second.mu.Unlock()
		if cursor.Position != 5 {
			t.Errorf("got cursor %v before the delivery, want position 5", cursor)
		}
		for _, c := range []*conn{first, second} {
			c.end()
		}
		s.wg.Wait()
	})
}

// TestJoinAfterFailure checks that a connection of a failed group can join another one.
func TestJoinAfterFailure(t *testing.T) {
	s := New(nil, nil, Options{})
	first := &group{cancel: func() {}}
	a, b := testConn(t, s, 5), testConn(t, s, 5)
	for _, c := range []*conn{a, b} {
		if joined, _ := first.join(c); !joined {
			t.Fatal("join = false, want true")
		}
		c.state = closed // stays in the group until the next delivery
	}
	s.fail(first, errors.New("failed"))
	b.state = catchingUp
	second := &group{cancel: func() {}}
	if joined, _ := second.join(b); !joined || second.audiences.size() != 1 {
		t.Fatalf("join = %v in a group of %d, want true in a group of 1", joined, second.audiences.size())
	}
	second.removeLocked(a)
	second.removeLocked(b)
	if !second.ended || second.audiences.size() != 0 {
		t.Errorf("got %d connections and ended %v, want an empty group that has ended", second.audiences.size(), second.ended)
	}
}
