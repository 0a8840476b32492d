package hub

import (
	"slices"
	"strings"
	"testing"
)

// What RFC 8288 allows, and what people send.
func TestParseLinks(t *testing.T) {
	for _, test := range []struct {
		name   string
		values []string
		want   []link
	}{
		{"none", nil, nil},
		{"empty", []string{""}, nil},
		{"quoted", []string{`<a>; rel="self"`}, []link{{uri: "a", rel: "self"}}},
		{"token", []string{`<a>; rel=self`}, []link{{uri: "a", rel: "self"}}},
		{"no parameter", []string{`<a>`}, []link{{uri: "a"}}},
		{"several in a field", []string{`<a>; rel="self", <b>; rel="hub"`}, []link{{uri: "a", rel: "self"}, {uri: "b", rel: "hub"}}},
		{"several fields", []string{`<a>; rel="self"`, `<b>; rel="hub"`}, []link{{uri: "a", rel: "self"}, {uri: "b", rel: "hub"}}},
		{"several types", []string{`<a>; rel="self hub"`}, []link{{uri: "a", rel: "self hub"}}},
		{"the first rel counts", []string{`<a>; rel="self"; rel="hub"`}, []link{{uri: "a", rel: "self"}}},
		{"also an empty one", []string{`<a>; rel=""; rel="hub"`}, []link{{uri: "a"}}},
		{"letter case of the name", []string{`<a>; REL=self`}, []link{{uri: "a", rel: "self"}}},
		{"white space", []string{"\t< a > \t;\trel = \"self\"\t, <b>;rel=hub"}, []link{{uri: "a", rel: "self"}, {uri: "b", rel: "hub"}}},
		{"none after the semicolon", []string{`<a>;rel=self,<b>;rel=hub`}, []link{{uri: "a", rel: "self"}, {uri: "b", rel: "hub"}}},
		{"empty parameters", []string{`<a>;;;rel=self;`}, []link{{uri: "a", rel: "self"}}},
		{"empty elements", []string{`,, <a>; rel=self,,`}, []link{{uri: "a", rel: "self"}}},
		{"a comma and a bracket in a title", []string{`<a>; title="x, <y>; rel=hub"; rel=self`}, []link{{uri: "a", rel: "self"}}},
		{"a quote in a title", []string{`<a>; title="x\", <y>"; rel=self`}, []link{{uri: "a", rel: "self"}}},
		{"a comma in the URI", []string{`<a,b;c>; rel=self`}, []link{{uri: "a,b;c", rel: "self"}}},
		{"a parameter without value", []string{`<a>; nofollow; rel=self`}, []link{{uri: "a", rel: "self"}}},
		{"title*", []string{`<a>; title*=UTF-8''%e2%82%ac; rel=self`}, []link{{uri: "a", rel: "self"}}},
		{"an anchor", []string{`<a>; rel=self; anchor="#x", <b>; rel=hub`}, []link{{uri: "b", rel: "hub"}}},
		{"an open quote", []string{`<a>; rel="self`}, []link{{uri: "a", rel: "self"}}},
		{"no bracket at the end", []string{`<a; rel=self`}, nil},
		{"no brackets", []string{`a; rel=self`}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := parseLinks(test.values); !slices.Equal(got, test.want) {
				t.Errorf("parseLinks(%q) = %+v, want %+v", test.values, got, test.want)
			}
		})
	}
}

func FuzzParseLinks(f *testing.F) {
	for _, s := range []string{`<a>; rel="self", <b>; rel=hub`, `<a>;;=;,`, `<<<>>>`, `<a>; x="\`, `<a>; rel=;anchor`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, l := range parseLinks([]string{s}) {
			if !strings.Contains(s, l.uri) || strings.Contains(l.uri, ">") || l.anchor {
				t.Errorf("parseLinks(%q) has %+v", s, l)
			}
		}
	})
}
