package server

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/servertest"
)

// archived is a backup's archive of files and their texts.
func archived(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: files[i], Mode: 0o600, Size: int64(len(files[i+1])), ModTime: time.Unix(0, 0)}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What is not a whole backup is refused, and nothing of it stays.
func TestBackupRefused(t *testing.T) {
	whole := archived(t, "changes/a", strings.Repeat("a", 2000), backupEnd, "")
	for _, test := range []struct {
		name    string
		archive []byte
		want    string // empty: it is taken
	}{
		{"whole", whole, ""},
		{"without its end", archived(t, "changes/a", "a"), "ended early"},
		{"cut within a file", whole[:1500], "unexpected EOF"},
		{"cut between files", whole[:512+2048], "ended early"},
		{"empty", nil, "ended early"},
		{"no archive", bytes.Repeat([]byte("<html>"), 200), "tar"},
		{"a file outside", archived(t, "../evil", "x", backupEnd, ""), "outside"},
		{"an absolute file", archived(t, "/tmp/evil", "x", backupEnd, ""), "outside"},
		{"a file twice", archived(t, "a", "1", "a", "2", backupEnd, ""), "exists"},
	} {
		t.Run(test.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(test.archive) }))
			defer srv.Close()
			parent := t.TempDir()
			dir := filepath.Join(parent, "copy")
			_, _, err := FetchBackup(t.Context(), srv.Listener.Addr().String(), "", dir)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("it ended with %v, want %q", err, test.want)
			}
			entries, err := os.ReadDir(parent)
			if err != nil || len(entries) > 0 != (test.want == "") {
				t.Errorf("the directory has %v (%v)", entries, err)
			}
			if test.want != "" {
				return
			}
			if text, err := os.ReadFile(filepath.Join(dir, "changes", "a")); err != nil || string(text) != strings.Repeat("a", 2000) {
				t.Errorf("the file is another (%v)", err)
			}
		})
	}
}

// A hub that listens on every address is reached by loopback.
func TestOpsAddress(t *testing.T) {
	for _, test := range []struct{ listen, want string }{
		{"127.0.0.1:8081", "127.0.0.1:8081"},
		{"localhost:8081", "localhost:8081"},
		{"10.1.2.3:8081", "10.1.2.3:8081"},
		{":8081", "127.0.0.1:8081"},
		{"0.0.0.0:8081", "127.0.0.1:8081"},
		{"[::]:8081", "[::1]:8081"},
		{"[::1]:8081", "[::1]:8081"},
		{"", ""},
		{"8081", ""},
	} {
		if got, err := opsAddress(test.listen); got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("opsAddress(%q) = %q, %v", test.listen, got, err)
		}
	}
}

// What a hub that was killed during a backup left is removed, and nothing else:
// least of all a backup that somebody keeps there.
func TestOldBackupsAreRemoved(t *testing.T) {
	data := t.TempDir()
	left := filepath.Join(data, backupPrefix+"123", "changes")
	kept := filepath.Join(data, "backup-2026-11-21", "changes")
	for _, dir := range []string{left, kept} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	start(t, Config{Data: data})
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a backup is gone: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(left)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

var listForm = regexp.MustCompile(`/sets/demo/changelist-\d[^<]*`)

// lists returns the paths of the lists that the index of the set demo names.
func (h *started) lists(t *testing.T) []string {
	t.Helper()
	resp, body := servertest.Do(t, http.MethodGet, h.URL+"/sets/demo/changelist-index.xml", "")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the index: %d %s", resp.StatusCode, body)
	}
	return listForm.FindAllString(body, -1)
}

// A backup is started twice, and the original goes on. All three fill the list that
// was open. No name means two lists.
func TestEpochOfBackup(t *testing.T) {
	t.Parallel()
	original := start(t, Config{ChangeListSize: 3})
	for range 4 {
		original.Publish("demo")
	}
	open := original.lists(t)
	if len(open) != 2 {
		t.Fatalf("lists %q", open)
	}
	hubs := []*started{original}
	for _, name := range []string{"first", "second"} {
		dir := filepath.Join(t.TempDir(), name)
		if _, _, err := FetchBackup(t.Context(), strings.TrimPrefix(original.Ops, "http://"), "", dir); err != nil {
			t.Fatal(err)
		}
		hubs = append(hubs, start(t, Config{Data: dir, BaseURL: original.URL}))
	}
	bodies := map[string]string{}
	for i, h := range hubs {
		for range 3 {
			h.Publish("demo")
		}
		names := h.lists(t)
		if len(names) != 3 || names[0] != open[0] || (names[1] == open[1]) != (i == 0) {
			t.Errorf("hub %d has the lists %q, there were %q", i, names, open)
		}
		for _, name := range names {
			resp, body := servertest.Do(t, http.MethodGet, h.URL+name, "")
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %d", name, resp.StatusCode)
			}
			if other, ok := bodies[name]; ok && other != body {
				t.Errorf("two lists have the name %s:\n%s\n%s", name, other, body)
			}
			bodies[name] = body
		}
	}
	for name := range bodies { // nobody answers a name of another epoch
		for i, h := range hubs {
			if slices.Contains(h.lists(t), name) {
				continue
			}
			if resp, _ := servertest.Do(t, http.MethodGet, h.URL+name, ""); resp.StatusCode != http.StatusNotFound {
				t.Errorf("hub %d answers %s with %d", i, name, resp.StatusCode)
			}
		}
	}
}
