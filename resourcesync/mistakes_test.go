package resourcesync

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// places returns which entries and lines an error is about.
func places(err error) (all []string) {
	var e *Error
	if !errors.As(err, &e) {
		return []string{fmt.Sprint(err)}
	}
	for _, e := range append([]*Error{e}, e.More...) {
		all = append(all, fmt.Sprintf("%d/%d %s", e.Entry, e.Line, e.Loc))
	}
	return all
}

// What is wrong with several entries is reported at once, and what only Check knows as well.
func TestAllMistakes(t *testing.T) {
	check := Limits{Check: (*Change).Validate}
	const head = `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="changelist"/>`
	good := func(name string) string {
		return "\n<url><loc>urn:x:" + name + `</loc><rs:md change="updated"/></url>`
	}
	bad := strings.Repeat(`{"loc":"urn:x:a"},`, 30)
	for _, test := range []struct {
		name, in string
		limits   Limits
		want     []string
		whole    bool // there is a document
	}{
		{"two kinds in JSON", `{"changes":[{"loc":"urn:x:a","change":"updated"},{"loc":"urn:x:b","hue":1},{"loc":"urn:x:c","change":"updated"},{"loc":"urn:x:d"},7,[{}],{"change":"moved","loc":"urn:x:e"}],"capability":"changelist"}`,
			check, []string{"2/0 urn:x:b", "4/0 urn:x:d", "5/0 ", "6/0 ", "7/0 urn:x:e"}, true},
		{"without Check", `{"changes":[{"loc":"urn:x:a"},{"ln":[{"rel":1,"x":[[{}]]}]},{"loc":"urn:x:c"}]}`, Limits{}, []string{"2/0 "}, true},
		{"no more than twenty", `{"changes":[` + bad + `{}]}`, check, slices.Repeat([]string{""}, MaxErrors), false},
		{"then a member", `{"changes":[{"loc":"urn:x:a"}],"from":1}`, check, []string{"1/0 urn:x:a", "0/0 "}, false},
		{"then no JSON", `{"changes":[{"loc":"urn:x:a"},{"loc":"urn:x:b"},{{]}`, check, []string{"1/0 urn:x:a", "2/0 urn:x:b", "3/0 "}, false},
		{"then the end", `{"changes":[{"loc":"urn:x:a"},{"loc":"urn:x:b","x":[`, check, []string{"1/0 urn:x:a", "2/0 "}, false},
		{"two kinds in XML", head + good("a") + "\n<url><loc>urn:x:b</loc><rs:md/></url>" + good("c") + "\n<url><rs:md hue='1'><x><y/></x></rs:md><loc>urn:x:d</loc></url>\n<url>\n</url>" + good("e") + "</urlset>",
			check, []string{"2/3 urn:x:b", "4/5 ", "5/6 "}, true},
		{"no more than twenty in XML", head + strings.Repeat("<url/>", 30) + "</urlset>", Limits{}, slices.Repeat([]string{""}, MaxErrors), false},
		{"then no XML", head + "\n<url/>\n<url><x:y/></url>\n<url/></urlset>", check, []string{"1/2 ", "2/3 "}, false},
		{"then no end of an entry", head + "\n<url/>\n<url><loc>urn:x:a</loc>\n<url/></urlset>", check, []string{"1/2 ", "2/4 urn:x:a"}, false},
		{"then the end of XML", head + "\n<url/>\n<url><loc>urn:x:a</loc>", check, []string{"1/2 ", "2/3 urn:x:a"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			read := ReadXML
			if test.in[0] == '{' {
				read = ReadJSON
			}
			d, err := read(strings.NewReader(test.in), test.limits)
			got := places(err)
			if len(test.want) == MaxErrors {
				if len(got) != MaxErrors {
					t.Errorf("%d errors", len(got))
				}
			} else if !slices.Equal(got, test.want) {
				t.Errorf("the errors are about %q, want %q: %v", got, test.want, err)
			}
			if (d != nil) != test.whole || d != nil && len(d.Items) > 0 {
				t.Errorf("the document is %+v", d)
			}
			if strings.Count(err.Error(), "; ") < len(got)-1 {
				t.Errorf("the text does not have all: %v", err)
			}
		})
	}
}

// Wrong entries do not count as the text of one entry.
func TestManyMistakesAreNoLongEntry(t *testing.T) {
	long := strings.Repeat(`<url><loc>urn:x:a</loc><rs:md hue="`+strings.Repeat("a", 200<<10)+`"/></url>`, 15)
	_, err := ReadXML(strings.NewReader(`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">`+long+`</urlset>`), Limits{})
	if n := len(places(err)); n != 15 {
		t.Errorf("%d errors, want 15: %.300v", n, err)
	}
	_, err = ReadJSON(strings.NewReader(`{"changes":[`+strings.Repeat(`{"hue":"`+strings.Repeat("a", 200<<10)+`"},`, 14)+`{}]}`), Limits{})
	if n := len(places(err)); n != 15 {
		t.Errorf("%d errors, want 15: %.300v", n, err)
	}
}

// More goes on behind lines that are wrong, and never waits for a line.
func TestMoreLines(t *testing.T) {
	r := NewNDJSONReader(strings.NewReader("{}\n{\"loc\":\"urn:x:a\"}\n\n\nx\n{\"loc\":\"urn:x:b\"}"), Limits{})
	var got []string
	for {
		c, err := r.Next()
		if err == nil {
			got = append(got, fmt.Sprint(r.Line(), " ", c.Loc))
		} else {
			got = append(got, fmt.Sprint(r.Line(), " wrong"))
		}
		if !r.Resume() {
			break
		}
	}
	if want := []string{"1 wrong", "2 urn:x:a", "5 wrong"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	long := NewNDJSONReader(strings.NewReader(strings.Repeat("a", 100)+"\n{}\n"), Limits{Bytes: 10})
	if _, err := long.Next(); !errors.Is(err, ErrTooLarge) || long.Resume() {
		t.Errorf("behind a line that is too long: %v", err)
	}
}
