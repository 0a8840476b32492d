package outbound

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"
)

func itoa(n int) string { return strconv.Itoa(n) }

// A nameServer answers every query with one IPv4 address, the next one of its list.
type nameServer struct {
	conn      net.PacketConn
	addresses []string
	asked     atomic.Int64
}

func newNameServer(t *testing.T, addresses []string) *nameServer {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &nameServer{conn: conn, addresses: addresses}
	done := make(chan struct{})
	go func() { defer close(done); n.serve() }()
	t.Cleanup(func() { conn.Close(); <-done })
	return n
}

func (n *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}
}

func (n *nameServer) serve() {
	buf := make([]byte, 1500)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		end := 12
		for end < size && buf[end] != 0 {
			end += int(buf[end]) + 1
		}
		end += 5 // the root, the type and the class
		if end > size {
			continue
		}
		answer := append([]byte(nil), buf[:end]...)
		binary.BigEndian.PutUint16(answer[2:], 0x8180) // an answer without an error
		binary.BigEndian.PutUint64(answer[4:], 1<<48)  // one question and nothing else
		if binary.BigEndian.Uint16(answer[end-4:]) == 1 {
			i := min(int(n.asked.Add(1)), len(n.addresses)) - 1
			a := netip.MustParseAddr(n.addresses[i]).As4()
			answer[7] = 1
			answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
			answer = append(answer, a[:]...)
		}
		if _, err := n.conn.WriteTo(answer, from); err != nil {
			return
		}
	}
}
