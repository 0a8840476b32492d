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
		want string // substring of the error; empty if there is no error
	}{
		{urls + dir + " " + out, ""},
		{urls + "-package-size 100MiB -package-count 50000 -full -full-every 7d -keep 3 -max-delete 5% -exclude *.x -temporary -settle 0 -q -json " + dir + " " + out, ""},
		{urls + dir, "DIRECTORY or URL and OUT"},
		{urls + dir + " " + out + " -q", "write flags before"},
		{"-out-url https://d.org/ " + dir + " " + out, "missing -base URL"},
		{"-base e.org -out-url https://d.org/ " + dir + " " + out, "-base: invalid base URL"},
		{"-base https://e.org/ " + dir + " " + out, "-out-url URL is missing"},
		{"-base https://e.org/ -out-url https://d.org/?a " + dir + " " + out, "invalid URL of the dumps"},
		{urls + dir + " " + dir + "/out", "would be packed, too"},
		{urls + link + " " + dir + "/out", "would be packed, too"},
		{urls + dir + " " + link + "/new/out", "would be packed, too"},
		{urls + "-package-count 50001 " + dir + " " + out, "-package-count"},
		{urls + "-package-size 0 " + dir + " " + out, "positive"},
		{urls + "-full-every 0s " + dir + " " + out, "-full-every"},
		{urls + "-keep 0 " + dir + " " + out, "-keep"},
		{urls + "-settle -1s " + dir + " " + out, "negative"},
		{urls + "-max-delete many " + dir + " " + out, "-max-delete"},
		{urls + "-set a " + dir + " " + out, "-set"},
		{urls + "-prefix a " + dir + " " + out, "-prefix and -oai-set require a repository"},
		{"-out-url https://d.org/ -prefix a -oai-set b https://u:p@e.org/oai " + out, ""},
		{urls + "https://e.org/oai " + out, "-base and -exclude require a directory"},
		{"-out-url https://d.org/ https:// " + out, "parse URL of the source"},
	} {
		t.Run(strings.NewReplacer(out, "out", dir, "dir", link, "link").Replace(test.args), func(t *testing.T) {
			_, err := parseDump(strings.Fields(test.args), func(string) string { return "" })
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("parseDump(%q) = %v, want %q", test.args, err, test.want)
			}
		})
	}
}

// TestDump checks the summary and the exit code of dump.
func TestDump(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	dump := func(want int, wantOutput string, flags ...string) {
		t.Helper()
		var stdout, stderr strings.Builder
		args := append([]string{"dump", "-base", "https://e.org/", "-out-url", "https://d.org/", "-settle", "0"}, flags...)
		code := run(t.Context(), append(args, dir, out), func(string) string { return "" }, nil, &stdout, &stderr)
		if output := stdout.String() + stderr.String(); code != want || !strings.Contains(output, wantOutput) {
			t.Errorf("rspublish dump %q = %d, want %d and %q:\n%s", flags, code, want, wantOutput, output)
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
	dump(exitOK, "packed 2 resources in 1 package, ")
	dump(exitOK, "no changes in 2 resources")
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

// TestDumpRecords checks that records of a repository are packed as returned by GetRecord, and that
// records that could not be read are not deleted.
func TestDumpRecords(t *testing.T) {
	repository := &oaitest.Repository{Parts: 2}
	server := httptest.NewServer(repository)
	defer server.Close()
	out := filepath.Join(t.TempDir(), "out")
	dump := func(want int, wantOutput string, flags ...string) {
		t.Helper()
		var stdout, stderr strings.Builder
		args := append([]string{"dump", "-out-url", "https://d.org/"}, flags...)
		code := run(t.Context(), append(args, server.URL+"/oai", out), func(string) string { return "" }, nil, &stdout, &stderr)
		if output := stdout.String() + stderr.String(); code != want || !strings.Contains(output, wantOutput) {
			t.Errorf("rspublish dump %q = %d, want %d and %q:\n%s", flags, code, want, wantOutput, output)
		}
		if _, err := os.Stat(filepath.Join(out, ".rsdump/listing")); err == nil {
			t.Error("the list of records was not removed")
		}
	}
	for _, id := range []string{"oai:x:c", "oai:x:a", "oai:x:b"} {
		repository.Put(id, "https://a.example/", "title of "+id)
	}
	dump(exitOK, "packed 3 resources in 1 package, ")
	packages, err := filepath.Glob(filepath.Join(out, "resourcedump-*-1.zip"))
	if err != nil || len(packages) != 1 {
		t.Fatalf("packages = %v, %v, want one", packages, err)
	}
	z, err := zip.OpenReader(packages[0])
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for i, id := range []string{"oai:x:a", "oai:x:b", "oai:x:c"} {
		text, err := fs.ReadFile(z, fmt.Sprintf("content/%d", i+1))
		if err != nil || !strings.Contains(string(text), "<GetRecord><record><header><identifier>"+id+"</identifier>") || !strings.Contains(string(text), "title of "+id) {
			t.Errorf("content %d = %s, %v, want record %s", i+1, text, err, id)
		}
	}
	dump(exitOK, "no changes in 3 resources")
	repository.Put("oai:x:b", "https://a.example/", "another title")
	repository.Put("oai:x:d", "https://a.example/", "new")
	repository.Delete("oai:x:c")
	dump(exitOK, "packed changes: 1 created, 1 updated, 1 deleted of 3 resources")
	repository.Vanish("oai:x:a")
	repository.Misbehave(oaitest.Faults{BadRecord: true})
	dump(exitGaps, "record 3: record has no identifier")
	repository.Misbehave(oaitest.Faults{})
	dump(exitOK, "1 deleted of 2 resources")
	repository.Misbehave(oaitest.Faults{Page: "<html>"})
	dump(exitInput, "this is a web page (HTML)")
	repository.Misbehave(oaitest.Faults{Page: "<OAI-PMH><error code='noRecordsMatch'/></OAI-PMH>"})
	dump(exitTooManyDeletions, "-max-delete 2")
}

// TestListRecordsStops checks that the consumer of the records may stop early, as after an error.
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
		t.Errorf("listed %d records and left %v, %v, want 1 record and no files", n, left, err)
	}
}
