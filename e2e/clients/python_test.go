package clients

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestPython runs the unit tests of the Python client, module by module. They start, kill and
// restart their own hubs.
func TestPython(t *testing.T) {
	t.Parallel()
	client := root(t, "clients", "python")
	modules, err := filepath.Glob(filepath.Join(client, "tests", "test_*.py"))
	if err != nil || len(modules) < 5 {
		t.Fatalf("got test modules %q, %v, want at least 5", modules, err)
	}
	env := append(withClient(t), "RSHUB_TEST_PROGRAM="+hubtest.Rshub)
	for _, file := range modules {
		module := strings.TrimSuffix(filepath.Base(file), ".py")
		t.Run(module, func(t *testing.T) {
			t.Parallel()
			code, _, stderr := hubtest.Run(t, env, nil, python(t), "-W", "error", "-m", "unittest", "-v", "tests."+module)
			if code != 0 || !regexp.MustCompile(`(?m)^Ran [1-9]\d* tests? `).MatchString(stderr) {
				t.Errorf("unittest exited with %d, want 0 and at least one test:\n%s", code, stderr)
			}
			for _, skipped := range regexp.MustCompile(`(?m)^.* skipped .*$`).FindAllString(stderr, -1) {
				t.Log(skipped)
			}
		})
	}
}

// TestTypes checks the types of the Python client.
func TestTypes(t *testing.T) {
	t.Parallel()
	mypy := interpreter(t, "mypy", "mypy")
	code, out, stderr := hubtest.Run(t, nil, nil, mypy, "--strict", "--no-incremental", "--cache-dir", t.TempDir(), "--python-version", "3.9", root(t, "clients", "python", "rshub"))
	if code != 0 {
		t.Errorf("mypy exited with %d: %s%s", code, out, stderr)
	}
}

// TestOldestPython checks that the client has only syntax of the oldest supported Python.
func TestOldestPython(t *testing.T) {
	t.Parallel()
	const script = `import ast, pathlib, sys
for f in pathlib.Path(sys.argv[1]).glob("rshub/*.py"):
    ast.parse(f.read_text(), f.name, feature_version=(3, 9))`
	if code, _, stderr := hubtest.Run(t, nil, nil, python(t), "-c", script, root(t, "clients", "python")); code != 0 {
		t.Errorf("client has syntax newer than Python 3.9: %s", stderr)
	}
}
