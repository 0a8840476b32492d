package operate

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestTLS publishes and follows over TLS with the programs.
func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key := hubtest.Certificate(t)
	h := hubtest.NewHub(t, "RSHUB_TLS_CERT_FILE="+cert, "RSHUB_TLS_KEY_FILE="+key)
	h.Start(t)
	url, trusting := "https://"+h.Host, []string{"SSL_CERT_FILE=" + cert}
	code, _, stderr := hubtest.Run(t, trusting, bytes.NewReader(hubtest.Change("first")), hubtest.Rspublish, "-hub", url, "-set", "demo", "-")
	if code != 0 {
		t.Fatalf("rspublish exited with %d: %s", code, stderr)
	}
	code, stdout, stderr := hubtest.Run(t, trusting, nil, hubtest.Rshub, "follow", "-hub", url, "-set", "demo", "-since", "start", "-count", "1")
	if code != 0 || !strings.Contains(stdout, "example.org/first") {
		t.Errorf("rshub follow exited with %d: %s%s", code, stdout, stderr)
	}
}

// TestAuditLog rotates the audit log as logrotate does.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	h := hubtest.StartHub(t, "RSHUB_AUDIT_LOG="+path)
	hubtest.Publish(t, h, "demo", hubtest.Changes("a", 3), "X-Forwarded-For: 198.51.100.7", "X-Request-Id: first")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	h.Signal(syscall.SIGHUP)
	hubtest.Until(t, "the file is created again", func() error { _, err := os.Stat(path); return err })
	hubtest.Publish(t, h, "demo", hubtest.Changes("b", 2), "X-Request-Id: second")
	h.Stop(t)
	for file, want := range map[string]string{path + ".1": `"requestId":"first","client":"198.51.100.7","action":"publish","set":"demo","changes":3,`, path: `"requestId":"second","client":"127.0.0.1","action":"publish","set":"demo","changes":2,`} {
		text, err := os.ReadFile(file)
		if err != nil || strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), want) {
			t.Errorf("%s = %q, want one line with %s", file, text, want)
		}
	}

	logging := hubtest.StartHub(t, "RSHUB_AUDIT_LOG=stderr")
	hubtest.Publish(t, logging, "demo", hubtest.Changes("c", 1))
	logging.WaitLog(`"action":"publish"`)
}
