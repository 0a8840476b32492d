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

// A silentLog has no changes, and its state is unavailable.
type silentLog struct {
	Memory
	hub // unused methods
}

type hub interface {
	Retain(set string) (release func())
	Behind(set string, after feed.Cursor) (changes uint64, oldest int64)
	Waits(set string) bool
	Next(ctx context.Context, set string, after feed.Cursor, limit int) ([]*feed.Batch, error)
	Cached(set string, after feed.Cursor) ([]*feed.Batch, bool)
	Watch(set string, wake func()) (release func())
	NoteHead(set string, head feed.Cursor)
	WatchSets(wake func()) (release func())
}

func (silentLog) State(context.Context, string) (feed.State, error) {
	return feed.State{}, feed.ErrUnavailable
}

func (silentLog) Follow(ctx context.Context, _ string, _ feed.Cursor) iter.Seq2[[]*feed.Batch, error] {
	return func(func([]*feed.Batch, error) bool) { <-ctx.Done() }
}

// TestStates checks the transitions between states of a connection whose socket accepts nothing.
func TestStates(t *testing.T) {
	t.Parallel()
	delivered := func(after feed.Cursor) func(*conn) {
		return func(c *conn) {
			ch := &chunk{after: after}
			ch.add(wire{format: feed.JSON}, []byte("x"), &feed.Batch{After: after, Cursor: feed.Cursor{Position: after.Position + 1, Micros: after.Micros + 1}})
			if c.deliver(&directWriter{}, &tally{}, ch.end(), false, func(feed.Cursor) *chunk { return ch }) {
				t.Error("deliver = true, want false")
			}
		}
	}
	for _, test := range []struct {
		name string
		do   func(*conn)
		to   [4]state // from catchingUp, live, leaving, closed
	}{
		{"join", func(c *conn) {
			(&group{cancel: func() {}}).join(c)
		}, [4]state{live, live, leaving, closed}},
		{"delivery", delivered(feed.Cursor{Position: 5, Micros: 5}), [4]state{catchingUp, catchingUp, leaving, closed}},
		{"delivery after another cursor", delivered(feed.Cursor{Position: 7, Micros: 7}), [4]state{catchingUp, catchingUp, leaving, closed}},
		{"delivery of another history", delivered(feed.Cursor{Position: 3, Micros: 103}), [4]state{catchingUp, catchingUp, leaving, closed}},
		{"ping", func(c *conn) { _ = c.pong([]byte("x")) }, [4]state{catchingUp, catchingUp, leaving, closed}},
		{"heartbeat", func(c *conn) { c.heartbeat(&directWriter{}, 1<<62) }, [4]state{catchingUp, catchingUp, leaving, closed}},
		// A live connection gets a goroutine, which immediately starts to write the close frame.
		{"goodbye", func(c *conn) { c.goodbye(websocket.CloseGoingAway, "") }, [4]state{leaving, closed, leaving, closed}},
		{"end of the reader", (*conn).end, [4]state{closed, closed, closed, closed}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for from, want := range test.to {
				synctest.Test(t, func(t *testing.T) {
					s := New(silentLog{}, silentLog{}, Options{})
					c := testConn(t, s, 5)
					c.state = state(from)
					if c.state == leaving {
						c.bye = &closeFrame{code: websocket.CloseGoingAway}
					}
					test.do(c)
					synctest.Wait()
					c.mu.Lock()
					got := c.state
					c.mu.Unlock()
					if got != want {
						t.Errorf("in state %d: got state %d, want %d", from, got, want)
					}
					c.end()
					s.wg.Wait()
				})
			}
		})
	}
}

// TestDetached checks that the rest of a frame is written first, and that the first goodbye determines
// the close frame.
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
		c.goodbye(closeTooSlow, "the second")
		if err := c.pong([]byte("x")); err != net.ErrClosed {
			t.Errorf("pong = %v, want %v", err, net.ErrClosed)
		}
		s.wg.Wait()
		c.end()
		<-read
		want := append([]byte("head"), appendFrame(nil, websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseGoingAway, "5-5 the first"))...)
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("got bytes %q, want %q", got.Bytes(), want)
		}
		if c.why != hubStops {
			t.Errorf("got reason %d, want %d", c.why, hubStops)
		}
	})
}
