package redislog

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/certtest"
)

// checkWorks opens a log by URL, and checks that it appends and reads.
func checkWorks(t *testing.T, url string, o redisconn.Options) *Log {
	t.Helper()
	l := startOn(t, connect(t, url, o), Options{})
	makeSet(t, l, 10)
	add(t, l, "a", 25)
	if n := len(all(t, l, feed.Cursor{})); n != 25 {
		t.Errorf("got %d entries", n)
	}
	ok(t, l.Check(t.Context()))
	return l
}

func TestSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "redis.sock")
	newServer(t, "--unixsocket", path)
	checkWorks(t, "unix://"+path+"?db=2", redisconn.Options{})
}

func TestSentinel(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make prove PART=stores")
	}
	t.Parallel()
	t.Run("addresses", func(t *testing.T) {
		t.Parallel()
		first, second := newServer(t), newServer(t)
		follow(t, second, first)
		sentinel := newSentinel(t, first.addr)
		failOver(t, "redis-sentinel://"+sentinel.addr+"?master=one", sentinel, first)
	})
	// The certificate is for localhost only, so a connection to an address fails.
	t.Run("names over TLS", func(t *testing.T) {
		t.Parallel()
		cert := certtest.NewFor(t, "localhost")
		secure := func(args ...string) (addr string, all []string) {
			_, port, _ := net.SplitHostPort(freeAddr(t))
			return "localhost:" + port, append([]string{"--tls-port", port, "--tls-replication", "yes",
				"--tls-cert-file", cert.Cert, "--tls-key-file", cert.Key, "--tls-ca-cert-file", cert.Cert, "--tls-auth-clients", "no"}, args...)
		}
		addr, args := secure("--replica-announce-ip", "localhost")
		first := newServer(t, args...)
		_, port, _ := strings.Cut(addr, ":")
		_, args = secure("--replica-announce-ip", "localhost", "--replicaof", "localhost", port)
		newServer(t, args...)
		sentinelAddr, args := secure("--sentinel", "resolve-hostnames", "yes", "--sentinel", "announce-hostnames", "yes", "--sentinel", "announce-ip", "localhost")
		failOver(t, "rediss-sentinel://"+sentinelAddr+"?master=one&ca_file="+cert.Cert, newSentinel(t, addr, args...), first)
	})
}

// failOver kills the first of two servers, and checks that a log reads and appends at the
// second, which a Sentinel promotes.
func failOver(t *testing.T, url string, sentinel, first *server) {
	t.Helper()
	waiting := checkWorks(t, url, redisconn.Options{Wait: 1, WaitTimeout: 5 * time.Second})
	l := start(t, url, Options{Prefix: waiting.opts.Prefix}) // the only replica becomes the primary, and no replica is left
	id, head := l.ID(), state(t, l).Head
	admin := redis.NewSentinelClient(&redis.Options{Addr: sentinel.addr})
	defer admin.Close()
	testutil.Until(t, "the second server is known", func() bool { return len(admin.Replicas(t.Context(), "one").Val()) == 1 })
	first.kill()
	testutil.Until(t, "the second server takes appends", func() bool {
		a, err := l.Append(t.Context(), "set", changelog.Publish{Changes: changes("b", 1), Key: "key"})
		return err == nil && a[0].After == head
	})
	if n := len(all(t, l, feed.Cursor{})); n != 26 || l.Check(t.Context()) != nil || l.ID() != id {
		t.Errorf("got %d entries of memory %s, Check() = %v; want 26 of %s, nil", n, l.ID(), l.Check(t.Context()), id)
	}
}

// newSentinel starts a Sentinel that monitors the server at an address, with more arguments.
func newSentinel(t *testing.T, monitored string, args ...string) *server {
	t.Helper()
	s := &server{addr: freeAddr(t), dir: t.TempDir()}
	_, port, _ := net.SplitHostPort(s.addr)
	host, monitoredPort, _ := net.SplitHostPort(monitored)
	config := filepath.Join(s.dir, "sentinel.conf")
	ok(t, os.WriteFile(config, []byte("sentinel monitor one "+host+" "+monitoredPort+" 1\nsentinel down-after-milliseconds one 300\nsentinel failover-timeout one 3000\n"), 0o600))
	ok(t, s.run(append([]string{config, "--sentinel", "--bind", "127.0.0.1", "--port", port, "--logfile", filepath.Join(s.dir, "redis.log")}, args...)...))
	t.Cleanup(s.kill)
	return s
}

func freeAddr(t *testing.T) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	ok(t, free.Close())
	return free.Addr().String()
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cert := certtest.New(t)
	addr := freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	newServer(t, "--tls-port", port, "--tls-cert-file", cert.Cert, "--tls-key-file", cert.Key, "--tls-auth-clients", "no")
	checkWorks(t, "rediss://"+addr+"?ca_file="+cert.Cert, redisconn.Options{})
	_, err := openAt(t, "rediss://"+addr, Options{})
	wantErr(t, feed.ErrUnavailable, err)
	if !strings.Contains(err.Error(), "certificate") {
		t.Errorf("error = %v, want it to name the certificate", err)
	}
}
