package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseDump(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(t.TempDir(), "out")
	urls := "-base https://e.org/ -out-url https://d.org/ "
	for _, test := range []struct {
		args string
		says string // a part of the error; empty: there is none
	}{
		{urls + dir + " " + out, ""},
		{urls + "-package-size 100MiB -package-count 50000 -full -full-every 7d -keep 3 -max-delete 5% -exclude *.x -temporary -settle 0 -q -json " + dir + " " + out, ""},
		{urls + dir, "DIRECTORY and OUT"},
		{urls + dir + " " + out + " -q", "write flags before"},
		{"-out-url https://d.org/ " + dir + " " + out, "-base URL is missing"},
		{"-base e.org -out-url https://d.org/ " + dir + " " + out, "-base: the base"},
		{"-base https://e.org/ " + dir + " " + out, "-out-url URL is missing"},
		{"-base https://e.org/ -out-url https://d.org/?a " + dir + " " + out, "the URL of the dumps"},
		{urls + dir + " " + dir + "/out", "packed itself"},
		{urls + "-package-count 50001 " + dir + " " + out, "-package-count"},
		{urls + "-package-size 0 " + dir + " " + out, "above 0"},
		{urls + "-full-every 0s " + dir + " " + out, "-full-every"},
		{urls + "-keep 0 " + dir + " " + out, "-keep"},
		{urls + "-settle -1s " + dir + " " + out, "negative"},
		{urls + "-max-delete many " + dir + " " + out, "-max-delete"},
		{urls + "-set a " + dir + " " + out, "-set"},
	} {
		_, err := parseDump(strings.Fields(test.args))
		if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%q: %v, not %q", test.args, err, test.says)
		}
	}
}

// What a run did is said, and its exit code says what is missing.
func TestDump(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	dump := func(want int, says string, flags ...string) {
		t.Helper()
		var stdout, stderr strings.Builder
		args := append([]string{"dump", "-base", "https://e.org/", "-out-url", "https://d.org/", "-settle", "0"}, flags...)
		code := run(t.Context(), append(args, dir, out), func(string) string { return "" }, nil, &stdout, &stderr)
		if said := stdout.String() + stderr.String(); code != want || !strings.Contains(said, says) {
			t.Errorf("%q ends with %d:\n%s", flags, code, said)
		}
	}
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	write("b")
	dump(exitOK, "packed all: 2 resources in 1 package, ")
	dump(exitOK, "nothing has changed in 2 resources")
	write("c")
	dump(exitOK, `"listed":3,"created":1,`, "-json")
	write("\xff")
	dump(exitGaps, "https://e.org/%FF: ", "-full")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	dump(exitInput, "no such file")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	dump(exitTooMany, "-max-delete 3")
	dump(exitOK, "3 deleted of 0 resources", "-max-delete", "all")
}
