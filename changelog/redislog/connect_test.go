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

// works adds and reads by a URL.
func works(t *testing.T, url string, o redisconn.Options) *Log {
	t.Helper()
	l := startOn(t, connect(t, url, o), Options{})
	makeSet(t, l, 10)
	add(t, l, "a", 25)
	if n := len(all(t, l, feed.Cursor{})); n != 25 {
		t.Errorf("%d entries", n)
	}
	ok(t, l.Check(t.Context()))
	return l
}

func TestSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "redis.sock")
	newServer(t, "--unixsocket", path)
	works(t, "unix://"+path+"?db=2", redisconn.Options{})
}

func TestSentinel(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make prove PART=stores")
	}
	t.Parallel()
	first, second := newServer(t), newServer(t)
	follow(t, second, first)
	host, port, _ := strings.Cut(first.addr, ":")
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	ok(t, os.WriteFile(config, []byte("sentinel monitor one "+host+" "+port+" 1\nsentinel down-after-milliseconds one 300\nsentinel failover-timeout one 3000\n"), 0o600))
	sentinel := newSentinel(t, config)
	url := "redis-sentinel://" + sentinel.addr + "?master=one"
	waiting := works(t, url, redisconn.Options{Wait: 1, WaitTimeout: 5 * time.Second})
	l := start(t, url, Options{Prefix: waiting.opts.Prefix}) // the only replica is to be the primary, and then there is none
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
		t.Errorf("%d entries", n)
	}
}

// newSentinel is a server of another kind.
func newSentinel(t *testing.T, config string) *server {
	s := &server{addr: freeAddr(t), dir: filepath.Dir(config)}
	_, port, _ := net.SplitHostPort(s.addr)
	ok(t, s.run(config, "--sentinel", "--bind", "127.0.0.1", "--port", port))
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
	works(t, "rediss://"+addr+"?ca_file="+cert.Cert, redisconn.Options{})
	_, err := openAt(t, "rediss://"+addr, Options{})
	wants(t, feed.ErrUnavailable, err)
	if !strings.Contains(err.Error(), "certificate") {
		t.Errorf("error is %v", err)
	}
}
