package rshub

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	standardsTest = regexp.MustCompile("`(\\.[a-z0-9/]*) ((?:Test|Fuzz)[A-Za-z0-9]+)`")
	sectionHead   = regexp.MustCompile(`(?m)^(?:##+ )?([0-9]{1,2}(?:\.[0-9]+)*)\.? [A-Za-z][^0-9\n]*$`)
)

// standardsOf are the standards whose sections docs/standards.md lists by number, by the
// headings that it gives them. The texts are not part of the repository.
var standardsOf = map[string]string{
	"ResourceSync Framework 1.1":                "resourcesync-1.1.txt",
	"ResourceSync Change Notification 1.0.1":    "change-notification-1.0.1.txt",
	"ResourceSync Framework Notification 1.0.1": "framework-notification-1.0.1.txt",
	"ResourceSync Archives 0.9.1":               "archives-0.9.1.txt",
	"ResourceSync, draft of 2012":               "sitemap-draft-2012.txt",
}

// TestStandards holds docs/standards.md against the tests and the standards: each row that
// says what rshub does names a test that is there, and no section is left out.
func TestStandards(t *testing.T) {
	b, err := os.ReadFile("docs/standards.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(b), "\n## ")
	seen := 0
	for _, part := range parts[1:] {
		title, text, _ := strings.Cut(part, "\n")
		var listed []string
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| section ") || strings.HasPrefix(line, "| part ") {
				continue
			}
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
			if len(cells) != 3 {
				t.Errorf("%s: the row %q has %d cells, not 3", title, line, len(cells))
				continue
			}
			sections, does, proof := strings.TrimSpace(cells[0]), cells[1], strings.TrimSpace(cells[2])
			listed = append(listed, strings.Split(sections, ", ")...)
			tests := standardsTest.FindAllStringSubmatch(proof, -1)
			if nothing := strings.HasPrefix(does, "– ") || strings.HasPrefix(does, "**no**"); nothing != (len(tests) == 0) {
				t.Errorf("%s, %s: it has %d tests, and says %q", title, sections, len(tests), does)
			}
			for _, m := range tests {
				exists(t, "docs/standards.md", m[1], m[2])
			}
		}
		file := standardsOf[title]
		if file == "" {
			continue
		}
		seen++
		standard, err := os.ReadFile("../shared/specs/" + file)
		if errors.Is(err, fs.ErrNotExist) {
			t.Logf("../shared/specs/%s is not there, so nobody knows whether a section is left out", file)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, m := range sectionHead.FindAllStringSubmatch(string(standard), -1) {
			all = append(all, m[1])
		}
		if len(all) < 5 {
			t.Fatalf("%s has only the sections %v", file, all)
		}
		for _, section := range all {
			below := slices.ContainsFunc(listed, func(s string) bool { return strings.HasPrefix(s, section+".") })
			if !below && !slices.Contains(listed, section) {
				t.Errorf("%s, section %s is left out", title, section)
			}
		}
		for _, section := range listed {
			if !slices.Contains(all, section) {
				t.Errorf("%s has no section %s", title, section)
			}
		}
	}
	if seen != len(standardsOf) {
		t.Errorf("%d of %d standards were found", seen, len(standardsOf))
	}
}
