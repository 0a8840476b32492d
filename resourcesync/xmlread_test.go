package resourcesync

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

const root = `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">`

// document returns a urlset with the given content, which starts on line 1.
func document(inner string) string { return root + inner + "</urlset>" }

func TestReadXML(t *testing.T) {
	at := time.Date(2013, 1, 3, 0, 7, 22, 0, time.UTC)
	minimal := Item{Change: Change{Loc: "urn:x:a"}}
	for _, test := range []struct {
		name string
		in   string
		want Document
	}{
		{"no entries", document(""), Document{}},
		{"notification", document(`
			<rs:ln rel="up" href="https://example.org/capabilitylist.xml"/>
			<rs:md capability="change-notification" from="2013-01-03T00:07:22Z" until="2013-01-03T01:07:22+01:00"/>
			<url><loc> urn:x:a
			</loc><lastmod> 2013-01-03 </lastmod><changefreq>daily</changefreq><priority>0.5</priority>
			<rs:md change="deleted" datetime="2013-01-03T00:07:22Z" hash=" md5:00
				sha-256:11 " length="8876" type=" a/b" encoding="gzip" path="/a"/>
			<rs:ln rel="duplicate" href="urn:x:b" pri="1" modified="2013-01-03T00:07:22Z" hash="a:b" length="0" type="a/c" encoding="br" path="/b" profile="urn:x:p"/>
			<rs:ln rel="via" href="urn:x:c"/></url>`),
			Document{
				Header{Capability: ChangeNotification, From: at, Until: at, Links: []Link{{Rel: "up", Href: "https://example.org/capabilitylist.xml"}}},
				[]Item{{Change: Change{
					Loc: "urn:x:a", Change: Deleted, Datetime: at, Lastmod: time.Date(2013, 1, 3, 0, 0, 0, 0, time.UTC), Changefreq: "daily",
					Hash: "md5:00 sha-256:11", Length: size(8876), Type: "a/b", Encoding: "gzip", Path: "/a",
					Links: []Link{
						{Rel: "duplicate", Href: "urn:x:b", Pri: 1, Modified: at, Hash: "a:b", Length: size(0), Type: "a/c", Encoding: "br", Path: "/b", Profile: "urn:x:p"},
						{Rel: "via", Href: "urn:x:c"},
					},
				}}},
			}},
		{"index", `<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
			<rs:md capability="changelist" from="2013-01-03T00:07:22Z"/>
			<sitemap><loc>urn:x:a</loc><rs:md from="2013-01-03T00:07:22Z" until="2013-01-03T00:07:22Z"/></sitemap></sitemapindex>`,
			Document{Header{Index: true, Capability: ChangeList, From: at}, []Item{{Change: Change{Loc: "urn:x:a"}, From: at, Until: at}}}},
		{"capability and times of an entry", document(`<rs:md capability="later-version" at="2013-01-03T00:07:22Z" completed="2013-01-03T00:07:22Z"/>
			<url><loc>urn:x:a</loc><rs:md capability="resourcelist" at="2013-01-03T00:07:22Z" completed="2013-01-03T00:07:22Z"/></url>`),
			Document{Header{Capability: "later-version", At: at, Completed: at}, []Item{{Change: Change{Loc: "urn:x:a"}, Capability: ResourceList, At: at, Completed: at}}}},
		{"other prefixes", `<s:urlset xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9"><md xmlns="http://www.openarchives.org/rs/terms/" capability="changelist"/>
			<s:url><s:loc>urn:x:a</s:loc></s:url></s:urlset>`,
			Document{Header{Capability: ChangeList}, []Item{minimal}}},
		{"prefix rebound in a nested element", document(`<url><loc>urn:x:a</loc><a:a xmlns:a="urn:o"><a:a xmlns:a="urn:p"/></a:a><rs:md xmlns:o="urn:o" o:a="b"/></url>`),
			Document{Items: []Item{{Change: Change{Loc: "urn:x:a", Attrs: []Attr{{"urn:o", "a", "b"}}}}}}},
		{"foreign attributes", document(`<rs:md xmlns:o="urn:o" o:seq="7"/><url><loc>urn:x:a</loc>
			<rs:md xmlns:o="urn:o" xmlns:h="` + Terms + `" o:a=" b&#10;" h:position="7" xml:lang="de" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:nil="true"/>
			<rs:ln rel="up" href="urn:x:b" xmlns:o="urn:o" xmlns:h="` + Terms + `" o:b="" h:c="d"/></url>`),
			Document{Header{Attrs: []Attr{{"urn:o", "seq", "7"}}}, []Item{{Change: Change{Loc: "urn:x:a",
				Attrs: []Attr{{"urn:o", "a", " b\n"}, {xmlNS, "lang", "de"}},
				Links: []Link{{Rel: "up", Href: "urn:x:b", Attrs: []Attr{{"urn:o", "b", ""}}}}}}}}},
		{"foreign elements", document(`<x:x xmlns:x="urn:o">t<x:x/></x:x><url><loc>urn:x:a</loc>
			<image:image xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"><image:loc>urn:x:b</image:loc></image:image></url><x:x xmlns:x="urn:o"/>`),
			Document{Items: []Item{minimal}}},
		{"any order in an entry", document(`<url><rs:ln rel="up" href="urn:x:b"/><rs:md change="created"/><lastmod>2013-01-03T00:07:22Z</lastmod><loc>urn:x:a</loc></url>`),
			Document{Items: []Item{{Change: Change{Loc: "urn:x:a", Change: Created, Lastmod: at, Links: []Link{{Rel: "up", Href: "urn:x:b"}}}}}}},
		{"version 1.0, with lastmod only", document(`<rs:md capability="changelist-notification"/><url><loc>urn:x:a</loc><lastmod>2013-01-03T00:07:22Z</lastmod><rs:md change="created"/></url>`),
			Document{Header{Capability: ChangeListNotification}, []Item{{Change: Change{Loc: "urn:x:a", Change: Created, Lastmod: at}}}}},
		{"references, comments, CDATA", "<?xml version='1.0'?>\n<?style x?><!-- c -->" + document(`<url><!-- c --><loc>urn:x<!-- c -->:<![CDATA[a]]>&#38;&amp;</loc></url>`) + "<!-- c -->\n",
			Document{Items: []Item{{Change: Change{Loc: "urn:x:a&&"}}}}},
		{"byte order mark", "\uFEFF<?xml version=\"1.0\" encoding=\"utf-8\"?>" + document(`<url><loc>urn:x:a</loc></url>`), Document{Items: []Item{minimal}}},
		{"US-ASCII", `<?xml version="1.0" encoding="US-ASCII" standalone="yes"?>` + document(`<url><loc>urn:x:a</loc></url>`), Document{Items: []Item{minimal}}},
		{"meaningless attributes", document(`<url id="1"><loc x="y">urn:x:a</loc><rs:md modified="whenever"/></url>`), Document{Items: []Item{minimal}}},
		{"longest length", document(`<url><loc>urn:x:a</loc><rs:md length="9223372036854775807"/></url>`),
			Document{Items: []Item{{Change: Change{Loc: "urn:x:a", Length: size(1<<63 - 1)}}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for name, in := range map[string]io.Reader{
				"whole":       strings.NewReader(test.in),
				"by the byte": iotest.OneByteReader(strings.NewReader(test.in)),
			} {
				got, err := ReadXML(in, Limits{})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if !reflect.DeepEqual(*got, test.want) {
					t.Errorf("%s: got  %+v\nwant %+v", name, *got, test.want)
				}
			}
		})
	}
}

func TestReadXMLErrors(t *testing.T) {
	const good = "<url><loc>urn:x:a</loc></url>\n"
	entry := func(inner string) string { return document("\n" + good + "<url><loc>urn:x:b</loc>" + inner + "</url>") }
	for _, test := range []struct {
		name  string
		in    string
		entry int
		line  int
		msg   string
	}{
		{"empty", "", 0, 1, "is empty"},
		{"white space", " \n", 0, 2, "is empty"},
		{"JSON", `{"changes":[]}`, 0, 1, "text outside the root element"},
		{"HTML", "<html></html>", 0, 1, "want urlset or sitemapindex"},
		{"no namespace", "<urlset></urlset>", 0, 1, "want urlset or sitemapindex"},
		{"old sitemap", `<urlset xmlns="http://www.google.com/schemas/sitemap/0.84"/>`, 0, 1, "want urlset or sitemapindex"},
		{"entry in another namespace", document("\n" + good + `<url xmlns=""><loc>urn:x:b</loc></url>`), 0, 3, `unexpected element "url" in namespace ""`},
		{"DOCTYPE", "<!DOCTYPE urlset>" + document(""), 0, 1, "document type"},
		{"entity bomb", `<!DOCTYPE a [<!ENTITY a "b"><!ENTITY c "&a;&a;">]>` + document("&c;"), 0, 1, "document type"},
		{"external entity", `<!DOCTYPE a [<!ENTITY a SYSTEM "file:///etc/passwd">]>` + document("&a;"), 0, 1, "document type"},
		{"directive in the root", document("<!ELEMENT a ANY>"), 0, 1, "document type"},
		{"unknown entity", entry("<lastmod>&now;</lastmod>"), 2, 3, `unknown entity "&now;"`},
		{"HTML entity", entry(`<rs:md type="&nbsp;"/>`), 2, 3, `unknown entity "&nbsp;"`},
		{"Latin 1", `<?xml version="1.0" encoding="ISO-8859-1"?>` + document(""), 0, 1, `document encoding: got "ISO-8859-1", want UTF-8`},
		{"UTF-16", "\xFE\xFF\x00<", 0, 1, "got UTF-16 or UTF-32, want UTF-8"},
		{"UTF-16 without mark", "<\x00u\x00", 0, 1, "got UTF-16 or UTF-32, want UTF-8"},
		{"XML 1.1", `<?xml version="1.1"?>` + document(""), 0, 1, "version"},
		{"declaration on line 2", "\n<?xml version=\"1.0\"?>" + document(""), 0, 2, "XML declaration is not at the start"},
		{"declaration in an entry", entry(`<?xml version="1.0"?>`), 2, 3, "XML declaration is not at the start"},
		{"not UTF-8", entry("<lastmod>\xff</lastmod>"), 2, 3, "UTF-8"},
		{"comment not UTF-8", entry("<!--\xff-->"), 2, 3, "UTF-8"},
		{"control character", entry("<lastmod>\x01</lastmod>"), 2, 3, "U+0001"},
		{"control reference", entry("<lastmod>&#1;</lastmod>"), 2, 3, ""},
		{"truncated in a tag", root + "\n<url><lo", 1, 2, "ends early"},
		{"truncated in an entry", root + "\n<url><loc>urn:x:a</loc>", 1, 2, "ends early: </url> is missing for <url> on line 2"},
		{"truncated between entries", root + good, 0, 2, "ends early: </urlset> is missing for <urlset> on line 1"},
		{"trailing text", document(good) + "x", 0, 2, "text outside the root element"},
		{"trailing element", document(good) + "<a/>", 0, 2, "after the root"},
		{"second document", document(good) + document(good), 0, 2, "after the root"},
		{"crossed tags", entry("<lastmod></loc>"), 2, 3, "</lastmod> is missing: <lastmod> on line 3 is not closed before </loc>"},
		{"unknown prefix on an element", entry("<x:a/>"), 2, 3, `prefix "x" is not declared`},
		{"unknown prefix on an attribute", entry(`<rs:md x:a="b"/>`), 2, 3, `prefix "x" is not declared`},
		{"prefix out of scope", entry(`<a xmlns="urn:o" xmlns:o="urn:o"/><rs:md o:a="b"/>`), 2, 3, `prefix "o" is not declared`},
		{"empty prefix", entry(`<:a/>`), 2, 3, `invalid qualified name ":a"`},
		{"empty namespace", entry(`<rs:md xmlns:a="" a:b="c"/>`), 2, 3, "is empty"},
		{"xml rebound", entry(`<rs:md xmlns:xml="urn:o"/>`), 2, 3, "must not be redeclared"},
		{"duplicate attribute", entry(`<rs:md length="1" length="2"/>`), 2, 3, `duplicate attribute "length" of "rs:md"`},
		{"duplicate attribute by namespace", entry(`<rs:md xmlns:a="urn:o" xmlns:b="urn:o" a:c="1" b:c="2"/>`), 2, 3, `duplicate attribute "b:c" of "rs:md"`},
		{"prefix declared twice", entry(`<rs:md xmlns:a="urn:o" xmlns:a="urn:p"/>`), 2, 3, `prefix "a" is declared twice`},
		{"attribute without quotes", entry(`<rs:md length=1/>`), 2, 3, "not well-formed"},
		{"less than in an attribute", entry(`<rs:md type="<"/>`), 2, 3, "not well-formed"},
		{"too many attributes", entry("<rs:md" + fmt.Sprintf(strings.Repeat(` a%d=""`, 257), numbers(257)...) + "/>"), 2, 3, "got 257 attributes, want at most 256"},

		{"text in the document", document("x"), 0, 1, "unexpected text in the document"},
		{"text in an entry", entry("x"), 2, 3, "unexpected text in url"},
		{"wrong entry", document("<sitemap><loc>urn:x:a</loc></sitemap>"), 0, 1, `unexpected element "sitemap"`},
		{"wrong entry after an entry", document(good + "<sitemap/>"), 0, 2, `unexpected element "sitemap"`},
		{"unknown element", entry("<owner>me</owner>"), 2, 3, `unexpected element "owner"`},
		{"unknown element of rs", entry("<rs:owner/>"), 2, 3, `unknown ResourceSync element "rs:owner"`},
		{"rs:md after an entry", document(good + `<rs:md capability="changelist"/>`), 0, 2, "must precede the first entry"},
		{"rs:ln after an entry", document(good + `<rs:ln rel="up" href="urn:x:b"/>`), 0, 2, "must precede the first entry"},
		{"two rs:md in the header", document("<rs:md/>\n<rs:md/>"), 0, 2, "more than one rs:md of its own"},
		{"two rs:md in an entry", entry("<rs:md/>\n<rs:md/>"), 2, 4, "entry has more than one rs:md"},
		{"two loc", entry("<loc>urn:x:c</loc>"), 2, 3, "entry has more than one loc"},
		{"two lastmod", entry("<lastmod>2013</lastmod><lastmod>2013</lastmod>"), 2, 3, "entry has more than one lastmod"},
		{"two changefreq", entry("<changefreq>daily</changefreq><changefreq>daily</changefreq>"), 2, 3, "entry has more than one changefreq"},
		{"element in loc", document("<url><loc>a<b/></loc></url>"), 1, 1, "loc: got an element, want text"},
		{"no loc", document("\n<url><rs:md/>\n\n</url>"), 1, 2, "loc is missing"},
		{"empty loc", document("<url><loc> </loc></url>"), 1, 1, "loc is missing"},
		{"unknown change", entry(`<rs:md change="moved"/>`), 2, 3, `change: got "moved", want created, updated or deleted`},
		{"bad lastmod", entry("<lastmod>yesterday</lastmod>"), 2, 3, `lastmod: got "yesterday", want`},
		{"no zone", entry("<lastmod>2013-01-01T00:00:00</lastmod>"), 2, 3, "as the zone"},
		{"empty lastmod", entry("<lastmod/>"), 2, 3, `lastmod: got "", want`},
		{"bad datetime", entry(`<rs:md datetime="1"/>`), 2, 3, `datetime: got "1", want`},
		{"bad at", entry(`<rs:md at="1"/>`), 2, 3, `at: got "1", want`},
		{"bad completed", entry(`<rs:md completed="1"/>`), 2, 3, `completed: got "1", want`},
		{"bad until in the header", document(`<rs:md until="1"/>`), 0, 1, `until: got "1", want`},
		{"bad from in the header", document(`<rs:md from=""/>`), 0, 1, `from: got "", want`},
		{"bad modified", entry(`<rs:ln rel="a" href="urn:x" modified="1"/>`), 2, 3, `modified: got "1", want`},
		{"length with a unit", entry(`<rs:md length="8k"/>`), 2, 3, `length: got "8k", want`},
		{"negative length", entry(`<rs:md length="-1"/>`), 2, 3, `length: got "-1", want`},
		{"length with a sign", entry(`<rs:md length="+1"/>`), 2, 3, `length: got "+1", want`},
		{"fraction of a length", entry(`<rs:md length="1.0"/>`), 2, 3, `length: got "1.0", want`},
		{"empty length", entry(`<rs:md length=""/>`), 2, 3, `length: got "", want`},
		{"length out of range", entry(`<rs:md length="9223372036854775808"/>`), 2, 3, "want a whole number of bytes"},
		{"length of a link", entry(`<rs:ln rel="a" href="urn:x" length="x"/>`), 2, 3, `length: got "x", want`},
		{"pri 0", entry(`<rs:ln rel="a" href="urn:x" pri="0"/>`), 2, 3, `pri: got "0", want 1 to 999999`},
		{"pri too high", entry(`<rs:ln rel="a" href="urn:x" pri="1000000"/>`), 2, 3, `pri: got "1000000", want 1 to 999999`},
		{"no href", entry(`<rs:ln rel="a"/>`), 2, 3, "rs:ln: rel or href is missing"},
		{"no rel", document(`<rs:ln href="urn:x"/>`), 0, 1, "rs:ln: rel or href is missing"},
		{"unknown attribute", entry(`<rs:md owner="me"/>`), 2, 3, `rs:md: unknown attribute "owner"`},
		{"unknown attribute of a link", entry(`<rs:ln rel="a" href="urn:x" change="created"/>`), 2, 3, `rs:ln: unknown attribute "change"`},
		{"attribute with rs prefix", entry(`<rs:md rs:hash="a:b"/>`), 2, 3, "must not have a prefix"},
		{"too many links", entry(strings.Repeat(`<rs:ln rel="a" href="urn:x"/>`, 101)), 2, 3, "too many links; want at most 100"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, err := ReadXML(strings.NewReader(test.in), Limits{})
			wantError(t, err, ErrInvalid, test.entry, test.line, test.msg)
			if d != nil && len(d.Items) > 0 {
				t.Errorf("ReadXML returned %d entries with an error, want none", len(d.Items))
			}
			var e *Error
			if errors.As(err, &e) && test.entry == 2 && e.Loc != "urn:x:b" {
				t.Errorf("Loc = %q, want %q", e.Loc, "urn:x:b")
			}
		})
	}
}

