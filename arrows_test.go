// Package rshub holds the test of how its packages may depend on each other.
package rshub

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// allowed says which packages of rshub a package may import, and which third
// parties belong to it alone.
var allowed = map[string][]string{
	"resourcesync":                {},
	"changelog":                   {"resourcesync"},
	"changelog/disklog":           {"changelog", "resourcesync"},
	"changelog/logtest":           {"changelog", "resourcesync"},
	"changelog/redislog":          {"changelog", "resourcesync"},
	"access":                      {"changelog"},
	"callback":                    {"changelog", "resourcesync"},
	"callback/registrytest":       {"callback", "changelog", "resourcesync"},
	"hub":                         {"changelog", "resourcesync"},
	"subscribe":                   {"changelog", "resourcesync"},
	"cmd/rshub":                   {"access", "callback", "changelog", "changelog/disklog", "changelog/redislog", "hub", "internal/build", "resourcesync", "subscribe"},
	"cmd/rspublish":               {"internal/build", "resourcesync"},
	"internal/build":              {},
	"internal/metricstest":        {},
	"internal/redistest":          {},
	"github.com/redis/":           {"callback", "changelog/redislog", "internal/redistest"},
	"github.com/nats-io/":         {"hub"},
	"github.com/gorilla/":         {"subscribe"},
	"github.com/cockroachdb/":     {"changelog/disklog"},
	"github.com/prometheus/":      {"callback", "changelog", "cmd/rshub", "hub", "internal/metricstest", "subscribe"},
	"github.com/kelseyhightower/": {"cmd/rshub", "cmd/rspublish"},
}

// TestArrows holds the arrows: resourcesync ← changelog ← hub, subscribe ← cmd.
func TestArrows(t *testing.T) {
	const module = "github.com/rshub/rshub/"
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		pkg := strings.TrimPrefix(fields[0], module)
		may, known := allowed[pkg]
		for _, imported := range fields[1:] {
			if inner, ok := strings.CutPrefix(imported, module); ok && known && !slices.Contains(may, inner) {
				t.Errorf("%s imports %s", pkg, inner)
			}
			for third, users := range allowed {
				if strings.HasPrefix(imported, third) && strings.HasPrefix(third, "github.com/") && known && !slices.Contains(users, pkg) {
					t.Errorf("%s imports %s, which only %v may", pkg, imported, users)
				}
			}
		}
	}
}
