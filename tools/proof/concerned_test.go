package main

import (
	"slices"
	"testing"
)

// TestConcerned holds which parts a change concerns: those that test what imports it, those whose
// list names it, and all of them if nothing knows it.
func TestConcerned(t *testing.T) {
	importers := map[string][]string{
		".": {"."}, "source/relay": {"source/relay", "source/poll", "server", "cmd/rshub"}, "client": {"client", "mirror"}, "changelog/disklog": {"changelog/disklog"}, "bench": {"bench"},
	}
	var all []string
	for _, p := range prove {
		all = append(all, p.name)
	}
	for _, test := range []struct {
		file      string
		yes, none []string
	}{
		{"source/relay/relay.go", []string{"long", "race", "ends", "attack", "soak"}, []string{"stores", "points", "bench", "licences", "mutants"}},
		{"client/replica.go", []string{"long", "ends", "mirror", "clients"}, []string{"stores", "attack", "proxy", "soak"}},
		{"changelog/disklog/testdata/x", []string{"stores", "points", "cluster"}, []string{"long", "page", "bench"}},
		{"bench/floor.go", []string{"bench"}, []string{"long", "race", "ends"}},
		{"e2e/page/page_test.go", []string{"page"}, []string{"long", "ends", "stores"}},
		{"docs/start.md", []string{"clients", "operate"}, []string{"long", "ends", "stores"}},
		{"go.mod", all, nil},
		{"tools/proof/part.go", all, nil},
		{"something/new.sh", all, nil},
	} {
		var got []string
		for _, p := range prove {
			if p.concernedBy(test.file, importers) {
				got = append(got, p.name)
			}
		}
		for _, name := range test.yes {
			if !slices.Contains(got, name) {
				t.Errorf("%s does not concern %s", test.file, name)
			}
		}
		for _, name := range test.none {
			if slices.Contains(got, name) {
				t.Errorf("%s concerns %s", test.file, name)
			}
		}
	}
}
