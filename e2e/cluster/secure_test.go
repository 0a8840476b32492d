package cluster

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestNATSPassword changes the password of NATS and restores it. The hub logs the error, and
// reconnects.
func TestNATSPassword(t *testing.T) {
	redis := &hubtest.RedisServer{Addr: hubtest.FreePort(t), Dir: t.TempDir()}
	redis.Start(t)
	nats := &hubtest.NATSServer{Addr: hubtest.FreePort(t), Options: server.Options{Username: "hub", Password: "another"}}
	nats.Start(t)
	t.Cleanup(func() { nats.Stop() })
	h := hubtest.StartHub(t, "RSHUB_REDIS_URL=redis://"+redis.Addr, "RSHUB_NATS_URL=nats://hub:right@"+nats.Addr, "RSHUB_BASE_URL=http://127.0.0.1:1")
	h.WaitLog("uthorization") // capitalized by some versions of nats.go
	restart := func(password string) {
		nats.Stop()
		nats.Options.Password = password
		nats.Start(t)
	}
	restart("right")
	connected(t, h)
	restart("another")
	clients := nats.S.NumClients
	hubtest.Until(t, "the hub was rejected more than once", func() error {
		if v := hubtest.GetReadiness(t, h); v.Checks["nats"].OK {
			return errors.New("connected")
		}
		if n := strings.Count(h.Stderr.String(), "uthorization"); n < 2 {
			return fmt.Errorf("got %d log lines; %d clients", n, clients())
		}
		return nil
	})
	restart("right")
	connected(t, h)
}

// TestTLSAndPasswords connects two hubs to Redis and NATS over TLS with a private CA and
// passwords. The Redis user is the one in docs/cluster.md.
func TestTLSAndPasswords(t *testing.T) {
	cert, key := hubtest.Certificate(t)

	text, err := os.ReadFile("../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	user := regexp.MustCompile("ACL SETUSER ([^`]+)`").FindStringSubmatch(string(text))
	if user == nil {
		t.Fatal("found no ACL user in docs/cluster.md")
	}
	redisAddr := hubtest.FreePort(t)
	host, port, _ := net.SplitHostPort(redisAddr)
	config := filepath.Join(t.TempDir(), "redis.conf")
	settings := []string{
		"bind " + host, "port 0", "tls-port " + port, "tls-cert-file " + cert, "tls-key-file " + key, "tls-ca-cert-file " + cert, "tls-auth-clients no",
		"appendonly yes", `save ""`, "dir " + t.TempDir(), "user default off", "user " + strings.Replace(user[1], "PASSWORD", "pass#word", 1),
	}
	if err := os.WriteFile(config, []byte(strings.Join(settings, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := hubtest.Start(t, nil, nil, "redis-server", config)
	hubtest.Until(t, "Redis responds over TLS", func() error {
		if redis.Exited() {
			t.Fatalf("redis-server exited: %s", redis.Stdout.String())
		}
		return exec.Command("redis-cli", "-p", port, "--tls", "--cacert", cert, "--user", "rshub", "--pass", "pass#word", "get", "rshub:x").Run()
	})

	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	nats := &hubtest.NATSServer{Addr: hubtest.FreePort(t), Options: server.Options{
		TLS: true, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		Username: "hub", Password: "secret",
	}}
	nats.Start(t)
	t.Cleanup(nats.Stop)

	var hubs []*hubtest.Hub
	for range 2 {
		h := hubtest.NewHub(t, "RSHUB_REDIS_URL=rediss://rshub:pass%23word@"+redisAddr+"?ca_file="+cert,
			"RSHUB_NATS_URL=tls://hub:secret@"+nats.Addr, "RSHUB_NATS_CA_FILE="+cert, "RSHUB_BASE_URL=http://127.0.0.1:1")
		h.Start(t)
		hubs = append(hubs, h)
	}
	for _, h := range hubs {
		if v := hubtest.GetReadiness(t, h); !v.Checks["nats"].OK || !v.Checks["memory"].OK {
			t.Errorf("readiness = %+v, want NATS and memory OK", v)
		}
	}
	f := hubtest.Follow(t, hubs[1], hubtest.ByWebSocket, "secure", "now")
	f.WaitStart(t)
	hubtest.Publish(t, hubs[0], "secure", hubtest.Changes("secure", 3))
	f.WaitEntries(t, 3)
	for _, h := range hubs {
		if s := h.Stderr.String(); strings.Contains(s, "pass#word") || strings.Contains(s, "secret") {
			t.Errorf("log has a password: %s", s)
		}
	}
}
