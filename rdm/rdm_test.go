package rdm

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/rdm/soif"
	"github.com/rshub/rshub/resourcesync"
)

// text writes a message of objects: each a type and a URL, then name, value, name, value.
func text(objects ...[]string) string {
	var b []byte
	for _, o := range objects {
		object := &soif.Object{Type: o[0], URL: o[1]}
		for i := 2; i < len(o); i += 2 {
			object.Add(o[i], o[i+1])
		}
		b = write(b, object)
	}
	return string(b)
}

func header(kind string, more ...string) []string {
	return append([]string{headerType, "", "RDM-Version", "1.0", "RDM-Type", kind}, more...)
}

// Rubbish gets an error that names the object and the rule, and a status of the client's.
func TestRubbish(t *testing.T) {
	query := []string{queryType, "", "Scope", "all"}
	gatherer := header("rd-request", "RDM-Query-Language", "gatherer")
	for _, c := range []struct {
		body    string
		headers []string
		status  int
		says    string
	}{
		{"", nil, 400, "the message is empty"},
		{"nonsense", nil, 400, "object 1: an object begins with @"},
		{"@RDMHEADER { -\nRDM-Version{9}:\t1.0", nil, 400, "object 1 (@RDMHEADER), attribute RDM-Version: the value says that it has 9 bytes"},
		{"@RDMHEADER { -\nRDM-Version{9999999}:\t1.0", nil, 413, "an object has at most 1048576"},
		{text([]string{"DOCUMENT", ""}), nil, 400, "a message begins with @RDMHEADER, not with @DOCUMENT"},
		{text([]string{headerType, ""}), nil, 400, `RDM-Version is ""; this hub speaks 1.0`},
		{text([]string{headerType, "", "RDM-Version", "2.0"}), nil, 400, `RDM-Version is "2.0"`},
		{text([]string{headerType, "", "RDM-Version", "1.0"}), nil, 400, "the type of the message is missing"},
		{text(header("rd-reqest")), nil, 400, `did you mean "rd-request"?`},
		{text(header("schema-description-response")), nil, 400, "this hub takes no schema-description-response"},
		{text(header("rd-request")), nil, 400, `the query language of a rd-request is gatherer`},
		{text(gatherer), nil, 400, "a rd-request has a query"},
		{text(gatherer, query, query), nil, 400, "object 3: a message has one @RDMQUERY"},
		{text(gatherer, query) + "x", nil, 400, "object 3: an object begins with @"},
		{text(gatherer, []string{"DOCUMENT", ""}), nil, 400, "object 2: @DOCUMENT is no part of a rd-request"},
		{text(header("status-request"), query), nil, 400, "object 2: @RDMQUERY is no part of a status-request"},
		{text(gatherer, append(slices.Clone(query), "View-Hits", "0")), nil, 400, "View-Hits is a number from 1"},
		{text(gatherer, append(slices.Clone(query), "View-Order", strings.Repeat("a,", 11))), nil, 400, "View-Order has at most 10"},
		{"x", []string{"Content-Encoding", "gzip"}, 400, "is not gzip data"},
		{"x", []string{"Content-Encoding", "br"}, 415, "send gzip or none"},
		{"x", []string{"Content-Type", "text/plain"}, 415, "a message is sent as application/x-rdm"},
	} {
		_, err := post(c.body, c.headers...)
		if err == nil || !strings.Contains(err.Error(), c.says) || problem.From(err).Status != c.status {
			t.Errorf("%.60q: %v, want %d %s", c.body, err, c.status, c.says)
		}
	}
	for _, scope := range []string{"", "everything", "all of it", "since", "since yesterday", "since Foo, 06 Nov 1994"} {
		if _, _, err := parseScope(scope); !errors.Is(err, resourcesync.ErrInvalid) {
			t.Errorf("the scope %q: %v", scope, err)
		}
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, text(gatherer, query))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if m, err := post(packed.String(), "Content-Encoding", "gzip"); err != nil || m.scope != "all" {
		t.Errorf("a packed message is %+v, %v", m, err)
	}
	if _, err := post(packed.String()[:20], "Content-Encoding", "gzip"); problem.From(err).Status != 400 {
		t.Errorf("a packed message that is cut off: %v", err)
	}
}

// A date has no fraction of a second: all of its second counts.
func TestNewer(t *testing.T) {
	const since = 784_111_777 * second
	all := func(yield func(*feed.Entry, error) bool) {
		for _, micros := range []int64{since - 1, since, since + second - 1, since - second, since + second} {
			if !yield(&feed.Entry{Cursor: feed.Cursor{Position: 1, Micros: micros}}, nil) {
				return
			}
		}
	}
	var got []int64
	for e := range newer(all, since) {
		got = append(got, e.Micros-since)
	}
	if !slices.Equal(got, []int64{0, second - 1, second}) {
		t.Errorf("behind the date are those at %v", got)
	}
}

