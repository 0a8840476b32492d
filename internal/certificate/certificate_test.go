package certificate

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/internal/reread"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/certtest"
)

// A bench is a certificate whose files are watched, in fake time.
type bench struct {
	*testing.T
	*certtest.Pair
	files *Files
	log   testutil.Log
}

func watch(t *testing.T) *bench {
	b := &bench{T: t, Pair: certtest.New(t)}
	var err error
	if b.files, err = Open(b.Cert, b.Key, b.log.Logger(slog.LevelInfo)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.files.Watch(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return b
}

// look waits until the files were looked at.
func (b *bench) look() {
	time.Sleep(reread.DefaultPause + 1) // in fake time
	synctest.Wait()
}

// serial is the number of the certificate that a client gets.
func (b *bench) serial() int64 {
	b.Helper()
	c, err := b.files.Config().GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		b.Fatal(err)
	}
	return c.Leaf.SerialNumber.Int64()
}

func TestChangedFilesAreReloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := watch(t)
		if b.serial() != 1 || b.files.Err() != nil {
			t.Fatalf("got certificate %d, Err() = %v", b.serial(), b.files.Err())
		}
		b.look()
		ends := time.Now().Add(100 * 24 * time.Hour).Truncate(time.Second)
		want := b.Renew(ends)
		b.look()
		if b.serial() != want || !b.files.Expires().Equal(ends) || b.files.Err() != nil {
			t.Errorf("got certificate %d, expires %v, Err() = %v", b.serial(), b.files.Expires(), b.files.Err())
		}
		if lines := b.log.Lines(t, "the certificate in "+b.Cert+" changed; the new content is in effect"); len(lines) != 1 {
			t.Errorf("log: %s", &b.log)
		}
	})
}

// A certificate that is replaced before its key, as some tools do, is used as soon as the key is
// replaced.
func TestFilesReplacedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := watch(t)
		cert, key := b.Make(time.Time{}, time.Now().Add(time.Hour))
		b.Write(b.Cert, cert)
		b.look()
		if err := b.files.Err(); b.serial() != 1 || err == nil || !strings.Contains(err.Error(), b.Key) {
			t.Errorf("with one new file: certificate %d, Err() = %v", b.serial(), err)
		}
		b.Write(b.Key, key)
		b.look()
		if b.serial() != 2 || b.files.Err() != nil {
			t.Errorf("got certificate %d, Err() = %v", b.serial(), b.files.Err())
		}
	})
}

// Kubernetes replaces the directory to which the paths lead.
func TestDirectorySymlinkIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, dir := certtest.New(t), t.TempDir()
		link := filepath.Join(dir, "data")
		if err := os.Symlink(filepath.Dir(first.Cert), link); err != nil {
			t.Fatal(err)
		}
		f, err := Open(filepath.Join(link, "cert.pem"), filepath.Join(link, "key.pem"), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		second := certtest.New(t)
		second.Renew(time.Now().Add(2 * time.Hour))
		if err := os.Symlink(filepath.Dir(second.Cert), link+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link+".new", link); err != nil {
			t.Fatal(err)
		}
		if changed, err := f.load(); !changed || err != nil || f.leaf().SerialNumber.Int64() != 2 {
			t.Errorf("Load() = %v, %v, got certificate %v", changed, err, f.leaf().SerialNumber)
		}
	})
}

func TestInvalidFilesKeepCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := watch(t)
		cannot := "the certificate in " + b.Cert + " is invalid; the previous content remains in effect"
		other := certtest.New(t)
		_, foreign := other.Make(time.Time{}, time.Now().Add(time.Hour))
		for _, test := range []struct {
			name, says string
			spoil      func()
		}{
			{"gone", "no such file", func() { os.Remove(b.Cert) }},
			{"no certificate", "find any PEM", func() { b.Write(b.Cert, []byte("certificate")) }},
			{"empty", "find any PEM", func() { b.Write(b.Cert, nil) }},
			{"the key of another", "does not match", func() { b.Renew(time.Now().Add(time.Hour)); b.Write(b.Key, foreign) }},
			{"expired", "expired at", func() { b.Renew(time.Now().Add(-time.Second)) }},
			{"not begun", "is not valid before", func() {
				cert, key := b.Make(time.Now().Add(time.Hour), time.Now().Add(2*time.Hour))
				b.Write(b.Cert, cert)
				b.Write(b.Key, key)
			}},
		} {
			before := b.serial()
			test.spoil()
			b.look()
			if err := b.files.Err(); err == nil || !strings.Contains(err.Error(), test.says) || b.serial() != before {
				t.Errorf("%s: Err() = %v, certificate %d", test.name, err, b.serial())
			}
			said := len(b.log.Lines(t, cannot))
			b.look()
			if again := len(b.log.Lines(t, cannot)); said == 0 || again != said {
				t.Errorf("%s: logged %d times, then %d", test.name, said, again)
			}
			want := b.Renew(time.Now().Add(time.Hour))
			b.look()
			if err := b.files.Err(); err != nil || b.serial() != want {
				t.Errorf("after %s: Err() = %v, certificate %d, want %d", test.name, err, b.serial(), want)
			}
			if strings.Contains(b.log.String(), "PRIVATE KEY") {
				t.Errorf("%s: log contains a key: %s", test.name, &b.log)
			}
		}
		cert, err := os.ReadFile(b.Cert)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(b.Cert, nil)
		b.look()
		b.Write(b.Cert, cert)
		b.look()
		if b.files.Err() != nil || len(b.log.Lines(t, "the certificate in "+b.Cert+" is valid again and unchanged")) != 1 {
			t.Errorf("after restoring the files: Err() = %v", b.files.Err())
		}
	})
}

// A certificate that is not yet valid is used once it is, although no file changes.
func TestCertificateBecomesValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := watch(t)
		cert, key := b.Make(time.Now().Add(10*time.Minute), time.Now().Add(2*time.Hour))
		b.Write(b.Cert, cert)
		b.Write(b.Key, key)
		time.Sleep(10*time.Minute + reread.DefaultPause)
		b.look()
		if b.serial() != 2 || b.files.Err() != nil {
			t.Errorf("got certificate %d, Err() = %v", b.serial(), b.files.Err())
		}
		time.Sleep(3 * time.Hour)
		if err := b.files.Err(); err == nil || !strings.Contains(err.Error(), "expired at") {
			t.Errorf("after expiry: Err() = %v", err)
		}
		if lines := b.log.Lines(t, "certificate expires soon or has expired"); len(lines) != 2 { // of each certificate once
			t.Errorf("log: %s", &b.log)
		}
	})
}

func TestOpenErrors(t *testing.T) {
	p := certtest.New(t)
	p.Renew(time.Now().Add(-time.Minute))
	if f, err := Open(p.Cert, p.Key, slog.New(slog.DiscardHandler)); err != nil || f.Err() == nil {
		t.Errorf("Open() of expired certificate = %v", err)
	}
	if _, err := Open(p.Cert, p.Key+"-none", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("Open() without key = %v", err)
	}
}
