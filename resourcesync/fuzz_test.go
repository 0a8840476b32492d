package resourcesync

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/rshub/rshub/internal/xmlrepair"
)

func FuzzReadXML(f *testing.F) {
	for _, file := range append(examples(f, "testdata/examples/*.xml"), examples(f, "testdata/*.golden.xml")...) {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("<!DOCTYPE a>" + document("")))
	f.Add([]byte(document("<url><loc>urn:x:a</loc></url>")))
	f.Add([]byte(document(`<rs:md capability="changelist"/><rs:ln rel="up" href="urn:x"/><x:y xmlns:x="urn:o"/>`)))
	f.Add([]byte(document(`<url><loc>urn:x:a</loc><rs:md xmlns:o="urn:o" o:a="&#10;b" hash=" a:b&#9;c:d" change="created"/></url>`)))
	f.Fuzz(func(t *testing.T, in []byte) {
		d, err := ReadXML(bytes.NewReader(in), Limits{})
		if err != nil {
			return
		}
		// What was read can be written and read again, valid as changes or not.
		wantSame(t, written(t, d), d)
		for i := range d.Items {
			sameInAllForms(t, &d.Items[i].Change)
		}
	})
}

// A text is escaped as if each character had been looked at, and those that XML cannot carry
// are replaced.
func FuzzAppendEscaped(f *testing.F) {
	escapes := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "\t", "&#x9;", "\n", "&#xA;", "\r", "&#xD;")
	for _, s := range []string{"https://example.org/a?b='c'&d", "a<\"b\">\t\r\n\x00\x7f", "ü\u0085\u2028𝄞\uFFFD\uFFFE", "\xff\xc3(\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want := escapes.Replace(strings.Map(func(r rune) rune {
			if xmlrepair.IsChar(r) {
				return r
			}
			return utf8.RuneError
		}, s))
		if got := string(AppendXMLText(nil, s)); got != want {
			t.Errorf("%q is written as %q, want %q", s, got, want)
		}
	})
}

func FuzzReadJSON(f *testing.F) {
	f.Add([]byte(`{"set":"a","from":"2013-01-03","changes":[` + allOfAChange + `],"cursor":"7"}`))
	f.Add([]byte(`{"changes":[` + goodChange + "," + goodChange + `]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		d, err := ReadJSON(bytes.NewReader(in), Limits{})
		if err != nil {
			return
		}
		for i := range d.Items {
			sameInAllForms(t, &d.Items[i].Change)
		}
	})
}

func FuzzParseChange(f *testing.F) {
	f.Add([]byte(allOfAChange))
	for _, bad := range badChanges {
		if len(bad.in) < 1000 {
			f.Add([]byte(bad.in))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		before := bytes.Clone(in)
		c, err := ParseChange(in)
		if !bytes.Equal(in, before) {
			t.Error("ParseChange changes its input")
		}
		if err == nil {
			sameInAllForms(t, c)
		}
	})
}

// A scanner reads nothing that a jsonInput refuses, or reads otherwise.
func FuzzScan(f *testing.F) {
	f.Add([]byte(allOfAChange))
	f.Add([]byte(` { "loc" : "urn:x:a" , "change":"deleted","lastmod":"2013-01-03","hash":"md5:00  a:b","length":0,"type":"a/b","ln":[ {"rel":"up","href":"urn:x:c","length":12,"profile":"urn:p"} , {"rel":"up","href":""}]} `))
	f.Add([]byte(`{"loc":"urn:x:a","loc":"","ln":[],"ln":[{"rel":"a","href":"b","rel":"c"}],"length":01}`))
	f.Add([]byte(`{"loc":"urn:x:a",}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var p ChangeParser
		var got PageEntry
		if !p.scanner.scan(in, &got) {
			return
		}
		_, err := p.decode(in)
		if want := p.entry; err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is scanned as %+v, and read as %+v, %v", in, got, want, err)
		}
	})
}