// A catalogue is a set of this server.
func TestCatalogue(t *testing.T) {
	for _, c := range []struct {
		base feed.Base
		csid string
		set  string
		bad  bool
	}{
		{"https://hub.example.org", "", "", false},
		{"https://hub.example.org", "papers", "papers", false},
		{"https://hub.example.org", "x-catalog://hub.example.org:443/papers", "papers", false},
		{"https://hub.example.org", "X-Catalog://HUB.example.org/papers", "papers", false},
		{"https://hub.example.org", "x-catalog://other.example.org/papers", "", true},
		{"https://hub.example.org", "x-catalog://hub.example.org:80/papers", "", true},
		{"https://hub.example.org", "x-catalog://named.example.org/papers", "papers", false}, // as the request came
		{"https://hub.example.org", "x-catalog://hub.example.org:443/", "", false},
		{"http://[::1]:8080", "x-catalog://[::1]:8080/papers", "papers", false},
		{"http://hub.example.org", "x-catalog://hub.example.org:80/papers/more", "", true},
		{"http://hub.example.org", "x-catalog://%zz/papers", "", true},
		{"http://hub.example.org", "http://hub.example.org/papers", "", true},
		{"http://hub.example.org", "../papers", "", true},
	} {
		s := New(nil, c.base, Options{})
		r := httptest.NewRequest(http.MethodGet, Path, nil)
		r.Host = "named.example.org"
		set, err := s.catalogue(r, c.csid)
		if (err != nil) != c.bad || err == nil && set != c.set {
			t.Errorf("%s at %s is %q, %v", c.csid, c.base, set, err)
		}
		if c.set != "" {
			if set, err := s.catalogue(r, s.csid(c.set)); set != c.set || err != nil {
				t.Errorf("%s is %q, %v", s.csid(c.set), set, err)
			}
		}
	}
}

// translate returns the document that publishes RDs.
func translate(rds string, kind resourcesync.ChangeType) (string, error) {
	b, err := io.ReadAll(&translation{in: soif.NewReader(strings.NewReader(rds), soif.Limits{}), kind: kind})
	return string(b), err
}

// RDs become a publish, and the changes that are accepted become the same RDs.
func TestTranslation(t *testing.T) {
	rds := text(
		[]string{"SCHEMA", "", "Schema-Name", "DOCUMENT"},
		[]string{"DOCUMENT", "https://example.org/a", "Last-Modified", "Thu, 16 May 1996 11:45:39 GMT", "Content-Type", "text/html", "Content-Length", "7", "Content-Encoding", "gzip",
			"MD5", "9e107d9d372bb6826bd81d3542a419d6", "Hash", "sha-1:2fd4e1c67a2d28fced849ee1bb76e7391b93eb12", "Link-1", `<https://example.org/b>; rel="describedby"`, "Link-2", `<https://example.org/c>; rel="alternate"`,
			"Title", "A", "title-1", "a\nb", "Empty", "", "Long", strings.Repeat("ä", 5000)},
		[]string{"IMAGE", "https://example.org/b", "Title", "B"},
	)
	document, err := translate(rds, resourcesync.Updated)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := resourcesync.ReadJSON(strings.NewReader(document), resourcesync.Limits{Check: (*resourcesync.Change).Validate})
	if err != nil || len(doc.Items) != 2 {
		t.Fatalf("%v: %s", err, document)
	}
	var again []byte
	for _, item := range doc.Items {
		o := describe(&feed.Entry{Cursor: feed.Cursor{Position: 1, Micros: 1e15}, Change: item.Change})
		o.Attributes = slices.DeleteFunc(o.Attributes, func(a soif.Attribute) bool { return a.Name == "RD-Last-Modified" })
		again = write(again, o)
	}
	if _, want, _ := strings.Cut(rds, "}\n"); string(again) != want {
		t.Errorf("the descriptions are %s, want %s", again, want)
	}
	if document, err := translate("", resourcesync.Deleted); document != `{"changes":[]}` || err != nil {
		t.Errorf("no descriptions are %s, %v", document, err)
	}
}

