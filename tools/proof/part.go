package main

import (
	"fmt"
	"slices"
	"strings"
)

// A part is what is run, and shown in the table, as one. It is red with its first step that is.
type part struct {
	name     string
	holds    string   // of a part of prove: what its tests hold, for the table in CONTRIBUTING.md
	concerns []string // folders of the repository whose change may break it; the product's packages say that by their imports
	steps    []step
}

// A step is a command, or tests of one module.
type step struct {
	dir     string   // of the module, below the root
	command string   // for sh; else tests:
	tests   []string // patterns of packages
	without []string // packages that do not belong to it, though a pattern matches
	flags   []string // of go test
	env     []string
	race    bool // with the race detector
}

// racy are the packages whose goroutines share state. In the gate they run with the race
// detector only, and all others without it.
var racy = []string{"./callback/...", "./changelog/...", "./hub/...", "./inventory/live/...", "./server/...", "./subscribe/..."}

// gate is what any change may break.
var gate = []part{
	{name: "lint", steps: []step{{command: "make lint"}}},
	{name: "unit", steps: []step{
		{tests: []string{"./..."}, without: slices.Concat(racy, apart), flags: []string{"-short", "-parallel=6", "-p=3"}},
		{dir: "tools", tests: []string{"./proof"}, flags: []string{"-count=1"}}, // go's cache does not see a change of CONTRIBUTING.md, which is not in that module
	}},
	{name: "race", steps: []step{{tests: racy, race: true, flags: []string{"-short", "-parallel=6", "-p=3"}}}},
	{name: "smoke", steps: []step{{dir: "e2e", tests: []string{"./smoke"}, flags: []string{"-count=1", "-parallel=4"}}}},
}

// apart are packages of the product's module that are a part of their own.
var apart = []string{"./bench/..."}

// stores keep something, and pass contract suites. Their long form is a part of its own.
var stores = []string{"./changelog/...", "./inventory/...", "./callback/subscription/...", "./claim/...", "./internal/redisconn/..."}

// program is what every test of the built programs stands on.
var program = []string{"cmd", "server", "e2e/internal", "scripts"}

// e2e are tests of the built programs in packages of the module e2e. They are not cached: Go does
// not know that they run the programs.
func e2e(flags string, packages ...string) []step {
	return []step{{dir: "e2e", tests: packages, flags: append([]string{"-count=1", "-timeout=0"}, strings.Fields(flags)...)}}
}

