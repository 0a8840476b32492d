package resourcesync

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/plainjson"
)

func TestTags(t *testing.T) {
	for _, test := range []struct {
		members string // of the change
		want    []string
	}{
		{``, nil},
		{`,"tags":[]`, nil},
		{`,"tags":null`, nil},
		{`,"tags":["frogs"]`, []string{"frogs"}},
		{`,"tags":["frogs","https://example.org/terms#crocodiles","Frösche"]`, []string{"frogs", "https://example.org/terms#crocodiles", "Frösche"}},
		{`,"{urn:o}a":"1","tags":["b"],"{urn:o}c":"2"`, []string{"b"}},
		{`,"{http://resourcesync.org/ns/}tags":" a\tb  c "`, []string{"a", "b", "c"}},
		{`,"{http://resourcesync.org/ns/}tags":" "`, nil},
		{`,"{http://resourcesync.org/ns/}tags":"a b","tags":["c"]`, []string{"a", "b", "c"}},
		{`,"tags":["c"],"{http://resourcesync.org/ns/}tags":"a  b"`, []string{"c", "a", "b"}},
		{`,"tags":[` + numbered(maxTags) + `]`, nil},
	} {
		text := `{"loc":"urn:x:a","change":"updated"` + test.members + `}`
		c, err := ParseChange([]byte(text))
		sameAsAny(t, []byte(text), c, err)
		if err != nil || c.Validate() != nil {
			t.Errorf("%s: %v, %v", text, err, c.Validate())
			continue
		}
		if got := slices.Collect(c.Tags()); test.want != nil && !slices.Equal(got, test.want) {
			t.Errorf("%s has the tags %q", text, got)
		}
		if want := test.want; want != nil && (!c.HasTag(want[0]) || c.HasTag(want[0]+"x") || c.HasTag("")) {
			t.Errorf("%s: has %q %t, has others", text, want[0], c.HasTag(want[0]))
		}
		sameInAllForms(t, c)
		if len(c.Attrs) == 1 && c.Size() < len(AppendJSONMembers(nil, c)) {
			t.Errorf("%s takes more than its size", text)
		}
	}
}

