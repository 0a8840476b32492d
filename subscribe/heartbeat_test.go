package subscribe_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/subscribe"
)

func TestPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const heartbeat = 3 * time.Second
		s := newSite(t, settings{fake: true, Options: subscribe.Options{Heartbeat: heartbeat}})
		s.publish(1)
		c := s.follow("", dialer{})
		pings, pongs := 0, []string{}
		answer := c.ws.PingHandler()
		c.ws.SetPingHandler(func(data string) error {
			pings++
			if err := answer(data); err != nil {
				return err
			}
			if pings < 10 { // more than a silent client may miss
				return c.ws.WriteControl(websocket.PingMessage, []byte(fmt.Sprint(pings)), time.Now().Add(time.Second))
			}
			s.publish(1)
			return nil
		})
		c.ws.SetPongHandler(func(data string) error {
			pongs = append(pongs, data)
			return nil
		})
		c.nextChanges()
		if want := []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"}; !slices.Equal(pongs, want) {
			t.Errorf("got pongs %v, want %v", pongs, want)
		}
	})
}

// TestPingsWhileMemoryIsAway checks that a connection that cannot join its group, because the memory
// is unavailable, is pinged anyway, and closed when the hub stops.
func TestPingsWhileMemoryIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := &awayMemory{}
		s := newSite(t, settings{
			fake:    true,
			Options: subscribe.Options{Heartbeat: 3 * time.Second},
			memory:  func(m subscribe.Memory) subscribe.Memory { away.Memory = m; return away },
		})
		s.publish(1)
		c := s.follow("", dialer{})
		pings := 0
		answer := c.ws.PingHandler()
		c.ws.SetPingHandler(func(data string) error {
			if pings++; pings == 4 {
				s.publish(1)
			}
			return answer(data)
		})
		c.nextChanges()
		go s.server.Shutdown(t.Context())
		c.closed(websocket.CloseGoingAway)
	})
}

// An awayMemory becomes unavailable after the first connection.
type awayMemory struct {
	subscribe.Memory
	started bool
}

func (m *awayMemory) State(ctx context.Context, set string) (feed.State, error) {
	if m.started {
		return feed.State{}, feed.ErrUnavailable
	}
	m.started = true
	return m.Memory.State(ctx, set)
}
