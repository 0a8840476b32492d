package redislog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// A server is a redis-server of a test, on its own port.
type server struct {
	addr string
	dir  string
	args []string
	cmd  *exec.Cmd
	life io.Closer
}

// startServer starts a redis-server with an append-only file and additional arguments.
func startServer(dir string, args ...string) (*server, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, errors.New("these tests need redis-server: apt-get install redis-server")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{addr: free.Addr().String(), dir: dir, args: args}
	if err := errors.Join(free.Close(), s.start()); err != nil {
		return nil, err
	}
	return s, nil
}

// start starts or restarts the server, and returns when it answers.
func (s *server) start() error {
	_, port, _ := net.SplitHostPort(s.addr)
	args := []string{"--bind", "127.0.0.1", "--port", port, "--dir", s.dir, "--save", "", "--appendonly", "yes",
		"--logfile", filepath.Join(s.dir, "redis.log"), "--enable-debug-command", "yes",
		"--repl-diskless-sync-delay", "0"} // do not delay a replica to wait for others
	return s.run(append(args, s.args...)...)
}

func (s *server) run(args ...string) error {
	// The shell kills the server when the pipe closes, even if the test crashes.
	s.cmd = exec.Command("sh", append([]string{"-c", `redis-server "$@" & cat >/dev/null; kill -9 $!; wait`, "sh"}, args...)...)
	life, err := s.cmd.StdinPipe()
	if err != nil {
		return err
	}
	s.life = life
	if err := s.cmd.Start(); err != nil {
		return err
	}
	c := s.client()
	defer c.Close()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 4000 {
		if c.Ping(context.Background()).Err() == nil {
			return nil
		}
		<-tick.C
	}
	s.kill()
	log, _ := os.ReadFile(filepath.Join(s.dir, "redis.log"))
	return fmt.Errorf("redis-server does not answer: %s", log)
}

// kill kills the server with SIGKILL.
func (s *server) kill() {
	_ = s.life.Close()
	_ = s.cmd.Wait() // the exit status of the shell is irrelevant
}

func (s *server) url() string { return "redis://" + s.addr }

func (s *server) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, DialerRetries: 1})
}

// newServer starts a server for one test.
func newServer(t testing.TB, args ...string) *server {
	t.Helper()
	s, err := startServer(t.TempDir(), args...)
	ok(t, err)
	t.Cleanup(s.kill)
	return s
}

// shared is the server of all tests that neither stop nor modify a server.
var shared *server

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "redislog")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	logging.Disable() // it logs each failed connection, and tests cause failures
	if shared, err = startServer(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer shared.kill()
	return m.Run()
}

var prefixes atomic.Int64

// prefix returns a prefix that no other test has.
func prefix() string { return "p" + strconv.FormatInt(prefixes.Add(1), 10) }

// admin returns a client with which tests change Redis directly.
func (s *server) admin(t testing.TB) *redis.Client {
	c := s.client()
	t.Cleanup(func() { _ = c.Close() })
	return c
}
