package testutil

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// UnitArgs checks the systemd unit in a file, with systemd-analyze if it is installed. It returns
// the arguments with which the unit starts the program. env has the variables that an operator
// sets.
func UnitArgs(t *testing.T, file string, env map[string]string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	start := regexp.MustCompile(`(?m)^ExecStart=(\S+) (.*)$`).FindStringSubmatch(string(text))
	if start == nil {
		t.Fatalf("%s has no ExecStart with arguments", file)
	}
	var args []string
	for _, word := range strings.Fields(strings.ReplaceAll(start[2], "%i", "name")) {
		if name, ok := strings.CutPrefix(word, "$"); ok && !strings.HasPrefix(name, "{") {
			args = append(args, strings.Fields(env[name])...)
			continue
		}
		args = append(args, os.Expand(word, func(name string) string { return env[name] }))
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		return args
	}
	here, err := os.Executable() // the program need not be installed
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), strings.Replace(filepath.Base(file), "@", "@name", 1))
	if err := os.WriteFile(copied, []byte(strings.ReplaceAll(string(text), start[1], here)), 0o644); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command("systemd-analyze", "verify", "--man=no", copied).CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("systemd-analyze verify %s: %v: %s", file, err, said)
	}
	return args
}
