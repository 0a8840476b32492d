package resourcesync

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files")

// golden are documents of every kind, by the name of their file in testdata.
func golden() map[string]*Document {
	at := func(minute int) time.Time { return time.Date(2013, 1, 3, 0, minute, 22, 120_000, time.UTC) }
	up := []Link{{Rel: "up", Href: "https://hub.example.org/sets/a/capabilitylist.xml"}}
	return map[string]*Document{
		"notification": {
			Header{Capability: ChangeNotification, From: at(0), Until: at(9), Links: up, Attrs: []Attr{{"urn:example:other", "cut", "yes"}}},
			[]Item{
				{Change: Change{Loc: "https://example.org/a?b=c&d='e'", Change: Created, Datetime: at(1)}},
				{Change: Change{
					Loc: "https://example.org/all", Change: Updated, Datetime: at(2), Lastmod: time.Date(2013, 1, 1, 0, 0, 0, 0, time.UTC),
					Changefreq: "daily", Hash: "md5:1584abdf8ebdc9802ac0c6a7402c03b6 sha-1:da39a3ee5e6b4b0d3255bfef95601890afd80709",
					Length: size(8876), Type: "application/pdf", Encoding: "gzip", Path: "/a b/ü.pdf",
					Links: []Link{
						{Rel: "duplicate", Href: "gsiftp://example.com/a", Pri: 1, Modified: at(0), Hash: "md5:1584abdf8ebdc9802ac0c6a7402c03b6", Length: size(0), Type: "text/html", Encoding: "br", Path: "/b", Profile: "http://purl.org/dc/terms/"},
						{Rel: "http://www.openarchives.org/rs/terms/patch", Href: "https://example.org/p", Attrs: []Attr{{"urn:example:other", "how", "json"}}},
					},
					Attrs: []Attr{{"urn:example:other", "title", "<\"A\" &\n'B'> \u2028 ü 𝄞"}, {"urn:example:third", "x", ""}, {"urn:example:other", "note", "\t"}, {xmlNS, "lang", "de"}},
				}},
				{Change: Change{Loc: "https://example.org/gone", Change: Deleted, Datetime: at(3)}},
			},
		},
		"changelist-open": {
			Header{Capability: ChangeList, From: at(0), Links: up},
			[]Item{{Change: Change{Loc: "https://example.org/a", Change: Updated, Datetime: at(1), Lastmod: at(0)}}},
		},
		"changelist-index": {
			Header{Index: true, Capability: ChangeList, From: at(0), Links: up},
			[]Item{
				{Change: Change{Loc: "https://hub.example.org/sets/a/changelist-1.xml", Lastmod: at(4)}, From: at(0), Until: at(4)},
				{Change: Change{Loc: "https://hub.example.org/sets/a/changelist-2.xml"}, From: at(4)},
			},
		},
		"capabilitylist": {
			Header{Capability: CapabilityList, Links: []Link{{Rel: "up", Href: "https://hub.example.org/.well-known/resourcesync"}, {Rel: "describedby", Href: "https://example.org/about", Type: "text/html"}}},
			[]Item{
				{Change: Change{Loc: "https://hub.example.org/sets/a/changelist-index.xml"}, Capability: ChangeList},
				{Change: Change{Loc: "https://hub.example.org/sets/a/changes", Links: []Link{{Rel: "hub", Href: "https://hub.example.org/hub"}}}, Capability: ChangeNotification},
			},
		},
		"resourcelist": {
			Header{Capability: ResourceList, At: at(0), Completed: at(1), Links: up},
			[]Item{{Change: Change{Loc: "https://example.org/a", Lastmod: at(0), Length: size(7), Type: "text/html"}}, {Change: Change{Loc: "https://example.org/b"}}},
		},
		"resourcelist-index": {
			Header{Index: true, Capability: ResourceList, At: at(0), Links: up},
			[]Item{{Change: Change{Loc: "https://hub.example.org/sets/a/resourcelist-1.xml"}, At: at(0), Completed: at(1)}},
		},
		"description": {
			Header{Capability: Description},
			[]Item{{Change: Change{Loc: "https://hub.example.org/sets/a/capabilitylist.xml"}, Capability: CapabilityList}},
		},
	}
}

