package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPatches wants every patch to have its header, and to apply.
func TestPatches(t *testing.T) {
	mutants, err := readAll("patches")
	if err != nil {
		t.Fatal(err)
	}
	if len(mutants) < 40 {
		t.Errorf("there are %d mutants", len(mutants))
	}
	trees, remove, err := copies("../..", 1)
	defer remove()
	if err != nil {
		t.Fatal(err)
	}
	if err := checkAll(trees[0], mutants); err != nil {
		t.Error(err)
	}
}

// A name that looks like a pattern would match the test, and then not be found in what
// the test prints.
func TestNoPatterns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.patch")
	for name, bad := range map[string]bool{"TestSum": false, "TestSum/a_b": false, "TestSum$": true, "^TestSum": true, "TestSum/a$": true} {
		if err := os.WriteFile(file, []byte("Wrong: x\nBreaks: I1\nTest: ./sum "+name+"\n\ndiff --git a/a b/a\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := read(file); (err != nil) != bad {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// write makes a module with one function and its test.
func write(t *testing.T, dir string) {
	t.Helper()
	for name, text := range map[string]string{
		"go.mod":          "module example.org/sum\n\ngo 1.26\n",
		"sum/sum.go":      "package sum\n\nfunc sum(a, b int) int {\n\treturn a + b\n}\n\nfunc twice(a int) int {\n\treturn 2 * a\n}\n",
		"sum/sum_test.go": "package sum\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif sum(1, 2) != 3 {\n\t\tt.Error(\"wrong\")\n\t}\n\t_ = twice(1)\n}\n\nfunc TestBroken(t *testing.T) { t.Error(\"always\") }\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// patch is a change of one line of sum.go.
func patch(line, old, new string) string {
	return "diff --git a/sum/sum.go b/sum/sum.go\n--- a/sum/sum.go\n+++ b/sum/sum.go\n@@ -" + line + " +" + line + " @@\n-" + old + "\n+" + new + "\n"
}

// TestVerdicts has a mutant for each verdict.
func TestVerdicts(t *testing.T) {
	const sum = "3,3"
	body := func(old, new string) string {
		return strings.Replace(patch(sum, "\t"+old, "\t"+new), "@@\n-", "@@\n func sum(a, b int) int {\n-", 1) + " }\n"
	}
	for name, test := range map[string]struct {
		test, diff string
		want       string // in the error; empty: killed
	}{
		"killed":              {"./sum TestSum", body("return a + b", "return a - b"), ""},
		"lives":               {"./sum TestSum", strings.ReplaceAll(strings.ReplaceAll(body("return 2 * a", "return 3 * a"), "func sum(a, b int)", "func twice(a int)"), "3,3", "7,3"), "it lives"},
		"does not compile":    {"./sum TestSum", body("return a + b", "return a +"), "does not compile"},
		"does not apply":      {"./sum TestSum", body("return a * b", "return a - b"), "does not apply"},
		"no such test":        {"./sum TestOther", body("return a + b", "return a - b"), "no such test"},
		"fails without it":    {"./sum TestBroken", body("return a + b", "return a - b"), "fails without"},
		"no such package":     {"./other TestSum", body("return a + b", "return a - b"), "does not compile"},
		"killed by its panic": {"./sum TestSum", body("return a + b", "panic(a + b)"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOFLAGS", "")
			root, dir := t.TempDir(), t.TempDir()
			write(t, root)
			if err := os.WriteFile(filepath.Join(dir, "m.patch"), []byte("Wrong: x\nBreaks: I1\nTest: "+test.test+"\n\n"+test.diff), 0o644); err != nil {
				t.Fatal(err)
			}
			mutants, err := readAll(dir)
			if err != nil {
				t.Fatal(err)
			}
			trees, remove, err := copies(root, 1)
			defer remove()
			if err != nil {
				t.Fatal(err)
			}
			err = tryAll(t.Context(), trees, mutants)
			switch {
			case err == nil && test.want != "", err != nil && test.want == "":
				t.Errorf("error is %v, want %q", err, test.want)
			case err != nil && !strings.Contains(err.Error(), test.want):
				t.Errorf("error is %v, want %q", err, test.want)
			}
			if b, err := os.ReadFile(filepath.Join(trees[0], "sum/sum.go")); err != nil || !strings.Contains(string(b), "return a + b") || !strings.Contains(string(b), "return 2 * a") {
				t.Errorf("the tree is left as\n%s, %v", b, err)
			}
		})
	}
}

// TestTake makes a patch of an edit by hand.
func TestTake(t *testing.T) {
	root := t.TempDir()
	write(t, root)
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "a"}} {
		if _, err := git(root, nil, args...); err != nil {
			t.Fatal(err)
		}
	}
	source, file := filepath.Join(root, "sum/sum.go"), filepath.Join(t.TempDir(), "m.patch")
	before, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("Wrong: x\nBreaks: I1\nTest: ./sum TestSum\n\ndiff --git a/old b/old\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(source, []byte(strings.Replace(string(before), "a + b", "a - b", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := takeEdits(root, file); err != nil {
		t.Fatal(err)
	}
	m, err := read(file)
	if err != nil || m.wrong != "x" || !strings.Contains(string(m.diff), "+\treturn a - b\n") {
		t.Errorf("%+v, %v", m, err)
	}
	if after, err := os.ReadFile(source); err != nil || string(after) != string(before) {
		t.Errorf("the tree is left as\n%s, %v", after, err)
	}
	if err := takeEdits(root, file); err == nil {
		t.Error("no edits are a patch")
	}
}
