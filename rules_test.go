package rshub

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// exceptions are what TestRules does not look at: FILE FUNCTION, and why.
var exceptions = map[string]string{
	"callback/world_test.go pass":                   "in fake time: its world has no other",
	"callback/world_test.go agreesAfter":            "in fake time: its world has no other",
	"callback/flood_test.go waits":                  "in fake time: its world has no other",
	"callback/trouble_test.go TestHostileAnswers":   "in fake time: the callee that sleeps is called there only",
	"claim/until_test.go Acquire":                   "in fake time: its store is used there only",
	"claim/until_test.go Renew":                     "in fake time: its store is used there only",
	"hub/intake_test.go TestDrippingPublisher":      "a slow client; it may be slower",
	"internal/chancetest/chancetest.go Seed":        "it says its seed, and takes a fixed one in the gate",
	"internal/certificate/certificate_test.go look": "in fake time: its bench has no other",
	"internal/trail/log_test.go pass":               "in fake time: its bench has no other",
	"inventory/live/world_test.go after":            "in fake time: its world has no other",
	"mirror/fetch/fetch_test.go TestBounds":         "a slow server; it may be slower",
	"mirror/fetch/fetch_test.go TestRedirectedHost": "a slow server; it may be slower",
	"mirror/ledger/ledger_test.go TestPlaces":       "it says its seed, and what it checks holds for each",
	"source/poll/poll_test.go after":                "in fake time: its world has no other",
}

// TestRules holds the tests of the gate against the first of its rules in CONTRIBUTING.md,
// as far as syntax shows it: a test sleeps in fake time only, and its choices at random
// are the same in each run.
func TestRules(t *testing.T) {
	used := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains([]string{"bench", "deploy", "e2e", "tools"}, path) || strings.HasPrefix(d.Name(), ".") && path != "."):
			return fs.SkipDir // modules of their own, and measurements
		case strings.HasSuffix(path, "_test.go"), strings.HasSuffix(path, ".go") && strings.HasSuffix(filepath.Dir(path), "test"):
			return holdRules(t, path, used)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range exceptions {
		if !used[name] {
			t.Errorf("%s is an exception, and breaks no rule: it may go from the list", name)
		}
	}
}

// holdRules looks at one file, and notes which exceptions it needs.
func holdRules(t *testing.T, path string, used map[string]bool) error {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	imports := map[string]string{} // the packages by their names in the file
	for _, i := range f.Imports {
		pkg, _ := strconv.Unquote(i.Path.Value)
		name := filepath.Base(strings.TrimSuffix(pkg, "/v2"))
		if i.Name != nil {
			name = i.Name.Name
		}
		imports[name] = pkg
	}
	// of returns the package and the name of what another package has.
	of := func(n ast.Node) (pkg, name string) {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				return imports[x.Name], s.Sel.Name
			}
		}
		return "", ""
	}
	readsClock := func(n ast.Node) (reads bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			pkg, name := of(n)
			reads = reads || pkg == "time" && name == "Now"
			return true
		})
		return reads
	}
	for _, d := range f.Decls {
		name := filepath.ToSlash(path)
		if fn, ok := d.(*ast.FuncDecl); ok {
			name += " " + fn.Name.Name
			if strings.HasPrefix(fn.Name.Name, "Benchmark") {
				continue // go test does not run it
			}
		}
		broken := func(n ast.Node, says string) {
			if used[name] = true; exceptions[name] == "" {
				t.Errorf("%s: %s", files.Position(n.Pos()), says)
			}
		}
		var look func(n ast.Node, fake bool)
		look = func(n ast.Node, fake bool) {
			ast.Inspect(n, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					if x, ok := n.Fun.(*ast.Ident); ok && x.Name == "inWorld" { // of callback: it calls synctest.Test
						look(n.Args[len(n.Args)-1], true)
						return false
					}
					switch pkg, fn := of(n.Fun); {
					case pkg == "testing/synctest" && fn == "Test":
						look(n.Args[1], true)
						return false
					case pkg == "math/rand/v2" && strings.HasPrefix(fn, "New") && readsClock(n):
						broken(n, "a seed from the clock. Take a fixed one, or that of internal/chancetest")
					}
				case *ast.AssignStmt:
					if to, ok := n.Lhs[0].(*ast.Ident); ok && strings.Contains(strings.ToLower(to.Name), "seed") && readsClock(n.Rhs[0]) {
						broken(n, "a seed from the clock. Take a fixed one, or that of internal/chancetest")
					}
				case *ast.SelectorExpr:
					switch pkg, fn := of(n); {
					case pkg == "time" && fn == "Sleep" && !fake:
						broken(n, "it sleeps outside of a function literal for synctest.Test. Wait for a condition (internal/untiltest), or let time be fake")
					case pkg == "math/rand":
						broken(n, "math/rand. Take math/rand/v2")
					case pkg == "math/rand/v2" && !strings.HasPrefix(fn, "New") && !slices.Contains([]string{"ChaCha8", "PCG", "Rand", "Source", "Zipf"}, fn):
						broken(n, "rand."+fn+" is different in each run. Take rand.New with a fixed seed, or internal/chancetest")
					}
				}
				return true
			})
		}
		look(d, false)
	}
	return nil
}
