package main

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of CONTRIBUTING.md")

// TestPartsTable holds the table of the parts of prove in CONTRIBUTING.md against the parts. With
// -update it writes the table.
func TestPartsTable(t *testing.T) {
	const file, begin, end = "../../CONTRIBUTING.md", "<!-- parts of prove -->\n", "<!-- end of parts of prove -->\n"
	for _, p := range prove {
		if p.holds == "" {
			t.Errorf("the table does not say what the part %s holds", p.name)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(b), begin)
	is, tail, ok2 := strings.Cut(rest, end)
	switch want := list(); {
	case !ok1 || !ok2:
		t.Fatalf("%s has no place for the table: the marks %q and %q", file, begin, end)
	case is == want:
	case *update:
		if err := os.WriteFile(file, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table in %s is not what the parts say; go test -run Table -update writes it:\n%s", file, want)
	}
}