func goldenFile(name string) string { return filepath.Join("testdata", name+".golden.xml") }

func TestWriteXML(t *testing.T) {
	for name, d := range golden() {
		t.Run(name, func(t *testing.T) {
			got := written(t, d)
			if *update {
				if err := os.WriteFile(goldenFile(name), got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(goldenFile(name))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("got\n%swant, as in %s,\n%s", got, goldenFile(name), want)
			}
			wantSame(t, got, d)
		})
	}
}

func written(t testing.TB, d *Document) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := d.WriteXML(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// wantSame reads text and wants d of it.
func wantSame(t testing.TB, text []byte, d *Document) {
	t.Helper()
	back, err := ReadXML(bytes.NewReader(text), Limits{})
	if err != nil {
		t.Fatalf("reading what was written: %v\n%s", err, text)
	}
	if !reflect.DeepEqual(back, d) {
		t.Errorf("writing and reading changed the document\ngot  %+v\nwant %+v\n%s", back, d, text)
	}
}

// TestSchema checks what is written, and the schema's reading of the examples
// to be sure that the schema is in force, with an XML tool that is not ours.
func TestSchema(t *testing.T) {
	xmllint, err := exec.LookPath("xmllint")
	if err != nil {
		t.Skip("xmllint is not installed (Debian: libxml2-utils), documents are not checked against the schema")
	}
	check := func(t *testing.T, index bool, text []byte) (string, error) {
		schema := "testdata/xsd/urlset.xsd"
		if index {
			schema = "testdata/xsd/sitemapindex.xsd"
		}
		cmd := exec.Command(xmllint, "--nonet", "--noout", "--schema", schema, "-")
		cmd.Stdin = bytes.NewReader(text)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	documents := golden()
	for _, file := range examples(t, "testdata/examples/*.xml") {
		documents[filepath.Base(file)] = readExample(t, file)
	}
	for name, d := range documents {
		t.Run(name, func(t *testing.T) {
			text := written(t, d)
			if out, err := check(t, d.Index, text); err != nil {
				t.Errorf("%v: %s\n%s", err, out, text)
			}
		})
	}
	t.Run("with namespaces", func(t *testing.T) {
		d := golden()["notification"]
		ns := NewNamespaces("h", Terms, "o", "urn:example:other")
		d.Attrs = append(d.Attrs, Attr{Terms, "cursor", "7-1357171642120000"})
		text := AppendXMLHeader(nil, &d.Header, ns)
		for _, it := range d.Items {
			text = AppendXMLItem(text, &it, ns)
		}
		text = AppendXMLFooter(text, &d.Header)
		if out, err := check(t, false, text); err != nil {
			t.Errorf("%v: %s\n%s", err, out, text)
		}
	})
	t.Run("broken", func(t *testing.T) {
		if out, err := check(t, false, []byte(document(`<url><rs:md change="moved"/><loc>https://example.org/</loc></url>`))); err == nil {
			t.Errorf("the schema lets a broken document pass: %s", out)
		}
	})
}

func TestNamespaces(t *testing.T) {
	it := &Item{Change: Change{Loc: "urn:x:a", Attrs: []Attr{
		{"urn:o", "a", "1"}, {Terms, "position", "7"}, {"urn:p", "b", "2"}, {"urn:o", "c", "3"}, {xmlNS, "lang", "de"},
		{"", "none", ""}, {rsNS, "hash", ""}, {"urn:o", `bad="`, ""}, // Validate refuses these; they are left out
	}}}
	for _, test := range []struct {
		name string
		ns   *Namespaces
		root string
		md   string
	}{
		{"nil", nil, ``, ` xmlns:ns1="urn:o" ns1:a="1" xmlns:ns2="` + Terms + `" ns2:position="7" xmlns:ns3="urn:p" ns3:b="2" ns1:c="3" xml:lang="de"`},
		{"known", NewNamespaces("h", Terms, "o", "urn:o"), ` xmlns:h="` + Terms + `" xmlns:o="urn:o"`,
			` o:a="1" h:position="7" xmlns:ns3="urn:p" ns3:b="2" o:c="3" xml:lang="de"`},
		{"not to be declared", NewNamespaces("rs", "urn:o", "ns1", "urn:o", "xml", "urn:o", "", "urn:o", "a b", "urn:o", "q", "", "r", rsNS, "h", Terms, "h", "urn:o", "odd"),
			` xmlns:h="` + Terms + `"`, ` xmlns:ns1="urn:o" ns1:a="1" h:position="7" xmlns:ns3="urn:p" ns3:b="2" ns1:c="3" xml:lang="de"`},
		{"escaped", NewNamespaces("h", Terms, "o", "urn:o", "e", `urn:"&`), ` xmlns:h="` + Terms + `" xmlns:o="urn:o" xmlns:e="urn:&quot;&amp;"`,
			` o:a="1" h:position="7" xmlns:ns3="urn:p" ns3:b="2" o:c="3" xml:lang="de"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := new(Header)
			text := AppendXMLHeader(nil, h, test.ns)
			if want := `xmlns:rs="` + rsNS + `"` + test.root + ">\n"; !strings.HasSuffix(string(text), want) {
				t.Errorf("root %s does not end with %s", text, want)
			}
			text = AppendXMLItem(text, it, test.ns)
			if want := "<rs:md" + test.md + "/></url>"; !strings.Contains(string(text), want) {
				t.Errorf("entry %s has not %s", text, want)
			}
			d, err := ReadXML(bytes.NewReader(AppendXMLFooter(text, h)), Limits{})
			if err != nil {
				t.Fatal(err)
			}
			want := []Attr{{"urn:o", "a", "1"}, {"urn:p", "b", "2"}, {"urn:o", "c", "3"}, {xmlNS, "lang", "de"}}
			if got := d.Items[0].Attrs; !reflect.DeepEqual(got, want) {
				t.Errorf("read back %v, want %v", got, want)
			}
		})
	}
}

func TestAppendXMLItemIsWellFormed(t *testing.T) {
	bad := "a<&>\"'\x00\xff\uFFFE]]>"
	it := &Item{Change: Change{
		Loc: bad, Changefreq: bad, Hash: bad, Type: bad, Encoding: bad, Path: bad,
		Links: []Link{{Rel: bad, Href: bad}}, Attrs: []Attr{{bad, "a", bad}, {"urn:x", bad, bad}},
	}}
	h := &Header{Capability: bad}
	text := AppendXMLFooter(AppendXMLItem(AppendXMLHeader(nil, h, nil), it, nil), h)
	d, err := ReadXML(bytes.NewReader(text), Limits{})
	if err != nil {
		t.Fatalf("not well-formed: %v\n%s", err, text)
	}
	if len(d.Items[0].Attrs) > 0 {
		t.Errorf("attributes are left over: %v", d.Items[0].Attrs)
	}
	if want := "a<&>\"'\uFFFD\uFFFD\uFFFD]]>"; d.Items[0].Loc != want {
		t.Errorf("loc is %q, want %q", d.Items[0].Loc, want)
	}
}

func TestAppendXMLItemOfAnIndex(t *testing.T) {
	it := &Item{Change: Change{Loc: "urn:x:a", Changefreq: "daily"}}
	got := string(AppendXMLItem(nil, it, &Namespaces{Index: true}))
	if want := "  <sitemap><loc>urn:x:a</loc></sitemap>\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestWriteXMLPassesErrorsOn(t *testing.T) {
	d := &Document{Items: make([]Item, 10_000)}
	if err := d.WriteXML(brokenWriter{}); !errors.Is(err, errBroken) {
		t.Errorf("WriteXML = %v", err)
	}
	if err := new(Document).WriteXML(brokenWriter{}); !errors.Is(err, errBroken) {
		t.Errorf("WriteXML of nothing = %v", err)
	}
}
