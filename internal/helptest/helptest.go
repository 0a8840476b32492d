// Package helptest compares the help of a program, and its page of the documentation, with
// the flags and exit codes that the program has, for tests.
package helptest

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Flags returns the names of the flags of a program's commands. The value of each is the
// name of the command that has it, or "both".
func Flags(commands map[string]*flag.FlagSet) map[string]string {
	of := map[string]string{}
	for command, fs := range commands {
		fs.VisitAll(func(f *flag.Flag) {
			if of[f.Name] == "" {
				of[f.Name] = command
			} else {
				of[f.Name] = "both"
			}
		})
	}
	return of
}

// Help checks that a help text explains each flag, and -h, and each exit code in a line
// that begins with it, and no other.
func Help(t *testing.T, help string, flags map[string]string, codes ...string) {
	t.Helper()
	explained := names(help, `(?m)^  -([a-z-]+)(?: |$)`)
	for name := range flags {
		if _, ok := explained[name]; !ok {
			t.Errorf("the help does not explain -%s", name)
		}
	}
	for name := range explained {
		if flags[name] == "" && name != "h" {
			t.Errorf("the help explains -%s, which is no flag", name)
		}
	}
	compareCodes(t, "the help", names(help, `(?m)^  (\d+) +\S`), codes)
}

// Page checks that the tables of a page have each flag, with the command that it is of in
// the second column, and each exit code, and no other.
func Page(t *testing.T, file string, flags map[string]string, codes ...string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page := strings.TrimSpace(string(text))
	explained := names(page, "(?m)^\\| `-([a-z-]+)` \\| ([a-z]+) \\|")
	for name, of := range flags {
		if explained[name] != of {
			t.Errorf("-%s is of %s, %s says %q", name, of, file, explained[name])
		}
	}
	for name := range explained {
		if flags[name] == "" {
			t.Errorf("%s explains -%s, which is no flag", file, name)
		}
	}
	compareCodes(t, file, names(page, `(?m)^\| (\d+) \| `), codes)
}

// names returns what a pattern finds: the value of its first group, and of its second.
func names(text, pattern string) map[string]string {
	found := map[string]string{}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found[m[1]] = m[len(m)-1]
	}
	return found
}

func compareCodes(t *testing.T, where string, explained map[string]string, codes []string) {
	t.Helper()
	for _, code := range codes {
		if _, ok := explained[code]; !ok {
			t.Errorf("%s does not explain the exit code %s", where, code)
		}
		delete(explained, code)
	}
	for code := range explained {
		t.Errorf("%s explains the exit code %s, which no command has", where, code)
	}
}

// Unit checks the unit of systemd in a file, by systemd itself where that is at hand. It
// returns the arguments that the unit starts the program with; env are those variables that
// an operator gives it.
func Unit(t *testing.T, file string, env map[string]string) []string {
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
		t.Errorf("systemd says of %s: %v: %s", file, err, said)
	}
	return args
}
