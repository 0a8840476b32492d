package testutil

import (
	"io"
	"net"
	"testing"
	"time"
)

// Dial connects to addr and sends text. The local address is from, or any if from is empty. The
// connection is closed at the end of the test, and has a deadline of one minute.
func Dial(t *testing.T, from, addr, says string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(conn, says)
	return conn
}

// ReadStart returns the start of the response on a connection, or "" if it is closed.
func ReadStart(conn net.Conn) string {
	b := make([]byte, 4096)
	n, _ := io.ReadAtLeast(conn, b, 20)
	return string(b[:n])
}