func numbers(n int) []any {
	v := make([]any, n)
	for i := range v {
		v[i] = i
	}
	return v
}

// wantError checks that err is an *Error that wraps sentinel, with the given position, and
// that its Msg contains msg.
func wantError(t *testing.T, err, sentinel error, entry, line int, msg string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, sentinel) {
		t.Fatalf("error = %v, want an *Error that wraps %q", err, sentinel)
	}
	if e.Entry != entry || e.Line != line || !strings.Contains(e.Msg, msg) {
		t.Errorf("got entry %d, line %d, message %q; want entry %d, line %d, substring %q", e.Entry, e.Line, e.Msg, entry, line, msg)
	}
}

func TestReadXMLLimits(t *testing.T) {
	deep := func(n int) string {
		return document(strings.Repeat(`<x xmlns="urn:o">`, n) + strings.Repeat("</x>", n))
	}
	entries := func(n int) string { return document(strings.Repeat("<url><loc>urn:x:a</loc></url>", n)) }
	three := entries(3)
	for _, test := range []struct {
		name   string
		in     string
		limits Limits
		entry  int
		msg    string // empty if the document is valid
	}{
		{"depth", deep(15), Limits{}, 0, ""},
		{"too deep", deep(16), Limits{}, 0, "want at most 16 levels"},
		{"deep bomb", root + strings.Repeat("<a>", 100_000), Limits{}, 0, "unexpected element"},
		{"entries", three, Limits{Entries: 3}, 0, ""},
		{"too many entries", three, Limits{Entries: 2}, 3, "want at most 2 entries"},
		{"50,000 entries", entries(50_000), Limits{}, 0, ""},
		{"50,001 entries", entries(50_001), Limits{}, 50_001, "got entry 50,001, want at most 50,000 entries"},
		{"bytes", three, Limits{Bytes: int64(len(three))}, 0, ""},
		{"too many bytes", three, Limits{Bytes: int64(len(three)) - 1}, 0, "bytes"},
		{"far too many bytes", three + strings.Repeat(" ", 100_000), Limits{Bytes: int64(len(three))}, 0, "bytes"},
		{"largest limit", three, Limits{Bytes: 1<<63 - 1}, 0, ""},
		{"50 MiB of one tag", "<urlset a='" + strings.Repeat("a", 50<<20), Limits{}, 0, "entry too large; want at most 2,097,152 bytes of text"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ReadXML(strings.NewReader(test.in), test.limits)
			if test.msg == "" {
				if err != nil {
					t.Errorf("ReadXML = %v, want nil", err)
				}
				return
			}
			sentinel := ErrTooLarge
			if test.name == "deep bomb" {
				sentinel = ErrInvalid // rejected before it is too deep
			}
			wantError(t, err, sentinel, test.entry, 1, test.msg)
		})
	}
}

