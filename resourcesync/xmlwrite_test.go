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

// goldenDocuments returns a document of every kind by the name of their file in testdata.
func goldenDocuments() map[string]*Document {
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

// goldenFile returns the path of the golden file for a document of goldenDocuments.
func goldenFile(name string) string { return filepath.Join("testdata", name+".golden.xml") }

func TestWriteXML(t *testing.T) {
	for name, d := range goldenDocuments() {
		t.Run(name, func(t *testing.T) {
			got := marshalXML(t, d)
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
				t.Errorf("got\n%swant, from %s\n%s", got, goldenFile(name), want)
			}
			checkReadBack(t, got, d)
		})
	}
}

// marshalXML returns the XML of d.
func marshalXML(t testing.TB, d *Document) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := d.WriteXML(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// checkReadBack checks that ReadXML of text returns d.
func checkReadBack(t testing.TB, text []byte, d *Document) {
	t.Helper()
	back, err := ReadXML(bytes.NewReader(text), Limits{})
	if err != nil {
		t.Fatalf("ReadXML = %v\n%s", err, text)
	}
	if !reflect.DeepEqual(back, d) {
		t.Errorf("document after writing and reading\ngot  %+v\nwant %+v\n%s", back, d, text)
	}
}

// TestSchema validates the written documents against the schema of the standard with
// xmllint. It also checks that the schema rejects an invalid document.
func TestSchema(t *testing.T) {
	xmllint, err := exec.LookPath("xmllint")
	if err != nil {
		t.Skip("xmllint is not installed; to check documents against the schema, install libxml2-utils (Debian)")
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
	documents := goldenDocuments()
	for _, file := range examples(t, "testdata/examples/*.xml") {
		documents[filepath.Base(file)] = readExample(t, file)
	}
	for name, d := range documents {
		t.Run(name, func(t *testing.T) {
			text := marshalXML(t, d)
			if out, err := check(t, d.Index, text); err != nil {
				t.Errorf("%v: %s\n%s", err, out, text)
			}
		})
	}
	t.Run("with namespaces", func(t *testing.T) {
		d := goldenDocuments()["notification"]
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
	t.Run("invalid", func(t *testing.T) {
		if out, err := check(t, false, []byte(document(`<url><rs:md change="moved"/><loc>https://example.org/</loc></url>`))); err == nil {
			t.Errorf("xmllint accepts an invalid document: %s", out)
		}
	})
}

func TestNamespaces(t *testing.T) {
	it := &Item{Change: Change{Loc: "urn:x:a", Attrs: []Attr{
		{"urn:o", "a", "1"}, {Terms, "position", "7"}, {"urn:p", "b", "2"}, {"urn:o", "c", "3"}, {xmlNS, "lang", "de"},
		{"", "none", ""}, {rsNS, "hash", ""}, {"urn:o", `bad="`, ""}, // Validate rejects these, and they are omitted
	}}}
	for _, test := range []struct {
		name string
		ns   *Namespaces
		root string
		md   string
	}{
		{"nil", nil, ``, ` xmlns:ns1="urn:o" ns1:a="1" xmlns:ns2="` + Terms + `" ns2:position="7" xmlns:ns3="urn:p" ns3:b="2" ns1:c="3" xml:lang="de"`},
		{"declared", NewNamespaces("h", Terms, "o", "urn:o"), ` xmlns:h="` + Terms + `" xmlns:o="urn:o"`,
			` o:a="1" h:position="7" xmlns:ns3="urn:p" ns3:b="2" o:c="3" xml:lang="de"`},
		{"prefixes that cannot be declared", NewNamespaces("rs", "urn:o", "ns1", "urn:o", "xml", "urn:o", "", "urn:o", "a b", "urn:o", "q", "", "r", rsNS, "h", Terms, "h", "urn:o", "odd"),
			` xmlns:h="` + Terms + `"`, ` xmlns:ns1="urn:o" ns1:a="1" h:position="7" xmlns:ns3="urn:p" ns3:b="2" ns1:c="3" xml:lang="de"`},
		{"escaped", NewNamespaces("h", Terms, "o", "urn:o", "e", `urn:"&`), ` xmlns:h="` + Terms + `" xmlns:o="urn:o" xmlns:e="urn:&quot;&amp;"`,
			` o:a="1" h:position="7" xmlns:ns3="urn:p" ns3:b="2" o:c="3" xml:lang="de"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := new(Header)
			text := AppendXMLHeader(nil, h, test.ns)
			if want := `xmlns:rs="` + rsNS + `"` + test.root + ">\n"; !strings.HasSuffix(string(text), want) {
				t.Errorf("AppendXMLHeader = %s, want suffix %s", text, want)
			}
			text = AppendXMLItem(text, it, test.ns)
			if want := "<rs:md" + test.md + "/></url>"; !strings.Contains(string(text), want) {
				t.Errorf("AppendXMLItem = %s, want substring %s", text, want)
			}
			d, err := ReadXML(bytes.NewReader(AppendXMLFooter(text, h)), Limits{})
			if err != nil {
				t.Fatal(err)
			}
			want := []Attr{{"urn:o", "a", "1"}, {"urn:p", "b", "2"}, {"urn:o", "c", "3"}, {xmlNS, "lang", "de"}}
			if got := d.Items[0].Attrs; !reflect.DeepEqual(got, want) {
				t.Errorf("attributes after reading: got %v, want %v", got, want)
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
		t.Fatalf("ReadXML = %v, want well-formed XML\n%s", err, text)
	}
	if len(d.Items[0].Attrs) > 0 {
		t.Errorf("Attrs = %v, want none", d.Items[0].Attrs)
	}
	if want := "a<&>\"'\uFFFD\uFFFD\uFFFD]]>"; d.Items[0].Loc != want {
		t.Errorf("Loc = %q, want %q", d.Items[0].Loc, want)
	}
}

func TestAppendXMLItemInIndex(t *testing.T) {
	it := &Item{Change: Change{Loc: "urn:x:a", Changefreq: "daily"}}
	got := string(AppendXMLItem(nil, it, &Namespaces{Index: true}))
	if want := "  <sitemap><loc>urn:x:a</loc></sitemap>\n"; got != want {
		t.Errorf("AppendXMLItem = %q, want %q", got, want)
	}
}

type failingWriter struct{}

var errWrite = errors.New("write failed")

func (failingWriter) Write([]byte) (int, error) { return 0, errWrite }

func TestWriteXMLReturnsWriteErrors(t *testing.T) {
	d := &Document{Items: make([]Item, 10_000)}
	if err := d.WriteXML(failingWriter{}); !errors.Is(err, errWrite) {
		t.Errorf("WriteXML = %v, want %v", err, errWrite)
	}
	if err := new(Document).WriteXML(failingWriter{}); !errors.Is(err, errWrite) {
		t.Errorf("WriteXML of an empty document = %v, want %v", err, errWrite)
	}
}
