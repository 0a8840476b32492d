// Package certificate loads the certificate of a TLS server, and reloads it when its files change.
//
// If the files become unreadable, the last valid certificate remains in use. The package does not
// know the server; package internal/server passes the certificate to net/http.
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

// WarnBefore is how long before the expiry of a certificate Files log a warning.
const WarnBefore = 7 * 24 * time.Hour

// Files are the files of a certificate and its key. If new files are invalid, the previous
// certificate remains in use. It is safe for concurrent use.
type Files struct {
	cert, key    string
	log          *slog.Logger
	document     reread.Document
	current      atomic.Pointer[tls.Certificate]
	warnedExpiry time.Time // expiry of the certificate that the log warned about; accessed only by read
}

// Open reads the certificate with its chain (PEM) at cert, and its key (PEM) at key. Later changes
// take effect only while Watch is running. Open accepts an expired certificate, which Err then
// reports: clients reject the certificate, but the server can do its other work.
func Open(cert, key string, log *slog.Logger) (*Files, error) {
	f := &Files{cert: cert, key: key, log: log}
	f.document = reread.Document{What: "the certificate in " + cert, Log: log, Read: f.read}
	if _, err := f.document.Load(context.Background()); err != nil {
		return nil, err
	}
	return f, nil
}

// Config returns the configuration of a TLS server with the certificate, for TLS 1.2 and later.
func (f *Files) Config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.current.Load(), nil },
	}
}

// Watch reloads the files whenever they change. It blocks until ctx is done.
func (f *Files) Watch(ctx context.Context) { f.document.Watch(ctx) }

// read reads the files, and logs once that a certificate expires soon. It reports whether the
// certificate in use changed.
func (f *Files) read(context.Context) (changed bool, err error) {
	changed, err = f.load()
	if f.current.Load() == nil {
		return changed, err
	}
	if end := f.Expires(); time.Until(end) < WarnBefore && !end.Equal(f.warnedExpiry) {
		f.warnedExpiry = end
		f.log.Warn("certificate expires soon or has expired", "file", f.cert, "expires", end)
	}
	return changed, err
}

// load reads the files, even if they are unchanged: the two files may be replaced one after the
// other, and a certificate may become valid later.
func (f *Files) load() (changed bool, err error) {
	current := f.current.Load()
	read, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return false, fmt.Errorf("read certificate %s and key %s: %w", f.cert, f.key, err)
	}
	now := time.Now()
	switch at := read.Leaf; {
	case current != nil && slices.EqualFunc(read.Certificate, current.Certificate, slices.Equal):
		return false, nil // already in use
	case current != nil && now.After(at.NotAfter):
		return false, fmt.Errorf("certificate %s expired at %s", f.cert, at.NotAfter.UTC().Format(time.RFC3339))
	case current != nil && now.Before(at.NotBefore):
		return false, fmt.Errorf("certificate %s is not valid before %s", f.cert, at.NotBefore.UTC().Format(time.RFC3339))
	}
	f.current.Store(&read)
	return true, nil
}

// Err returns why the current files are not in use, or an error if the certificate in use has
// expired. Otherwise it returns nil.
func (f *Files) Err() error {
	err := f.document.Err()
	if expires := f.Expires(); time.Now().After(expires) {
		err = errors.Join(fmt.Errorf("certificate expired at %s", expires.Format(time.RFC3339)), err)
	}
	return err
}

// Expires returns the expiry of the certificate in use, in UTC.
func (f *Files) Expires() time.Time { return f.leaf().NotAfter.UTC() }

// VerifyHost returns an error if the certificate in use is not valid for a host name or address.
func (f *Files) VerifyHost(host string) error { return f.leaf().VerifyHostname(host) }

func (f *Files) leaf() *x509.Certificate { return f.current.Load().Leaf }
