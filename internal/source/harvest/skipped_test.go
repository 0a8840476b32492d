package harvest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// An entry with an unreadable loc is skipped, and all others are listed.
func TestListerSkips(t *testing.T) {
	const rule = "loc is not well-formed XML"
	for _, tt := range []struct{ name, loc, want string }{
		{"surrogates", "https://a.example/sun&#55356;&#57118;", rule},
		{"reference out of range", "https://a.example/x&#x110000;", rule},
		{"HTML entity", "https://a.example/b&nbsp;c", rule},
		{"bare ampersand", "https://a.example/?a=1&b=2", rule},
		{"control character", "https://a.example/\x01", rule},
		{"reference to a control character", "https://a.example/&#1;", rule},
		{"byte that is not UTF-8", "https://a.example/\xe4", rule},
		{"end of CDATA", "https://a.example/]]>", rule},
		{"no loc", "", "loc is missing"},
		{"no name of DNS", "https://\u2100.example/", "invalid host"},
		{"no host", "https://", "want a URI with a host"},
		{"blank in the host", "https://a b.example/", "invalid character"},
	} {
		entries := "<url><loc>https://a.example/1</loc></url>\n<url><loc>" + tt.loc + "</loc></url><url><loc>https://a.example/2</loc></url></urlset>"
		for kind, docs := range map[string]map[string]string{
			"list":  {"/list": sitemapOpen + entries},
			"index": {"/list": sitemapIndex("/a", tt.loc, "/b"), "/a": "https://a.example/1", "/b": "https://a.example/2"},
		} {
			t.Run(tt.name+" in "+kind, func(t *testing.T) {
				o := newOrigin(t)
				for path, doc := range docs {
					o.put(path, doc)
				}
				l, seen := &Lister{Getter: &Getter{Client: http.DefaultClient}}, new(Seen)
				for range 2 { // the second listing does not count as unchanged
					var locs, skipped []string
					for e, err := range l.Since(t.Context(), o.url+"/list", seen) {
						if s, ok := errors.AsType[*Skipped](err); ok {
							skipped = append(skipped, s.Error())
							if s.Err.Entry != 2 || !errors.Is(err, resourcesync.ErrInvalid) {
								t.Errorf("Skipped.Err = %+v, want one of entry 2", s.Err)
							}
							continue
						}
						if err != nil {
							t.Fatal(err)
						}
						locs = append(locs, e.Change.Loc)
					}
					if want := []string{"https://a.example/1", "https://a.example/2"}; !slices.Equal(locs, want) {
						t.Errorf("got locs %q, want %q", locs, want)
					}
					if len(skipped) != 1 || !strings.HasPrefix(skipped[0], o.url+"/list: ") || !strings.Contains(skipped[0], tt.want) {
						t.Errorf("got skipped %q, want one with %q", skipped, tt.want)
					}
				}
			})
		}
	}
}

// Text outside of locs that is not well-formed is ignored, with a note.
func TestListerIgnores(t *testing.T) {
	title := func(text string) string { return "<x:image><x:title>" + text + "</x:title></x:image>" }
	for _, tt := range []struct{ name, in, want string }{
		{"byte in a comment", "<!-- \xff -->", "text of a comment is not well-formed"},
		{"byte", title("it\x92s"), "text of an ignored element is not well-formed"},
		{"control character", title("\x03"), "text of an ignored element is not well-formed"},
		{"reference to a control character", title("&#3;"), "text of an ignored element is not well-formed"},
		{"end of CDATA", title("a ]]> b"), "text of an ignored element is not well-formed"},
		{"HTML entity", title("&eacute;"), "text of an ignored element is not well-formed"},
		{"bare ampersand", title("Q&A"), "text of an ignored element is not well-formed"},
		{"less-than sign", title("1 < 2"), "text of an ignored element is not well-formed"},
		{"value of an attribute", `<x:y z="&#3;"/>`, `text of attribute "z" of "x:y" is not well-formed`},
		{"attribute twice", `<x:y z="1" z="2"/>`, `duplicate attribute "z" of "x:y"`},
		{"undeclared prefix", "<video:x>1</video:x>", `prefix "video" is not declared`},
		{"undeclared prefix of an attribute", `<x:y video:z="1"/>`, `prefix "video" is not declared`},
		{"lastmod", "<lastmod>2026&nbsp;</lastmod>", "lastmod"},
		{"type", `<rs:md type="text&html"/>`, `text of attribute "type" of "rs:md" is not well-formed`},
		{"href", `<rs:ln rel="up" href="https://a.example/?a&b"/>`, `text of attribute "href" of "rs:ln" is not well-formed`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newOrigin(t)
			o.put("/list", rsOpen+"<url><loc>https://a.example/1</loc>"+tt.in+"</url></urlset>")
			locs, odd, err := listAll(t.Context(), &Lister{Getter: &Getter{Client: http.DefaultClient}}, o.url+"/list")
			if want := []string{"https://a.example/1"}; err != nil || !slices.Equal(locs, want) {
				t.Errorf("got locs %q, %v, want %q", locs, err, want)
			}
			if len(odd) == 0 || !strings.Contains(odd[0], tt.want) {
				t.Errorf("got notes %q, want one with %q", odd, tt.want)
			}
		})
	}
}

