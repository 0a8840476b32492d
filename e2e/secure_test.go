package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// certificate makes a certificate for 127.0.0.1 that signs itself, and returns
// the files of it and of its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "rshub's tests"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret)
}

// A hub finds NATS again after its password was another for a while, and says
// why it could not.
func TestNATSPassword(t *testing.T) {
	redis := &redisServer{addr: freePort(t), dir: t.TempDir()}
	redis.start(t)
	nats := &natsServer{addr: freePort(t), options: server.Options{Username: "hub", Password: "another"}}
	nats.start(t)
	t.Cleanup(func() { nats.stop() })
	h := startHub(t, "RSHUB_REDIS_URL=redis://"+redis.addr, "RSHUB_NATS_URL=nats://hub:right@"+nats.addr, "RSHUB_BASE_URL=http://127.0.0.1:1")
	connected := func() {
		t.Helper()
		until(t, "the hub has NATS", func() error {
			if v := ready(t, h); !v.Checks["nats"].OK {
				return errors.New(v.Checks["nats"].Reason)
			}
			return nil
		})
	}
	h.says("uthorization") // nats.go begins it with a capital letter, or not
	restart := func(password string) {
		nats.stop()
		nats.options.Password = password
		nats.start(t)
	}
	restart("right")
	connected()
	restart("another")
	tries := nats.s.NumClients
	until(t, "the hub was refused more than once", func() error {
		if v := ready(t, h); v.Checks["nats"].OK {
			return errors.New("it is connected")
		}
		if n := strings.Count(h.stderr.String(), "uthorization"); n < 2 {
			return fmt.Errorf("%d lines say so; %d clients", n, tries())
		}
		return nil
	})
	restart("right")
	connected()
}

// Two hubs reach Redis and NATS over TLS only, trust a CA of their own, and log
// in: at Redis as the user that docs/cluster.md makes.
func TestSecure(t *testing.T) {
	cert, key := certificate(t)

	text, err := os.ReadFile("../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	user := regexp.MustCompile("ACL SETUSER ([^`]+)`").FindStringSubmatch(string(text))
	if user == nil {
		t.Fatal("docs/cluster.md names no ACL user")
	}
	redisAddr := freePort(t)
	host, port, _ := net.SplitHostPort(redisAddr)
	config := filepath.Join(t.TempDir(), "redis.conf")
	settings := []string{
		"bind " + host, "port 0", "tls-port " + port, "tls-cert-file " + cert, "tls-key-file " + key, "tls-ca-cert-file " + cert, "tls-auth-clients no",
		"appendonly yes", `save ""`, "dir " + t.TempDir(), "user default off", "user " + strings.Replace(user[1], "PASSWORD", "pass#word", 1),
	}
	if err := os.WriteFile(config, []byte(strings.Join(settings, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := start(t, nil, nil, "redis-server", config)
	until(t, "Redis answers over TLS", func() error {
		if redis.ended() {
			t.Fatalf("redis-server ended: %s", redis.stdout.String())
		}
		return exec.Command("redis-cli", "-p", port, "--tls", "--cacert", cert, "--user", "rshub", "--pass", "pass#word", "get", "rshub:x").Run()
	})

	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	nats := &natsServer{addr: freePort(t), options: server.Options{
		TLS: true, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		Username: "hub", Password: "secret",
	}}
	nats.start(t)
	t.Cleanup(nats.stop)

	var hubs []*hub
	for range 2 {
		h := newHub(t, "RSHUB_REDIS_URL=rediss://rshub:pass%23word@"+redisAddr+"?ca_file="+cert,
			"RSHUB_NATS_URL=tls://hub:secret@"+nats.addr, "RSHUB_NATS_CA_FILE="+cert, "RSHUB_BASE_URL=http://127.0.0.1:1")
		h.start(t)
		hubs = append(hubs, h)
	}
	for _, h := range hubs {
		if v := ready(t, h); !v.Checks["nats"].OK || !v.Checks["memory"].OK {
			t.Errorf("the hub is ready: %+v", v)
		}
	}
	f := follow(t, hubs[1], byWebSocket, "secure", "now")
	f.begins(t)
	publish(t, hubs[0], "secure", changes("secure", 3))
	f.has(t, 3)
	for _, h := range hubs {
		if s := h.stderr.String(); strings.Contains(s, "pass#word") || strings.Contains(s, "secret") {
			t.Errorf("a hub shows a password: %s", s)
		}
	}
}
