package rshub

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	securityEnemy = regexp.MustCompile(`(?m)^\| \*\*([^*]+)\*\* \|`)
	securityTest  = regexp.MustCompile("`(\\.[a-z0-9/]*) ((?:Test|Fuzz)[A-Za-z0-9]+)`")
	securityNamed = regexp.MustCompile("`\\.[^`]*`|`[^` ]* (?:Test|Fuzz)[^`]*`")
)

// TestSecurity holds the threat model in SECURITY.md against the tests: each that it names
// is there, each defence names at least one, and each enemy is a known one that some
// defence is against, or that the last section names.
func TestSecurity(t *testing.T) {
	b, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, named := range securityNamed.FindAllString(text, -1) {
		m := securityTest.FindStringSubmatch(named)
		if m == nil {
			t.Errorf("%s is no package and test", named)
			continue
		}
		exists(t, "SECURITY.md", m[1], m[2])
	}
	_, defended, ok := strings.Cut(text, "\n## What is defended\n")
	defended, left, ok2 := strings.Cut(defended, "\n## What rshub does not defend\n")
	if !ok || !ok2 {
		t.Fatal("SECURITY.md lacks a section")
	}
	var known []string
	for _, m := range securityEnemy.FindAllStringSubmatch(text, -1) {
		known = append(known, m[1])
	}
	if len(known) < 5 {
		t.Fatalf("only %v are enemies", known)
	}
	met := map[string]bool{}
	rows := 0
	for line := range strings.Lines(defended) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| enemy |") {
			continue
		}
		rows++
		if len(cells) != 4 {
			t.Errorf("the row %q has %d cells, not 4", line, len(cells))
			continue
		}
		for enemy := range strings.SplitSeq(strings.TrimSpace(cells[0]), ", ") {
			if !slices.Contains(known, enemy) {
				t.Errorf("the enemy %q of %q is not known", enemy, cells[1])
			}
			met[enemy] = true
		}
		if proof := cells[3]; !securityTest.MatchString(proof) && !strings.Contains(proof, "`make ") {
			t.Errorf("nothing proves the defence against %q", cells[1])
		}
	}
	if rows < 20 {
		t.Errorf("only %d defences were found", rows)
	}
	for _, enemy := range known {
		if !met[enemy] && !strings.Contains(left, enemy) {
			t.Errorf("nothing is said about the enemy %q", enemy)
		}
	}
}
