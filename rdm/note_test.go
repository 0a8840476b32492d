package rdm

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/rdm/soif"
	"github.com/rshub/rshub/resourcesync"
)

// unsized is an attribute whose value, the rest of the line, is not counted in the note.
var unsized = regexp.MustCompile(`(?m)^(\S+)\{x\}:\t(.*)$`)

// examples returns the examples of the note by their names, with sizes in place of {x}.
func examples(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/note.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for one := range strings.SplitSeq(strings.TrimPrefix(string(text), "# "), "\n# ") {
		name, example, _ := strings.Cut(one, "\n")
		all[name] = unsized.ReplaceAllStringFunc(example, func(line string) string {
			m := unsized.FindStringSubmatch(line)
			return fmt.Sprintf("%s{%d}:\t%s", m[1], len(m[2]), m[2])
		})
	}
	return all
}

// objects returns the objects of a text.
func objects(t *testing.T, text string) (all []*soif.Object) {
	t.Helper()
	in := soif.NewReader(strings.NewReader(text), soif.Limits{})
	for {
		o, err := in.Read()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatalf("%v: %q", err, text)
		}
		all = append(all, o)
	}
}

// post reads a message as the body of a POST.
func post(text string, headers ...string) (*message, error) {
	r := httptest.NewRequest(http.MethodPost, Path, strings.NewReader(text))
	r.Header.Set("Content-Type", mediaType)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return readBody(r)
}