// prove is all that the gate leaves out. No part takes more than about twenty minutes on two cores.
var prove = []part{
	{name: "stores", holds: "the contract suites of both stores, of inventories and subscriptions, in full", concerns: stores, steps: []step{
		{tests: stores, flags: []string{"-parallel=6", "-timeout=0"}},
	}},
	{name: "points", holds: "each fault point: every operation of the disk and every request to Redis fails once, every byte is damaged once", concerns: stores, steps: []step{
		{tests: []string{"./changelog/disklog", "./changelog/redislog"}, env: []string{"RSHUB_PROVE=1"}, flags: []string{"-count=1", "-timeout=0", "-parallel=6", "-run=^(TestFaultPoints|TestDamageAtRest)$"}},
		{tests: []string{"./changelog/disklog", "./changelog/redislog", "./inventory", "./inventory/diskpages"}, env: []string{"RSHUB_PROVE=1"}, flags: []string{"-count=1", "-timeout=0", "-run=^(TestInventories|TestInventory|TestMemoryInventory)$"}},
		{tests: []string{"./source/directory"}, env: []string{"RSHUB_PROVE=1"}, flags: []string{"-count=1", "-timeout=0", "-run=^TestWatcher"}},
	}},
	{name: "long", holds: "the long tests of all other packages", steps: []step{{tests: []string{"./..."}, without: slices.Concat(stores, apart), flags: []string{"-timeout=0"}}}},
	{name: "race", holds: "the race detector, for packages that the gate runs without it", steps: []step{{tests: []string{"./..."}, without: slices.Concat(racy, apart), race: true, flags: []string{"-short", "-timeout=0"}}}},
	{name: "attack", holds: "those who mean harm, while others use the hub", concerns: slices.Concat(program, []string{"access", "limit", "e2e/attack"}), steps: e2e("-p=1", "./attack")},
	{name: "callback", holds: "WebSub, rule by rule; killed and hung hubs, many callbacks", concerns: slices.Concat(program, []string{"callback", "e2e/callback", "e2e/conformance"}), steps: e2e("-p=1 -parallel=4", "./callback", "./conformance")},
	{name: "cluster", holds: "several hubs on one Redis and one NATS; each fault at random; histories held against one memory", concerns: slices.Concat(program, []string{"changelog", "claim", "hub", "e2e/cluster", "e2e/faults"}), steps: e2e("-p=1 -parallel=4 -skip=^TestEnds$", "./cluster", "./faults")},
	{name: "ends", holds: "from a directory, a site or a repository to a mirror, everything killed", concerns: slices.Concat(program, []string{"client", "mirror", "source", "e2e/faults"}), steps: e2e("-p=1 -parallel=4 -run=^TestEnds$", "./faults")},
	{name: "follow", holds: "WebSockets, event streams, browsers; every way to publish", concerns: slices.Concat(program, []string{"dialect", "hub", "subscribe", "e2e/follow", "e2e/publish"}), steps: e2e("-p=2 -parallel=4", "./follow", "./publish")},
	{name: "dialect", holds: "followers that go from one standard to another, killed again and again; readers of feeds", concerns: slices.Concat(program, []string{"callback", "dialect", "documents", "hub", "subscribe", "e2e/dialect"}), steps: e2e("-p=1 -parallel=4", "./dialect")},
	{name: "inventory", holds: "baselines, Resource Lists, audits", concerns: slices.Concat(program, []string{"inventory", "documents", "client", "e2e/inventory"}), steps: e2e("-p=1 -parallel=4", "./inventory")},
	{name: "mirror", holds: "`rsmirror`, `rspublish sync`, `watch` and `dump`", concerns: slices.Concat(program, []string{"client", "dialect/dump", "mirror", "source/directory", "source/reconcile", "e2e/mirror", "e2e/source"}), steps: e2e("-p=2 -parallel=4", "./mirror", "./source")},
	{name: "openapi", holds: "that the hub answers as `openapi.json` says: every route, every status", concerns: slices.Concat(program, []string{"callback/websub", "documents", "hub", "inventory/web", "subscribe", "e2e/openapi"}), steps: e2e("-p=1", "./openapi")},
	{name: "operate", holds: "starting, stopping, backups, tokens, logs, metrics", concerns: slices.Concat(program, []string{"access", "docs", "e2e/operate"}), steps: e2e("-p=1 -parallel=4", "./operate")},
	{name: "clients", holds: "the Python client, the examples, the commands of the documentation", concerns: slices.Concat(program, []string{"client", "clients", "docs", "examples", "README.md", "e2e/clients"}), steps: e2e("-p=1 -parallel=4", "./clients")},
	{name: "page", holds: "the web page in Chromium, with axe", concerns: slices.Concat(program, []string{"activity", "page", "e2e/page"}), steps: e2e("-p=1 -parallel=4", "./page")},
	{name: "polled", holds: "sources that can only be polled: stale, wrong and moved ones, and hostile ones in a crowd", concerns: slices.Concat(program, []string{"client", "discovery", "harvest", "mirror", "poll", "reconcile", "relay", "e2e/polled"}), steps: e2e("-p=1 -parallel=4", "./polled")},
	{name: "proxy", holds: "the configurations for nginx, HAProxy and Caddy", concerns: slices.Concat(program, []string{"deploy/proxy", "e2e/proxy"}), steps: e2e("-p=1 -parallel=4", "./proxy")},
	{name: "deploy", holds: "the chart, the alerts and the dashboard, the image, compose, packages", concerns: slices.Concat(program, []string{"deploy", "e2e/deploy", "e2e/alerts", "e2e/chart", "tools/image", "tools/release"}), steps: append(
		[]step{{command: "make chart"}, {command: "make tools packaging"}}, e2e("-p=1 -parallel=4", "./deploy")...)},
	{name: "soak", holds: "faults at random in a cluster under load, with the race detector: `SOAK=2h SEED=7 make prove PART=soak`", concerns: slices.Concat(program, []string{"callback", "changelog", "claim", "hub", "subscribe", "e2e/faults"}), steps: []step{{command: "make soak SOAK=${SOAK:-10m}"}}},
	{name: "mutants", holds: "that a test notices each wrong edit", concerns: []string{"tools/mutants"}, steps: []step{{command: "make mutants"}}},
	{name: "licences", holds: "THIRD_PARTY.md, and the checksums of all modules", concerns: []string{"THIRD_PARTY.md", "tools/licences"}, steps: []step{{command: "make thirdparty"}}},
	{name: "bench", holds: "that the measurements work", concerns: []string{"bench"}, steps: []step{{tests: []string{"./bench/..."}, flags: []string{"-timeout=0"}}}},
}

// named returns the parts of these names, and all of them for no name.
func named(all []part, names []string) ([]part, error) {
	if len(names) == 0 {
		return all, nil
	}
	var parts []part
	for _, name := range names {
		i := slices.IndexFunc(all, func(p part) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no part %q; proof list shows those of prove", name)
		}
		parts = append(parts, all[i])
	}
	return parts, nil
}
