// Package certificate keeps the certificate of a TLS server, and reads it anew when its
// files change.
package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// lookEvery is how often Watch looks whether the files have changed.
const lookEvery = 2 * time.Second

// Files are the files of a certificate and of its key. Files that cannot be used leave the
// certificate before them in force.
type Files struct {
	cert, key string
	log       *slog.Logger
	current   atomic.Pointer[tls.Certificate]

	mu  sync.Mutex
	err error // why the files as they are now are not in force

	// Only the goroutine of Watch uses these.
	infos [2]fs.FileInfo // of the files when their certificate came into force
	soon  bool           // the log was told that the certificate ends soon
}

// Open reads the certificate with its chain (PEM) at cert, and its key (PEM) at key. Later
// changes are seen once Watch runs. A certificate whose time is over is taken, and Err says
// so: clients refuse it, but the server can do its other work.
func Open(cert, key string, log *slog.Logger) (*Files, error) {
	f := &Files{cert: cert, key: key, log: log}
	if _, err := f.look(); err != nil {
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

// Watch reads the files anew when they change, until ctx is done.
func (f *Files) Watch(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		changed, err := f.look()
		f.mu.Lock()
		before := f.err
		f.err = err
		f.mu.Unlock()
		switch {
		case err != nil && (before == nil || before.Error() != err.Error()):
			f.log.Error("the certificate's files cannot be used, so the certificate before them stays in force", "err", err, "expires", f.Expires())
		case changed:
			f.log.Info("the certificate was read anew", "file", f.cert, "expires", f.Expires())
		case err == nil && before != nil:
			f.log.Info("the certificate's files can be used again, and are as they were before", "file", f.cert)
		}
		f.warn(changed)
	}
}

// Soon is how long before its end a certificate should have been renewed.
const Soon = 7 * 24 * time.Hour

// warn tells the log once that the certificate ends soon.
func (f *Files) warn(changed bool) {
	f.soon = f.soon && !changed
	if left := time.Until(f.Expires()); left < Soon && !f.soon {
		f.soon = true
		f.log.Warn("the certificate ends soon, or has ended", "file", f.cert, "expires", f.Expires())
	}
}

// look reads the files if they have changed. It reports whether another certificate is in
// force now. After an error it reads them each time, because the two files may not have
// been replaced at once, and a certificate whose time has not come will be good.
func (f *Files) look() (changed bool, err error) {
	var infos [2]fs.FileInfo
	for i, path := range []string{f.cert, f.key} {
		if infos[i], err = os.Stat(path); err != nil {
			return false, fmt.Errorf("read the certificate: %w", err)
		}
	}
	current := f.current.Load()
	if current != nil && same(infos[0], f.infos[0]) && same(infos[1], f.infos[1]) {
		return false, nil
	}
	read, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return false, fmt.Errorf("read the certificate in %s and its key in %s: %w", f.cert, f.key, err)
	}
	now := time.Now()
	switch at := read.Leaf; {
	case current != nil && slices.EqualFunc(read.Certificate, current.Certificate, slices.Equal):
		f.infos = infos
		return false, nil // that is in force
	case current != nil && now.After(at.NotAfter):
		return false, fmt.Errorf("the certificate in %s has expired at %s", f.cert, at.NotAfter.UTC().Format(time.RFC3339))
	case current != nil && now.Before(at.NotBefore):
		return false, fmt.Errorf("the certificate in %s is not good before %s", f.cert, at.NotBefore.UTC().Format(time.RFC3339))
	}
	f.infos = infos
	f.current.Store(&read)
	return true, nil
}

func same(a, b fs.FileInfo) bool {
	return b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// Err returns why the files as they are now are not in force, or that the certificate in
// force has expired. It is nil if all is well.
func (f *Files) Err() error {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if expires := f.Expires(); time.Now().After(expires) {
		err = errors.Join(fmt.Errorf("the certificate has expired at %s", expires.Format(time.RFC3339)), err)
	}
	return err
}

// Expires returns when the certificate in force ends, in UTC.
func (f *Files) Expires() time.Time { return f.leaf().NotAfter.UTC() }

// Names returns an error if the certificate in force is not for a name or address of a
// host.
func (f *Files) Names(host string) error { return f.leaf().VerifyHostname(host) }

func (f *Files) leaf() *x509.Certificate { return f.current.Load().Leaf }
