package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerdict holds what a second run makes up for, and what it does not.
func TestVerdict(t *testing.T) {
	const (
		fails      = `{"Action":"fail","Package":"p","Test":"TestA"}` + "\n"
		subFails   = `{"Action":"fail","Package":"p","Test":"TestA/b"}` + "\n"
		passes     = `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n"
		packFails  = `{"Action":"fail","Package":"p"}` + "\n"
		packPasses = `{"Action":"pass","Package":"p"}` + "\n"
		race       = `{"Action":"output","Package":"p","Test":"TestA","Output":"WARNING: DATA RACE\n"}` + "\n"
		panics     = `{"Action":"output","Package":"p","Test":"TestA","Output":"panic: test timed out after 1s\n"}` + "\n"
		dies       = `{"Action":"output","Package":"p","Output":"fatal error: concurrent map writes\n"}` + "\n"
	)
	for _, test := range []struct{ name, events, red, flaky string }{
		{"passes", passes + packPasses, "", ""},
		{"fails", fails + packFails, "failed: p.TestA", ""},
		{"fails twice", fails + packFails + fails + packFails, "failed: p.TestA", ""},
		{"fails, and passes then", subFails + fails + packFails + passes + packPasses, "", "p.TestA"},
		{"no test is named", passes + packFails + packPasses, "names no test", ""},
		{"no test is named at the second run", fails + packFails + passes + packFails, "names no test", "p.TestA"},
		{"passes in spite of a failed test", fails + packPasses, "the package passed", ""},
		{"a race", race + fails + packFails + passes + packPasses, "DATA RACE", "p.TestA"},
		{"a timeout", panics + fails + packFails + passes + packPasses, "timed out", "p.TestA"},
		{"the runtime ends it", dies + fails + packFails + passes + packPasses, "concurrent map writes", "p.TestA"},
		{"nothing", "", "no test ran", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			read, err := readEvents(strings.NewReader(test.events))
			if err != nil {
				t.Fatal(err)
			}
			red := ""
			if err := read.verdict(); err != nil {
				red = err.Error()
			}
			if (red == "") != (test.red == "") || !strings.Contains(red, test.red) {
				t.Errorf("verdict %q, want %q", red, test.red)
			}
			if got := strings.Join(read.flaky, " "); got != test.flaky {
				t.Errorf("flaky %q, want %q", got, test.flaky)
			}
		})
	}
}

// TestGuard runs small packages as the gate runs its own. gotestsum alone calls some of the red ones
// green: it runs a package that names no failed test again with a pattern that no test matches.
func TestGuard(t *testing.T) {
	root, err := git(t.Context(), ".", "rev-parse", "--show-toplevel")
	if err != nil {
		t.Fatal(err)
	}
	once := func(then string) string { // fails in the first run only
		return `import ("os"; "testing")
			func TestOnce(t *testing.T) { if _, err := os.Stat("ran"); err != nil { os.WriteFile("ran", nil, 0o600); ` + then + ` } }`
	}
	for name, test := range map[string]struct{ code, red, flaky string }{
		"green":       {`import "testing"; func TestGreen(*testing.T) {}`, "", ""},
		"red":         {`import "testing"; func TestRed(t *testing.T) { t.Error() }`, "TestRed", ""},
		"flaky":       {once("t.Error()"), "", "p.TestOnce"},
		"panics once": {once(`panic("once")`), "panic: once", ""},
		"exits once": {`import ("os"; "testing")
			func TestGreen(*testing.T) {}
			func TestMain(m *testing.M) { m.Run(); if _, err := os.Stat("ran"); err != nil { os.WriteFile("ran", nil, 0o600); os.Exit(1) } }`, "names no test", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range map[string]string{"go.mod": "module p\n", "p_test.go": "package p\n" + test.code} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			rel, err := filepath.Rel(root, dir)
			if err != nil {
				t.Fatal(err)
			}
			tr := &tree{root: root, kept: t.TempDir(), out: t.Output()}
			var r result
			err = tr.runStep(context.Background(), "step", step{dir: rel, tests: []string{"./..."}}, 2, &r)
			if (err == nil) != (test.red == "") || (err != nil && !strings.Contains(err.Error(), test.red)) {
				t.Errorf("it is %v, want %q", err, test.red)
			}
			if got := strings.Join(r.Flaky, " "); got != test.flaky {
				t.Errorf("flaky %q, want %q", got, test.flaky)
			}
		})
	}
}
