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
		// Any document that was read can be written and read again, even if its changes are invalid.
		checkReadBack(t, marshalXML(t, d), d)
		for i := range d.Items {
			checkRoundTrips(t, &d.Items[i].Change)
		}
	})
}

// AppendXMLText, which skips plain bytes quickly, escapes and replaces the same characters as
// an implementation that examines every character.
func FuzzAppendXMLText(f *testing.F) {
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
			t.Errorf("AppendXMLText(%q) = %q, want %q", s, got, want)
		}
	})
}

func FuzzReadJSON(f *testing.F) {
	f.Add([]byte(`{"set":"a","from":"2013-01-03","changes":[` + fullChangeJSON + `],"cursor":"7"}`))
	f.Add([]byte(`{"changes":[` + goodChange + "," + goodChange + `]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		d, err := ReadJSON(bytes.NewReader(in), Limits{})
		if err != nil {
			return
		}
		for i := range d.Items {
			checkRoundTrips(t, &d.Items[i].Change)
		}
	})
}

func FuzzParseChange(f *testing.F) {
	f.Add([]byte(fullChangeJSON))
	for _, bad := range badChanges {
		if len(bad.in) < 1000 {
			f.Add([]byte(bad.in))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		before := bytes.Clone(in)
		c, err := ParseChange(in)
		if !bytes.Equal(in, before) {
			t.Errorf("ParseChange modified its input %q to %q", before, in)
		}
		if err == nil {
			checkRoundTrips(t, c)
		}
	})
}

// A scanner accepts only what decode accepts, and yields the same change.
func FuzzScan(f *testing.F) {
	f.Add([]byte(fullChangeJSON))
	f.Add([]byte(` { "loc" : "urn:x:a" , "change":"deleted","lastmod":"2013-01-03","hash":"md5:00  a:b","length":0,"type":"a/b","ln":[ {"rel":"up","href":"urn:x:c","length":12,"profile":"urn:p"} , {"rel":"up","href":""}]} `))
	f.Add([]byte(`{"loc":"urn:x:a","loc":"","ln":[],"ln":[{"rel":"a","href":"b","rel":"c"}],"length":01}`))
	f.Add([]byte(`{"loc":"urn:x:a",}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var p ChangeParser
		var got PageEntry
		if !p.scanner.scanEntry(in, &got) {
			return
		}
		_, err := p.decode(in)
		if want := p.entry; err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("scanEntry(%s) = %+v; decode = %+v, %v; want the same", in, got, want, err)
		}
	})
}

// scanDocument accepts only what decodeDocument accepts, and yields the same document and the
// same memory.
func FuzzScanDocument(f *testing.F) {
	f.Add([]byte(` { "changes" : [ `+goodChange+` , {"ln":[],"loc":"urn:x:b","length":1}]} `), 2)
	f.Add([]byte(`{"changes":[`+goodChange+`,`+goodChange+`]}`), 1)
	f.Add([]byte(`{"changes":[{"loc":"a","change":"created"}]}`), 9)
	f.Add([]byte(`{"changes":[`+goodChange+`],"changes":[]}`), 9)
	f.Fuzz(func(t *testing.T, text []byte, entries int) {
		l := Limits{Entries: entries, Check: (*Change).Validate}.withDefaults()
		m := l.newMeter(nil, jsonExpansion)
		got, err := scanDocument(string(text), l, m)
		if err != nil {
			t.Error(err)
		}
		retained := m.retained
		if got == nil {
			return
		}
		want, err := decodeDocument(bytes.NewReader(text), l, m)
		if err != nil || !reflect.DeepEqual(got, want) || retained != m.retained {
			t.Errorf("scanDocument(%s) = %+v with %d bytes; decodeDocument = %+v, %v with %d bytes; want the same", text, got, retained, want, err, m.retained)
		}
	})
}

// plainLen yields the same as a check of each byte, and the bytes that it counts need no
// escape.
func FuzzPlainLen(f *testing.F) {
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
			t.Fatalf("plainLen(%q) = %d, want %d", s, n, want)
		}
		if got, _ := jsontext.AppendQuote(nil, s[:want]); string(got) != `"`+s[:want]+`"` {
			t.Errorf("AppendQuote(%q) = %s, want no escapes", s[:want], got)
		}
	})
}

// checkRoundTrips writes a change in JSON and in XML, reads it back, and compares. It ignores an
// invalid change.
func checkRoundTrips(t *testing.T, c *Change) {
	t.Helper()
	if c.Validate() != nil {
		return
	}
	text := append(AppendJSONMembers([]byte("{"), c), '}')
	if bytes.ContainsAny(text, "\r\n") {
		t.Errorf("AppendJSONMembers = %q, want one line", text)
	}
	back, err := ParseChange(text)
	if err != nil {
		t.Fatalf("ParseChange(%s) = %v", text, err)
	}
	if !reflect.DeepEqual(back, c) {
		t.Errorf("change after a round trip through JSON\ngot  %+v\nwant %+v\n%s", back, c, text)
	}
	if c.FrameworkCapability() != "" {
		return // in XML, only a Framework Notification can represent it
	}
	d := &Document{Items: []Item{{Change: *c}}}
	checkReadBack(t, marshalXML(t, d), d)
}

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"2013", "2013-02", "2013-02-03", "2013-02-03T04:05Z", "2013-02-03T04:05:06.789+01:00", "0001-01-01T00:00:00-00:01"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseTime(s)
		// Package time parses one of the forms that ParseTime does, less strictly.
		if std, bad := time.Parse(time.RFC3339Nano, s); bad == nil && err == nil && !std.Equal(got) {
			t.Errorf("ParseTime(%q) = %v, want %v", s, got, std)
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
