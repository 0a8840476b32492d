//go:build unix

package subscribe_test

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/subscribe"
)

// What clients see is the same where each connection has a goroutine that reads. newSite
// knows these tests by their names.
func TestWithoutPoller(t *testing.T) {
	if testing.Short() {
		t.Skip("make whole runs it")
	}
	for name, test := range map[string]func(*testing.T){
		"WebSocket": TestWebSocket, "Since": TestWebSocketSince, "NotMade": TestSetNotMade, "Filters": TestFilters,
		"Pings": TestPings, "MemoryIsAway": TestPingsWhileMemoryIsAway, "Stalled": TestStalledClient, "Steady": TestSlowButSteady,
		"PartialWrites": TestPartialWrites, "ComingAndGoing": TestComingAndGoing, "NoGoroutine": TestNoGoroutineIsLeft, "NothingIsKept": TestNothingIsKept,
		"Poller": TestPoller, "Events": TestEvents, "EventsShutdown": TestEventsShutdown, "EventsStalled": TestEventsStalled,
	} {
		t.Run(name, test)
	}
}

// An idle connection has no goroutine. One in the middle of a frame has one. What comes
// then is answered as ever, and so is what comes in pieces.
func TestPoller(t *testing.T) {
	s := newSite(t, settings{})
	want := func(what string, n int) {
		t.Helper()
		if runtime.GOOS != "linux" || pollerless(t) {
			n = 0
		}
		eventually(t, what, func() bool { return subscribe.Polled(s.server) == n })
	}
	s.publish(1)
	var clients []*client
	pongs := make(chan string, 10)
	for range 3 {
		c := s.dial("", dialer{})
		c.next()
		c.ws.SetPongHandler(func(data string) error { pongs <- data; return nil })
		clients = append(clients, c)
	}
	want("all wait", 3)
	c := clients[0]
	if err := c.ws.WriteControl(websocket.PingMessage, []byte("one"), time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	// A ping of four bytes and the beginning of another one.
	half := []byte{0x89, 0x84, 0, 0, 0, 0, 't', 'w', 'o', '!', 0x89, 0x85, 0, 0}
	if _, err := c.ws.NetConn().Write(half); err != nil {
		t.Fatal(err)
	}
	s.publish(1)
	c.next()
	for _, ping := range []string{"one", "two!"} {
		s.publish(1)
		c.next()
		for len(pongs) == 0 {
			s.publish(1)
			c.next()
		}
		if got := <-pongs; got != ping {
			t.Errorf("the answer is %q, want %q", got, ping)
		}
	}
	want("one is in the middle of a frame", 2)
	if _, err := c.ws.NetConn().Write([]byte{0, 0, 't', 'h', 'r', 'e', 'e'}); err != nil {
		t.Fatal(err)
	}
	for len(pongs) == 0 {
		s.publish(1)
		c.next()
	}
	if got := <-pongs; got != "three" {
		t.Errorf("the answer is %q", got)
	}
	want("all wait again", 3)

	clients[1].ws.NetConn().Close() // without a goodbye
	want("one is gone", 2)
	if err := clients[2].ws.NetConn().(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	want("one is left", 1)
	// A client that does not answer the close frame has a moment, and is cut then.
	begun := time.Now()
	if err := s.server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > patience/2 {
		t.Errorf("Shutdown took %v", took)
	}
	c.closed(websocket.CloseGoingAway)
}
