package backup

import (
	"archive/tar"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// archived returns an archive of files with the given names and contents.
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

// An invalid or incomplete archive is rejected, and none of its files remain.
func TestInvalidArchiveIsRefused(t *testing.T) {
	whole := archived(t, "changes/a", strings.Repeat("a", 2000), archiveEnd, "")
	for _, test := range []struct {
		name    string
		archive []byte
		want    string // empty: it is taken
	}{
		{"whole", whole, ""},
		{"without its end", archived(t, "changes/a", "a"), "incomplete"},
		{"cut within a file", whole[:1500], "unexpected EOF"},
		{"cut between files", whole[:512+2048], "incomplete"},
		{"empty", nil, "incomplete"},
		{"no archive", bytes.Repeat([]byte("<html>"), 200), "tar"},
		{"a file outside", archived(t, "../evil", "x", archiveEnd, ""), "invalid path"},
		{"an absolute file", archived(t, "/tmp/evil", "x", archiveEnd, ""), "invalid path"},
		{"a file twice", archived(t, "a", "1", "a", "2", archiveEnd, ""), "exists"},
	} {
		t.Run(test.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(test.archive) }))
			defer srv.Close()
			parent := t.TempDir()
			dir := filepath.Join(parent, "copy")
			_, _, err := Fetch(t.Context(), srv.Listener.Addr().String(), "", dir, 0)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
			entries, err := os.ReadDir(parent)
			if err != nil || len(entries) > 0 != (test.want == "") {
				t.Errorf("directory has %v (err %v), want it empty", entries, err)
			}
			if test.want != "" {
				return
			}
			if text, err := os.ReadFile(filepath.Join(dir, "changes", "a")); err != nil || string(text) != strings.Repeat("a", 2000) {
				t.Errorf("file outside was changed (err %v)", err)
			}
		})
	}
}

// A hub that listens on all addresses is reached by loopback.
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
		if got, err := OpsAddress(test.listen); got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("OpsAddress(%q) = %q, %v", test.listen, got, err)
		}
	}
}
