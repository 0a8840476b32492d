package main

import (
	"fmt"
	"slices"
	"strings"
)

// list returns the parts of prove as CONTRIBUTING.md has them: what each holds, and which
// folders concern it. What holds for many parts is said below the table, once.
func list() string {
	var b strings.Builder
	b.WriteString("| part of `make prove` | what it holds | concerned by, besides what its tests import |\n|---|---|---|\n")
	for _, p := range prove {
		var folders []string
		for _, f := range p.concerns {
			pattern := strings.HasPrefix(f, "./") // of packages that the part tests
			if !pattern && !strings.HasPrefix(f, "e2e/") && !slices.Contains(program, f) {
				folders = append(folders, f)
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", p.name, p.holds, quoted(folders))
	}
	fmt.Fprintf(&b, "\n"+
		"Each part that runs the programs is concerned by its folders in `e2e`, and by %s, too. "+
		"The files %s, and what the table does not know, concern all.\n", quoted(program), quoted(everything))
	return b.String()
}

// quoted writes folders as code, with commas.
func quoted(folders []string) string {
	if len(folders) == 0 {
		return ""
	}
	return "`" + strings.Join(folders, "`, `") + "`"
}
