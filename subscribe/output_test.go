package subscribe

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

// TestSessionGoodbyeInFrame checks that the rest of a frame of which a direct delivery has written the
// start precedes the close frame.
func TestSessionGoodbyeInFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(silentLog{}, silentLog{}, Options{})
		ours, theirs := net.Pipe()
		c := &session{
			server: s, nc: ours, wire: wire{feed.JSON, webSocketFrames}, follows: map[string]*setFollow{}, release: func() {},
			wakeup: backoff.NewWakeup(), room: backoff.NewWakeup(), output: output{out: []byte("rest of a frame")},
		}
		c.ctx, c.cancel = context.WithCancel(s.ctx)
		c.goodbye(websocket.CloseGoingAway, stopping)
		s.wg.Go(c.run)
		got := make([]byte, len("rest of a frame")+1)
		if _, err := io.ReadFull(theirs, got); err != nil || string(got) != "rest of a frame\x88" {
			t.Errorf("got %q, %v, want the rest of the frame and a close frame", got, err)
		}
		theirs.Close()
		s.wg.Wait()
	})
}
