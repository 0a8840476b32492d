// Package certificate loads the certificate of a TLS server, and loads it again when its files
// change.
//
// A file that cannot be read leaves the last good certificate in use. The package knows nothing of
// the server; package internal/server passes it to net/http.
package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/internal/reread"
)

// WarnBefore is how long before its end Files warn that a certificate was not
// renewed.
const WarnBefore = 7 * 24 * time.Hour

// Files are the files of a certificate and of its key. If new files cannot be used, the
// certificate that was read before stays in force.
type Files struct {
	cert, key string
	log       *slog.Logger
	document  reread.Document
	current   atomic.Pointer[tls.Certificate]
	warnedExpiry    time.Time // the end of the certificate that the log warned of; only read uses it
}

// Open reads the certificate with its chain (PEM) at cert, and its key (PEM) at key. It
// notices later changes only while Watch runs. It accepts an expired certificate, and Err
// reports that: clients refuse the certificate, but the server can do its other work.
func Open(cert, key string, log *slog.Logger) (*Files, error) {
	f := &Files{cert: cert, key: key, log: log}
	f.document = reread.Document{What: "the certificate in " + cert, Log: log, Read: f.read}
	if _, err := f.document.Load(context.Background()); err != nil {
		return nil, err
	}
	return f, nil
}

// Config returns the configuration of a TLS server with the certificate: TLS 1.2 and newer.
func (f *Files) Config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.current.Load(), nil },
	}
}

// Watch reads the files again whenever they change. It blocks until ctx is
// done.
func (f *Files) Watch(ctx context.Context) { f.document.Watch(ctx) }

// read reads the files, and logs once that a certificate ends soon. It reports whether
// another certificate is in force now.
func (f *Files) read(context.Context) (changed bool, err error) {
	changed, err = f.load()
	if f.current.Load() == nil {
		return changed, err
	}
	if end := f.Expires(); time.Until(end) < WarnBefore && !end.Equal(f.warnedExpiry) {
		f.warnedExpiry = end
		f.log.Warn("the certificate expires soon, or has expired", "file", f.cert, "expires", end)
	}
	return changed, err
}

// load reads the files, even if they did not change: the two files may be replaced
// one after the other, and a certificate may become valid later.
func (f *Files) load() (changed bool, err error) {
	current := f.current.Load()
	read, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return false, fmt.Errorf("read the certificate in %s and its key in %s: %w", f.cert, f.key, err)
	}
	now := time.Now()
	switch at := read.Leaf; {
	case current != nil && slices.EqualFunc(read.Certificate, current.Certificate, slices.Equal):
		return false, nil // it is already in force
	case current != nil && now.After(at.NotAfter):
		return false, fmt.Errorf("the certificate in %s has expired at %s", f.cert, at.NotAfter.UTC().Format(time.RFC3339))
	case current != nil && now.Before(at.NotBefore):
		return false, fmt.Errorf("the certificate in %s is not valid before %s", f.cert, at.NotBefore.UTC().Format(time.RFC3339))
	}
	f.current.Store(&read)
	return true, nil
}

// Err returns why the present files are not in force, or that the certificate in force
// has expired. Otherwise it returns nil.
func (f *Files) Err() error {
	err := f.document.Err()
	if expires := f.Expires(); time.Now().After(expires) {
		err = errors.Join(fmt.Errorf("the certificate has expired at %s", expires.Format(time.RFC3339)), err)
	}
	return err
}

// Expires returns when the certificate in force ends, in UTC.
func (f *Files) Expires() time.Time { return f.leaf().NotAfter.UTC() }

// VerifyHost returns an error if the certificate in force is not valid for a host, a name
// or an address.
func (f *Files) VerifyHost(host string) error { return f.leaf().VerifyHostname(host) }

func (f *Files) leaf() *x509.Certificate { return f.current.Load().Leaf }
