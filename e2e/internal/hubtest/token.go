package hubtest

import (
	"regexp"
	"testing"
)

// NewToken creates a token with rshub token new, and adds it to a file.
func NewToken(t *testing.T, file, name, rights string) string {
	t.Helper()
	code, stdout, stderr := Run(t, nil, nil, Rshub, "token", "new", "-name", name, "-rights", rights, "-file", file)
	m := regexp.MustCompile(`token: (\S+)`).FindStringSubmatch(stdout)
	if code != 0 || m == nil {
		t.Fatalf("rshub token new exited with %d: %s%s", code, stdout, stderr)
	}
	return m[1]
}