// A document whose kind or changes depend on text that is not well-formed is refused.
func TestListerRefusesDamage(t *testing.T) {
	for _, tt := range []struct{ name, doc, want string }{
		{"undeclared rs", sitemapOpen + `<rs:md capability="changelist"/></urlset>`, `prefix "rs" is not declared`},
		{"undeclared md", sitemapOpen + `<url><loc>https://a.example/1</loc><r:md change="deleted"/></url></urlset>`, `prefix "r" is not declared`},
		{"capability", rsOpen + `<rs:md capability="change&list"/></urlset>`, `attribute "capability" of "rs:md" is not well-formed`},
		{"change", rsOpen + `<url><loc>https://a.example/1</loc><rs:md change="deleted&#1;"/></url></urlset>`, `attribute "change" of "rs:md" is not well-formed`},
		{"namespace", `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/&#1;"><rs:md capability="changelist"/></urlset>`, `namespace of prefix "rs" is not well-formed`},
		{"comment with two hyphens", sitemapOpen + "<!-- old -><url><loc>https://a.example/1</loc></url><!-- new --></urlset>", "not allowed in comments"},
		{"comment that ends like HTML's", sitemapOpen + "<!-- old --!><url><loc>https://a.example/1</loc></url><!-- new --></urlset>", "not allowed in comments"},
		{"declaration", sitemapOpen + "<! <url><loc>https://a.example/1</loc></url>></urlset>", "a declaration (<!) is not allowed here"},
		{"declaration in text", sitemapOpen + "<url><loc>https://a.example/?q=<!b>c</loc></url></urlset>", "a declaration (<!) is not allowed here"},
		{"two document types", "<!DOCTYPE urlset><!DOCTYPE urlset>" + sitemapOpen[21:] + "</urlset>", "a declaration (<!) is not allowed here"},
		{"document type after the root", sitemapOpen + "</urlset><!DOCTYPE urlset>", "a declaration (<!) is not allowed here"},
		{"quotation without an end", rsOpen + `<url><loc>https://a.example/1</loc><x:t y="en>1</x:t></url><url><loc>https://a.example/2</loc><x:t>24" > 20</x:t></url></urlset>`, "unescaped < inside quoted string"},
		{"change twice", rsOpen + `<url><loc>https://a.example/1</loc><rs:md change="updated" change="deleted"/></url></urlset>`, `duplicate attribute "change" of "rs:md"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newOrigin(t)
			o.put("/list", tt.doc)
			if _, _, err := listAll(t.Context(), &Lister{Getter: &Getter{Client: http.DefaultClient}}, o.url+"/list"); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
		})
	}
}

// In a Change List, only entries since the requested time are reported as skipped.
func TestListerSkipsChanges(t *testing.T) {
	o := newOrigin(t)
	entry := func(loc, datetime string) string {
		return `<url><loc>https://a.example/` + loc + `</loc><rs:md change="updated" datetime="` + datetime + `"/></url>`
	}
	o.put("/list", rsOpen+`<rs:md capability="changelist" from="2026-01-01T00:00:00Z"/>`+
		entry("a&amp;", "2026-01-01T01:00:00Z")+entry("b&", "2026-01-01T02:00:00Z")+entry("c&", "2026-01-01T03:00:00Z")+entry("future&", "9999-01-01T00:00:00Z")+entry("d", "2026-01-01T04:00:00Z")+entry("e&", "9999-01-01T00:00:00Z")+"</urlset>")
	var got []string
	since := time.Date(2026, 1, 1, 3, 0, 0, 0, time.UTC)
	for c, err := range (&Lister{Getter: &Getter{Client: http.DefaultClient}}).Changes(t.Context(), o.url+"/list", since, nil, nil) {
		if s, ok := errors.AsType[*Skipped](err); ok {
			got = append(got, "skipped "+s.Change.Datetime.Format(time.TimeOnly))
		} else if err != nil {
			t.Fatal(err)
		} else {
			got = append(got, c.Loc)
		}
	}
	if want := []string{"skipped 03:00:00", "skipped 01:00:00", "https://a.example/d", "skipped 04:00:00"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A byte order mark overrides the encoding that a document declares.
func TestListerMarked(t *testing.T) {
	o := newOrigin(t)
	o.put("/list", "\ufeff<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>"+sitemapOpen[21:]+"<url><loc>https://a.example/é</loc></url></urlset>")
	locs, _, err := listAll(t.Context(), &Lister{Getter: &Getter{Client: http.DefaultClient}}, o.url+"/list")
	if want := []string{"https://a.example/%C3%A9"}; err != nil || !slices.Equal(locs, want) {
		t.Errorf("got locs %q, %v, want %q", locs, err, want)
	}
}

// Mistakes of one kind are noted once, whatever names they contain, and cost little.
func TestListerNotesOnce(t *testing.T) {
	var doc strings.Builder
	doc.WriteString(rsOpen + "<url><loc>https://a.example/1</loc>")
	for i := range 1000 {
		fmt.Fprintf(&doc, `<x:t a%d="&"/>`, i)
	}
	doc.WriteString("<x:t" + strings.Repeat(` a=""`, 250) + "/></url></urlset>")
	o := newOrigin(t)
	o.put("/list", doc.String())
	_, odd, err := listAll(t.Context(), &Lister{Getter: &Getter{Client: http.DefaultClient}}, o.url+"/list")
	if err != nil || len(odd) != 2 {
		t.Errorf("got %d notes, %v, want 2", len(odd), err)
	}
}
