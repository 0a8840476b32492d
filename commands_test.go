package rshub

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/operatetest"
	"github.com/rshub/rshub/internal/pagetest"
)

// TestCommandsTable holds the list of the commands in README.md and docs that no test runs.
// e2e/clients runs all others, out of these pages. With -update the list is written.
func TestCommandsTable(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("\n| page | command | why no test runs it |\n|---|---|---|\n")
	run := 0
	for _, page := range append([]string{"README.md"}, pages...) {
		for _, b := range pagetest.Blocks(t, page) {
			if b.Language != "sh" {
				continue
			}
			why, not := b.Mark("not run")
			if !not {
				run++
				continue
			}
			if why == "" {
				t.Errorf("%s, %s: a command is not run, and the mark does not say why", page, b.Heading)
			}
			first, _, _ := strings.Cut(strings.TrimSuffix(b.Text, "\n"), "\n")
			first, _, _ = strings.Cut(first, "  #")
			if first = strings.TrimSpace(strings.TrimSuffix(first, `\`)); len(first) > 70 {
				first = first[:69] + "…"
			}
			fmt.Fprintf(&table, "| [%s](%s) | `%s` | %s |\n", filepath.Base(page), page, strings.ReplaceAll(first, "|", `\|`), why)
		}
	}
	if run < 30 {
		t.Errorf("only %d blocks of commands are run", run)
	}
	operatetest.Check(t, "CONTRIBUTING.md", "commands", strings.TrimPrefix(table.String(), "\n"))
}
