// Package rshub holds the test of how its packages may depend on each other.
package rshub

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// arrows says which packages of rshub a package imports. Every package is here, from
// the bottom up. A package may import no other, and an arrow that nothing follows must go.
var arrows = map[string][]string{
	// What both ends know.
	"internal/nearest": {},
	"resourcesync":     {"internal/nearest", "internal/slab"},
	"feed":             {"resourcesync"},
	"problem":          {"feed", "resourcesync"},
	"limit":            {"feed", "problem"},
	"access":           {"feed", "internal/durable", "internal/reread", "limit", "problem"},
	"access/ticket":    {"access", "feed", "internal/redisconn", "internal/trail", "problem", "resourcesync"},
	"access/jwt":       {"access", "internal/backoff", "internal/reread", "problem"},
	"source/discovery": {"feed", "source/harvest", "outbound", "resourcesync"},
	"client":           {"feed", "internal/backoff", "internal/zst", "inventory", "inventory/audit", "inventory/digest", "problem", "resourcesync"},

	// What several parts of a hub stand on.
	"internal/accept":      {},
	"internal/backoff":     {},
	"internal/certificate": {"internal/reread"},
	"internal/lru":         {},
	"internal/slab":        {},
	"internal/zst":         {},
	"internal/pebbledb":    {},
	"internal/reread":      {"internal/backoff"},
	"internal/filelock":    {},
	"internal/durable":     {},
	"internal/flight":      {},
	"internal/trail":       {"internal/backoff", "feed"},
	"internal/forwarded":   {},
	"internal/progress":    {},
	"internal/packed":      {"internal/slab", "resourcesync"},
	"internal/redisconn":   {"feed", "internal/backoff"},
	"claim":                {"internal/backoff", "internal/redisconn"},
	"outbound":             {"resourcesync"},
	"outbound/meter":       {"outbound"},

	// What a set holds now.
	"inventory/digest": {"feed", "resourcesync"},
	"inventory/page":   {"feed", "internal/packed", "inventory/digest", "resourcesync"},
	"inventory":        {"feed", "internal/lru", "internal/packed", "inventory/digest", "inventory/page", "resourcesync"},
	"inventory/audit":  {"feed", "inventory", "inventory/digest", "resourcesync"},

	// The change memory.
	"changelog":          {"feed", "internal/packed", "internal/zst", "resourcesync"},
	"changelog/metered":  {"changelog", "feed", "resourcesync"},
	"changelog/disklog":  {"changelog", "feed", "internal/backoff", "inventory", "resourcesync"},
	"changelog/redislog": {"changelog", "feed", "internal/redisconn", "inventory", "resourcesync"},

	// The parts of a hub. They never import each other: each declares the small
	// interface that it needs, and server introduces them.
	"hub":                     {"access", "changelog", "feed", "internal/backoff", "internal/flight", "internal/lru", "internal/trail", "limit", "problem", "resourcesync"},
	"documents":               {"access", "changelog", "dialect", "feed", "internal/accept", "internal/flight", "internal/lru", "inventory", "inventory/digest", "limit", "problem", "resourcesync"},
	"subscribe":               {"access", "changelog", "feed", "internal/accept", "internal/zst", "inventory", "inventory/digest", "limit", "problem", "resourcesync"},
	"dialect":                 {"feed"},
	"dialect/activitystreams": {"dialect", "feed", "resourcesync"},
	"dialect/atom":            {"dialect", "feed", "resourcesync"},
	"dialect/framework":       {"changelog", "feed", "internal/backoff", "resourcesync"},
	"dialect/indexnow":        {"callback/outlet", "callback/subscription", "feed", "outbound", "problem", "resourcesync"},
	"dialect/rdm":             {"feed", "problem", "resourcesync"},
	"dialect/changeset":       {"dialect", "feed", "resourcesync"},
	"dialect/cloudevents":     {"feed", "resourcesync"},
	"inventory/live":          {"claim", "feed", "internal/backoff", "inventory", "limit", "resourcesync"},
	"inventory/web":           {"feed", "internal/accept", "inventory", "inventory/audit", "limit", "problem", "resourcesync"},
	"callback/subscription":   {"changelog", "claim", "feed", "internal/backoff", "internal/packed", "internal/redisconn", "resourcesync"},
	"callback/outlet":         {"callback/subscription", "feed", "outbound"},
	"callback":                {"callback/outlet", "callback/subscription", "claim", "feed", "internal/backoff", "outbound", "outbound/meter", "resourcesync"},
	"callback/websub":         {"access", "callback/outlet", "callback/subscription", "changelog", "feed", "internal/forwarded", "internal/trail", "outbound", "problem", "resourcesync"},
	"source/harvest":          {"feed", "internal/backoff", "outbound", "problem", "resourcesync"},
	"source/harvest/oaipmh":   {"feed", "source/harvest", "outbound", "resourcesync"},
	"source/poll":             {"claim", "feed", "source/harvest", "internal/backoff", "internal/redisconn", "outbound", "source/reconcile", "source/relay", "resourcesync"},

	"source/local": {"access", "changelog", "client", "feed", "internal/backoff", "inventory", "inventory/audit", "inventory/digest", "source/reconcile", "resourcesync"},

	"page": {"access", "feed", "internal/accept", "problem", "resourcesync"},

	"activity": {"access", "feed", "internal/backoff", "problem", "resourcesync"},

	"backup": {"changelog/disklog", "feed", "feed", "internal/durable", "problem"},
	"sets":   {"access", "activity", "feed", "internal/setting", "internal/trail", "limit", "problem", "resourcesync"},

	"source/relay": {"source/discovery", "feed", "source/harvest", "source/harvest/oaipmh", "inventory/audit", "outbound", "source/reconcile", "resourcesync"},

	// The hub, and the programs.
	"server": {
		"access", "access/ticket", "activity", "backup", "callback", "callback/outlet", "callback/subscription", "callback/websub", "changelog", "changelog/disklog", "changelog/metered", "changelog/redislog", "claim",
		"dialect", "dialect/activitystreams", "dialect/atom", "dialect/changeset", "dialect/cloudevents", "dialect/framework", "dialect/indexnow", "dialect/rdm", "documents", "feed", "source/harvest", "hub", "internal/backoff", "internal/certificate", "internal/forwarded", "internal/nearest", "internal/redisconn", "internal/trail", "inventory", "inventory/audit", "inventory/live", "inventory/web", "limit", "outbound", "outbound/meter", "page", "source/local", "source/poll", "source/reconcile", "problem", "resourcesync", "sets", "subscribe",
	},
	"inventory/diskpages": {"feed", "internal/pebbledb", "inventory"},
	"source/reconcile":    {"client", "feed", "inventory", "inventory/audit", "inventory/digest", "inventory/diskpages", "resourcesync"},
	"source/directory":    {"feed", "internal/backoff", "internal/pebbledb", "source/reconcile", "resourcesync"},
	"internal/build":      {},
	"internal/setting":    {},
	"cmd/rshub":           {"access", "access/jwt", "backup", "changelog", "changelog/disklog", "client", "feed", "internal/build", "internal/nearest", "internal/progress", "internal/redisconn", "internal/setting", "internal/trail", "inventory", "inventory/audit", "inventory/digest", "inventory/diskpages", "limit", "problem", "resourcesync", "server"},
	"cmd/rspublish":       {"client", "dialect/dump", "source/directory", "feed", "source/harvest", "source/harvest/oaipmh", "internal/backoff", "internal/build", "internal/dumping", "internal/durable", "internal/filelock", "internal/progress", "internal/setting", "inventory", "inventory/audit", "inventory/diskpages", "outbound", "source/reconcile", "source/relay", "resourcesync"},

	// Other people's documents and packages.
	"dialect/dump":     {"internal/durable", "internal/filelock", "resourcesync"},
	"internal/dumping": {"dialect/dump", "internal/progress", "internal/setting", "source/reconcile"},

	// The destination's end.
	"mirror/filename": {"resourcesync"},
	"mirror/pack":     {"resourcesync"},
	"mirror/patch":    {},
	"mirror/fetch":    {"internal/backoff", "outbound", "problem", "resourcesync", "source/harvest"},
	"mirror/ledger":   {"feed", "internal/pebbledb", "mirror/filename", "resourcesync"},
	"mirror/home":     {"internal/backoff", "internal/pebbledb", "inventory/diskpages", "mirror/filename", "mirror/ledger"},
	"mirror": {
		"client", "source/discovery", "feed", "source/harvest", "internal/backoff", "internal/durable", "inventory", "inventory/audit", "inventory/digest",
		"mirror/fetch", "mirror/filename", "mirror/home", "mirror/ledger", "mirror/pack", "mirror/patch", "source/reconcile", "resourcesync",
	},
	"cmd/rsmirror": {"client", "dialect/dump", "source/discovery", "source/harvest", "internal/backoff", "internal/build", "internal/dumping", "internal/progress", "internal/setting", "mirror", "mirror/fetch", "mirror/home", "mirror/ledger", "outbound", "resourcesync", "source/reconcile"},

	// What users copy: it stands on nothing of rshub.
	"examples/callback": {},

	// What only tests and measurements use.
	"bench":                              {"access", "callback/subscription", "changelog", "changelog/disklog", "changelog/redislog", "claim", "feed", "hub", "internal/packed", "internal/redisconn", "internal/zst", "inventory", "inventory/live", "resourcesync"},
	"callback/subscription/registrytest": {"callback/subscription", "claim", "claim/claimtest", "feed", "internal/untiltest", "resourcesync"},
	"changelog/logtest":                  {"changelog", "documents", "feed", "internal/chancetest", "inventory", "resourcesync"},
	"claim/claimtest":                    {"claim", "internal/untiltest"},
	"inventory/sourcetest":               {"feed", "resourcesync"},
	"inventory/storetest":                {"changelog", "feed", "inventory", "inventory/digest", "resourcesync"},
	"internal/certificate/certtest":      {},
	"internal/chancetest":                {},
	"internal/conntest":                  {},
	"internal/unittest":                  {},
	"internal/keeptest":                  {},
	"internal/loggedtest":                {},
	"internal/heaptest":                  {},
	"internal/hubtest":                   {"internal/loggedtest", "internal/servertest", "server"},
	"internal/memorytest":                {"changelog", "changelog/disklog", "feed", "resourcesync"},
	"internal/metricstest":               {},
	"internal/oaitest":                   {},
	"internal/operatetest":               {},
	"internal/pagetest":                  {},
	"internal/pipetest":                  {},
	"internal/redisconn/conntest":        {"internal/redisconn"},
	"internal/redistest":                 {},
	"internal/servertest":                {"access"},
	"internal/untiltest":                 {},
}