// An endlessReader yields a document without an end, for readers that must stop on their own.
type endlessReader struct{ at int }

func (e *endlessReader) Read(p []byte) (int, error) {
	const entry = "<url><loc>urn:x:a</loc></url>"
	for i := range p {
		if e.at < len(root) {
			p[i] = root[e.at]
		} else {
			p[i] = entry[(e.at-len(root))%len(entry)]
		}
		e.at++
	}
	return len(p), nil
}

func TestReaderStreams(t *testing.T) {
	in := new(endlessReader)
	r := NewXMLReader(in, Limits{Entries: 10})
	if in.at > 0 {
		t.Errorf("NewXMLReader read %d bytes, want 0", in.at)
	}
	if h, err := r.Header(); err != nil || !h.ListsChanges() {
		t.Fatalf("Header() = %v, %v, want one that lists changes", h, err)
	}
	for range 10 {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := r.Next()
	wantError(t, err, ErrTooLarge, 11, 1, "want at most 10 entries")
	if in.at > 100_000 {
		t.Errorf("read %d bytes for 10 entries, want at most 100,000", in.at)
	}
}

func TestReader(t *testing.T) {
	r := NewXMLReader(strings.NewReader(document(`<rs:md capability="changelist"/>
		<url><loc>urn:x:a</loc></url><url><loc>urn:x:b</loc></url><url/>`)), Limits{})
	a, err := r.Next() // without a call of Header before
	if err != nil || a.Loc != "urn:x:a" {
		t.Fatalf("Next() = %v, %v, want urn:x:a", a, err)
	}
	b, err := r.Next()
	if err != nil || b.Loc != "urn:x:b" || a.Loc != "urn:x:a" {
		t.Fatalf("Next() = %v, %v after %v, want urn:x:b", b, err, a)
	}
	for range 2 {
		it, err := r.Next()
		wantError(t, err, ErrInvalid, 3, 2, "loc is missing")
		if it != nil {
			t.Errorf("Next() = %v with an error, want nil", it)
		}
	}
	if h, err := r.Header(); err != nil || h.Capability != ChangeList {
		t.Errorf("Header() after the entries = %v, %v, want %s", h, err, ChangeList)
	}

	r = NewXMLReader(strings.NewReader(document("")), Limits{})
	for range 2 {
		if it, err := r.Next(); it != nil || err != io.EOF {
			t.Errorf("Next() = %v, %v, want nil, io.EOF", it, err)
		}
	}

	r = NewXMLReader(strings.NewReader(document("x")), Limits{})
	for range 2 {
		_, err := r.Header()
		wantError(t, err, ErrInvalid, 0, 1, "unexpected text")
	}
}

func TestReadXMLReturnsReadErrors(t *testing.T) {
	lost := errors.New("connection lost")
	for _, in := range []string{"", "<", root, root + "<url><loc>a"} {
		t.Run(in, func(t *testing.T) {
			_, err := ReadXML(io.MultiReader(strings.NewReader(in), iotest.ErrReader(lost)), Limits{})
			if !errors.Is(err, lost) || errors.Is(err, ErrInvalid) {
				t.Errorf("ReadXML after %q = %v, want %v", in, err, lost)
			}
		})
	}
}

func TestListsChanges(t *testing.T) {
	for _, test := range []struct {
		header Header
		want   bool
	}{
		{Header{Capability: ChangeNotification}, true},
		{Header{Capability: ChangeListNotification}, true},
		{Header{Capability: ChangeList}, true},
		{Header{}, true},
		{Header{Capability: ChangeList, Index: true}, false},
		{Header{Index: true}, false},
		{Header{Capability: ResourceList}, false},
		{Header{Capability: ChangeDump}, false},
		{Header{Capability: FrameworkNotification}, true},
		{Header{Capability: "Changelist"}, false},
	} {
		t.Run(fmt.Sprintf("%q,index=%t", test.header.Capability, test.header.Index), func(t *testing.T) {
			if got := test.header.ListsChanges(); got != test.want {
				t.Errorf("%+v.ListsChanges() = %v, want %v", test.header, got, test.want)
			}
		})
	}
}

// A Reader that tolerates violations reports each of them and loses no entry.
func TestTolerate(t *testing.T) {
	const open = `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">`
	for _, test := range []struct{ name, doc, reported, failure string }{
		{"none", open + `<url><loc>urn:1</loc></url></urlset>`, "", ""},
		{"invalid value", open + `<url><loc>urn:1</loc><lastmod>now</lastmod></url></urlset>`, `entry 1 (urn:1): lastmod: got "now"`, ""},
		{"unknown element", open + `<url><loc>urn:1</loc><rs:x/><size/></url></urlset>`, "unexpected element", ""},
		{"rs:md after an entry", open + `<url><loc>urn:1</loc></url><rs:md/></urlset>`, "must precede the first entry", ""},
		{"no namespace", `<urlset><url><loc>urn:1</loc></url></urlset>`, "namespace of urlset: got", ""},
		{"entry in another namespace", open + `<url><loc>urn:1</loc></url><url xmlns="urn:x"><loc>urn:2</loc></url></urlset>`, "", "unexpected element"},
		{"entry of an index", open + `<sitemap><loc>urn:2</loc></sitemap><url><loc>urn:1</loc></url></urlset>`, "", "unexpected element"},
		{"two locs", open + `<url><loc>urn:1</loc><loc>urn:2</loc></url></urlset>`, "", "entry has more than one loc"},
		{"truncated", open + `<url><loc>urn:1</loc></url>`, "", "ends early"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var reports []string
			r := NewXMLReader(strings.NewReader(test.doc), Limits{})
			r.Tolerate(func(e *Error) { reports = append(reports, e.Error()) })
			entries := 0
			var err error
			for err == nil {
				if _, err = r.Next(); err == nil {
					entries++
				}
			}
			if got := strings.Join(reports, "\n"); !strings.Contains(got, test.reported) || test.reported == "" && got != "" {
				t.Errorf("got reports %q, want %q", got, test.reported)
			}
			if test.failure == "" && (err != io.EOF || entries != 1) || test.failure != "" && !strings.Contains(err.Error(), test.failure) {
				t.Errorf("got %d entries, then %v; want failure %q", entries, err, test.failure)
			}
		})
	}
}

// The decoder buffers the text between two entries, so that text must be bounded as well.
func TestReaderBoundsSpace(t *testing.T) {
	entry := "<url><loc>urn:x:a</loc></url>"
	for name, test := range map[string]struct {
		inner   string
		entries int
		bad     bool
	}{
		"many entries": {strings.Repeat(entry+strings.Repeat(" ", maxEntryText/4), 12), 12, false},
		"space":        {entry + strings.Repeat(" ", 3*maxEntryText) + entry, 1, true},
		"header":       {"<!--" + strings.Repeat(" ", 3*maxEntryText) + "-->" + entry, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewXMLReader(strings.NewReader(document(test.inner)), Limits{Bytes: 1 << 30})
			n := 0
			var err error
			for {
				if _, err = r.Next(); err != nil {
					break
				}
				n++
			}
			if n != test.entries || errors.Is(err, ErrTooLarge) != test.bad || !test.bad && err != io.EOF {
				t.Errorf("got %d entries, %v; want %d, too large %t", n, err, test.entries, test.bad)
			}
		})
	}
}
