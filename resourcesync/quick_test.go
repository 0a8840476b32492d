package resourcesync

import (
	"strings"
	"testing"
	"time"
	"unicode"
)

// FuzzPlainURI compares with the check of any URI.
func FuzzPlainURI(f *testing.F) {
	for _, s := range []string{"https://example.org/a?b&c", "http://a", "https://", "http://:80/", "https://a@b/", "http://@/", "https:///a", "http://a/%41", "http://[::1]/", "HTTP://a", "http://?a", "http://a#b#c", "http://a b", "https://-/", "http://a/\"", "https://a/ü"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if bad := badURIOf(s); isPlainURI(s) && bad != "" {
			t.Errorf("%q counts as plain: %s", s, bad)
		}
	})
}

func TestPlainURI(t *testing.T) {
	for s, want := range map[string]bool{"https://example.org/a?b&c=d;e,f": true, "http://a:80/~b/(c)": true, "https://a@b/": false, "urn:x:a": false, "http://": false, "http://:80": false, "http:///": false} {
		if got := isPlainURI(s); got != want {
			t.Errorf("isPlainURI(%q) = %v, want %v", s, got, want)
		}
	}
	for b := range 256 { // each byte at each place that counts
		for _, before := range []string{"http://", "https://a", "https://a/", "http://a/?"} {
			if s := before + string([]byte{byte(b)}) + "a"; isPlainURI(s) && badURIOf(s) != "" {
				t.Errorf("%q counts as plain: %s", s, badURIOf(s))
			}
		}
	}
}

// FuzzTexts compares what looks at many bytes at once with what looks at each.
func FuzzTexts(f *testing.F) {
	for _, s := range []string{"", " ", "a b", "a  b", " a", "a ", "a\tb", "a\nb", "a\rb", "\x7f", "ü", "text/html; charset=utf-8"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := isOneSpaced(s), strings.Join(strings.FieldsFunc(s, func(c rune) bool { return strings.ContainsRune(xmlSpace, c) }), " ") == s; got != want {
			t.Errorf("isOneSpaced(%q) = %v", s, got)
		}
		if all(s, printable) && (badText(s) != "" || hasControl(s)) {
			t.Errorf("%q counts as printable", s)
		}
		if got, want := all(s, hexDigit), !strings.ContainsFunc(s, func(c rune) bool { return c > unicode.MaxASCII || !isHex(byte(c)) }); got != want {
			t.Errorf("%q counts as hex digits: %v", s, got)
		}
		token := s != "" && !strings.ContainsFunc(s, func(c rune) bool {
			return c > unicode.MaxASCII || !isLetter(byte(c)) && !isDigit(byte(c)) && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
		})
		if got := isToken(s); got != token {
			t.Errorf("isToken(%q) = %v", s, got)
		}
	})
}

func TestInYears(t *testing.T) {
	first, last := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
	for at, want := range map[time.Time]bool{first: false, first.Add(1): true, first.Add(-1): false, last: true, last.Add(1): false, first.AddDate(-1, 0, 0): false, last.AddDate(9999, 0, 0): false, time.Unix(0, 0): true} {
		if got := inYears(at); got != want {
			t.Errorf("inYears(%v) = %v", at, got)
		}
	}
}
