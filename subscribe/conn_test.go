package subscribe

import (
	"bytes"
	"context"
	"io"
	"iter"
	"net"
	"testing"
	"testing/synctest"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
)

// A silentLog has no news and does not say where it ends.
type silentLog struct {
	Memory
	hub // what is not asked of it
}

type hub interface {
	Retain(set string) (release func())
	Behind(set string, after feed.Cursor) (changes uint64, oldest int64)
	Waits(set string) bool
}

func (silentLog) State(context.Context, string) (feed.State, error) {
	return feed.State{}, feed.ErrUnavailable
}

func (silentLog) Follow(ctx context.Context, _ string, _ feed.Cursor) iter.Seq2[[]*feed.Batch, error] {
	return func(func([]*feed.Batch, error) bool) { <-ctx.Done() }
}

// What happens to a connection brings it from each state to another, or leaves it
// there. Its socket takes nothing now.
func TestStates(t *testing.T) {
	t.Parallel()
	delivered := func(after feed.Cursor) func(*conn) {
		return func(c *conn) {
			ch := &chunk{after: after}
			ch.add(wire{format: feed.JSON}, []byte("x"), &feed.Batch{After: after, Cursor: feed.Cursor{Position: after.Position + 1, Micros: after.Micros + 1}})
			if c.deliver(&directWriter{}, &tally{}, ch.end(), false, func(feed.Cursor) *chunk { return ch }) {
				t.Error("it stays in its group")
			}
		}
	}
	for _, test := range []struct {
		name   string
		happen func(*conn)
		to     [4]state // from catchingUp, live, leaving, closed
	}{
		{"a group takes it in", func(c *conn) {
			(&group{cancel: func() {}}).join(c)
		}, [4]state{live, live, leaving, closed}},
		{"its group has something for it", delivered(feed.Cursor{Position: 5, Micros: 5}), [4]state{catchingUp, catchingUp, leaving, closed}},
		{"its group is elsewhere", delivered(feed.Cursor{Position: 7, Micros: 7}), [4]state{catchingUp, catchingUp, leaving, closed}},
		{"its group has another history, in which positions are not so high yet", delivered(feed.Cursor{Position: 3, Micros: 103}), [4]state{catchingUp, catchingUp, leaving, closed}},
		{"a ping", func(c *conn) { _ = c.pong([]byte("x")) }, [4]state{catchingUp, catchingUp, leaving, closed}},
		{"a heartbeat", func(c *conn) { c.heartbeat(&directWriter{}, 1<<62) }, [4]state{catchingUp, catchingUp, leaving, closed}},
		// A live one gets a goroutine of its own, which begins to write the close frame at once.
		{"a goodbye", func(c *conn) { c.goodbye(websocket.CloseGoingAway, "") }, [4]state{leaving, closed, leaving, closed}},
		{"its reader ends", (*conn).end, [4]state{closed, closed, closed, closed}},
	} {
		for from, want := range test.to {
			synctest.Test(t, func(t *testing.T) {
				s := New(silentLog{}, silentLog{}, Options{})
				c := testConn(t, s, 5)
				c.state = state(from)
				if c.state == leaving {
					c.bye = &closeFrame{code: websocket.CloseGoingAway}
				}
				test.happen(c)
				synctest.Wait()
				c.mu.Lock()
				got := c.state
				c.mu.Unlock()
				if got != want {
					t.Errorf("%s: from state %d to %d, want %d", test.name, from, got, want)
				}
				c.end()
				s.wg.Wait()
			})
		}
	}
}

// A detached connection is written the rest of a frame first. The first goodbye is
// what it is closed with.
func TestDetached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(silentLog{}, silentLog{}, Options{})
		c := testConn(t, s, 5)
		ours, theirs := net.Pipe()
		c.nc, c.state = ours, live
		var got bytes.Buffer
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(&got, theirs)
		}()
		c.mu.Lock()
		c.detachLocked([]byte("he"), []byte("ad"))
		c.mu.Unlock()
		synctest.Wait()
		c.goodbye(websocket.CloseGoingAway, "the first")
		c.goodbye(closeTooSlow, "another one")
		if err := c.pong([]byte("x")); err != net.ErrClosed {
			t.Errorf("an answer to a ping: %v", err)
		}
		s.wg.Wait()
		c.end()
		<-read
		want := append([]byte("head"), appendFrame(nil, websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseGoingAway, "5-5 the first"))...)
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("written is %q, want %q", got.Bytes(), want)
		}
		if c.why != hubStops {
			t.Errorf("the reason is %d", c.why)
		}
	})
}
