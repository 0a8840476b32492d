package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A mutant is one wrong edit. Its file begins with a header:
//
//	Wrong: what the edit breaks, in one sentence
//	Breaks: the invariant of docs/promise.md, such as I1
//	Test: the package, the test that has to fail, and "long" if that test does
//	      nothing under -short
//
// The diff follows.
type mutant struct {
	file   string
	name   string // of the file, without .patch
	wrong  string
	breaks string
	test   test
	diff   []byte
}

// A test is what has to notice a mutant.
type test struct {
	pkg  string // such as ./hub
	name string // such as TestLog/keys
	long bool
}

func (t test) String() string { return t.pkg + " " + t.name }

// readAll reads the mutants in a directory, sorted by name.
func readAll(dir string) ([]*mutant, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var all []*mutant
	var errs []error
	for _, file := range files {
		m, err := read(file)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
		}
		all = append(all, m)
	}
	return all, errors.Join(errs...)
}

func read(file string) (*mutant, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	m := &mutant{file: file, name: strings.TrimSuffix(filepath.Base(file), ".patch")}
	header, diff := split(string(b))
	m.diff = []byte(diff)
	for line := range strings.Lines(header) {
		what, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch what {
		case "":
		case "Wrong":
			m.wrong = value
		case "Breaks":
			m.breaks = value
		case "Test":
			fields := strings.Fields(value)
			if len(fields) < 2 || len(fields) > 3 || len(fields) == 3 && fields[2] != "long" {
				return nil, fmt.Errorf("the test is %q; write a package, a test, and perhaps long", value)
			}
			if strings.ContainsAny(fields[1], "^$") {
				return nil, fmt.Errorf("the test %q is a pattern; write the whole name", fields[1])
			}
			m.test = test{fields[0], fields[1], len(fields) == 3}
		default:
			return nil, fmt.Errorf("the header has the line %q", line)
		}
	}
	if m.wrong == "" || m.breaks == "" || m.test.name == "" || diff == "" {
		return nil, errors.New("a patch has the lines Wrong, Breaks and Test, and a diff")
	}
	return m, nil
}

// split divides a patch into its header and its diff.
func split(patch string) (header, diff string) {
	const begin = "diff --git "
	if strings.HasPrefix(patch, begin) {
		return "", patch
	}
	if i := strings.Index(patch, "\n"+begin); i >= 0 {
		return patch[:i+1], patch[i+1:]
	}
	return patch, ""
}