// What cannot be kept is refused, and the error names the description and the attribute.
func TestUntranslatable(t *testing.T) {
	good := []string{"DOCUMENT", "https://example.org/a"}
	for _, c := range []struct {
		rd   []string
		says string
	}{
		{[]string{"DOCUMENT", ""}, "entry 2: it has no URL"},
		{[]string{"DOCUMENT", "u:x", "Last-Modified", "yesterday"}, `entry 2: u:x: attribute Last-Modified: "yesterday" is no date`},
		{[]string{"DOCUMENT", "u:x", "Last-Modified", "1996-05-16", "last-modified", "1996-05-16"}, "attribute last-modified: it is there twice"},
		{[]string{"DOCUMENT", "u:x", "Content-Length", "-1"}, "attribute Content-Length: it is a number"},
		{[]string{"DOCUMENT", "u:x", "Link", "b"}, "attribute Link: it is one link"},
		{[]string{"DOCUMENT", "u:x", "URL", "u:y"}, "attribute URL: it is"},
		{[]string{"DOCUMENT", "u:x", "Title", "\xFF"}, "attribute Title: its value is not text"},
		{[]string{"DOCUMENT", "u:x", "Content-Type", "\xFF"}, "attribute Content-Type: its value is not text"},
		{[]string{"DOCUMENT", "u:x", "Title", strings.Repeat("a", 200_000)}, "attribute Title: its value has 200000 bytes"},
		{[]string{"RDMQUERY", ""}, "object 2: @RDMQUERY is no resource description"},
		{[]string{"SCHEMA", ""}, "object 2: @SCHEMA is no resource description"},
	} {
		document, err := translate(text(good, c.rd), resourcesync.Updated)
		if e := new(resourcesync.Error); !errors.As(err, &e) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.80q: %v, want %s", c.rd, err, c.says)
		}
		if _, err := resourcesync.ReadJSON(strings.NewReader(document), resourcesync.Limits{}); err == nil {
			t.Errorf("%.80q: what was good before it can be read as a whole: %s", c.rd, document)
		}
	}
	if document, err := translate(text(good)+"x", resourcesync.Updated); err == nil || strings.HasSuffix(document, "]}") {
		t.Errorf("%s, %v", document, err)
	}
}

// Others may publish attributes of these namespaces as well. Whatever they are, an RD can be
// written.
func TestForeignAttributes(t *testing.T) {
	o := describe(&feed.Entry{Change: resourcesync.Change{Loc: "u:x", Attrs: []resourcesync.Attr{
		{Namespace: namespace, Name: templateName, Value: "no type"}, {Namespace: attributeNamespace, Name: strings.Repeat("a", 300), Value: "x"},
		{Namespace: attributeNamespace, Name: "é", Value: "x"}, {Namespace: attributeNamespace, Name: "MD5", Value: "x"},
		{Namespace: partNamespace(2), Name: "Title", Value: "x"}, {Namespace: "http://example.org/", Name: "Title", Value: "x"},
		{Namespace: attributeNamespace, Name: "Good", Value: "x"},
	}}})
	if want := "@DOCUMENT { u:x\nRD-Last-Modified{29}:\tThu, 01 Jan 1970 00:00:00 GMT\nGood{1}:\tx\n}\n"; string(write(nil, o)) != want {
		t.Errorf("it is %s", write(nil, o))
	}
}

