package plainjson

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// value reads any value and writes it anew.
func value(r *Reader, b *strings.Builder, kind byte) {
	switch kind {
	case '{', '[':
		b.WriteByte(kind)
		for more, first := r.Next(kind, true), true; more; more, first = r.Next(kind, false), false {
			if !first {
				b.WriteByte(',')
			}
			if kind == '{' {
				b.WriteString(`"` + r.Name() + `":`)
			}
			value(r, b, r.peek())
		}
		b.WriteByte(kind + 2)
	case '"':
		b.WriteString(`"` + r.String() + `"`)
	default:
		begin := r.at
		r.Number()
		b.WriteString(r.text[begin:r.at])
	}
}

// FuzzReader compares with a decoder of all of JSON: what is plain is JSON, and means the same.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{`{"a":[1, 23, "b"], "c":{}, "d":[]}`, `[]`, `""`, `0`, `[01]`, `{"a" :1}`, `["\u0061"]`, `{"a":1,}`, `["12345678",123456789012345678]`, `[1234567890123456789]`, "[\"\x00\"]", `["ü"]`, `[1`, `[1 ,2]`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := NewReader(text)
		var got strings.Builder
		value(&r, &got, r.peek())
		if !r.Done() {
			return
		}
		want := jsontext.Value(text)
		if err := want.Compact(jsontext.AllowDuplicateNames(true)); err != nil {
			t.Fatalf("%q is plain, but no JSON: %v", text, err)
		}
		if got.String() != string(want) {
			t.Errorf("%q is read as %s, want %s", text, got.String(), want)
		}
	})
}

func TestReader(t *testing.T) {
	for text, plain := range map[string]bool{
		`{"a":[1, 23, "b"], "c":{}}`: true, `[]`: true, `{"a": 999999999999999999}`: true, `"~!#[]^_ "`: true,
		`[ ]`: false, `[1,  2]`: false, `{"a" :1}`: false, `[1] `: false, `[1`: false, `[1,]`: false, `[,1]`: false, `{"a"}`: false,
		`["a\\"]`: false, `["ü"]`: false, "[\"\t\"]": false, `[-1]`: false, `[1.5]`: false, `[1e3]`: false, `[00]`: false,
		`[1234567890123456789]`: false, `["`: false, `["a`: false, ``: false, `[null]`: false, `[true]`: false, `{1:2}`: false, `[1}`: false,
	} {
		r := NewReader(text)
		var got strings.Builder
		if value(&r, &got, r.peek()); r.Done() != plain {
			t.Errorf("%q: plain is %v, want %v", text, r.Done(), plain)
		}
	}
}

// FuzzEndOfPlain compares with a look at each byte.
func FuzzEndOfPlain(f *testing.F) {
	f.Add("0123456789abcdef\"", 1)
	f.Add("~\x7f\x80\xff\x1f !\"\\[", 0)
	f.Fuzz(func(t *testing.T, s string, from int) {
		if from < 0 || from > len(s) {
			return
		}
		want := from
		for want < len(s) && s[want] >= ' ' && s[want] < 0x80 && s[want] != '"' && s[want] != '\\' {
			want++
		}
		if got := endOfPlain(s, from); got != want {
			t.Errorf("endOfPlain(%q, %d) = %d, want %d", s, from, got, want)
		}
	})
}

// TestEndOfPlain has each byte at each place of a word, behind bytes that nearly end a string.
func TestEndOfPlain(t *testing.T) {
	for c := range 256 {
		for at := range 17 {
			s := strings.Repeat("!#[]~ \x7f", 3)[:at] + string([]byte{byte(c)}) + "!!!!!!!!\""
			want := strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r >= 0x80 || r == '"' || r == '\\' })
			if got := endOfPlain(s, 0); got != want {
				t.Fatalf("endOfPlain(%q) = %d, want %d", s, got, want)
			}
		}
	}
}
