package resourcesync

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// positions returns the entry, line and loc of err and of the errors in its More.
func positions(err error) (all []string) {
	var e *Error
	if !errors.As(err, &e) {
		return []string{fmt.Sprint(err)}
	}
	for _, e := range append([]*Error{e}, e.More...) {
		all = append(all, fmt.Sprintf("%d/%d %s", e.Entry, e.Line, e.Loc))
	}
	return all
}

// ReadXML and ReadJSON report the errors of several entries, including those that only Check finds.
func TestReadReportsAllErrors(t *testing.T) {
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
		returned bool // whether the document is returned
	}{
		{"reader and Check in JSON", `{"changes":[{"loc":"urn:x:a","change":"updated"},{"loc":"urn:x:b","hue":1},{"loc":"urn:x:c","change":"updated"},{"loc":"urn:x:d"},7,[{}],{"change":"moved","loc":"urn:x:e"}],"capability":"changelist"}`,
			check, []string{"2/0 urn:x:b", "4/0 urn:x:d", "5/0 ", "6/0 ", "7/0 urn:x:e"}, true},
		{"without Check", `{"changes":[{"loc":"urn:x:a"},{"ln":[{"rel":1,"x":[[{}]]}]},{"loc":"urn:x:c"}]}`, Limits{}, []string{"2/0 "}, true},
		{"at most MaxErrors in JSON", `{"changes":[` + bad + `{}]}`, check, slices.Repeat([]string{""}, MaxErrors), false},
		{"entry, then invalid member", `{"changes":[{"loc":"urn:x:a"}],"from":1}`, check, []string{"1/0 urn:x:a", "0/0 "}, false},
		{"entries, then malformed JSON", `{"changes":[{"loc":"urn:x:a"},{"loc":"urn:x:b"},{{]}`, check, []string{"1/0 urn:x:a", "2/0 urn:x:b", "3/0 "}, false},
		{"entry, then truncated JSON", `{"changes":[{"loc":"urn:x:a"},{"loc":"urn:x:b","x":[`, check, []string{"1/0 urn:x:a", "2/0 "}, false},
		{"reader and Check in XML", head + good("a") + "\n<url><loc>urn:x:b</loc><rs:md/></url>" + good("c") + "\n<url><rs:md hue='1'><x><y/></x></rs:md><loc>urn:x:d</loc></url>\n<url>\n</url>" + good("e") + "</urlset>",
			check, []string{"2/3 urn:x:b", "4/5 ", "5/6 "}, true},
		{"at most MaxErrors in XML", head + strings.Repeat("<url/>", 30) + "</urlset>", Limits{}, slices.Repeat([]string{""}, MaxErrors), false},
		{"entry, then malformed XML", head + "\n<url/>\n<url><x:y/></url>\n<url/></urlset>", check, []string{"1/2 ", "2/3 "}, false},
		{"entry, then entry without an end", head + "\n<url/>\n<url><loc>urn:x:a</loc>\n<url/></urlset>", check, []string{"1/2 ", "2/4 urn:x:a"}, false},
		{"entry, then truncated XML", head + "\n<url/>\n<url><loc>urn:x:a</loc>", check, []string{"1/2 ", "2/3 urn:x:a"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			read := ReadXML
			if test.in[0] == '{' {
				read = ReadJSON
			}
			d, err := read(strings.NewReader(test.in), test.limits)
			got := positions(err)
			if len(test.want) == MaxErrors {
				if len(got) != MaxErrors {
					t.Errorf("got %d errors, want %d", len(got), MaxErrors)
				}
			} else if !slices.Equal(got, test.want) {
				t.Errorf("got errors at %q, want %q: %v", got, test.want, err)
			}
			if (d != nil) != test.returned || d != nil && len(d.Items) > 0 {
				t.Errorf("got document %+v, want one without entries: %t", d, test.returned)
			}
			if strings.Count(err.Error(), "; ") < len(got)-1 {
				t.Errorf("Error() = %q, want the messages of %d errors", err, len(got))
			}
		})
	}
}

// Invalid entries do not count together as the text of one entry.
func TestReadManyInvalidEntries(t *testing.T) {
	long := strings.Repeat(`<url><loc>urn:x:a</loc><rs:md hue="`+strings.Repeat("a", 200<<10)+`"/></url>`, 15)
	_, err := ReadXML(strings.NewReader(`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">`+long+`</urlset>`), Limits{})
	if n := len(positions(err)); n != 15 {
		t.Errorf("got %d errors, want 15: %.300v", n, err)
	}
	_, err = ReadJSON(strings.NewReader(`{"changes":[`+strings.Repeat(`{"hue":"`+strings.Repeat("a", 200<<10)+`"},`, 14)+`{}]}`), Limits{})
	if n := len(positions(err)); n != 15 {
		t.Errorf("got %d errors, want 15: %.300v", n, err)
	}
}

// Resume continues after invalid lines, and never for a line that is not in the buffer.
func TestNDJSONReaderResume(t *testing.T) {
	r := NewNDJSONReader(strings.NewReader("{}\n{\"loc\":\"urn:x:a\"}\n\n\nx\n{\"loc\":\"urn:x:b\"}"), Limits{})
	var got []string
	for {
		c, err := r.Next()
		if err == nil {
			got = append(got, fmt.Sprint(r.Line(), " ", c.Loc))
		} else {
			got = append(got, fmt.Sprint(r.Line(), " invalid"))
		}
		if !r.Resume() {
			break
		}
	}
	if want := []string{"1 invalid", "2 urn:x:a", "5 invalid"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	long := NewNDJSONReader(strings.NewReader(strings.Repeat("a", 100)+"\n{}\n"), Limits{Bytes: 10})
	if _, err := long.Next(); !errors.Is(err, ErrTooLarge) || long.Resume() {
		t.Errorf("Next() of a line that is too long = %v, want %v and no Resume", err, ErrTooLarge)
	}
}