// numbered yields n entries of resources 0 to n-1, in the order of loc.
func numbered(n int) entries {
	return func(yield func(*feed.Entry, error) bool) {
		for i := range n {
			length := int64(n - i)
			e := &feed.Entry{Cursor: feed.Cursor{Position: uint64(i) + 1, Micros: int64(i) * 1e6}, Change: resourcesync.Change{Loc: fmt.Sprintf("u:%07d", i), Length: &length, Attrs: []resourcesync.Attr{
				{Namespace: attributeNamespace, Name: "Title", Value: fmt.Sprint(i % 10)},
			}}}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// A pieces notes how large the pieces of an answer are.
type pieces struct {
	http.ResponseWriter
	most, all int
}

func (p *pieces) Write(b []byte) (int, error) {
	p.most, p.all = max(p.most, len(b)), p.all+len(b)
	return p.ResponseWriter.Write(b)
}

// An answer is sent while it is made: no piece is larger than the hub writes at a time, however
// many RDs there are.
func TestStream(t *testing.T) {
	const n = 20_000
	rec := httptest.NewRecorder()
	w := &pieces{ResponseWriter: rec}
	a := &answer{w: w, head: newHeader(rdResponse)}
	if err := errors.Join(a.all(t.Context(), numbered(n), &view{}), a.end()); err != nil {
		t.Fatal(err)
	}
	if all := objects(t, rec.Body.String()); len(all) != n+1 || all[n].URL != "u:0019999" {
		t.Errorf("there are %d objects", len(all))
	}
	if w.most > writeAt+1000 || w.all < 10*writeAt || cap(a.text) > 2*writeAt+1000 {
		t.Errorf("the largest of %d bytes has %d, and %d are held", w.all, w.most, cap(a.text))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&answer{w: w, head: newHeader(rdResponse)}).all(ctx, numbered(n), &view{}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the request: %v", err)
	}
	broken := errors.New("broken")
	err := (&answer{w: w, head: newHeader(rdResponse)}).all(t.Context(), func(yield func(*feed.Entry, error) bool) { yield(nil, broken) }, &view{})
	if !errors.Is(err, broken) {
		t.Errorf("an inventory that breaks: %v", err)
	}
}

// shown returns the URLs of the RDs that a view shows of so many.
func shown(t *testing.T, n int, attributes, hits, order string) (urls []string) {
	t.Helper()
	v, err := parseView(attributes, hits, order)
	if err != nil {
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	a := &answer{w: rec, head: newHeader(rdResponse)}
	if err := errors.Join(a.all(t.Context(), numbered(n), &v), a.end()); err != nil {
		t.Fatal(err)
	}
	for _, o := range objects(t, rec.Body.String())[1:] {
		urls = append(urls, strings.TrimLeft(o.URL, "u:0"))
	}
	return urls
}

// A view orders by texts, numbers and dates, and shows no more than it should: the same as if
// all were ordered first.
func TestOrder(t *testing.T) {
	for _, c := range []struct{ hits, order, want string }{
		{"3", "", " 1 2"}, {"3", "URL", " 1 2"}, {"3", "-url", "24 23 22"}, {"3", "-Title", "9 19 8"}, {"3", "title,-URL", "20 10 "},
		{"2", "content-length", "24 23"}, {"2", "-RD-Last-Modified", "24 23"}, {"2", "rd-last-modified", " 1"}, {"2", "nothing", " 1"}, {"2", "-nothing,-Content-Length", " 1"},
	} {
		if got := strings.Join(shown(t, 25, "", c.hits, c.order), " "); got != c.want {
			t.Errorf("%s hits by %q are %q, want %q", c.hits, c.order, got, c.want)
		}
		all := shown(t, 25, "", "", c.order)
		if first := strings.Join(all[:len(strings.Split(c.want, " "))], " "); len(all) != 25 || first != c.want {
			t.Errorf("all by %q begin with %q, want %q", c.order, first, c.want)
		}
	}
}

// What would take too much memory to order is refused before anything is sent; fewer hits, or
// less of each, are ordered.
func TestTooMuchToOrder(t *testing.T) {
	const n = 100_000
	v := view{order: []order{{attribute: "title"}}}
	rec := httptest.NewRecorder()
	a := &answer{w: rec, head: newHeader(rdResponse)}
	if err := a.all(t.Context(), numbered(n), &v); problem.From(err).Status != http.StatusRequestEntityTooLarge || rec.Body.Len() > 0 || a.begun {
		t.Errorf("%v, and %d bytes were sent", err, rec.Body.Len())
	}
	if got := shown(t, n, "url", "2", "-title"); !reflect.DeepEqual(got, []string{"9", "19"}) {
		t.Errorf("two hits are %q", got)
	}
}

// Whatever is sent as RDs becomes a document that the hub reads, or an error of the client's.
func FuzzTranslation(f *testing.F) {
	f.Add(text([]string{"DOCUMENT", "https://example.org/a", "Title", "A", "Last-Modified", "Thu, 16 May 1996 11:45:39 GMT", "MD5", "x", "Link", `<a>; rel="b"`}))
	f.Add(text([]string{"SCHEMA", ""}, []string{"X", "u:x", "Long", strings.Repeat("ä", 600)}))
	f.Fuzz(func(t *testing.T, rds string) {
		document, err := translate(rds, resourcesync.Updated)
		if err != nil {
			if s := problem.From(err).Status; s != 400 && s != 413 {
				t.Fatalf("%v is %d", err, s)
			}
			return
		}
		doc, err := resourcesync.ReadJSON(strings.NewReader(document), resourcesync.Limits{})
		if err != nil {
			if e := new(resourcesync.Error); !errors.As(err, &e) {
				t.Fatal(err)
			}
			return
		}
		for _, item := range doc.Items {
			if item.Change.Validate() != nil {
				continue
			}
			o := describe(&feed.Entry{Change: item.Change})
			if _, err := o.Append(nil); err != nil {
				t.Fatalf("%+v cannot be written: %v", o, err)
			}
			c, err := change(o, resourcesync.Updated)
			if err != nil {
				continue // a foreign attribute, or a link, that the source wrote in its own way
			}
			again := describe(&feed.Entry{Change: *c})
			if !reflect.DeepEqual(again, o) {
				t.Fatalf("%+v becomes %+v", o, again)
			}
		}
	})
}
