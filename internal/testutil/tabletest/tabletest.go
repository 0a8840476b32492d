// Package tabletest compares tables in docs/reference.md and other pages with the code from which
// they are generated.
//
// With -update, the test writes the table.
package tabletest

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of the documentation that are made from the code")

// Cell returns a text escaped for a table in Markdown.
func Cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, `\"`, `"`).Replace(text)
}

// Check compares a table with the text between the marks of name in the page file. With the flag
// -update it writes the table to the file.
func Check(t *testing.T, file, name, table string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
	head, rest, ok1 := strings.Cut(string(b), begin)
	old, tail, ok2 := strings.Cut(rest, end)
	switch {
	case !ok1 || !ok2:
		t.Fatalf("%s: table marks %q and %q not found", file, begin, end)
	case old == table:
	case *update:
		if err := os.WriteFile(file, []byte(head+begin+table+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("table %s in %s is out of date; run go test -run Table -update:\n%s", name, file, table)
	}
}
