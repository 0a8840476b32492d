package archive

import (
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// mostLists is the standard's limit for the entries of one document (core section 7). An archive with
// more lists is an index of documents that name as many.
const mostLists = 50_000

// documents writes the documents of a set's archive.
type documents struct {
	base feed.Base
	st   *feed.State
	rec  *record
	most int // lists in a document
}

// A listing is what an archive names.
type listing struct {
	capability string // begins the names of its parts, too
	loc        string
	count      int
	item       func(i int) resourcesync.Item
}

// changeLists returns what changelist-archive.xml names (Archives section 5).
func (d *documents) changeLists() listing {
	return listing{resourcesync.ChangeListArchive, d.base.ChangeListArchive(d.st.Set), len(d.rec.Lists), func(i int) resourcesync.Item {
		k := &d.rec.Lists[i]
		it := resourcesync.Item{From: k.From.Time(), Until: k.At.Time()}
		it.Change = resourcesync.Change{Loc: d.base.Archived(d.st.Set, k.name()), Hash: "sha-256:" + k.SHA256, Length: &k.Size, Type: "application/xml",
			Attrs: feed.CursorAttrs(k.From, k.At)}
		if i > 0 && d.rec.Lists[i-1].At != k.From { // a hole is named
			missing := k.From.Position - d.rec.Lists[i-1].At.Position
			it.Attrs = append(it.Attrs, resourcesync.Attr{Namespace: resourcesync.Terms, Name: "missing", Value: strconv.FormatUint(missing, 10)})
		}
		return it
	}}
}

// resourceLists returns what resourcelist-archive.xml names (Archives section 3).
func (d *documents) resourceLists() listing {
	return listing{resourcesync.ResourceListArchive, d.base.ResourceListArchive(d.st.Set), len(d.rec.Resources), func(i int) resourcesync.Item {
		k := &d.rec.Resources[i]
		it := resourcesync.Item{At: k.At.Time(), Completed: time.UnixMicro(k.Completed).UTC()}
		it.Change = resourcesync.Change{Loc: d.base.Archived(d.st.Set, k.name(0)), Hash: "sha-256:" + k.Files[0].SHA256, Length: &k.Files[0].Size, Type: "application/xml",
			Attrs: []resourcesync.Attr{{Namespace: resourcesync.Terms, Name: "cursor", Value: k.At.String()}}}
		return it
	}}
}

// archive returns the document of a listing, or part n of it, from 1, if there are parts; nil if
// there is no such document. n is 0 for the document itself.
func (d *documents) archive(l listing, n int) *resourcesync.Document {
	parts := (l.count + d.most - 1) / d.most
	if parts == 0 || n > parts || n > 0 && parts == 1 {
		return nil
	}
	doc := new(resourcesync.Document)
	doc.Header = resourcesync.Header{Capability: l.capability, Links: []resourcesync.Link{{Rel: "up", Href: d.base.CapabilityList(d.st.Set)}}}
	if doc.Index = n == 0 && parts > 1; doc.Index {
		for i := range parts {
			var it resourcesync.Item
			it.Loc = d.base.Archived(d.st.Set, d.part(l, i+1))
			doc.Items = append(doc.Items, it)
		}
		return doc
	}
	first := 0
	if n > 0 {
		doc.Links = append(doc.Links, resourcesync.Link{Rel: "index", Href: l.loc})
		first = (n - 1) * d.most
	}
	for i := first; i < min(first+d.most, l.count); i++ {
		doc.Items = append(doc.Items, l.item(i))
	}
	return doc
}

// part names part n of a listing.
func (d *documents) part(l listing, n int) string {
	return l.capability + "-" + strconv.FormatInt(d.rec.Begin, 10) + "-" + strconv.Itoa(n) + ".xml"
}

// named returns the document of a name below archive, or nil.
func (d *documents) named(name string) *resourcesync.Document {
	rest, _ := strings.CutSuffix(name, ".xml")
	n, err := strconv.Atoi(rest[strings.LastIndexByte(rest, '-')+1:])
	if err != nil || n < 1 {
		return nil
	}
	for _, l := range []listing{d.changeLists(), d.resourceLists()} {
		if name == d.part(l, n) {
			return d.archive(l, n)
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
