package hubtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A RedisServer is a real Redis that syncs every write, and can be killed and restarted.
type RedisServer struct {
	*Process
	Addr, Dir string
}

// Start starts the server, possibly again, and waits until it listens.
func (r *RedisServer) Start(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("this test needs redis-server: apt-get install redis-server")
	}
	host, port, _ := net.SplitHostPort(r.Addr)
	r.Process = Start(t, nil, nil, "redis-server", "--bind", host, "--port", port, "--dir", r.Dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always")
	Until(t, "Redis listens", func() error {
		conn, err := net.Dial("tcp", r.Addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// StartRedis starts a new Redis.
func StartRedis(t *testing.T) *RedisServer {
	t.Helper()
	r := &RedisServer{Addr: FreePort(t), Dir: t.TempDir()}
	r.Start(t)
	return r
}

// Command executes a command and returns the reply. An error fails the test.
func (r *RedisServer) Command(t *testing.T, words ...string) string {
	t.Helper()
	conn, err := net.Dial("tcp", r.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(Timeout))
	fmt.Fprintf(conn, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(w), w)
	}
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	line = strings.TrimSpace(line)
	if err == nil && strings.HasPrefix(line, "$") {
		n, _ := strconv.Atoi(line[1:])
		b := make([]byte, max(n, 0))
		_, err = io.ReadFull(in, b)
		line = string(b)
	}
	if err != nil || strings.HasPrefix(line, "-") {
		t.Fatalf("Redis command %q = %q, %v", words, line, err)
	}
	return line
}
