package main

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/testutil/oaitest"
)

func TestParseDump(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(t.TempDir(), "out")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	urls := "-base https://e.org/ -out-url https://d.org/ "
	for _, test := range []struct {
		args string
		want string // a part of the error; empty: there is none
	}{
		{urls + dir + " " + out, ""},
		{urls + "-package-size 100MiB -package-count 50000 -full -full-every 7d -keep 3 -max-delete 5% -exclude *.x -temporary -settle 0 -q -json " + dir + " " + out, ""},
		{urls + dir, "DIRECTORY or URL and OUT"},
		{urls + dir + " " + out + " -q", "write flags before"},
		{"-out-url https://d.org/ " + dir + " " + out, "-base URL is missing"},
		{"-base e.org -out-url https://d.org/ " + dir + " " + out, "-base: the base"},
		{"-base https://e.org/ " + dir + " " + out, "-out-url URL is missing"},
		{"-base https://e.org/ -out-url https://d.org/?a " + dir + " " + out, "the URL of the dumps"},
		{urls + dir + " " + dir + "/out", "packed itself"},
		{urls + link + " " + dir + "/out", "packed itself"},
		{urls + dir + " " + link + "/new/out", "packed itself"},
		{urls + "-package-count 50001 " + dir + " " + out, "-package-count"},
		{urls + "-package-size 0 " + dir + " " + out, "above 0"},
		{urls + "-full-every 0s " + dir + " " + out, "-full-every"},
		{urls + "-keep 0 " + dir + " " + out, "-keep"},
		{urls + "-settle -1s " + dir + " " + out, "negative"},
		{urls + "-max-delete many " + dir + " " + out, "-max-delete"},
		{urls + "-set a " + dir + " " + out, "-set"},
		{urls + "-prefix a " + dir + " " + out, "-prefix and -oai-set are for a repository"},
		{"-out-url https://d.org/ -prefix a -oai-set b https://u:p@e.org/oai " + out, ""},
		{urls + "https://e.org/oai " + out, "-base and -exclude are for a directory"},
		{"-out-url https://d.org/ https:// " + out, "cannot be read"},
	} {
		_, err := parseDump(strings.Fields(test.args), func(string) string { return "" })
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%q: %v, not %q", test.args, err, test.want)
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
	dump(exitTooManyDeletions, "-max-delete 3")
	dump(exitOK, "3 deleted of 0 resources", "-max-delete", "all")
}

// The records of a repository are packed as GetRecord returns them, and what was listed in vain is
// no deletion.
func TestDumpRecords(t *testing.T) {
	repository := &oaitest.Repository{Parts: 2}
	server := httptest.NewServer(repository)
	defer server.Close()
	out := filepath.Join(t.TempDir(), "out")
	dump := func(want int, says string, flags ...string) {
		t.Helper()
		var stdout, stderr strings.Builder
		args := append([]string{"dump", "-out-url", "https://d.org/"}, flags...)
		code := run(t.Context(), append(args, server.URL+"/oai", out), func(string) string { return "" }, nil, &stdout, &stderr)
		if said := stdout.String() + stderr.String(); code != want || !strings.Contains(said, says) {
			t.Errorf("%q ends with %d:\n%s", flags, code, said)
		}
		if _, err := os.Stat(filepath.Join(out, ".rsdump/listing")); err == nil {
			t.Error("the list of records is left")
		}
	}
	for _, id := range []string{"oai:x:c", "oai:x:a", "oai:x:b"} {
		repository.Put(id, "https://a.example/", "title of "+id)
	}
	dump(exitOK, "packed all: 3 resources in 1 package, ")
	packages, err := filepath.Glob(filepath.Join(out, "resourcedump-*-1.zip"))
	if err != nil || len(packages) != 1 {
		t.Fatalf("%v: %v", packages, err)
	}
	z, err := zip.OpenReader(packages[0])
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for i, id := range []string{"oai:x:a", "oai:x:b", "oai:x:c"} {
		text, err := fs.ReadFile(z, fmt.Sprintf("content/%d", i+1))
		if err != nil || !strings.Contains(string(text), "<GetRecord><record><header><identifier>"+id+"</identifier>") || !strings.Contains(string(text), "title of "+id) {
			t.Errorf("%v: content %d is %s", err, i+1, text)
		}
	}
	dump(exitOK, "nothing has changed in 3 resources")
	repository.Put("oai:x:b", "https://a.example/", "another title")
	repository.Put("oai:x:d", "https://a.example/", "new")
	repository.Delete("oai:x:c")
	dump(exitOK, "packed changes: 1 created, 1 updated, 1 deleted of 3 resources")
	repository.Vanish("oai:x:a")
	repository.Misbehave(oaitest.Faults{BadRecord: true})
	dump(exitGaps, "record 3: it has no identifier")
	repository.Misbehave(oaitest.Faults{})
	dump(exitOK, "1 deleted of 2 resources")
	repository.Misbehave(oaitest.Faults{Page: "<html>"})
	dump(exitInput, "this is a web page (HTML)")
	repository.Misbehave(oaitest.Faults{Page: "<OAI-PMH><error code='noRecordsMatch'/></OAI-PMH>"})
	dump(exitTooManyDeletions, "-max-delete 2")
}

// Whoever reads the records may stop, as after a failure.
func TestListRecordsStops(t *testing.T) {
	repository := &oaitest.Repository{}
	server := httptest.NewServer(repository)
	defer server.Close()
	out := t.TempDir()
	if err := os.Mkdir(filepath.Join(out, ".rsdump"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"oai:x:a", "oai:x:b"} {
		repository.Put(id, "https://a.example/", id)
	}
	env := func(string) string { return "" }
	c, err := parseDump([]string{"-q", "-out-url", "https://d.org/", server.URL + "/oai", out}, env)
	if err != nil {
		t.Fatal(err)
	}
	c.Line.Now = time.Now
	n := 0
	for r, err := range (&program{env: env}).listRecords(c)(t.Context()) {
		if err != nil || r == nil {
			t.Fatal(err)
		}
		n++
		break
	}
	if left, err := os.ReadDir(filepath.Join(out, ".rsdump")); n != 1 || err != nil || len(left) != 0 {
		t.Errorf("%d records, and %v is left, %v", n, left, err)
	}
}
