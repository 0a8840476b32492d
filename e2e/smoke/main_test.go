// Package smoke tries once, of the built programs, each of what rshub is for. It is what
// every change has to pass; the other packages of e2e try the same things thoroughly.
// Nothing in it is left to chance, and nothing has to be fast.
package smoke

import (
	"os"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

// ran runs a program, which has to end with a code, and returns what it wrote.
func ran(t *testing.T, code int, program string, args ...string) (stdout, stderr string) {
	t.Helper()
	got, stdout, stderr := hubtest.Run(t, nil, nil, program, args...)
	if got != code {
		t.Fatalf("%s %q ended with %d, not %d: %s%s", program, args, got, code, stdout, stderr)
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
