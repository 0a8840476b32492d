package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

// runBackupCommand runs rshub backup against a hub.
func runBackupCommand(t *testing.T, ops, dir string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("RSHUB_OPS_LISTEN", strings.TrimPrefix(ops, "http://"))
	return runCommand(t, "backup", dir)
}

// TestBackup checks that a hub starts from a backup, and that the original hub keeps running.
func TestBackup(t *testing.T) {
	h := startHub(t)
	h.Publish("demo")
	dir := filepath.Join(t.TempDir(), "copy")
	code, stdout, stderr := runBackupCommand(t, h.Ops, dir)
	if code != 0 || !strings.Contains(stdout, "RSHUB_DATA="+dir) {
		t.Fatalf("rshub backup = %d, %q, %q, want 0 and RSHUB_DATA=%s", code, stdout, stderr, dir)
	}
	h.Publish("demo")
	changes := func(h *testHub) string {
		_, body := servertest.Do(t, "GET", h.URL+"/sets/demo/changes?since=start", "")
		return body
	}
	if n := strings.Count(changes(h), `"position"`); n != 2 {
		t.Errorf("the hub has %d changes, want 2", n)
	}
	testutil.Until(t, "the hub removes its temporary files", func() bool { // after its last byte was sent
		left, err := filepath.Glob(filepath.Join(h.data, ".rshub-backup-*"))
		return err == nil && len(left) == 0
	})
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := d.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("mode of %s gives rights to group or others (%v)", path, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	restored := startHub(t, "RSHUB_DATA", dir)
	if n := strings.Count(changes(restored), `"position"`); n != 1 {
		t.Errorf("the restored hub has %d changes, want 1", n)
	}
}

func TestBackupRequiresOperateRight(t *testing.T) {
	file, texts := writeTokens(t, "operate", "publish:*,follow:*")
	h := startHub(t, "RSHUB_TOKENS_FILE", file)
	for _, test := range []struct {
		name, token string
		code        int
		stderr      string
	}{
		{"no token", "", 1, "401"},
		{"wrong right", texts[1], 1, "does not have the right operate"},
		{"operate", texts[0], 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("RSHUB_TOKEN", test.token)
			dir := filepath.Join(t.TempDir(), "copy")
			code, _, stderr := runBackupCommand(t, h.Ops, dir)
			if code != test.code || !strings.Contains(stderr, test.stderr) || test.token != "" && strings.Contains(stderr, test.token) {
				t.Errorf("rshub backup = %d, %q, want %d and %q", code, stderr, test.code, test.stderr)
			}
			if _, err := os.Stat(dir); (err == nil) != (test.code == 0) {
				t.Errorf("Stat(backup) = %v, want it to exist only on success", err)
			}
		})
	}
}

func TestBackupWithoutHub(t *testing.T) {
	setenv(t)
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := unused.Addr().String()
	if err := unused.Close(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, ops string
		prepare   func(dir string) error
		want      string
	}{
		{"hub not running", addr, func(string) error { return nil }, "is it running?"},
		{"no address", "", func(string) error { return nil }, "RSHUB_OPS_LISTEN is empty"},
		{"directory exists", addr, func(dir string) error { return os.Mkdir(dir, 0o700) }, "exists; use a new directory for the backup"},
		{"another backup is running", addr, func(dir string) error { return os.Mkdir(dir+".partial", 0o700) }, "copy.partial exists"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "copy")
			if err := test.prepare(dir); err != nil {
				t.Fatal(err)
			}
			code, stdout, stderr := runBackupCommand(t, test.ops, dir)
			if code != 1 || stdout != "" || !strings.Contains(stderr, test.want) {
				t.Errorf("rshub backup = %d, %q, %q, want 1 and %q", code, stdout, stderr, test.want)
			}
			if _, err := os.Stat(dir + ".partial"); test.name != "another backup is running" && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("Stat(partial backup) = %v, want that it was removed", err)
			}
		})
	}
}
