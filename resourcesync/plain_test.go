package resourcesync

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// FuzzPlain compares what plain makes faster with what looks at each byte.
func FuzzPlain(f *testing.F) {
	f.Add("https://example.org/a/long/way/to/go")
	f.Add("https://example.org/?a=1&b=2&c=\"<>\\\t\r\n\x00\x1f\x7f\x80é€\xff")
	for b := range 256 {
		f.Add(strings.Repeat("x", b%11) + string([]byte{byte(b)}) + "12345678")
	}
	f.Fuzz(func(t *testing.T, s string) {
		special := strings.IndexFunc(s, func(r rune) bool { return r < 0x20 || r >= utf8.RuneSelf || strings.ContainsRune("&<>\"\\", r) })
		if special < 0 {
			special = len(s)
		}
		if got, want := plain(s), special/8*8; got != want {
			t.Errorf("plain(%q) = %d, want %d", s, got, want)
		}
		if got, want := string(appendEscaped(nil, s)), escapedByRune(s); got != want {
			t.Errorf("escaped %q as %q, want %q", s, got, want)
		}
		quoted, _ := jsontext.AppendQuote(nil, s)
		if got := string(appendQuoted(nil, s)); got != string(quoted) {
			t.Errorf("quoted %q as %q, want %q", s, got, quoted)
		}
		size := len(s)
		for _, b := range []byte(s) {
			size += int(escapes[b])
		}
		if got := textSize(s); got != size {
			t.Errorf("textSize(%q) = %d, want %d", s, got, size)
		}
		good := utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !isXMLChar(r) }) < 0
		if got := badText(s); good != (got == "") {
			t.Errorf("badText(%q) = %q", s, got)
		}
	})
}

// escapedByRune is appendEscaped without any haste.
func escapedByRune(s string) string {
	var b strings.Builder
	for _, r := range s { // a byte that is not UTF-8 is U+FFFD here
		switch r {
		case '&':
			b.WriteString("&amp;")
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case '"':
			b.WriteString("&quot;")
		case '\t':
			b.WriteString("&#x9;")
		case '\n':
			b.WriteString("&#xA;")
		case '\r':
			b.WriteString("&#xD;")
		default:
			if !isXMLChar(r) {
				r = utf8.RuneError
			}
			b.WriteRune(r)
		}
	}
	return b.String()
}
