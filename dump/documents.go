package dump

import (
	"strconv"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// mostPackages is how many packages one document names. If there are more, the document is an
// index of documents that name as many.
const mostPackages = 5_000

// documents writes the documents of a set's dumps.
type documents struct {
	base feed.Base
	st   *feed.State
	rec  *record
	most int // packages in a document
}

// resourceDump returns resourcedump.xml (core section 11.1), or part n of it, from 1, if there
// are parts; nil if there is no such document. n is 0 for resourcedump.xml itself.
func (d *documents) resourceDump(n int) *resourcesync.Document {
	m := d.rec.resourceDump()
	if m == nil {
		return nil
	}
	h := resourcesync.Header{Capability: resourcesync.ResourceDump, At: m.At.Time(), Completed: m.Completed, Links: d.up(),
		Attrs: []resourcesync.Attr{{Namespace: resourcesync.Terms, Name: "cursor", Value: m.At.String()}}}
	parts := (len(m.Packages) + d.most - 1) / d.most
	switch {
	case n > parts || n > 0 && parts == 1:
		return nil
	case n == 0 && parts > 1:
		doc := new(resourcesync.Document)
		doc.Header, doc.Index = h, true
		for i := range parts {
			it := resourcesync.Item{At: h.At, Completed: h.Completed}
			it.Loc = d.base.Content(d.st.Set, resourcePart(m, i+1))
			doc.Items = append(doc.Items, it)
		}
		return doc
	}
	doc := new(resourcesync.Document)
	doc.Header = h
	packages := m.Packages
	if n > 0 {
		doc.Links = append(doc.Links, resourcesync.Link{Rel: "index", Href: d.base.ResourceDump(d.st.Set)})
		packages = packages[(n-1)*d.most : min(n*d.most, len(packages))]
	}
	for i := range packages {
		it := d.item(m, &packages[i])
		it.At, it.Completed = h.At, packages[i].Completed
		doc.Items = append(doc.Items, it)
	}
	return doc
}

// resourcePart names part n of a Resource Dump. The stamp of its first package makes it another
// name for another dump.
func resourcePart(m *made, n int) string {
	return m.Name + "-part" + strconv.Itoa(n) + "-" + m.Packages[0].Stamp + ".xml"
}

// changePart names the document of the Change Dump of one Change List.
func changePart(m *made) string { return m.Name + "-" + m.Packages[0].Stamp + ".xml" }

// changeDump returns changedump.xml (core section 13.1): all packages of all Change Lists, or
// an index of documents, each with those of one list. It is open, because more will come. It
// returns nil if there is no package yet.
func (d *documents) changeDump() *resourcesync.Document {
	all := d.rec.Changes
	if len(all) == 0 {
		return nil
	}
	last := &all[len(all)-1]
	n := 0
	for i := range all {
		n += len(all[i].Packages)
	}
	doc := new(resourcesync.Document)
	if n > d.most {
		all = all[max(0, len(all)-MaxCount):]
	}
	doc.Header = resourcesync.Header{Capability: resourcesync.ChangeDump, From: all[0].From.Time(), Links: d.up(), Attrs: feed.CursorAttrs(all[0].From, last.At), Index: n > d.most}
	for i := range all {
		if doc.Index {
			it := resourcesync.Item{From: all[i].From.Time(), Until: all[i].At.Time()}
			it.Loc = d.base.Content(d.st.Set, changePart(&all[i]))
			doc.Items = append(doc.Items, it)
			continue
		}
		doc.Items = append(doc.Items, d.changes(&all[i])...)
	}
	return doc
}

// listDump returns the closed document of one Change List, or nil.
func (d *documents) listDump(m *made) *resourcesync.Document {
	doc := new(resourcesync.Document)
	doc.Header = resourcesync.Header{Capability: resourcesync.ChangeDump, From: m.From.Time(), Until: m.At.Time(),
		Links: append(d.up(), resourcesync.Link{Rel: "index", Href: d.base.ChangeDump(d.st.Set)}), Attrs: feed.CursorAttrs(m.From, m.At)}
	doc.Items = d.changes(m)
	return doc
}

func (d *documents) changes(m *made) (items []resourcesync.Item) {
	for i := range m.Packages {
		p := &m.Packages[i]
		it := d.item(m, p)
		it.From, it.Until = p.From.Time(), p.At.Time()
		items = append(items, it)
	}
	return items
}

// item returns the entry of a package.
func (d *documents) item(m *made, p *pack) resourcesync.Item {
	c := resourcesync.Change{
		Loc: d.base.Content(d.st.Set, m.name(p, zipEnd)), Lastmod: p.Completed,
		Hash: "sha-256:" + p.Zip.SHA256, Length: &p.Zip.Size, Type: "application/zip",
		Links: []resourcesync.Link{{Rel: "contents", Href: d.base.Content(d.st.Set, m.name(p, manifestEnd)), Type: "application/xml", Length: &p.Manifest.Size}},
		Attrs: []resourcesync.Attr{{Namespace: resourcesync.Terms, Name: "resources", Value: strconv.Itoa(p.Resources)}},
	}
	if p.Missing > 0 {
		c.Attrs = append(c.Attrs, resourcesync.Attr{Namespace: resourcesync.Terms, Name: "missing", Value: strconv.Itoa(p.Missing)})
		c.Links = append(c.Links, resourcesync.Link{Rel: RelMissing, Href: d.base.Content(d.st.Set, m.name(p, missingEnd)), Type: "application/xml", Length: &p.Named.Size})
	}
	return resourcesync.Item{Change: c}
}

func (d *documents) up() []resourcesync.Link {
	return []resourcesync.Link{{Rel: "up", Href: d.base.CapabilityList(d.st.Set)}}
}

// named returns the document of a name within content, or nil.
func (d *documents) named(name string) *resourcesync.Document {
	if m := d.rec.resourceDump(); m != nil && strings.HasPrefix(name, m.Name+"-part") {
		text, _, _ := strings.Cut(name[len(m.Name+"-part"):], "-")
		if n, err := strconv.Atoi(text); err == nil && n > 0 && name == resourcePart(m, n) {
			return d.resourceDump(n)
		}
		return nil
	}
	for i := range d.rec.Changes {
		if m := &d.rec.Changes[i]; name == changePart(m) {
			return d.listDump(m)
		}
	}
	return nil
}

// xml returns the bytes of a document.
func (d *documents) xml(doc *resourcesync.Document) []byte {
	ns := resourcesync.NewNamespaces("h", resourcesync.Terms)
	ns.Index, ns.Micros, ns.WholeSeconds = doc.Index, true, d.st.WholeSeconds
	b := resourcesync.AppendXMLHeader(nil, &doc.Header, ns)
	for i := range doc.Items {
		b = resourcesync.AppendXMLItem(b, &doc.Items[i], ns)
	}
	return resourcesync.AppendXMLFooter(b, &doc.Header)
}