// numbered returns n different tags as JSON.
func numbered(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"%d"`, i))
	}
	return strings.Join(all, ",")
}

func TestTagsAreRefused(t *testing.T) {
	for members, rule := range map[string]string{
		`"tags":"frogs"`:                              `tags is an array, not a string`,
		`"tags":[1]`:                                  `a tag is a string, not a number`,
		`"tags":["a",null]`:                           `a tag is empty`,
		`"tags":["a",""]`:                             `a tag is empty`,
		`"tags":["a b"]`:                              `a tag has no space and no comma, as "a b" has`,
		`"tags":["a,b"]`:                              `a tag has no space and no comma, as "a,b" has`,
		`"tags":["a\u00a0b"]`:                         `a tag has no space and no comma, as "a�b" has`,
		`"tags":["a\u0000"]`:                          `tag "a�": XML cannot carry the character U+0000`,
		`"tags":["a\u0085b"]`:                         `a tag has no space and no comma, as "a�b" has`,
		`"tags":["a\u0090b"]`:                         `a tag has no control characters, as "a�b" has`,
		`"tags":["a","b","a"]`:                        `tag "a" is there twice`,
		`"tags":[` + numbered(maxTags+1) + `]`:        `an entry has at most 32 tags`,
		`"tags":["` + strings.Repeat("x", 257) + `"]`: `a tag is longer than 256 bytes`,
		`"tags":["a` + strings.Repeat("x", 250) + `","b` + strings.Repeat("x", 250) + `","c` + strings.Repeat("x", 250) + `","d` + strings.Repeat("x", 250) + `","efghijklmnopqrstuvwxyz"]`: `the tags of an entry have more than 1024 bytes together`,
		`"tags":["a"],"{http://resourcesync.org/ns/}tags":"b a"`: `tag "a" is there twice`,
		`"{http://resourcesync.org/ns/}tags":"a b a"`:            `tag "a" is there twice`,
		`"tags":["a"],"tags":["b"]`:                              ``,
	} {
		text := `{"loc":"urn:x:a","change":"updated",` + members + `}`
		c, err := ParseChange([]byte(text))
		sameAsAny(t, []byte(text), c, err)
		if err == nil {
			err = c.Validate()
		}
		e, ok := errors.AsType[*Error](err)
		if !ok || rule != "" && e.Rule != rule || e.Loc != "urn:x:a" {
			t.Errorf("%.100s: %v, want %s", members, err, rule)
		}
	}
}

// Tags in plain JSON are read in the fast way.
func TestPlainTags(t *testing.T) {
	in := plainjson.NewReader(`{"loc":"urn:x:a","tags":["a","b"]}`)
	if c := new(Change); !plainChange(&in, c) || !in.Done() || !c.HasTag("b") {
		t.Errorf("tags are not plain: %+v", c)
	}
}

// A change of the draft of 2012 has an element for each tag. Both forms are read, and one is
// written.
func TestTagsInXML(t *testing.T) {
	const draft = `xmlns:d="http://resourcesync.org/ns/"`
	for in, want := range map[string]string{
		`<rs:md change="updated" ` + draft + ` d:tags="frogs&#10;crocodiles "/>`:                                     "frogs crocodiles",
		`<d:tag ` + draft + `>frogs</d:tag><rs:md change="updated"/><d:tag ` + draft + `> crocodiles </d:tag>`:       "frogs crocodiles",
		`<rs:md change="updated" ` + draft + ` d:tags="frogs"/><d:tag ` + draft + `>crocodiles</d:tag>`:              "frogs crocodiles",
		`<rs:md change="updated" ` + draft + ` d:tags=" "/>`:                                                         "",
		`<rs:md change="updated"/><d:tag ` + draft + `>a b</d:tag>`:                                                  `! a tag has no space and no comma, as "a b" has`,
		`<rs:md change="updated"/><d:tag ` + draft + `/>`:                                                            `! a tag is empty`,
		`<rs:md change="updated"/><d:tag ` + draft + `>a</d:tag><d:tag ` + draft + `>a</d:tag>`:                      `! tag "a" is there twice`,
		`<rs:md change="updated"/><d:tag ` + draft + `>a<b/></d:tag>`:                                                `! rs:tag holds text only`,
		`<rs:md change="updated"/>` + strings.Repeat(`<d:tag `+draft+`>`+strings.Repeat("x", 300)+`</d:tag>`, 1_000): `! a tag is longer than 256 bytes`,
	} {
		d, err := ReadXML(strings.NewReader(document(`<url><loc>urn:x:a</loc>`+in+`</url>`)), Limits{})
		if e, ok := errors.AsType[*Error](err); ok && "! "+e.Rule == want && e.Entry == 1 && e.Loc == "urn:x:a" {
			continue
		}
		if err != nil {
			t.Errorf("%.200s: %v, want %s", in, err, want)
			continue
		}
		c := &d.Items[0].Change
		if got := strings.Join(slices.Collect(c.Tags()), " "); got != want {
			t.Errorf("%s has the tags %q", in, got)
		}
		sameInAllForms(t, c)
	}
}

func TestSetTags(t *testing.T) {
	c := Change{Loc: "urn:x:a", Attrs: []Attr{{"urn:o", "a", "b"}}}
	was := c
	c.SetTags("b", "c")
	c.SetTags("d")
	if want := []Attr{{"urn:o", "a", "b"}, {draftNS, "tags", "d"}}; !reflect.DeepEqual(c.Attrs, want) || len(was.Attrs) != 1 {
		t.Errorf("attributes are %+v", c.Attrs)
	}
	if c.SetTags(); !reflect.DeepEqual(c, was) {
		t.Errorf("without tags it is %+v", c)
	}
}
