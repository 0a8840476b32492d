package rshub

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	promiseTest   = regexp.MustCompile("`(\\./[a-z0-9/]+) (Test[A-Za-z0-9]+)`")
	securityProof = regexp.MustCompile(`^(?:(\.(?:/[a-z0-9/]+)?) ((?:Test|Fuzz)[A-Za-z0-9]+)|make ([a-z]+))$`)
	promiseMutant = regexp.MustCompile("`([a-z0-9-]+)`")
	patchTest     = regexp.MustCompile(`(?m)^Test: (\S+) (Test[A-Za-z0-9]+)(?:/\S+)?(?: long)?$`)
	patchBreaks   = regexp.MustCompile(`(?m)^Breaks: (\S+)$`)
)

// TestPromise holds the names in docs/promise.md against the tests and the mutants:
// each test is there, each mutant is a patch that breaks that invariant, and each patch
// is named.
func TestPromise(t *testing.T) {
	b, err := os.ReadFile("docs/promise.md")
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]string) // the invariants by the mutants
	for i, section := range strings.Split(string(b), "\n## ")[1:] {
		invariant, _, _ := strings.Cut(section, ":")
		if want := "I" + strconv.Itoa(i+1); invariant != want {
			t.Errorf("%s stands where %s should", invariant, want)
		}
		_, lines, _ := strings.Cut(section, "\n- Tests: ")
		tests, rest, _ := strings.Cut(lines, "\n- Faults: ")
		_, mutants, _ := strings.Cut(rest, "\n- Mutants: ")
		all := promiseTest.FindAllStringSubmatch(tests, -1)
		if len(all) == 0 || len(all) != strings.Count(tests, "`")/2 {
			t.Errorf("%s has the tests %q", invariant, tests)
		}
		for _, name := range all {
			exists(t, invariant, name[1], name[2])
		}
		killed := promiseMutant.FindAllStringSubmatch(mutants, -1)
		if len(killed) == 0 {
			t.Errorf("%s has killed no mutant", invariant)
		}
		for _, name := range killed {
			if other, ok := named[name[1]]; ok {
				t.Errorf("%s names the mutant %s, and so does %s", invariant, name[1], other)
			}
			named[name[1]] = invariant
		}
	}
	patches, err := filepath.Glob("tools/mutants/patches/*.patch")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range patches {
		patch, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".patch")
		test, breaks := patchTest.FindSubmatch(patch), patchBreaks.FindSubmatch(patch)
		switch {
		case test == nil || breaks == nil:
			t.Errorf("%s does not say what it breaks, and what has to fail", file)
		case named[name] != string(breaks[1]):
			t.Errorf("%s breaks %s, and docs/promise.md has it at %q", file, breaks[1], named[name])
		default:
			exists(t, file, string(test[1]), string(test[2]))
		}
		delete(named, name)
	}
	for name, invariant := range named {
		t.Errorf("%s names the mutant %s, which is not there", invariant, name)
	}
}

// TestCapabilities holds the table in docs/capabilities.md against the tests: each row names
// tests that are there, or says that the capability is not offered, and why.
func TestCapabilities(t *testing.T) {
	b, err := os.ReadFile("docs/capabilities.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (.+?) \| (.+?) \|(.*)\|$`).FindAllStringSubmatch(string(b), -1)
	if len(rows) < 20 {
		t.Fatalf("it has %d rows", len(rows))
	}
	for _, row := range rows {
		if row[2] == "in rshub" { // the head of a table
			continue
		}
		tests := promiseTest.FindAllStringSubmatch(row[3], -1)
		refused := strings.HasPrefix(row[2], "not offered, because") || strings.HasPrefix(row[2], "not offered yet: ")
		if refused == (len(tests) > 0) {
			t.Errorf("%s: %d tests, and it says %q", row[1], len(tests), row[2])
		}
		for _, test := range tests {
			exists(t, row[1], test[1], test[2])
		}
	}
}

// TestSecurity holds the tables in SECURITY.md against the tests: each defence names its proof,
// which is tests, fuzz tests or targets of the Makefile that exist.
func TestSecurity(t *testing.T) {
	b, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| .+? \| (.+?) \| .+ \| (.+?) \|$`).FindAllStringSubmatch(string(b), -1)
	n := 0
	for _, row := range rows {
		if row[2] == "proof" { // the head of a table
			continue
		}
		n++
		for name := range strings.SplitSeq(row[2], ", ") {
			proof := securityProof.FindStringSubmatch(strings.Trim(name, "`"))
			switch {
			case proof == nil:
				t.Errorf("%s: got the proof %s, want `PACKAGE TEST` or `make TARGET`", row[1], name)
			case proof[3] == "":
				exists(t, row[1], proof[1], proof[2])
			case !regexp.MustCompile(`(?m)^` + proof[3] + `:`).Match(makefile):
				t.Errorf("%s names make %s, which is not in the Makefile", row[1], proof[3])
			}
		}
	}
	if n < 50 {
		t.Fatalf("got %d defences, want at least 50", n)
	}
}

// exists fails the test unless a package has a test of that name.
func exists(t *testing.T, where, pkg, name string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(files, func(file string) bool {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		return err == nil && slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
			fn, ok := d.(*ast.FuncDecl)
			return ok && fn.Recv == nil && fn.Name.Name == name
		})
	}) {
		t.Errorf("%s names %s in %s, which is not there", where, name, pkg)
	}
}
