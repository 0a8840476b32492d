package atom

import (
	"bytes"
	"context"
	"encoding/xml"
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

var update = flag.Bool("update", false, "write the golden file")

type link struct {
	Rel    string `xml:"rel,attr"`
	Href   string `xml:"href,attr"`
	Type   string `xml:"type,attr"`
	Length string `xml:"length,attr"`
}

// What is delivered is a feed of its own with the new entries.
func TestDelivery(t *testing.T) {
	f := Delivery("https://hub.example.org", func(_ context.Context, set string) string { return "The <" + set + "> set" })
	length := int64(17)
	changes := []resourcesync.Change{
		{Loc: "https://example.org/a?b=c&d", Change: resourcesync.Created, Length: &length, Type: "text/html", Links: []resourcesync.Link{
			{Rel: "alternate", Href: "https://example.org/same", Type: "text/html"},
			{Rel: "alternate", Href: "https://example.org/a.pdf?b&c", Type: "application/pdf", Length: &length},
			{Rel: "alternate", Href: "https://example.org/second.pdf", Type: "application/pdf"},
			{Rel: "via", Href: "urn:x:\"a\"", Pri: 7},
			{Rel: "via", Href: "urn:x:b"},
		}},
		{Loc: "https://example.org/gone", Change: resourcesync.Deleted, Links: []resourcesync.Link{{Rel: "via", Href: "urn:x:c"}}},
	}
	for i := range changes {
		changes[i].SetTags("frogs", "a&b")
	}
	b := feed.NewBatch(feed.AtomTopic("a.set"), feed.Cursor{Position: 6, Micros: 1767323042500000}, feed.Cursor{Position: 8, Micros: 1767323045000000}, changes)
	text := f.Head(t.Context(), nil, b)
	w := feed.NewXMLWriter()
	for i := range b.Entries {
		text = f.Entry(text, &b.Entries[i], w)
	}
	text = append(text, f.Foot...)
	const file = "testdata/delivery.golden.xml"
	if *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(text, want) {
		t.Errorf("%v: the delivery is\n%s", err, text)
	}
	var doc struct {
		XMLName xml.Name `xml:"http://www.w3.org/2005/Atom feed"`
		ID      string   `xml:"id"`
		Link    []link   `xml:"link"`
		Entry   []struct {
			ID       string `xml:"id"`
			Link     []link `xml:"http://www.w3.org/2005/Atom link"`
			Category []struct {
				Term string `xml:"term,attr"`
			} `xml:"category"`
		} `xml:"entry"`
	}
	if err := xml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	const url = "https://hub.example.org/sets/a.set/atom.xml"
	if doc.ID != url || len(doc.Link) != 2 || doc.Link[0].Rel != "self" || doc.Link[0].Href != url || doc.Link[1].Rel != "hub" || doc.Link[1].Href != "https://hub.example.org/hub" || len(doc.Entry) != 1 {
		t.Fatalf("it reads as %+v", doc)
	}
	e := &doc.Entry[0]
	links := []link{
		{"alternate", "https://example.org/a?b=c&d", "text/html", ""},
		{"alternate", "https://example.org/a.pdf?b&c", "application/pdf", "17"}, // the others of a type are left out
		{"via", "urn:x:\"a\"", "", ""}, {"via", "urn:x:b", "", ""},
	}
	if !slices.Equal(e.Link, links) || len(e.Category) != 2 || e.Category[0].Term != "frogs" || e.Category[1].Term != "a&b" {
		t.Errorf("the entry has %+v", e)
	}
}
