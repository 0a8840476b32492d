package hubtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A Wiretap is a client that reaches only NATS. It receives every message, and can send any.
type Wiretap struct {
	conn net.Conn

	mu       sync.Mutex
	messages map[string][][]byte // by subject
}

// StartWiretap connects to a NATS server, and receives all messages from then on.
func StartWiretap(t testing.TB, n *NATSServer) *Wiretap {
	t.Helper()
	conn, err := net.Dial("tcp", n.Addr)
	if err != nil {
		t.Fatal(err)
	}
	w := &Wiretap{conn: conn, messages: map[string][][]byte{}}
	lines := bufio.NewReader(conn)
	w.send(t, "CONNECT {\"verbose\":false}\r\nSUB > 1\r\nPING\r\n")
	for line := ""; line != "PONG\r\n"; { // after PONG the server has processed SUB
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.listen(lines)
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return w
}

func (w *Wiretap) send(t testing.TB, text string) {
	t.Helper()
	if _, err := io.WriteString(w.conn, text); err != nil {
		t.Error(err)
	}
}

// listen reads messages until the connection closes: MSG subject sid [reply] length, then the
// payload on its own line.
func (w *Wiretap) listen(lines *bufio.Reader) {
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		if len(words) > 0 && words[0] == "PING" {
			_, _ = io.WriteString(w.conn, "PONG\r\n")
		}
		if len(words) < 4 || words[0] != "MSG" {
			continue
		}
		n, err := strconv.Atoi(words[len(words)-1])
		message := make([]byte, n+2)
		if err == nil {
			_, err = io.ReadFull(lines, message)
		}
		if err != nil {
			return
		}
		w.mu.Lock()
		w.messages[words[1]] = append(w.messages[words[1]], message[:n])
		w.mu.Unlock()
	}
}

// Messages returns the messages received so far on a subject.
func (w *Wiretap) Messages(subject string) [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.messages[subject]
	return all[:len(all):len(all)]
}

// Publish sends a message.
func (w *Wiretap) Publish(t testing.TB, subject string, message []byte) {
	t.Helper()
	w.send(t, fmt.Sprintf("PUB %s %d\r\n%s\r\n", subject, len(message), message))
}
