package operate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestTLS publishes and follows with the programs, over TLS, while the
// certificate is replaced, first by one of openssl.
func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key := hubtest.Certificate(t)
	h := hubtest.NewHub(t, "RSHUB_TLS_CERT_FILE="+cert, "RSHUB_TLS_KEY_FILE="+key)
	h.Start(t)
	url := "https://" + h.Host
	next, nextKey := opensslCertificate(t)
	trust := filepath.Join(t.TempDir(), "trust.pem")
	if err := os.WriteFile(trust, append(read(t, cert), read(t, next)...), 0o600); err != nil {
		t.Fatal(err)
	}
	trusting := "SSL_CERT_FILE=" + trust
	publish := func(name string) {
		t.Helper()
		code, _, stderr := hubtest.Run(t, []string{trusting}, bytes.NewReader(hubtest.Change(name)), hubtest.Rspublish, "-hub", url, "-set", "demo", "-")
		if code != 0 {
			t.Fatalf("rspublish ended with %d: %s", code, stderr)
		}
	}
	publish("first")
	follower := hubtest.Start(t, []string{trusting}, nil, hubtest.Rshub, "follow", "-hub", url, "-set", "demo", "-since", "start")
	has := func(name string) {
		t.Helper()
		hubtest.Until(t, "the follower has "+name, func() error {
			if !strings.Contains(follower.Stdout.String(), name) {
				return errors.New(follower.Stdout.String() + follower.Stderr.String())
			}
			return nil
		})
	}
	has("first")
	if code, _, stderr := hubtest.Run(t, nil, bytes.NewReader(hubtest.Change("x")), hubtest.Rspublish, "-hub", "http://"+h.Host, "-set", "demo", "-retry", "0s", "-"); code == 0 || !strings.Contains(stderr, "400") {
		t.Errorf("rspublish without TLS ended with %d: %s", code, stderr)
	}

	replace(t, key, read(t, nextKey)) // first the one, then the other
	replace(t, cert, read(t, next))
	hubtest.Until(t, "the hub has the new certificate", func() error {
		block, _ := pem.Decode(read(t, next))
		want, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		conn, err := tls.Dial("tcp", h.Host, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		defer conn.Close()
		if got := conn.ConnectionState().PeerCertificates[0]; !got.Equal(want) {
			return fmt.Errorf("the hub has %v", got.Subject)
		}
		return nil
	})
	publish("second")
	has("second")
	if strings.Contains(follower.Stderr.String(), "again") {
		t.Errorf("the follower was cut: %s", follower.Stderr.String())
	}
	follower.Signal(syscall.SIGTERM)
	follower.Wait()
	h.Stop(t)
}

// opensslCertificate makes a certificate as an operator does it by hand. Without openssl
// it makes one as Certificate does.
func opensslCertificate(t *testing.T) (cert, key string) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		return hubtest.Certificate(t)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	out, err := exec.Command("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=hub", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert).CombinedOutput()
	if err != nil {
		t.Fatalf("openssl: %v\n%s", err, out)
	}
	return cert, key
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// replace replaces a file at once.
func replace(t *testing.T, path string, text []byte) {
	t.Helper()
	err := os.WriteFile(path+".new", text, 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAuditLog rotates the audit log as logrotate does.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	h := hubtest.StartHub(t, "RSHUB_AUDIT_LOG="+path)
	hubtest.Publish(t, h, "demo", hubtest.Changes("a", 3), "X-Forwarded-For: 198.51.100.7", "X-Request-Id: first")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	h.Signal(syscall.SIGHUP)
	hubtest.Until(t, "the file is made anew", func() error { _, err := os.Stat(path); return err })
	hubtest.Publish(t, h, "demo", hubtest.Changes("b", 2), "X-Request-Id: second")
	h.Stop(t)
	for file, want := range map[string]string{path + ".1": `"requestId":"first","client":"198.51.100.7","action":"publish","set":"demo","changes":3,`, path: `"requestId":"second","client":"127.0.0.1","action":"publish","set":"demo","changes":2,`} {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) || strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), want) {
			t.Errorf("%s has %q, want %s", file, text, want)
		}
	}

	said := hubtest.StartHub(t, "RSHUB_AUDIT_LOG=stderr")
	hubtest.Publish(t, said, "demo", hubtest.Changes("c", 1))
	said.Says(`"action":"publish"`)
}
