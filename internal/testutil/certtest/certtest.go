// Package certtest creates certificates for tests of TLS.
//
// The certificates are self-signed and expire soon. Pair.Renew tests the expiry and replacement of
// certificates.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A Pair is the files of a self-signed certificate and its key. A certificate of New is for
// 127.0.0.1, localhost and hub.example.org.
type Pair struct {
	Cert, Key string // paths

	t         testing.TB
	serial    int64
	names     []string
	addresses []net.IP
	Pool      *x509.CertPool // trusts every certificate of the Pair, including replaced ones
}

// New writes a certificate that is valid for an hour to a new directory.
func New(t testing.TB) *Pair {
	t.Helper()
	return newPair(t, []string{"localhost", "hub.example.org"}, net.IPv4(127, 0, 0, 1))
}

// NewFor is New for a certificate of host names only.
func NewFor(t testing.TB, names ...string) *Pair {
	t.Helper()
	return newPair(t, names)
}

func newPair(t testing.TB, names []string, addresses ...net.IP) *Pair {
	t.Helper()
	dir := t.TempDir()
	p := &Pair{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), t: t, names: names, addresses: addresses, Pool: x509.NewCertPool()}
	p.Renew(time.Now().Add(time.Hour))
	return p
}

// Renew replaces both files with another certificate that expires at the given time, and returns
// its serial number.
func (p *Pair) Renew(expires time.Time) int64 {
	p.t.Helper()
	cert, key := p.Make(time.Time{}, expires)
	p.Write(p.Cert, cert)
	p.Write(p.Key, key)
	return p.serial
}

// Make returns a new certificate and its key (PEM). If begins is zero, it is two hours before
// expires or an hour ago, whichever is earlier.
func (p *Pair) Make(begins, expires time.Time) (cert, key []byte) {
	p.t.Helper()
	if begins.IsZero() {
		begins = expires.Add(-2 * time.Hour)
		if ago := time.Now().Add(-time.Hour); ago.Before(begins) {
			begins = ago
		}
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	p.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(p.serial), Subject: pkix.Name{CommonName: "rshub's tests"}, NotBefore: begins, NotAfter: expires,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: p.addresses, DNSNames: p.names,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		p.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		p.t.Fatal(err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	p.Pool.AppendCertsFromPEM(cert)
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// Write replaces a file atomically.
func (p *Pair) Write(path string, text []byte) {
	p.t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		p.t.Fatal(err)
	}
}

// Client returns the configuration of a client that trusts the certificates of the Pair.
func (p *Pair) Client() *tls.Config { return &tls.Config{RootCAs: p.Pool} }
