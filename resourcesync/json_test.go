package resourcesync

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

const goodChange = `{"loc":"urn:x:a","change":"updated"}`

// fullChangeJSON has every member, as AppendJSONMembers writes it.
const fullChangeJSON = `{"loc":"https://example.org/a?b&c","change":"updated","datetime":"2013-01-03T00:07:22.5Z","lastmod":"2013-01-03T00:00:00Z",` +
	`"changefreq":"daily","hash":"md5:00 a:b","length":8876,"type":"application/pdf","encoding":"gzip","path":"/a \"ü\"",` +
	`"ln":[{"rel":"duplicate","href":"urn:x:b","pri":1,"modified":"2013-01-03T00:00:00Z","hash":"a:b","length":0,"type":"a/b","encoding":"br","path":"/b","profile":"urn:x:p","{urn:o}how":"json"},` +
	`{"rel":"up","href":"urn:x:c"}],"{urn:o}title":"A\n<B>\\ 𝄞","capability":"changelist","{urn:p}x":""}`

// fullChange returns the change of fullChangeJSON, which has every field.
func fullChange() *Change {
	day := time.Date(2013, 1, 3, 0, 0, 0, 0, time.UTC)
	return &Change{
		Loc: "https://example.org/a?b&c", Change: Updated, Datetime: day.Add(7*time.Minute + 22500*time.Millisecond), Lastmod: day,
		Changefreq: "daily", Hash: "md5:00 a:b", Length: size(8876), Type: "application/pdf", Encoding: "gzip", Path: `/a "ü"`,
		Links: []Link{
			{Rel: "duplicate", Href: "urn:x:b", Pri: 1, Modified: day, Hash: "a:b", Length: size(0), Type: "a/b", Encoding: "br", Path: "/b", Profile: "urn:x:p", Attrs: []Attr{{"urn:o", "how", "json"}}},
			{Rel: "up", Href: "urn:x:c"},
		},
		Attrs: []Attr{{"urn:o", "title", "A\n<B>\\ 𝄞"}, CapabilityAttr(ChangeList), {"urn:p", "x", ""}},
	}
}

// A change of the usual form is scanned, and an unusual one is not.
func TestScan(t *testing.T) {
	usual := string(append(AppendJSONMembers([]byte("{"), benchChange()), '}'))
	for in, want := range map[string]bool{
		usual: true, " " + usual + "\r": true,
		fullChangeJSON: false, goodChange + "x": false, strings.Replace(usual, "{", "{"+strings.Repeat(" ", 2*maxWaste), 1): false,
	} {
		var s scanner
		if got := s.scanEntry([]byte(in), new(PageEntry)); got != want {
			t.Errorf("scanEntry(%s) = %t, want %t", in, got, want)
		}
	}
}

// A small document with changes of the usual form is scanned. A large one is read to the same
// changes.
func TestScanDocument(t *testing.T) {
	text := func(n int) string {
		usual := string(append(AppendJSONMembers([]byte("{"), benchChange()), '}'))
		return `{"changes":[` + strings.Repeat(usual+",", n-1) + usual + `]}`
	}
	l := Limits{}.withDefaults()
	for _, n := range []int{1, 100, 300} {
		if d, err := scanDocument(text(n), l, l.newMeter(nil, jsonExpansion)); err != nil || d == nil {
			t.Errorf("scanDocument of %d changes = %v, %v, want a document", n, d, err)
		}
	}
	for _, n := range []int{1, 10, 14, 100, 300, 1000} { // up to 4 KiB, 16 KiB, 64 KiB, maxScanBytes, and more
		d, err := ReadJSON(iotest.HalfReader(strings.NewReader(text(n))), Limits{})
		if err != nil || len(d.Items) != n || !reflect.DeepEqual(&d.Items[n-1].Change, benchChange()) {
			t.Errorf("ReadJSON of %d changes = %v, want %d changes like %+v", n, err, n, benchChange())
		}
	}
}