// Every example of the note is read, and read again as the same when it is written. Two of
// them have wrong sizes, and the reader says where.
func TestNote(t *testing.T) {
	all := examples(t)
	if len(all) != 20 {
		t.Errorf("there are %d examples", len(all))
	}
	for name, text := range all {
		if where, ok := map[string]string{"wrong sizes of a type": "object 1 (@RDMHEADER), attribute RDM-Type: the value has 9 bytes as it says, and 't' follows it", "wrong sizes of a scope": "object 1 (@RDMQUERY), attribute Scope: the value has 34 bytes"}[name]; ok {
			if _, err := soif.NewReader(strings.NewReader(text), soif.Limits{}).Read(); err == nil || !strings.Contains(err.Error(), where) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var again []byte
		read := objects(t, text)
		for _, o := range read {
			again = write(again, o)
		}
		if string(again) != strings.TrimRight(text, "\n")+"\n" || !reflect.DeepEqual(objects(t, string(again)), read) {
			t.Errorf("%s is written as %q", name, again)
		}
	}
}

// The messages of the note mean what it says.
func TestNoteMessages(t *testing.T) {
	all := examples(t)
	shown := view{attributes: map[string]bool{"url": true, "title": true, "last-modified": true}}
	for _, c := range []struct {
		header, query string
		want          message
	}{
		{"header status", "", message{kind: statusRequest}},
		{"header request", "scope all", message{kind: rdRequest, csid: "x-catalog://www.netscape.com:80/techpubs", scope: "all"}},
		{"header request", "scope view", message{kind: rdRequest, csid: "x-catalog://www.netscape.com:80/techpubs", scope: "all", view: shown}},
		{"header response", "", message{kind: rdResponse}},
		{"schema all", "", message{kind: schemaRequest, scope: "defined SOIF-Attribute"}},
		{"taxonomy below", "", message{kind: taxonomyRequest, scope: "anklebiter Education/Training:Internal Training Classes"}},
	} {
		m, err := post(all[c.header] + all[c.query])
		if err != nil {
			t.Errorf("%s, %s: %v", c.header, c.query, err)
			continue
		}
		if m.body = nil; !reflect.DeepEqual(*m, c.want) {
			t.Errorf("%s, %s: %+v", c.header, c.query, *m)
		}
	}
	for name, want := range map[string][]order{"view hits": {{attribute: "title"}}, "view score": {{"score", true}, {"title", false}}} {
		o := objects(t, all[name])[0]
		attributes, _ := o.Get("View-Attributes")
		hits, _ := o.Get("View-Hits")
		by, _ := o.Get("View-Order")
		v, err := parseView(attributes, hits, by)
		if err != nil || v.hits != 10 || !reflect.DeepEqual(v.order, want) || !v.attributes["author"] {
			t.Errorf("%s is %+v, %v", name, v, err)
		}
	}
	scope, _ := objects(t, all["scope since"])[0].Get("Scope")
	if since, has, err := parseScope(scope); since != time.Date(1994, 11, 6, 8, 49, 37, 0, time.UTC).UnixMicro() || !has || err != nil {
		t.Errorf("%s is %v, %v, %v", scope, since, has, err)
	}
	c, err := change(objects(t, all["object"])[0], resourcesync.Updated)
	if err != nil || c.Loc != "http://www.netscape.com:80/" || !c.Lastmod.Equal(time.Date(1996, 5, 16, 11, 45, 39, 0, time.UTC)) || c.Attrs[0].Value != "Welcome to Netscape!" {
		t.Errorf("the object is %+v, %v", c, err)
	}
}

// The URLs of the note mean what it says; its toy query language is not spoken.
func TestNoteURLs(t *testing.T) {
	for query, want := range map[string]*message{
		"type=status-request":                                              {kind: statusRequest},
		"type=rd-request&ql=gatherer&scope=all":                            {kind: rdRequest, scope: "all"},
		"type=rd-request&ql=sample-keyword-ql&scope=netscape&view-hits=10": nil,
		"type=rd-request&ql=sample-keyword-ql&scope=netscape&view-hits=10&view-attributes=url,title,author":  nil,
		"type=Schema-Request&ql=schema-basic&scope=defined+SOIF-Attribute&csid=x-catalog%3A%2F%2Fa%3A80%2Fb": {kind: schemaRequest, csid: "x-catalog://a:80/b", scope: "defined SOIF-Attribute"},
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		m, err := readURL(q)
		if want == nil {
			if err == nil || !strings.Contains(err.Error(), "the query language of a rd-request is gatherer") {
				t.Errorf("%s: %v", query, err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(m, want) {
			t.Errorf("%s is %+v, %v", query, m, err)
		}
	}
}

// The queries of the note about its sample taxonomy choose what it says.
func TestNoteTaxonomy(t *testing.T) {
	all := examples(t)
	var classes []class
	for _, o := range objects(t, all["taxonomy"])[1:] {
		id, _ := o.Get("Id")
		parent, _ := o.Get("Parent-Id")
		classes = append(classes, class{id: id, parent: parent})
	}
	for scope, want := range map[string]string{
		"descendant ROOT":                 "0123",
		"descendant/2 ROOT":               "01",
		"descendant/0 Education/Training": "0",
		"descendant Education/Training:Internal Training Classes": "123",
		"children Education/Training":                             "01",
		"anklebiter ROOT":                                         "0",
		"anklebiter Education/Training:Internal Training Classes": "123",
		"children nothing":                                        "none",
	} {
		b, err := parseBelow(scope)
		if err != nil {
			t.Fatal(err)
		}
		chosen, ok := b.choose(classes)
		got := ""
		for i, c := range classes {
			for _, one := range chosen {
				if one == c {
					got += fmt.Sprint(i)
				}
			}
		}
		if !ok {
			got = "none"
		}
		if got != want {
			t.Errorf("%s chooses %s, want %s", scope, got, want)
		}
	}
	text := appendTaxonomy(nil, "Netscape Sample 1", "Sample Taxonomy which captures a basic Business organizational structure.", classes, &view{})
	if string(text) != all["taxonomy"] && string(text) != all["taxonomy"]+"\n" {
		t.Errorf("the taxonomy is written as %s, want %s", text, all["taxonomy"])
	}
	for _, scope := range []string{"", "descendant", "descendant/x ROOT", "descendant/-1 ROOT", "children/2 ROOT", "all"} {
		if _, err := parseBelow(scope); !errors.Is(err, resourcesync.ErrInvalid) {
			t.Errorf("%q: %v", scope, err)
		}
	}
}

// The queries of the note about the schema are answered with what they ask for.
func TestNoteSchema(t *testing.T) {
	s := New(nil, "http://hub.example.org", Options{})
	for name, want := range map[string]struct{ entries, has, hasNot string }{
		"schema all":     {"9", "SOIF-Attribute-9", "SOIF-Attribute-10"},
		"schema default": {"5", "Description-5", "SOIF-Attribute-6"},
		"schema view":    {"5", "Default-View-Attribute-5", "Description-1"},
	} {
		m, err := post(examples(t)[name])
		if err != nil {
			t.Fatal(err)
		}
		defined, err := parseDefined(m.scope)
		if err != nil {
			t.Fatal(err)
		}
		o := s.schemaObject(defined, &m.view)
		n, _ := o.Get("Number-of-Entries")
		_, has := o.Get(want.has)
		_, hasNot := o.Get(want.hasNot)
		if n != want.entries || !has || hasNot {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if _, err := parseDefined("all"); !errors.Is(err, resourcesync.ErrInvalid) {
		t.Errorf("a scope of another language: %v", err)
	}
}
