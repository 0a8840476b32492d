// Package smoke tests each feature of the built programs once. Every change must pass it; the
// other packages of e2e test the features thoroughly. Its tests are deterministic, and do not
// depend on speed.
package smoke

import (
	"os"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

// mustRun runs a program, fails the test unless it exits with code, and returns the output.
func mustRun(t *testing.T, code int, program string, args ...string) (stdout, stderr string) {
	t.Helper()
	got, stdout, stderr := hubtest.Run(t, nil, nil, program, args...)
	if got != code {
		t.Fatalf("%s %q exited with %d, want %d: %s%s", program, args, got, code, stdout, stderr)
	}
	return stdout, stderr
}

// write writes a file.
func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
