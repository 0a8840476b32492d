package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/directory"
	"github.com/rshub/rshub/internal/helptest"
)

// The help and docs/sources.md name every flag and exit code, and no other.
func TestSyncFlagsAreExplained(t *testing.T) {
	none, s := func(string) string { return "" }, new(string)
	flags := helptest.Flags(map[string]*flag.FlagSet{
		"sync":  new(syncConfig).flags(none, s, s),
		"watch": (&syncConfig{watch: true}).flags(none, s, s),
	})
	codes := []string{"0", "1", "2", "3", "4", "5", "6", "130"}
	helptest.Help(t, syncHelp, flags, codes...)
	helptest.Page(t, "../../docs/sources.md", flags, codes...)
	doc, err := os.ReadFile("../../docs/sources.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range directory.TemporaryNames {
		if !strings.Contains(string(doc), "`"+pattern+"`") || !strings.Contains(syncHelp, pattern) {
			t.Errorf("%s is not explained", pattern)
		}
	}
}

func TestParseSync(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "list")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args string
		says string // a part of the error; empty: there is none
	}{
		{"sync -set a -base https://e.org/ " + dir, ""},
		{"watch -set a -base https://e.org/ " + dir, ""},
		{"sync -set a -max-delete 5% -", ""},
		{"sync -set a -prefix https://e.org/ " + file, ""},
		{"sync -set a https://e.org/sitemap.xml", ""},
		{"sync -set a", "no source is named"},
		{"watch -set a", "no directory is named"},
		{"sync -set a " + dir, "-base URL is missing"},
		{"watch -set a " + dir, "-base URL is missing"},
		{"watch -set a https://e.org/sitemap.xml", "not a directory"},
		{"watch -set a -", "not a directory"},
		{"sync - ", "no set is named"},
		{"sync -set A -", "set"},
		{"sync -set a -max-delete many -", "-max-delete"},
		{"sync -set a - -dry-run", "flags must stand before"},
		{"sync -set a " + file + " " + file, "name one source only"},
		{"sync -set a -exclude *.x " + file, "only with directories"},
		{"sync -set a -every 1h " + file, "every"},
		{"watch -set a -dry-run -base https://e.org/ " + dir, "dry-run"},
		{"watch -set a -every 0 -base https://e.org/ " + dir, "-every"},
		{"sync -set a -base e.org " + dir, "-base: the base URL of a directory is like https://"},
		{"watch -set a -settle 5 -base https://e.org/ " + dir, "-settle \"5\": a duration"},
		{"sync -set a -settle -1s -base https://e.org/ " + dir, "negative"},
	} {
		args := strings.Fields(test.args)
		_, err := parseSync(args[0] == "watch", args[1:], func(string) string { return "" })
		if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%q: %v, not %q", args, err, test.says)
		}
	}
}

// A state inside of the directory would be published with it.
func TestStateOutside(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	b.runBare(exitUsage, "sync", "-hub", b.hub.URL, "-set", "peps", "-base", "https://e.org/", "-state", filepath.Join(dir, "state"), dir)
	b.says("-state")
	if len(b.hub.requests) > 0 {
		t.Error("the hub was asked")
	}
}
