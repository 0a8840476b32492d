// Package rules tests the source tree itself: which packages link what, that the public API names
// no internal type, how tests sleep and choose at random, and that tests and links in the
// documentation exist.
//
// It has no code outside tests. A rule belongs here only if the compiler, vet and staticcheck
// cannot check it.
package rules

import (
	"cmp"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root, module = "../..", "github.com/rshub/rshub/"

// notLinked lists packages and what they must not link, even indirectly: import paths with all
// below. A leading ./ stands for the module.
var notLinked = map[string]string{
	"internal/access internal/problem": "github.com/prometheus github.com/klauspost/compress/zstd ./changelog",
	"changelog":                        "net/http github.com/prometheus",
	"cmd/rsmirror cmd/rspublish":       "github.com/redis github.com/nats-io ./changelog",
	"internal/dump":                    "github.com/cockroachdb net/http ./changelog",
	"hub":                              "./callback ./internal/documents ./subscribe ./internal/server",
	"callback":                         "./internal/documents ./hub ./subscribe ./internal/server",
	"internal/documents":               "./callback ./hub ./subscribe ./internal/server",
	"subscribe":                        "./callback ./internal/documents ./hub ./internal/server",
	"internal/inventory":               "./changelog github.com/cockroachdb github.com/redis",
	"resourcesync":                     "./feed net/http",
	"client internal/source/discovery internal/source/harvest": "github.com/cockroachdb github.com/redis github.com/prometheus ./changelog",
}

// public matches the packages that other modules may import.
var public = regexp.MustCompile(`^(resourcesync|feed|client|hub|subscribe|callback|changelog)(/|$)`)

// importers lists the only packages that may import a third party.
var importers = map[string][]string{
	"github.com/redis/":           {"internal/redisconn", "internal/testutil/redistest"},
	"github.com/nats-io/":         {"hub"},
	"github.com/gorilla/":         {"subscribe"},
	"github.com/cockroachdb/":     {"changelog/disklog", "internal/pebbledb", "internal/inventory/diskpages", "internal/mirror/ledger", "internal/source/directory"},
	"github.com/kelseyhightower/": {"cmd/rshub"},
	"github.com/prometheus/":      {"callback", "changelog/metered", "hub", "internal/testutil/metricstest", "internal/inventory/reader", "internal/inventory/writer", "internal/outbound/meter", "internal/server", "subscribe"},
	"golang.org/x/net":            {"internal/idn", "internal/source/discovery", "internal/source/harvest"},
	"github.com/go-jose/":         {"internal/access/jwt"},
	"github.com/fsnotify/":        {"internal/source/directory"},
}

var (
	waits     = regexp.MustCompile(`\btime\.Sleep\(|\brand\.(Int|N\(|Perm|Shuffle|Uint|Float|Exp|Norm|New.*time\.Now)|[sS]eed\w*\b.*=.*time\.Now|"math/rand"$`)
	bubble    = regexp.MustCompile(`^(\t*).*\b(synctest\.Test|inWorld)\(.*\{$`) // inWorld calls it
	excuse    = regexp.MustCompile(`// .*(fake time|slow|logs its seed)`)
	namedTest = regexp.MustCompile("(?m)(?:`|^Test: )\\./([a-z0-9/_-]+) ((?:Test|Fuzz)[A-Za-z0-9_]+)")
	mutants   = regexp.MustCompile(`(?s)\n- Mutants: (.*?)(?:\n\n|\n- |$)`)
	header    = regexp.MustCompile(`^Wrong: .+\nBreaks: (I\d+)\nTest: `)
	tested    = regexp.MustCompile(`(?m)^\| .+? \| (.+?) \|(.*)\|$`)
	untested  = regexp.MustCompile(`^(not offered|in rshub$|what they try$)`)
	quoted    = regexp.MustCompile("`([a-z0-9-]+)`")
	link      = regexp.MustCompile(`\]\(([^()\s#]*)(#[^()\s]*)?\)`)
	fence     = regexp.MustCompile("(?ms)^```.*?^```$")
	code      = regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`")
	title     = regexp.MustCompile(`(?m)^#+ (.+)$`)
	noSlug    = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

func TestImports(t *testing.T) {
	linked := map[string][]string{} // by package
	for _, line := range lines(t, "go", "list", "-f", `{{.ImportPath}}|{{join .Imports " "}}|{{join .Deps " "}}|{{.Name}}`, "./...") {
		fields := strings.Split(line, "|")
		pkg := strings.TrimPrefix(fields[0], module)
		if fields[3] != "main" && !strings.HasPrefix(pkg, "internal/") && !public.MatchString(pkg) {
			t.Errorf("other modules can import %s; move it below internal", pkg)
		}
		linked[pkg] = strings.Fields(fields[2])
		for _, imported := range strings.Fields(fields[1]) {
			for third, allowed := range importers {
				if strings.HasPrefix(imported, third) && !slices.Contains(allowed, pkg) {
					t.Errorf("%s imports %s; only %v may", pkg, imported, allowed)
				}
			}
		}
	}
	for packages, prohibited := range notLinked {
		for pkg := range strings.FieldsSeq(packages) {
			if linked[pkg] == nil {
				t.Errorf("notLinked has %s, which does not exist", pkg)
			}
			for _, dep := range linked[pkg] {
				for p := range strings.FieldsSeq(strings.ReplaceAll(prohibited, "./", module)) {
					if strings.HasPrefix(dep+"/", p+"/") {
						t.Errorf("%s links %s", pkg, dep)
					}
				}
			}
		}
	}
}

// TestWaits finds tests that sleep outside fake time, and random choices that differ in each run.
// A comment on the line excuses it with a reason: fake time, slow, or logs its seed.
func TestWaits(t *testing.T) {
	for _, file := range lines(t, "git", "ls-files", "*_test.go", "*test/*.go", "internal/testutil", ":!tools/bench", ":!e2e") {
		end := "" // the line that ends the bubble; "" outside a bubble
		for i, line := range strings.Split(read(t, file), "\n") {
			// Regular expressions are slow under the race detector: most lines have none of these words.
			var m []string
			if strings.Contains(line, "synctest.Test(") || strings.Contains(line, "inWorld(") {
				m = bubble.FindStringSubmatch(line)
			}
			suspect := strings.Contains(line, "time.") || strings.Contains(line, "rand")
			switch {
			case end != "" && line == end:
				end = ""
			case end == "" && m != nil:
				end = m[1] + "})"
			case end == "" && suspect && waits.MatchString(line) && !excuse.MatchString(line):
				t.Errorf("%s:%d: sleep or random choice; wait for a condition, or use synctest or testutil: %s", file, i+1, strings.TrimSpace(line))
			}
		}
	}
}

// lines returns the lines that a command prints in the root directory.
func lines(t *testing.T, name string, args ...string) []string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// read returns the text of a file, by its path from the root.
func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestNamedTests checks that the tests named in documents and patches exist, that each invariant
// and defence has one, and that docs/promise.md and the patches agree on which mutant breaks which invariant.
func TestNamedTests(t *testing.T) {
	var promised, patched []string
	for _, section := range strings.Split(read(t, "docs/promise.md"), "\n## ")[1:] {
		invariant, _, _ := strings.Cut(section, ":")
		m := mutants.FindStringSubmatch(section)
		if m == nil || !namedTest.MatchString(section) {
			t.Fatalf("docs/promise.md: %s names no test or no mutant", invariant)
		}
		for _, name := range quoted.FindAllStringSubmatch(m[1], -1) {
			promised = append(promised, invariant+" "+name[1])
		}
	}
	documents := []string{"docs/promise.md", "docs/capabilities.md", "docs/dev/threat-model.md"}
	for _, patch := range lines(t, "git", "ls-files", "*.patch") {
		documents = append(documents, patch)
		m := header.FindStringSubmatch(read(t, patch))
		if m == nil {
			t.Fatalf("%s: want the header lines Wrong, Breaks and Test", patch)
		}
		patched = append(patched, m[1]+" "+strings.TrimSuffix(path.Base(patch), ".patch"))
	}
	if slices.Sort(promised); !slices.Equal(promised, slices.Sorted(slices.Values(patched))) {
		t.Errorf("docs/promise.md has the mutants\n%q, tools/mutants has\n%q", promised, patched)
	}
	sources := lines(t, "git", "ls-files", "*_test.go")
	for _, document := range documents {
		for _, row := range tested.FindAllStringSubmatch(read(t, document), -1) {
			if !namedTest.MatchString(row[2]) && !strings.Contains(row[2], "`make ") && !untested.MatchString(row[1]) {
				t.Errorf("%s: no test in the row %s", document, row[0])
			}
		}
		for _, m := range namedTest.FindAllStringSubmatch(read(t, document), -1) {
			if !slices.ContainsFunc(sources, func(f string) bool { return path.Dir(f) == m[1] && strings.Contains(read(t, f), "\nfunc "+m[2]+"(") }) {
				t.Errorf("%s names ./%s %s, which does not exist", document, m[1], m[2])
			}
		}
	}
}

// anchors returns the anchors of the headings of a document, as GitHub derives them.
func anchors(text string) (all []string) {
	for _, m := range title.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		slug := noSlug.ReplaceAllString(strings.ToLower(link.ReplaceAllString(m[1], "]")), "")
		all = append(all, "#"+strings.ReplaceAll(slug, " ", "-"))
	}
	return all
}

// TestLinks checks the links of all documents to files and headings of the repository.
func TestLinks(t *testing.T) {
	headings := map[string][]string{} // anchors, by document
	hasAnchor := func(document, anchor string) bool {
		if _, ok := headings[document]; !ok {
			headings[document] = anchors(read(t, document))
		}
		return slices.Contains(headings[document], anchor)
	}
	for _, document := range lines(t, "git", "ls-files", "*.md") {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(read(t, document), ""), -1) {
			target := path.Join(path.Dir(document), cmp.Or(m[1], path.Base(document)))
			if strings.Contains(m[1], ":") {
				continue // another site
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: broken link: %v", document, err)
			} else if m[2] != "" && path.Ext(target) == ".md" && !hasAnchor(target, m[2]) {
				t.Errorf("%s: broken link: %s has no heading %s", document, target, m[2])
			}
		}
	}
}

// TestBenchModule compares the versions in tools/bench/go.mod with the root's, so that
// measurements link what the programs link.
func TestBenchModule(t *testing.T) {
	required := func(file string) map[string]string {
		versions := map[string]string{}
		for _, m := range regexp.MustCompile(`(?m)^\t(\S+) (v\S+)`).FindAllStringSubmatch(read(t, file), -1) {
			versions[m[1]] = m[2]
		}
		return versions
	}
	root, bench := required("go.mod"), required("tools/bench/go.mod")
	if len(bench) == 0 {
		t.Fatal("got no requirements of tools/bench, want some")
	}
	for name, version := range bench {
		if want, ok := root[name]; ok && version != want {
			t.Errorf("tools/bench/go.mod requires %s %s, want %s as in go.mod", name, version, want)
		}
	}
}