func TestParseChange(t *testing.T) {
	minimal := &Change{Loc: "urn:x:a", Change: Updated}
	for _, test := range []struct {
		name string
		in   string
		want *Change
	}{
		{"minimal", goodChange, minimal},
		{"every member", fullChangeJSON, fullChange()},
		{"white space", " {\n\"loc\" : \"urn:x:a\",\r\n\t\"change\":\"updated\" } \n", minimal},
		{"escapes", `{"\u006coc":"urn\u003ax:\/a","change":"up\u0064ated"}`, &Change{Loc: "urn:x:/a", Change: Updated}},
		{"surrogates", `{"loc":"urn:x:a","encoding":"\ud834\udd1e"}`, &Change{Loc: "urn:x:a", Encoding: "𝄞"}},
		{"members of a hub", `{"position":7,"loc":"urn:x:a","change":"updated","sourceDatetime":"2013-01-03T00:00:00Z"}`, minimal},
		{"attributes of a hub", `{"loc":"urn:x:a","change":"updated","{` + Terms + `}position":"7"}`, minimal},
		{"xsi attributes", `{"loc":"urn:x:a","change":"updated","{http://www.w3.org/2001/XMLSchema-instance}nil":"true"}`, minimal},
		{"null", `{"loc":"urn:x:a","change":"updated","lastmod":null,"length":null,"ln":null,"type":null,"hash":null,"{urn:o}a":null,"position":null}`, minimal},
		{"no links", `{"loc":"urn:x:a","change":"updated","ln":[]}`, minimal},
		{"no change", `{"loc":"urn:x:a"}`, &Change{Loc: "urn:x:a"}},
		{"hash with spaces", `{"loc":"urn:x:a","hash":" a:b\n c:d"}`, &Change{Loc: "urn:x:a", Hash: "a:b c:d"}},
		{"zone", `{"loc":"urn:x:a","datetime":"2013-01-03T01:00:00+01:00"}`, &Change{Loc: "urn:x:a", Datetime: time.Date(2013, 1, 3, 0, 0, 0, 0, time.UTC)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseChange([]byte(test.in))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

// badChanges are violations of the JSON form of a change.
var badChanges = []struct{ name, in, msg string }{
	{"empty object", `{}`, "loc is missing"},
	{"no loc", `{"change":"updated"}`, "loc is missing"},
	{"null loc", `{"loc":null}`, "loc is missing"},
	{"array", `[]`, "change: got an array, want an object"},
	{"string", `"a"`, "change: got a string, want an object"},
	{"null", `null`, "loc is missing"},
	{"unknown member", `{"loc":"urn:x:a","url":"urn:x:b"}`, `unknown member "url" in a change; known members: loc, change, datetime, lastmod, changefreq, hash, length, type, encoding, path, ln, capability`},
	{"member unlike any", `{"loc":"urn:x:a","size":3}`, `unknown member "size" in a change; known members: loc, change,`},
	{"member in upper case", `{"Loc":"urn:x:a"}`, `unknown member "Loc" in a change; did you mean "loc"?`},
	{"misspelt member", `{"loc":"urn:x:a","chnage":"updated"}`, `unknown member "chnage" in a change; did you mean "change"?`},
	{"deeply nested unknown member", `{"a":` + strings.Repeat("[", 100_000), "exceeded max depth"},
	{"empty name", `{"":1}`, `unknown member ""`},
	{"duplicate member", `{"loc":"urn:x:a","loc":"urn:x:b"}`, `duplicate member "loc"`},
	{"duplicate member, escaped", `{"loc":"urn:x:a","\u006coc":"urn:x:b"}`, `duplicate member "loc"`},
	{"duplicate ignored member", `{"position":1,"position":1}`, `duplicate member "position"`},
	{"loc is a number", `{"loc":1}`, "loc: got a number, want a string"},
	{"loc is an object", `{"loc":{}}`, "loc: got an object, want a string"},
	{"unknown change", `{"loc":"urn:x:a","change":"moved"}`, `change: got "moved", want`},
	{"change is a boolean", `{"loc":"urn:x:a","change":true}`, "change: got a boolean, want a string"},
	{"bad datetime", `{"loc":"urn:x:a","datetime":"now"}`, `datetime: got "now", want`},
	{"no zone", `{"loc":"urn:x:a","lastmod":"2013-01-03T00:00:00"}`, "as the zone"},
	{"datetime is a number", `{"loc":"urn:x:a","datetime":1357171642}`, "datetime: got a number, want a string"},
	{"length is a string", `{"loc":"urn:x:a","length":"8"}`, "length: got a string, want a number"},
	{"negative length", `{"loc":"urn:x:a","length":-1}`, "length: got -1, want a whole number of bytes"},
	{"fraction", `{"loc":"urn:x:a","length":1.5}`, "length: got 1.5, want a whole number"},
	{"exponent", `{"loc":"urn:x:a","length":1e3}`, "length: got 1e3, want a whole number"},
	{"length out of range", `{"loc":"urn:x:a","length":9223372036854775808}`, "want a whole number"},
	{"ln is an object", `{"loc":"urn:x:a","ln":{}}`, "ln: got an object, want an array"},
	{"link is a string", `{"loc":"urn:x:a","ln":["urn:x:b"]}`, "link in ln: got a string, want an object"},
	{"no href", `{"loc":"urn:x:a","ln":[{"rel":"up"}]}`, "link in ln: rel or href is missing"},
	{"no rel", `{"loc":"urn:x:a","ln":[{"href":"urn:x:b"}]}`, "link in ln: rel or href is missing"},
	{"unknown member of a link", `{"loc":"urn:x:a","ln":[{"loc":"up"}]}`, `unknown member "loc" in a link in ln; known members: rel, href, pri, modified, hash, length, type, encoding, path, profile`},
	{"duplicate href", `{"loc":"urn:x:a","ln":[{"href":"a","href":"b"}]}`, `duplicate member "href"`},
	{"pri 0", `{"loc":"urn:x:a","ln":[{"pri":0}]}`, "pri: got 0, want 1 to 999999"},
	{"too many links", `{"loc":"urn:x:a","ln":[` + strings.Repeat(`{"rel":"a","href":"urn:x:b"},`, 100) + `{}]}`, "too many links; want at most 100"},
	{"attribute is a number", `{"loc":"urn:x:a","{urn:o}a":1}`, `"a": got a number, want a string`},
	{"attribute without a namespace", `{"loc":"urn:x:a","{}a":"b"}`, "want a foreign one"},
	{"attribute in the ResourceSync namespace", `{"loc":"urn:x:a","{` + rsNS + `}hash":"b"}`, "want a foreign one"},
	{"attribute without a name", `{"loc":"urn:x:a","{urn:o}":"b"}`, "attribute name: got"},
	{"attribute without a closing brace", `{"loc":"urn:x:a","{urn:o":"b"}`, "unknown member"},
	{"attribute injection", `{"loc":"urn:x:a","{urn:o}a b":"b"}`, "attribute name: got"},
	{"position is an object", `{"loc":"urn:x:a","position":{"a":[]}}`, "position: got an object, want a number"},
	{"not UTF-8", "{\"loc\":\"urn:x:\xff\"}", "UTF-8"},
	{"unpaired surrogate", `{"loc":"urn:x:\ud834"}`, "invalid JSON at offset"},
	{"unescaped line end", "{\"loc\":\"urn:x:\n\"}", "invalid JSON at offset"},
	{"single quotes", `{'loc':'urn:x:a'}`, "invalid JSON at offset"},
	{"comment", `{/**/"loc":"urn:x:a"}`, "invalid JSON at offset"},
	{"trailing comma", `{"loc":"urn:x:a",}`, "invalid JSON at offset"},
	{"ends early", `{"loc":"urn:x:a"`, "ends early"},
	{"ends early in a string", `{"loc":"urn:x`, "ends early"},
	{"ends early after a name", `{"loc"`, "ends early"},
}

func TestParseChangeErrors(t *testing.T) {
	for _, test := range badChanges {
		t.Run(test.name, func(t *testing.T) {
			c, err := ParseChange([]byte(test.in))
			wantError(t, err, ErrInvalid, 0, 0, test.msg)
			if c != nil {
				t.Errorf("ParseChange = %+v with an error, want nil", c)
			}
		})
	}
	_, err := ParseChange(nil)
	wantError(t, err, ErrInvalid, 0, 0, "is empty")
	_, err = ParseChange([]byte(goodChange + goodChange))
	wantError(t, err, ErrInvalid, 0, 0, "after top-level value")
}

func TestChangeParserIsReusable(t *testing.T) {
	var p ChangeParser
	in := []byte(fullChangeJSON)
	c, err := p.Parse(in)
	if err != nil {
		t.Fatal(err)
	}
	first := *c
	for range 3 {
		if _, err := p.Parse([]byte(`{"loc":"urn`)); !errors.Is(err, ErrInvalid) {
			t.Errorf("Parse of half a change = %v, want ErrInvalid", err)
		}
		c, err := p.Parse([]byte(goodChange))
		if err != nil || c.Loc != "urn:x:a" {
			t.Errorf("Parse after an error = %+v, %v, want loc urn:x:a", c, err)
		}
	}
	if string(in) != fullChangeJSON {
		t.Error("Parse modified its input")
	}
	clear(in)
	if !reflect.DeepEqual(&first, fullChange()) {
		t.Error("the change shares memory with the input of Parse")
	}
}

func TestReadJSON(t *testing.T) {
	want := &Document{
		Header{Capability: ChangeNotification, From: time.Date(2013, 1, 3, 0, 0, 0, 0, time.UTC), Until: time.Date(2013, 1, 4, 0, 0, 0, 0, time.UTC)},
		[]Item{{Change: *fullChange()}, {Change: Change{Loc: "urn:x:a", Change: Updated}}},
	}
	for name, in := range map[string]string{
		"before": `{"from":"2013-01-03","until":"2013-01-04","capability":"change-notification","changes":[` + fullChangeJSON + "," + goodChange + "]}",
		"after":  `{"changes":[` + fullChangeJSON + "," + goodChange + `],"until":"2013-01-04T00:00:00Z","from":"2013-01-03","capability":"change-notification"}` + "\n",
		"a hub's page": `{"set":"a","after":"0-0","from":"2013-01-03","until":"2013-01-04","capability":"change-notification","cursor":"2-7","next":null,"diverged":true,"changes":[` +
			fullChangeJSON + "," + `{"position":2,"loc":"urn:x:a","change":"updated"}` + "]}",
	} {
		for how, r := range map[string]io.Reader{"whole": strings.NewReader(in), "by the byte": iotest.OneByteReader(strings.NewReader(in))} {
			t.Run(name+", "+how, func(t *testing.T) {
				got, err := ReadJSON(r, Limits{})
				if err != nil {
					t.Errorf("ReadJSON: %v", err)
				} else if !reflect.DeepEqual(got, want) {
					t.Errorf("got %+v\nwant %+v", got, want)
				}
			})
		}
	}
	if d, err := ReadJSON(strings.NewReader(`{"changes":[]}`), Limits{}); err != nil || len(d.Items) > 0 || !d.ListsChanges() {
		t.Errorf("ReadJSON without changes = %+v, %v, want a document that lists changes", d, err)
	}
}

func TestReadJSONErrors(t *testing.T) {
	for _, test := range badChanges {
		t.Run(test.name, func(t *testing.T) {
			in := `{"changes":[` + goodChange + "," + test.in
			if !strings.HasPrefix(test.name, "ends early") {
				in += "]}"
			}
			_, err := ReadJSON(strings.NewReader(in), Limits{})
			wantError(t, err, ErrInvalid, 2, 0, test.msg)
		})
	}
	for _, test := range []struct{ name, in, msg string }{
		{"empty", "", "is empty"},
		{"blank", " \n", "ends early"},
		{"XML", document(""), "invalid JSON at offset"},
		{"array", "[" + goodChange + "]", "document: got an array, want an object"},
		{"a change", goodChange, `unknown member "loc" in a document; send {"changes": [...]}`},
		{"no changes", `{"from":"2013-01-03"}`, `"changes" is missing`},
		{"changes is null", `{"changes":null}`, `"changes": got null, want an array`},
		{"changes is an object", `{"changes":{}}`, `"changes": got an object, want an array`},
		{"duplicate changes", `{"changes":[],"changes":[]}`, `duplicate member "changes"`},
		{"unknown member", `{"changes":[],"hash":"a"}`, `unknown member "hash" in a document; known members: changes, from, until, capability`},
		{"bad from", `{"from":"now","changes":[]}`, `from: got "now", want`},
		{"bad until", `{"changes":[],"until":7}`, "until: got a number, want a string"},
		{"duplicate ignored member", `{"set":"a","set":"a","changes":[]}`, `duplicate member "set"`},
		{"ends early", `{"changes":[]`, "ends early"},
		{"trailing object", `{"changes":[]}{}`, "after top-level value"},
		{"trailing text", `{"changes":[]}x`, "invalid JSON at offset"},
		{"byte order mark", "\uFEFF" + `{"changes":[]}`, "invalid JSON at offset"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ReadJSON(strings.NewReader(test.in), Limits{})
			wantError(t, err, ErrInvalid, 0, 0, test.msg)
		})
	}
	lost := errors.New("connection lost")
	for _, in := range []string{"", `{"changes":[`, `{"changes":[]}`} {
		_, err := ReadJSON(io.MultiReader(strings.NewReader(in), iotest.ErrReader(lost)), Limits{})
		if !errors.Is(err, lost) || errors.Is(err, ErrInvalid) {
			t.Errorf("ReadJSON after %q = %v, want %v", in, err, lost)
		}
	}
}

func TestReadJSONLimits(t *testing.T) {
	three := `{"changes":[` + goodChange + "," + goodChange + "," + goodChange + "]}"
	for _, test := range []struct {
		name   string
		limits Limits
		entry  int
		msg    string
	}{
		{"default", Limits{}, 0, ""},
		{"exactly the limit of entries", Limits{Entries: 3}, 0, ""},
		{"too many entries", Limits{Entries: 2}, 3, "got entry 3, want at most 2 entries"},
		{"exactly the limit of bytes", Limits{Bytes: int64(len(three))}, 0, ""},
		{"too many bytes", Limits{Bytes: int64(len(three)) - 1}, 0, "bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ReadJSON(strings.NewReader(three), test.limits)
			if test.msg == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantError(t, err, ErrTooLarge, test.entry, 0, test.msg)
		})
	}
}

func TestAppendJSONMembers(t *testing.T) {
	if got := "{" + string(AppendJSONMembers(nil, fullChange())) + "}"; got != fullChangeJSON {
		t.Errorf("got  %s\nwant %s", got, fullChangeJSON)
	}
	if got, want := string(AppendJSONMembers([]byte("x"), &Change{Loc: "urn:x:a"})), `x"loc":"urn:x:a"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	bad := "\x00\r\n\"\\\xff\u2028"
	c := &Change{
		Loc: bad, Change: ChangeType(bad), Changefreq: bad, Hash: bad, Type: bad, Encoding: bad, Path: bad,
		Links: []Link{{Rel: bad, Href: bad, Profile: bad}}, Attrs: []Attr{{bad, bad, bad}, {"", "none", ""}},
	}
	got := AppendJSONMembers([]byte("{"), c)
	got = append(got, '}')
	if v := jsontext.Value(got); !v.IsValid() || strings.ContainsAny(string(got), "\r\n") {
		t.Errorf("AppendJSONMembers = %q, want one line of valid JSON", got)
	}
}

func TestNDJSONReader(t *testing.T) {
	in := "\n" + goodChange + "\r\n \t\n" + fullChangeJSON + "\n\n" + goodChange
	for how, r := range map[string]io.Reader{"whole": strings.NewReader(in), "by the byte": iotest.OneByteReader(strings.NewReader(in))} {
		nd := NewNDJSONReader(r, Limits{Entries: 1, Bytes: int64(len(fullChangeJSON))}) // the limit of entries is ignored
		for _, want := range []struct {
			line  int
			bytes string
		}{{2, goodChange + "\r"}, {4, fullChangeJSON}, {6, goodChange}} {
			c, err := nd.Next()
			if err != nil || c.Change != Updated || nd.Line() != want.line || string(nd.Bytes()) != want.bytes {
				t.Fatalf("%s: Next() = %+v, %v, line %d, %q, want line %d", how, c, err, nd.Line(), nd.Bytes(), want.line)
			}
		}
		for range 2 {
			if c, err := nd.Next(); c != nil || err != io.EOF || nd.Line() != 6 {
				t.Errorf("%s: Next() at the end = %v, %v, line %d, want nil, io.EOF, line 6", how, c, err, nd.Line())
			}
		}
	}
	long := `{"loc":"urn:x:` + strings.Repeat("a", 200_000) + `"}`
	nd := NewNDJSONReader(strings.NewReader(goodChange+"\n"+long+"\n"+goodChange), Limits{})
	for _, want := range []string{goodChange, long, goodChange} {
		if _, err := nd.Next(); err != nil || string(nd.Bytes()) != want {
			t.Fatalf("line %d: %v", nd.Line(), err)
		}
	}
	if _, err := NewNDJSONReader(strings.NewReader(""), Limits{}).Next(); err != io.EOF {
		t.Errorf("Next() of empty input = %v, want io.EOF", err)
	}
}

func TestNDJSONReaderErrors(t *testing.T) {
	lost := errors.New("connection lost")
	for _, test := range []struct {
		name   string
		in     string
		limits Limits
		is     error
		line   int
		msg    string
	}{
		{"bad line", goodChange + "\n\n{\"loc\":1}\n" + goodChange, Limits{}, ErrInvalid, 3, "loc: got a number, want a string"},
		{"two on a line", goodChange + "\n" + goodChange + goodChange, Limits{}, ErrInvalid, 2, "after top-level value"},
		{"one on two lines", goodChange + "\n" + `{"loc":` + "\n" + `"urn:x:a"}`, Limits{}, ErrInvalid, 2, "ends early"},
		{"truncated", goodChange + "\n" + `{"loc":`, Limits{}, ErrInvalid, 2, "ends early"},
		{"blank lines", goodChange + strings.Repeat("\n \r", 400_000) + "\n" + goodChange, Limits{}, ErrTooLarge, 349527, "too many blank lines; want at most 1,048,576 bytes"},
		{"line too long", goodChange + "\n" + fullChangeJSON, Limits{Bytes: int64(len(fullChangeJSON)) - 1}, ErrTooLarge, 2, "line too long; want at most"},
		{"blanks too long", goodChange + "\n" + strings.Repeat(" ", 2<<20), Limits{}, ErrTooLarge, 2, "at most 1,048,576 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			nd := NewNDJSONReader(strings.NewReader(test.in), test.limits)
			if _, err := nd.Next(); err != nil {
				t.Fatal(err)
			}
			for range 2 { // Next repeats the error
				_, err := nd.Next()
				wantError(t, err, test.is, 0, test.line, test.msg)
				if nd.Line() != test.line {
					t.Errorf("Line() = %d, want %d", nd.Line(), test.line)
				}
			}
		})
	}
	nd := NewNDJSONReader(io.MultiReader(strings.NewReader(goodChange+"\n{"), iotest.ErrReader(lost)), Limits{})
	if _, err := nd.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := nd.Next(); !errors.Is(err, lost) || errors.Is(err, ErrInvalid) {
		t.Errorf("Next() = %v, want %v", err, lost)
	}
}