// edges says which third parties stay at the edge, and with which packages. The
// bench may import all of them, for the floors that it measures.
var edges = map[string][]string{
	"github.com/redis/":           {"internal/redisconn", "internal/redistest"},
	"github.com/nats-io/":         {"hub"},
	"github.com/gorilla/":         {"subscribe"},
	"github.com/cockroachdb/":     {"changelog/disklog", "internal/pebbledb", "inventory/diskpages", "mirror/ledger", "source/directory"},
	"github.com/prometheus/":      {"callback", "changelog/metered", "hub", "internal/metricstest", "inventory/live", "outbound/meter", "server", "subscribe"},
	"github.com/kelseyhightower/": {"cmd/rshub"},
	"golang.org/x/net":            {"source/discovery"},
	"github.com/go-jose/":         {"access/jwt"},
	"github.com/fsnotify/":        {"source/directory"},
}

// apart says what a package must not link, however indirectly.
var apart = map[string][]string{
	"access":           {"github.com/prometheus/", "github.com/klauspost/compress/zstd", module + "changelog"},
	"problem":          {"github.com/prometheus/", "github.com/klauspost/compress/zstd", module + "changelog"},
	"changelog":        {"net/http", "github.com/prometheus/"},
	"source/discovery": {"github.com/cockroachdb/", "github.com/redis/", "github.com/prometheus/", module + "changelog"},
	"client":           {"github.com/cockroachdb/", "github.com/redis/", "github.com/prometheus/", module + "changelog"},
	"dialect/dump":     {"github.com/cockroachdb/", "net/http", module + "changelog"},
	"source/harvest":   {"github.com/cockroachdb/", "github.com/redis/", "github.com/prometheus/", module + "changelog"},
	"cmd/rspublish":    {"github.com/redis/", "github.com/nats-io/", module + "changelog"}, // it sorts lists, and remembers hashes, in Pebble
	"cmd/rsmirror":     {"github.com/redis/", module + "changelog"},
}

