package hubtest

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// A NATSServer is a real NATS server that can be stopped and restarted.
type NATSServer struct {
	Addr    string
	Options server.Options
	S       *server.Server
}

// Start starts the server, possibly again, and waits until it listens.
func (n *NATSServer) Start(t testing.TB) {
	t.Helper()
	host, port, _ := net.SplitHostPort(n.Addr)
	number, _ := strconv.Atoi(port)
	options := n.Options
	options.Host, options.Port, options.NoSigs, options.NoLog = host, number, true, true
	var err error
	if n.S, err = server.NewServer(&options); err != nil {
		t.Fatal(err)
	}
	n.S.Start()
	if !n.S.ReadyForConnections(10 * time.Second) {
		t.Fatal("NATS is not ready for connections")
	}
}

// Stop stops the server and waits.
func (n *NATSServer) Stop() {
	n.S.Shutdown()
	n.S.WaitForShutdown()
}

// StartNATS starts a new NATS server.
func StartNATS(t testing.TB) *NATSServer {
	t.Helper()
	n := &NATSServer{Addr: FreePort(t)}
	n.Start(t)
	t.Cleanup(n.Stop)
	return n
}
