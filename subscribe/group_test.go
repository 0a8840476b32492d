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

// size returns how many connections there are.
func (as *audiences) size() (n int) {
	for a := range as.All() {
		n += len(a.Members.conns)
	}
	return n
}

// A connection that is behind the group, or that something waits to be written to,
// must not join: nobody would write to it before the next change.
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
		{"a ping to answer", 5, func(c *conn, _ *group) { c.control = []byte("x") }, false, false},
		{"a heartbeat is due", 5, func(c *conn, _ *group) { c.due = true }, false, false},
		{"to be closed", 5, func(c *conn, _ *group) { c.goodbye(websocket.CloseGoingAway, "") }, false, false},
		{"closed", 5, func(c *conn, _ *group) { c.state = closed }, false, false},
		{"the group has ended", 5, func(_ *conn, g *group) { g.ended = true }, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := testConn(t, s, test.position)
			g := &group{cursor: feed.Cursor{Position: 5, Micros: 5}, cancel: func() {}}
			if test.change != nil {
				test.change(c, g)
			}
			joined, ended := g.join(c)
			if joined != test.joined || ended != test.ended || (c.state == live) != joined || g.audiences.size() != map[bool]int{true: 1}[joined] {
				t.Errorf("join = %v, %v; state %v in a group of %d", joined, ended, c.state, g.audiences.size())
			}
		})
	}
}

// When the log has lost its tail, a heartbeat that comes before the delivery moves a connection
// past nothing of it.
func TestHeartbeatBeforeDiverged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(silentLog{}, silentLog{}, Options{})
		first, second := testConn(t, s, 5), testConn(t, s, 5)
		beats := &feed.Format{Name: "beats", Append: func(dst []byte, b *feed.Batch, _ string) []byte {
			if b.Diverged { // first is about to get it
				second.heartbeat(&directWriter{}, 1<<62)
			}
			return append(dst, 'x')
		}}
		g := &group{cancel: func() {}, server: s}
		g.key.format = beats
		for _, c := range []*conn{second, first} { // the last one gets what is delivered first
			c.key, c.filter = g.key, feed.Filter{Prefix: "https://example.org/"}
			if joined, _ := g.join(c); !joined {
				t.Fatal("not joined")
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
			t.Errorf("the cursor is %v, and nothing was delivered", cursor)
		}
		for _, c := range []*conn{first, second} {
			c.end()
		}
		s.wg.Wait()
	})
}

// A connection that a failing group lets go can be in another one.
func TestJoinAfterFailure(t *testing.T) {
	s := New(nil, nil, Options{})
	first := &group{cancel: func() {}}
	a, b := testConn(t, s, 5), testConn(t, s, 5)
	for _, c := range []*conn{a, b} {
		if joined, _ := first.join(c); !joined {
			t.Fatal("not joined")
		}
		c.state = closed // it stays in the group until the next delivery
	}
	s.fail(first, errors.New("failed"))
	b.state = catchingUp
	second := &group{cancel: func() {}}
	if joined, _ := second.join(b); !joined || second.audiences.size() != 1 {
		t.Fatalf("joined = %v, in a group of %d", joined, second.audiences.size())
	}
	second.removeLocked(a)
	second.removeLocked(b)
	if !second.ended || second.audiences.size() != 0 {
		t.Errorf("%d are left", second.audiences.size())
	}
}
