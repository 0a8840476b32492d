package rshub

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var (
	makeCall = regexp.MustCompile("(?m)(?:^|`)make ([a-z0-9]+)")
	makeRule = regexp.MustCompile(`(?m)^([a-z0-9]+):`)
)

// TestMakeCalls holds that the Makefile has every target that the documentation names, and
// that CONTRIBUTING.md has each directory of the house.
func TestMakeCalls(t *testing.T) {
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range makeRule.FindAllStringSubmatch(string(text), -1) {
		targets[m[1]] = true
	}
	calls := 0
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md", "*/*/*/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range makeCall.FindAllStringSubmatch(string(text), -1) {
				calls++
				if !targets[m[1]] {
					t.Errorf("%s: the Makefile has no %q", file, m[1])
				}
			}
		}
	}
	if len(targets) < 10 || calls < 20 {
		t.Errorf("only %d calls of %d targets were found", calls, len(targets))
	}

	house, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range arrows {
		top := regexp.MustCompile(`^(cmd/)?[a-z0-9]+`).FindString(pkg)
		if !regexp.MustCompile("(?m)^\\|.*`" + top + "[`/]").Match(house) {
			t.Errorf("CONTRIBUTING.md does not say what %s is", top)
		}
	}
}
