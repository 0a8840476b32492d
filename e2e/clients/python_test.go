package clients

import (
	"regexp"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestPython runs the unit tests of the Python client. They start hubs of their own,
// which they kill and start again.
func TestPython(t *testing.T) {
	t.Parallel()
	env := append(withClient(t), "RSHUB_TEST_PROGRAM="+hubtest.Rshub)
	p := hubtest.Start(t, env, nil, python(t), "-W", "error", "-m", "unittest", "discover", "-v", "-t", root(t, "clients", "python"), "-s", root(t, "clients", "python", "tests"))
	code := p.Wait()
	said := p.Stderr.String()
	if code != 0 || !regexp.MustCompile(`(?m)^Ran [1-9]\d+ tests`).MatchString(said) {
		t.Errorf("the tests of the Python client ended with %d:\n%s", code, said)
	}
	for _, skipped := range regexp.MustCompile(`(?m)^.* skipped .*$`).FindAllString(said, -1) {
		t.Log(skipped)
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
