// Package redistest starts Redis servers for tests, and proxies that delay or drop traffic to them.
//
// Package conntest opens connections to them.
package redistest

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// A Server is a redis-server for one test, on its own port. Writes that it has replied to survive
// Kill. It stops at the end of the test.
type Server struct {
	Addr string

	t     testing.TB
	args  []string
	log   string
	ready func() bool
	cmd   *exec.Cmd
	life  io.Closer
}

// Start starts a server with additional arguments of redis-server, and returns when it accepts
// commands.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server not found; run apt-get install redis-server")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, port, _ := net.SplitHostPort(free.Addr().String())
	s := &Server{Addr: free.Addr().String(), t: t, log: filepath.Join(dir, "redis.log")}
	s.args = append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "yes",
		"--appendfsync", "always", "--logfile", s.log}, args...)
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	logging.Disable() // it logs each failed connection, and tests cause failures
	c := s.Client()
	s.ready = func() bool { return c.Ping(context.Background()).Err() == nil }
	s.Restart()
	return s
}

// StartCluster starts a cluster of one server: a script that uses keys of two slots fails there.
// Writes that it has replied to may not survive Kill.
func StartCluster(t testing.TB) *Server {
	t.Helper()
	s := Start(t, "--cluster-enabled", "yes", "--appendfsync", "no")
	c := s.Client()
	if err := c.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	s.ready = func() bool { return strings.Contains(c.ClusterInfo(context.Background()).Val(), "cluster_state:ok") }
	s.until(s.ready)
	return s
}

// Restart starts the server again after Kill, with its data on disk.
func (s *Server) Restart() {
	s.t.Helper()
	// The shell kills the server when the pipe closes, even if the test process
	// dies.
	s.cmd = exec.Command("sh", append([]string{"-c", `redis-server "$@" & cat >/dev/null; kill -9 $!; wait`, "sh"}, s.args...)...)
	life, err := s.cmd.StdinPipe()
	if err == nil {
		s.life, err = life, s.cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.until(s.ready)
}

func (s *Server) until(done func() bool) {
	s.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 4000 {
		if done() {
			return
		}
		<-tick.C
	}
	log, _ := os.ReadFile(s.log)
	s.t.Fatalf("redis-server is not ready: %s", log)
}

// Kill sends SIGKILL to the server. It may be called repeatedly.
func (s *Server) Kill() {
	if s.life != nil {
		_ = s.life.Close()
		_ = s.cmd.Wait() // the exit status of the shell does not matter
		s.life = nil
	}
}

// Client returns a client without retries. It is closed at the end of the test.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}