// scanDocument reads nothing that decodeDocument refuses, or reads otherwise.
func FuzzScanDocument(f *testing.F) {
	f.Add([]byte(` { "changes" : [ `+goodChange+` , {"ln":[],"loc":"urn:x:b","length":1}]} `), 2)
	f.Add([]byte(`{"changes":[`+goodChange+`,`+goodChange+`]}`), 1)
	f.Add([]byte(`{"changes":[{"loc":"a","change":"created"}]}`), 9)
	f.Add([]byte(`{"changes":[`+goodChange+`],"changes":[]}`), 9)
	f.Fuzz(func(t *testing.T, text []byte, most int) {
		l := Limits{Entries: most, Check: (*Change).Validate}.withDefaults()
		m := l.room(nil, jsonBlowUp)
		got, err := scanDocument(string(text), l, m)
		if err != nil {
			t.Error(err)
		}
		held := m.held
		if got == nil {
			return
		}
		want, err := decodeDocument(bytes.NewReader(text), l, m)
		if err != nil || !reflect.DeepEqual(got, want) || held != m.held {
			t.Errorf("%s is scanned as %+v, and read as %+v, %v; in memory, %d and %d", text, got, want, err, held, m.held)
		}
	})
}

// plainLen says what a look at each byte says, and what it says is plain needs no escape.
func FuzzPlain(f *testing.F) {
	f.Add("https://example.org/a?b=c#d", 3)
	f.Add("1234567\"89012345678", 0)
	f.Add("12345678\\", 1)
	f.Add("\x1f2345678\x7f\x80", 2)
	f.Add("caf\u00e9 12345", 5)
	f.Fuzz(func(t *testing.T, s string, from int) {
		if from >= 0 && from < len(s) {
			s = s[from:] // at any alignment
		}
		want := 0
		for want < len(s) && classes[s[want]]&plainChar != 0 {
			want++
		}
		if n := plainLen(s); n != want {
			t.Fatalf("of %q, %d bytes are plain, want %d", s, n, want)
		}
		if got, _ := jsontext.AppendQuote(nil, s[:want]); string(got) != `"`+s[:want]+`"` {
			t.Errorf("%q is plain, and is written as %s", s[:want], got)
		}
	})
}

// sameInAllForms writes and reads a change that is valid, in JSON and in XML.
func sameInAllForms(t *testing.T, c *Change) {
	t.Helper()
	if c.Validate() != nil {
		return
	}
	text := append(AppendJSONMembers([]byte("{"), c), '}')
	if bytes.ContainsAny(text, "\r\n") {
		t.Errorf("JSON of more than one line: %q", text)
	}
	back, err := ParseChange(text)
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if !reflect.DeepEqual(back, c) {
		t.Errorf("JSON changed it\ngot  %+v\nwant %+v\n%s", back, c, text)
	}
	if c.FrameworkCapability() != "" {
		return // only a document of framework notifications can carry it in XML
	}
	d := &Document{Items: []Item{{Change: *c}}}
	wantSame(t, written(t, d), d)
}

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"2013", "2013-02", "2013-02-03", "2013-02-03T04:05Z", "2013-02-03T04:05:06.789+01:00", "0001-01-01T00:00:00-00:01"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseTime(s)
		// The standard library knows one form of those that we know, and reads
		// it less strictly.
		if theirs, bad := time.Parse(time.RFC3339Nano, s); bad == nil && err == nil && !theirs.Equal(got) {
			t.Errorf("ParseTime(%q) = %v, want %v", s, got, theirs)
		}
		if err != nil {
			return
		}
		text := string(AppendTime(nil, got))
		if want := got.Format(time.RFC3339Nano); text != want {
			t.Errorf("AppendTime(%v) = %q, want %q", got, text, want)
		}
		if back, err := ParseTime(text); err != nil || back != got {
			t.Errorf("ParseTime(%q) = %v, %v, want %v", text, back, err, got)
		}
		micro := string(AppendTimeMicro(nil, got.UnixMicro()))
		if want := got.Format("2006-01-02T15:04:05.000000Z"); micro != want {
			t.Errorf("AppendTimeMicro(%v) = %q, want %q", got, micro, want)
		}
	})
}
