// Package helptest compares the help of a program, and its page of the documentation, with
// the flags and exit codes that the program has, for tests.
package helptest

import (
	"flag"
	"os"
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
