package feed

import (
	"slices"
	"strings"
	"testing"
)

// TestParseLinks covers what RFC 8288 permits, and what clients send in practice.
func TestParseLinks(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values []string
		want   []Link
	}{
		{"none", nil, nil},
		{"empty", []string{""}, nil},
		{"quoted", []string{`<a>; rel="self"`}, []Link{{URI: "a", Rel: "self"}}},
		{"token", []string{`<a>; rel=self`}, []Link{{URI: "a", Rel: "self"}}},
		{"no parameter", []string{`<a>`}, []Link{{URI: "a"}}},
		{"several links in one field", []string{`<a>; rel="self", <b>; rel="hub"`}, []Link{{URI: "a", Rel: "self"}, {URI: "b", Rel: "hub"}}},
		{"several fields", []string{`<a>; rel="self"`, `<b>; rel="hub"`}, []Link{{URI: "a", Rel: "self"}, {URI: "b", Rel: "hub"}}},
		{"several types", []string{`<a>; rel="self hub"`}, []Link{{URI: "a", Rel: "self hub"}}},
		{"first rel applies", []string{`<a>; rel="self"; rel="hub"`}, []Link{{URI: "a", Rel: "self"}}},
		{"first rel empty", []string{`<a>; rel=""; rel="hub"`}, []Link{{URI: "a"}}},
		{"upper case name", []string{`<a>; REL=self`}, []Link{{URI: "a", Rel: "self"}}},
		{"white space", []string{"\t< a > \t;\trel = \"self\"\t, <b>;rel=hub"}, []Link{{URI: "a", Rel: "self"}, {URI: "b", Rel: "hub"}}},
		{"no space", []string{`<a>;rel=self,<b>;rel=hub`}, []Link{{URI: "a", Rel: "self"}, {URI: "b", Rel: "hub"}}},
		{"empty parameters", []string{`<a>;;;rel=self;`}, []Link{{URI: "a", Rel: "self"}}},
		{"empty elements", []string{`,, <a>; rel=self,,`}, []Link{{URI: "a", Rel: "self"}}},
		{"comma and bracket in title", []string{`<a>; title="x, <y>; rel=hub"; rel=self`}, []Link{{URI: "a", Rel: "self"}}},
		{"quote in title", []string{`<a>; title="x\", <y>"; rel=self`}, []Link{{URI: "a", Rel: "self"}}},
		{"comma in URI", []string{`<a,b;c>; rel=self`}, []Link{{URI: "a,b;c", Rel: "self"}}},
		{"parameter without value", []string{`<a>; nofollow; rel=self`}, []Link{{URI: "a", Rel: "self"}}},
		{"title*", []string{`<a>; title*=UTF-8''%e2%82%ac; rel=self`}, []Link{{URI: "a", Rel: "self"}}},
		{"anchor", []string{`<a>; rel=self; anchor="#x", <b>; rel=hub`}, []Link{{URI: "b", Rel: "hub"}}},
		{"unclosed quote", []string{`<a>; rel="self`}, []Link{{URI: "a", Rel: "self"}}},
		{"unclosed bracket", []string{`<a; rel=self`}, nil},
		{"no brackets", []string{`a; rel=self`}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := ParseLinks(tt.values); !slices.Equal(got, tt.want) {
				t.Errorf("ParseLinks(%q) = %+v, want %+v", tt.values, got, tt.want)
			}
		})
	}
}

func FuzzParseLinks(f *testing.F) {
	for _, s := range []string{`<a>; rel="self", <b>; rel=hub`, `<a>;;=;,`, `<<<>>>`, `<a>; x="\`, `<a>; rel=;anchor`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, l := range ParseLinks([]string{s}) {
			if !strings.Contains(s, l.URI) || strings.Contains(l.URI, ">") || l.anchor {
				t.Errorf("ParseLinks(%q) returns %+v, want a URI from the input and no anchor", s, l)
			}
		}
	})
}
