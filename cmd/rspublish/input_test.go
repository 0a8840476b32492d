package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rshub/rshub/internal/progress"
	"github.com/rshub/rshub/resourcesync"
)

func gzipped(parts ...string) string {
	var b bytes.Buffer
	for _, part := range parts {
		z := gzip.NewWriter(&b)
		_, _ = io.WriteString(z, part)
		_ = z.Close()
	}
	return b.String()
}

// xmlDocument returns an XML document with the changes from to to, and a capability unless it is
// empty.
func xmlDocument(capability string, from, to int) string {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
`)
	if capability != "" {
		fmt.Fprintf(&b, `<rs:md capability=%q from="2026-01-01T00:00:00Z" until="2026-01-02T00:00:00Z"/>`+"\n", capability)
	}
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, `<url><loc>%s</loc><rs:md change="updated" datetime="2026-01-01T10:00:00Z"/></url>`+"\n", testLoc(i))
	}
	return b.String() + "</urlset>\n"
}

func jsonDocument(from, to int) string {
	entries := strings.ReplaceAll(strings.TrimSpace(lines(from, to)), "\n", ",\n")
	return "{\n  \"set\": \"other\", \"after\": \"0-0\",\n  \"changes\": [" + entries + "]\n}\n"
}

func TestFormats(t *testing.T) {
	for _, test := range []struct {
		name, content string
		want          int
	}{
		{"change notification", xmlDocument("change-notification", 1, 3), 3},
		{"change list", xmlDocument("changelist", 1, 3), 3},
		{"older notification", xmlDocument("changelist-notification", 1, 3), 3},
		{"no capability", xmlDocument("", 1, 3), 3},
		{"xml after space", "\uFEFF \n" + strings.TrimPrefix(xmlDocument("changelist", 1, 3), `<?xml version="1.0" encoding="UTF-8"?>`), 3},
		{"xml with byte order mark", "\uFEFF" + xmlDocument("changelist", 1, 3), 3},
		{"xml gzipped", gzipped(xmlDocument("changelist", 1, 3)), 3},
		{"xml of several batches", xmlDocument("changelist", 1, 2500), 2500},
		{"json", jsonDocument(1, 3), 3},
		{"json with byte order mark", "\uFEFF" + jsonDocument(1, 3), 3},
		{"json gzipped", gzipped("\uFEFF" + jsonDocument(1, 2500)), 2500},
		{"json without changes", `{"changes":[]}`, 0},
		{"ndjson", lines(1, 3), 3},
		{"ndjson without final newline", strings.TrimSpace(lines(1, 3)), 3},
		{"ndjson with blank lines", "\n\n" + lines(1, 2) + "\r\n\n" + lines(3, 3) + "\n\n", 3},
		{"ndjson with byte order mark", "\uFEFF" + lines(1, 3), 3},
		{"ndjson in gzip of several members", gzipped(lines(1, 1000), lines(1001, 2500)), 2500},
		{"ndjson in other order", `{"change":"updated","loc":"https://example.org/1"}`, 1},
		{"ndjson that starts with other members", `{"lastmod":"2026-01-01","length":3,"ln":[{"rel":"up","href":"https://a/"}],"loc":"https://example.org/1","change":"updated"}`, 1},
		{"empty", "", 0},
		{"blank", " \n\t\n", 0},
		{"gzip with padding", gzipped(lines(1, 3)) + strings.Repeat("\x00", 512), 3},
		{"gzip of nothing", gzipped(""), 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newTestEnv(t)
			var flags []string
			if test.want == 0 {
				b.run(exitInput, b.write("any.name", test.content))
				b.checkStderr("any.name: input has no changes; use -allow-empty")
				b.stdin = strings.NewReader(test.content)
				b.run(exitInput, "-")
				b.checkStderr("input has no changes; use -allow-empty")
				flags = []string{"-allow-empty"}
			}
			b.run(0, append(flags, b.write("any.name", test.content))...)
			b.checkPublished(test.want)
			if want := "published " + progress.Count(test.want, "change") + " to peps"; !strings.HasPrefix(b.stdout, want) {
				t.Errorf("stdout = %q, want prefix %q", b.stdout, want)
			}

			b.hub.locs = nil
			b.stdin = strings.NewReader(test.content)
			b.run(0, append(flags, "-")...)
			b.checkPublished(test.want)
		})
	}
}

// TestAllErrorsAreReported checks that all errors in a file are reported at once.
func TestAllErrorsAreReported(t *testing.T) {
	wrong := func(document string) string {
		return strings.NewReplacer(testLoc(2), "/2", `"`+testLoc(4)+`","change":"updated"`, `"x:4","change":"moved"`, testLoc(4)+"</loc>", "x:4</loc><loc/>").Replace(document)
	}
	for name, content := range map[string]string{"xml": wrong(xmlDocument("changelist", 1, 6)), "json": wrong(jsonDocument(1, 6)), "ndjson": wrong(lines(1, 6))} {
		t.Run(name, func(t *testing.T) {
			b := newTestEnv(t)
			b.run(exitInput, "-check", b.write(name, content))
			b.checkStderr("entry 2 (/2)", "entry 4 (x:4)")
			if text := b.stderr; strings.Contains(text, "entry 3") || strings.Contains(text, "entry 5") {
				t.Errorf("stderr = %s, want errors of entries 2 and 4 only", text)
			}
		})
	}
}

func TestSourceDatetimeIsPreserved(t *testing.T) {
	b := newTestEnv(t)
	b.run(0, b.write("a", xmlDocument("changelist", 1, 1)))
	if want := `"datetime":"2026-01-01T10:00:00Z"`; !strings.Contains(b.hub.requests[0].body, want) {
		t.Errorf("body = %s, want %s", b.hub.requests[0].body, want)
	}
}

func TestBadInput(t *testing.T) {
	bad := lines(1, 1499) + "\n" + `{"loc":"/relative","change":"updated"}` + "\n" + lines(1501, 1600)
	for _, test := range []struct {
		name, content string
		want          []string
	}{
		{"relative loc", bad, []string{"line 1501: entry 1500 (/relative)", "absolute"}},
		{"unknown member", lines(1, 1) + `{"loc":"https://a/","change":"updated","size":3}`, []string{"line 2: entry 2", "size"}},
		{"broken line", lines(1, 1) + `{"loc":`, []string{"line 2: entry 2"}},
		{"line too long", lines(1, 1) + `{"loc":"` + strings.Repeat("x", 2<<20), []string{"line 2: entry 2", "1,048,576"}},
		{"gzip of a line too long", gzipped(lines(1, 1) + `{"loc":"` + strings.Repeat("x", 8<<20)), []string{"line 2: entry 2", "1,048,576"}},
		{"gzip of white space", gzipped(strings.Repeat(" ", 8<<20)), []string{"white space"}},
		{"xml entry", strings.Replace(xmlDocument("changelist", 1, 3), `"updated"`, `"moved"`, 1), []string{"entry 1", "moved"}},
		{"xml relative loc", strings.Replace(xmlDocument("changelist", 1, 3), testLoc(2), "/2", 1), []string{"entry 2 (/2)"}},
		{"xml cut", xmlDocument("changelist", 1, 3)[:400], []string{"line"}},
		{"xml too long", xmlDocument("changelist", 1, 50_001), []string{"50,000 entries"}},
		{"resource list", xmlDocument("resourcelist", 1, 3), []string{`"resourcelist"`}},
		{"index", strings.ReplaceAll(xmlDocument("changelist", 1, 0), "urlset", "sitemapindex"), []string{"an index"}},
		{"json entry", strings.Replace(jsonDocument(1, 3), testLoc(2), "/2", 1), []string{"entry 2 (/2)"}},
		{"json cut", strings.TrimSuffix(jsonDocument(1, 3), "}\n"), []string{"ends early"}},
		{"json of a resource list", `{"capability":"resourcelist","changes":[]}`, []string{`"resourcelist"`}},
		{"array", "[" + lines(1, 1) + "]", []string{`starts with '['`}},
		{"text", "hello", []string{`starts with 'h'`}},
		{"gzip cut", gzipped(lines(1, 3000))[:300], []string{"gzip data ends early"}},
		{"gzip without its end", strings.TrimSuffix(gzipped(lines(1, 3)), "\x00"), []string{"gzip data ends early"}},
		{"bytes after the gzip of ndjson", gzipped(lines(1, 3)) + "\n", []string{"1 byte after the end of the gzip data"}},
		{"bytes after the gzip of json", gzipped(jsonDocument(1, 3)) + "<html>", []string{"a.xml: read document: 6 bytes after the end of the gzip data"}},
		{"bytes after the gzip of xml", gzipped(xmlDocument("changelist", 1, 3)) + "<html>", []string{"a.xml: read document: 6 bytes after the end of the gzip data"}},
		{"gzip of json cut", gzipped(jsonDocument(1, 3000))[:300], []string{"a.xml: read document: gzip data ends early"}},
		{"gzip header only", "\x1f\x8b", []string{"gzip data ends early"}},
		{"object that is neither document nor change", `{"a":1}`, []string{"line 1: entry 1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newTestEnv(t)
			good := b.write("good", lines(1, 1))
			b.run(exitInput, good, b.write("a.xml", test.content))
			b.checkStderr(append(test.want, "a.xml: ", "nothing was sent")...)
			if len(b.hub.requests) > 0 || b.stdout != "" {
				t.Errorf("%d requests, stdout %q, want none", len(b.hub.requests), b.stdout)
			}
		})
	}
}

func TestBadStreamReportsProgress(t *testing.T) {
	b := newTestEnv(t)
	b.stdin = strings.NewReader(lines(1, 2400) + `{"loc":"/relative","change":"updated"}` + "\n" + lines(2402, 2500))
	b.run(exitInput, "-key", "my-key", "-")
	b.checkPublished(2000)
	b.checkStderr("standard input: line 2401: entry 2401 (/relative)", "published so far: 2,000 changes", "-key my-key")

	// With the same key, the corrected input resumes after the accepted batches.
	b.stdin = strings.NewReader(lines(1, 2500))
	b.run(0, "-key", "my-key", "-")
	b.checkPublished(2500)
	if want := "published 2500 changes to peps, cursor 2500-2500 (2000 already published)\n"; b.stdout != want {
		t.Errorf("stdout = %q, want %q", b.stdout, want)
	}
}

func TestUnreadableFiles(t *testing.T) {
	b := newTestEnv(t)
	b.run(exitInput, filepath.Join(b.dir, "nosuch"))
	b.checkStderr("nosuch")
	b.run(exitInput, b.dir)
	b.checkStderr("is a directory")
}

func FuzzInput(f *testing.F) {
	for _, seed := range []string{"", " \n", lines(1, 2), jsonDocument(1, 2), xmlDocument("changelist", 1, 2), "\uFEFF" + lines(1, 1),
		gzipped(xmlDocument("changelist", 1, 2)), gzipped(jsonDocument(1, 2), " "), "\x1f\x8b", "{", `{"changes":`, `{"a":[[[[`, "<", "[1]", `{"loc":1}`, "{}\n{}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		decode := func(r io.Reader) (n int, err error) {
			in := &input{stream: r}
			for e, err := range in.read(t.Context(), io.Discard) {
				if err != nil {
					return n, err
				}
				if n++; e.number != n {
					t.Fatalf("number of entry %d = %d", n, e.number)
				}
				if err := e.change.Validate(); err != nil {
					t.Fatal(err)
				}
				var b batch
				if !b.add(e) || bytes.Count(b.body, []byte("\n")) != 1 {
					t.Fatalf("body = %q, want one line", b.body)
				}
				again, err := resourcesync.ParseChange(bytes.TrimSpace(b.body))
				if err != nil || again.Validate() != nil {
					t.Fatalf("the hub cannot read %q: %v", b.body, err)
				}
			}
			return n, nil
		}
		n, err := decode(bytes.NewReader(content))
		// The result must not depend on the sizes of reads, or on gzip.
		slow, slowErr := decode(iotest.OneByteReader(bytes.NewReader(content)))
		if n != slow || (err == nil) != (slowErr == nil) {
			t.Fatalf("%d changes, %v; byte by byte %d, %v", n, err, slow, slowErr)
		}
		if !bytes.HasPrefix(content, []byte{0x1f, 0x8b}) {
			packed, packedErr := decode(strings.NewReader(gzipped(string(content))))
			if n != packed || (err == nil) != (packedErr == nil) {
				t.Fatalf("%d changes, %v; gzipped %d, %v", n, err, packed, packedErr)
			}
		}
	})
}
