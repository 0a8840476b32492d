package clients

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestPython runs the unit tests of the Python client, module by module. They start hubs
// of their own, which they kill and start again.
func TestPython(t *testing.T) {
	t.Parallel()
	client := root(t, "clients", "python")
	modules, err := filepath.Glob(filepath.Join(client, "tests", "test_*.py"))
	if err != nil || len(modules) < 5 {
		t.Fatalf("the tests of the Python client are %q, %v", modules, err)
	}
	env := append(withClient(t), "RSHUB_TEST_PROGRAM="+hubtest.Rshub)
	for _, file := range modules {
		module := strings.TrimSuffix(filepath.Base(file), ".py")
		t.Run(module, func(t *testing.T) {
			t.Parallel()
			code, _, said := hubtest.Run(t, env, nil, python(t), "-W", "error", "-m", "unittest", "-v", "tests."+module)
			if code != 0 || !regexp.MustCompile(`(?m)^Ran [1-9]\d* tests? `).MatchString(said) {
				t.Errorf("the tests ended with %d:\n%s", code, said)
			}
			for _, skipped := range regexp.MustCompile(`(?m)^.* skipped .*$`).FindAllString(said, -1) {
				t.Log(skipped)
			}
		})
	}
}

// TestTypes has the types of the client checked.
func TestTypes(t *testing.T) {
	t.Parallel()
	mypy := interpreter(t, "mypy", "mypy")
	code, out, said := hubtest.Run(t, nil, nil, mypy, "--strict", "--no-incremental", "--cache-dir", t.TempDir(), "--python-version", "3.9", root(t, "clients", "python", "rshub"))
	if code != 0 {
		t.Errorf("mypy ends with %d: %s%s", code, out, said)
	}
}

// TestOldestPython has Python look for syntax that the oldest one that is supported does
// not know.
func TestOldestPython(t *testing.T) {
	t.Parallel()
	const script = `import ast, pathlib, sys
for f in pathlib.Path(sys.argv[1]).glob("rshub/*.py"):
    ast.parse(f.read_text(), f.name, feature_version=(3, 9))`
	if code, _, said := hubtest.Run(t, nil, nil, python(t), "-c", script, root(t, "clients", "python")); code != 0 {
		t.Errorf("Python 3.9 cannot read the client: %s", said)
	}
}
