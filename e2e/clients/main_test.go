// Package clients tests the Python client, the examples, and the commands in the documentation
// with a built hub.
package clients

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

// interpreter returns the path of a program, or skips the test. make need installs it.
func interpreter(t *testing.T, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed: apt-get install %s", name, debian)
	}
	return path
}

func python(t *testing.T) string { return interpreter(t, "python3", "python3") }
func node(t *testing.T) string   { return interpreter(t, "node", "nodejs") }

// root returns the absolute path of a file of the repository.
func root(t *testing.T, path ...string) string {
	t.Helper()
	abs, err := filepath.Abs(filepath.Join(append([]string{"..", ".."}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// withClient returns an environment in which Python finds the client, and writes no compiled files
// into the repository.
func withClient(t *testing.T) []string {
	return []string{"PYTHONPATH=" + root(t, "clients", "python"), "PYTHONDONTWRITEBYTECODE=1", "no_proxy=127.0.0.1"}
}
