package main

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// TestWithoutSystemRoots checks that a hub on a system without root certificates, as in the
// container image, trusts the compiled-in ones, with and without a CA file.
func TestWithoutSystemRoots(t *testing.T) {
	const childVariable = "RSHUB_TEST_WITHOUT_ROOTS"
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		t.Skip("the system verifies certificates, and always has roots")
	}
	if os.Getenv(childVariable) == "" { // a process loads the roots once, so use another one
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, "-test.run=^TestWithoutSystemRoots$", "-test.count=1")
		cmd.Env = append(os.Environ(), childVariable+"=1", "SSL_CERT_FILE=/none", "SSL_CERT_DIR=/none")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("test without system roots: %v\n%s", err, out)
		}
		return
	}
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	extended, err := readCAs(file)
	if err != nil {
		t.Fatal(err)
	}
	none, err := readCAs("")
	if err != nil || none != nil {
		t.Fatalf(`readCAs("") = %v, %v, want nil`, none, err)
	}
	trusts := func(pool *x509.CertPool, c *x509.Certificate) bool {
		_, err := c.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: c.NotAfter.Add(-time.Hour)})
		return err == nil
	}
	if trusts(none, server.Certificate()) || !trusts(extended, server.Certificate()) {
		t.Error("the certificate in the file is trusted without the file, or not with it")
	}
	n := 0
	for root := range bundle.Roots() {
		c, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		if root.Constraint != nil {
			continue // it may be limited to certificates issued before a date
		}
		if n++; !trusts(none, c) || !trusts(extended, c) {
			t.Errorf("root %s is not trusted", c.Subject)
		}
	}
	if n < 50 {
		t.Errorf("found %d compiled-in roots, want at least 50", n)
	}
}
