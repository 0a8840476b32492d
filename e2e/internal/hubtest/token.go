package hubtest

import (
	"os"
	"regexp"
	"slices"
	"strings"
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

// AllowAnyone adds a line to a file of tokens that gives rights to callers without a token.
func AllowAnyone(t *testing.T, file, rights string) {
	t.Helper()
	editLines(t, file, func(lines []string) []string { return append(lines, "anyone - "+rights) })
}

// RemoveToken removes the line of a name from a file of tokens.
func RemoveToken(t *testing.T, file, name string) {
	t.Helper()
	editLines(t, file, func(lines []string) []string {
		return slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, name+" ") })
	})
}

// editLines replaces the lines of a file in one step.
func editLines(t *testing.T, file string, edit func(lines []string) []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		lines := edit(strings.Split(strings.TrimSpace(string(text)), "\n"))
		err = os.WriteFile(file+".new", []byte(strings.Join(lines, "\n")+"\n"), 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		t.Fatal(err)
	}
}
