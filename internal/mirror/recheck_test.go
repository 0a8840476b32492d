package mirror

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/source/discovery"
	"github.com/rshub/rshub/internal/testutil"
)

// An audit of a running mirror finds a damaged file, and leaves no files behind.
func TestAuditOfRunningMirror(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.set("/a", "a")
	b.set("/b", "b")
	b.set("/list.xml", document("resourcelist", `at="2026-01-04T00:00:00Z"`, `<url><loc>`+b.URL+`/a</loc><rs:md hash="`+hashOf("a")+`"/></url>`,
		`<url><loc>`+b.URL+`/b</loc><rs:md hash="`+hashOf("b")+`"/></url>`))
	source := &discovery.Source{ResourceList: b.URL + "/list.xml"}
	b.mirror(source)
	if err := os.WriteFile(filepath.Join(b.dir, "a"), []byte("damaged"), 0o666); err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(b.dir, ".rsmirror/audits/killed")
	if err := os.MkdirAll(killed, 0o700); err != nil {
		t.Fatal(err)
	}
	seen := filepath.Join(killed, "seen")
	if err := os.WriteFile(seen, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-14 * 24 * time.Hour)
	if err := os.Chtimes(seen, long, long); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := New(b.home, source, b.Directory, Options{HTTP: b.Client(), PollInterval: time.Hour}).Run(ctx, false); err != nil {
			t.Error(err)
		}
	})
	defer wg.Wait()
	defer cancel()
	copied, err := home.OpenOrCopy(ctx, b.dir, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	directory, err := NewDirectory(copied, DirectoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var found []Problem
	for p, err := range New(copied, source, directory, Options{HTTP: b.Client()}).Audit(ctx, directory, AuditOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, p)
	}
	if len(found) != 1 || found[0].Kind != Damaged || found[0].Path != "a" {
		t.Errorf("Audit() yields %+v, want the damaged file a", found)
	}
	if err := copied.Close(); err != nil {
		t.Error(err)
	}
	testutil.Until(t, "the files of the audits are removed", func() bool {
		left, err := os.ReadDir(filepath.Join(b.dir, ".rsmirror/audits"))
		return err == nil && len(left) == 0
	})
	if _, err := os.Stat(killed); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat() of the files of a killed audit = %v, want ErrNotExist", err)
	}
}
