package changeset

import (
	"encoding/xml"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/documents"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A changeSet is a change set as a program of 2012 reads it.
type changeSet struct {
	XMLName xml.Name `xml:"http://resourcesync.org/ns/ changeset"`
	Links   []link   `xml:"http://www.w3.org/2005/Atom link"`
	Events  []event  `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 url"`
}

type event struct {
	ID         uint64   `xml:"http://resourcesync.org/ns/ eventid"`
	Loc        string   `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 loc"`
	Lastmod    string   `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 lastmod"`
	Size       *int64   `xml:"http://resourcesync.org/ns/ size"`
	MD5        []string `xml:"http://resourcesync.org/ns/ md5"`
	Changefreq string   `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 changefreq"`
	Tags       []string `xml:"http://resourcesync.org/ns/ tag"`
	Links      []link   `xml:"http://www.w3.org/2005/Atom link"`
	Type       string   `xml:"http://resourcesync.org/ns/ eventtype"`
}

type link struct {
	Href string `xml:"href,attr"`
	Rel  string `xml:"rel,attr"`
}

// text returns the change set of a page with some entries.
func text(p *documents.Page, entries []feed.Entry) (dst []byte) {
	w := Dialect().Writer(p)
	dst = w.Head(dst)
	for i := range entries {
		dst = w.Entry(dst, &entries[i], i == 0)
	}
	return w.Tail(dst)
}

// read reads a change set.
func read(t *testing.T, text []byte) (c changeSet) {
	t.Helper()
	if err := xml.Unmarshal(text, &c); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return c
}

func TestEvents(t *testing.T) {
	length := int64(0)
	full := resourcesync.Change{
		Loc: "https://example.org/a?b=c&d", Change: resourcesync.Updated, Lastmod: time.Date(2012, 5, 30, 1, 2, 3, 0, time.UTC), Changefreq: "daily",
		Hash: "sha-256:" + strings.Repeat("0", 64) + " md5:" + strings.Repeat("1", 32), Length: &length,
		Links: []resourcesync.Link{{Rel: "timegate", Href: "https://example.org/t?a&b", Pri: 3}, {Rel: "via", Href: "urn:x:a"}},
	}
	full.SetTags("frogs", "<&>")
	entries := []feed.Entry{
		{Cursor: feed.Cursor{Position: 7, Micros: 1338426061000001}, Change: full},
		{Cursor: feed.Cursor{Position: 8, Micros: 1338426061000002}, Change: resourcesync.Change{Loc: "urn:x:b", Change: resourcesync.Deleted}},
	}
	got := read(t, text(&documents.Page{}, entries)).Events
	want := []event{
		{7, full.Loc, "2012-05-30T01:02:03Z", &length, []string{strings.Repeat("1", 32)}, "daily", []string{"frogs", "<&>"},
			[]link{{"https://example.org/t?a&b", "timegate"}, {"urn:x:a", "via"}}, "updated"},
		{ID: 8, Loc: "urn:x:b", Lastmod: "2012-05-31T01:01:01.000002Z", Type: "deleted"}, // the hub's time, because there is no other
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// The link next is in every change set.
func TestLinks(t *testing.T) {
	for _, test := range []struct {
		page documents.Page
		want []link
	}{
		{documents.Page{Self: "https://a/1"}, []link{{"https://a/1", "self rs:changeset"}, {"https://a/1", "next rs:changeset"}}},
		{documents.Page{Self: "https://a/0", Last: "https://a/9&"}, []link{{"https://a/0", "self rs:changeset"}, {"https://a/9&", "next rs:changeset"}}},
		{documents.Page{Self: "https://a/2", First: "https://a/1", Prev: "https://a/1", Next: "https://a/3", Last: "https://a/9"}, []link{
			{"https://a/2", "self rs:changeset"}, {"https://a/1", "first rs:changeset"}, {"https://a/1", "prev rs:changeset"}, {"https://a/3", "next rs:changeset"}}},
	} {
		if got := read(t, text(&test.page, nil)); !reflect.DeepEqual(got.Links, test.want) || got.Events != nil {
			t.Errorf("%+v has %+v", test.page, got)
		}
	}
}

// Whatever was published can be read again.
func FuzzEvents(f *testing.F) {
	f.Add("https://example.org/a?b=c&d", "frogs <&>", "via", "urn:x:a", "md5:"+strings.Repeat("1", 32), int64(7), uint64(9), int64(1338426061000001))
	f.Add("urn:x:é]]>", "", "http://example.org/\"rel\"", "urn:x:'", "", int64(-1), uint64(1), int64(0))
	f.Fuzz(func(t *testing.T, loc, tags, rel, href, hash string, length int64, position uint64, lastmod int64) {
		c := resourcesync.Change{Loc: loc, Change: resourcesync.Created, Hash: hash}
		c.SetTags(tags)
		want := event{ID: position, Loc: loc, Type: "created"}
		if rel != "" {
			c.Links = []resourcesync.Link{{Rel: rel, Href: href, Type: "a/b"}}
			want.Links = []link{{href, rel}}
		}
		if length >= 0 {
			c.Length, want.Size = &length, &length
		}
		if lastmod != 0 {
			c.Lastmod = time.UnixMicro(lastmod).UTC()
		}
		if c.Validate() != nil {
			return
		}
		for tag := range c.Tags() {
			want.Tags = append(want.Tags, tag)
		}
		for sum := range strings.SplitSeq(c.Hash, " ") {
			if alg, sum, _ := strings.Cut(sum, ":"); alg == "md5" {
				want.MD5 = append(want.MD5, sum)
			}
		}
		e := feed.Entry{Cursor: feed.Cursor{Position: position, Micros: 1338426061000001}, Change: c}
		got := read(t, text(&documents.Page{Self: "https://a/1"}, []feed.Entry{e, e})).Events
		if len(got) != 2 || !reflect.DeepEqual(got[0], got[1]) {
			t.Fatalf("it is read as %+v", got)
		}
		at := time.UnixMicro(e.Micros).UTC()
		if !c.Lastmod.IsZero() {
			at = c.Lastmod
		}
		if said, err := time.Parse(time.RFC3339, got[0].Lastmod); err != nil || !said.Equal(at) {
			t.Errorf("lastmod is %s, %v, not %v", got[0].Lastmod, err, at)
		}
		if got[0].Lastmod = ""; !reflect.DeepEqual(got[0], want) {
			t.Errorf("got  %+v\nwant %+v", got[0], want)
		}
	})
}
