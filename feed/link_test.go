package feed

import (
	"slices"
	"strings"
	"testing"
)

// The cases are what RFC 8288 allows, and what clients send in fact.
func TestParseLinks(t *testing.T) {
	for _, test := range []struct {
		name   string
		values []string
		want   []Link
	}{
		{"none", nil, nil},
		{"empty", []string{""}, nil},
		{"quoted", []string{`<a>; rel="self"`}, []Link{{URI: "a", Rel: "self"}}},
		{"token", []string{`<a>; rel=self`}, []Link{{URI: "a", Rel: "self"}}},
		{"no parameter", []string{`<a>`}, []Link{{URI: "a"}}},
		{"several in a field", []string{`<a>; rel="self", <b>; rel="hub"`}, []Link{{URI: "a", Rel: "self"}, {URI: "b", Rel: "hub"}}},
		{"several fields", []string{`<a>; rel="self"`, `<b>; rel="hub"`}, []Link{{URI: "a", Rel: "self"}, {URI: "b", Rel: "hub"}}},
		{"several types", []string{`<a>; rel="self hub"`}, []Link{{URI: "a", Rel: "self hub"}}},
		{"the first rel counts", []string{`<a>; rel="self"; rel="hub"`}, []Link{{URI: "a", Rel: "self"}}},
		{"also an empty one", []string{`<a>; rel=""; rel="hub"`}, []Link{{URI: "a"}}},
		{"letter case of the name", []string{`<a>; REL=self`}, []Link{{URI: "a", Rel: "self"}}},
		{"white space", []string{"\t< a > \t;\trel = \"self\"\t, <b>;rel=hub"}, []Link{{URI: "a", Rel: "self"}, {URI: "b", Rel: "hub"}}},
		{"none after the semicolon", []string{`<a>;rel=self,<b>;rel=hub`}, []Link{{URI: "a", Rel: "self"}, {URI: "b", Rel: "hub"}}},
		{"empty parameters", []string{`<a>;;;rel=self;`}, []Link{{URI: "a", Rel: "self"}}},
		{"empty elements", []string{`,, <a>; rel=self,,`}, []Link{{URI: "a", Rel: "self"}}},
		{"a comma and a bracket in a title", []string{`<a>; title="x, <y>; rel=hub"; rel=self`}, []Link{{URI: "a", Rel: "self"}}},
		{"a quote in a title", []string{`<a>; title="x\", <y>"; rel=self`}, []Link{{URI: "a", Rel: "self"}}},
		{"a comma in the URI", []string{`<a,b;c>; rel=self`}, []Link{{URI: "a,b;c", Rel: "self"}}},
		{"a parameter without value", []string{`<a>; nofollow; rel=self`}, []Link{{URI: "a", Rel: "self"}}},
		{"title*", []string{`<a>; title*=UTF-8''%e2%82%ac; rel=self`}, []Link{{URI: "a", Rel: "self"}}},
		{"an anchor", []string{`<a>; rel=self; anchor="#x", <b>; rel=hub`}, []Link{{URI: "b", Rel: "hub"}}},
		{"an open quote", []string{`<a>; rel="self`}, []Link{{URI: "a", Rel: "self"}}},
		{"no bracket at the end", []string{`<a; rel=self`}, nil},
		{"no brackets", []string{`a; rel=self`}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := ParseLinks(test.values); !slices.Equal(got, test.want) {
				t.Errorf("ParseLinks(%q) = %+v, want %+v", test.values, got, test.want)
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
				t.Errorf("ParseLinks(%q) has %+v", s, l)
			}
		}
	})
}