const module = "github.com/rshub/rshub/"

// list returns what go list prints for each package. Packages that do not compile
// are listed too: an arrow that is turned around makes a cycle, and the tests have
// to name it.
func list(t *testing.T, arguments ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-e"}, arguments...)...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// TestArrows holds the arrows between the packages, and to third parties.
func TestArrows(t *testing.T) {
	followed := map[string][]string{}
	for _, line := range list(t, "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...") {
		fields := strings.Fields(line)
		pkg, ok := strings.CutPrefix(fields[0], module)
		if !ok {
			continue // the root, which is this test
		}
		may, known := arrows[pkg]
		if !known {
			t.Errorf("%s is not among the arrows", pkg)
			continue
		}
		followed[pkg] = []string{}
		for _, imported := range fields[1:] {
			if inner, ok := strings.CutPrefix(imported, module); ok {
				followed[pkg] = append(followed[pkg], inner)
				if !slices.Contains(may, inner) {
					t.Errorf("%s imports %s", pkg, inner)
				}
			}
			for third, users := range edges {
				if !strings.HasPrefix(imported, third) {
					continue
				}
				followed[third] = append(followed[third], pkg)
				if !slices.Contains(users, pkg) && pkg != "bench" {
					t.Errorf("%s imports %s, which only %v may", pkg, imported, users)
				}
			}
		}
	}
	for pkg, may := range arrows {
		imports, exists := followed[pkg]
		if !exists {
			t.Errorf("%s is among the arrows, and there is no such package", pkg)
		}
		for _, inner := range may {
			if exists && !slices.Contains(imports, inner) {
				t.Errorf("%s does not import %s: the arrow must go", pkg, inner)
			}
		}
	}
	for third, users := range edges {
		for _, pkg := range users {
			if !slices.Contains(followed[third], pkg) {
				t.Errorf("%s imports nothing of %s: it must not be among its users", pkg, third)
			}
		}
	}
}

// TestApart holds what a package must not link.
func TestApart(t *testing.T) {
	for _, pkg := range slices.Sorted(maps.Keys(apart)) {
		for _, dep := range list(t, "-deps", "./"+pkg) {
			for _, never := range apart[pkg] {
				if dep == never || strings.HasSuffix(never, "/") && strings.HasPrefix(dep, never) {
					t.Errorf("%s links %s", pkg, dep)
				}
			}
		}
	}
}
