package feed

import (
	"slices"
	"strconv"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// appendXML appends the batch as a change notification.
func (b *Batch) appendXML(dst []byte) []byte {
	w, h := NewXMLWriter(), b.Header()
	dst = w.AppendHeader(dst, h)
	for i := range b.Entries {
		dst = w.AppendEntry(dst, &b.Entries[i])
	}
	return resourcesync.AppendXMLFooter(dst, h)
}

// An XMLWriter encodes entries as XML, with the hub's attributes. It reuses buffers, so it is not
// safe for concurrent use.
type XMLWriter struct {
	lastmod Lastmod

	ns    *resourcesync.Namespaces
	item  resourcesync.Item
	attrs []resourcesync.Attr
}

// NewXMLWriter returns a writer for one urlset.
func NewXMLWriter() *XMLWriter { return NewListWriter(LastmodSource) }

// NewListWriter returns a writer for one list of a set that is described with l.
func NewListWriter(l Lastmod) *XMLWriter { return &XMLWriter{lastmod: l, ns: l.Namespaces()} }

// AppendHeader appends the start of a document, up to its first entry, and returns the extended
// slice.
func (w *XMLWriter) AppendHeader(dst []byte, h *resourcesync.Header) []byte {
	return resourcesync.AppendXMLHeader(dst, w.lastmod.Header(h), w.ns)
}

// AppendEntry appends one entry and returns the extended slice. The position of the entry is the
// attribute h:position, and the source's datetime is h:sourceDatetime. If lastmod is the hub's
// datetime, the source's lastmod is h:sourceLastmod.
func (w *XMLWriter) AppendEntry(dst []byte, e *Entry) []byte {
	w.setChange(&e.Change)
	w.item.Datetime = w.lastmod.RoundDown(e.Time())
	attrs := w.appendTimeAttr(w.positionAttr(e), "sourceDatetime", e.Change.Datetime)
	w.attrs = append(w.setLastmod(attrs, e), e.Change.Attrs...)
	w.item.Attrs = w.attrs
	return resourcesync.AppendXMLItem(dst, &w.item, w.ns)
}

// setChange makes c the current item. It omits the paths of c and its links, which belong only to
// the manifests of packages (core section 7).
func (w *XMLWriter) setChange(c *resourcesync.Change) {
	w.item.Change = *c
	w.item.Path = ""
	has := func(l resourcesync.Link) bool { return l.Path != "" }
	if !slices.ContainsFunc(c.Links, has) {
		return
	}
	w.item.Links = slices.Clone(c.Links)
	for i := range w.item.Links {
		w.item.Links[i].Path = ""
	}
}

// setLastmod sets the lastmod of the current item. If it is not the source's lastmod, setLastmod
// appends that as an attribute.
func (w *XMLWriter) setLastmod(attrs []resourcesync.Attr, e *Entry) []resourcesync.Attr {
	if w.lastmod == LastmodSource {
		return attrs
	}
	w.item.Lastmod = w.lastmod.RoundDown(e.Time())
	return w.appendTimeAttr(attrs, "sourceLastmod", e.Change.Lastmod)
}

// AppendResource appends a resource of a Resource List (core section 10.1), given its newest change
// e, and returns the extended slice. The position of the change is the attribute h:position.
// Members that describe the change and not the resource are omitted.
func (w *XMLWriter) AppendResource(dst []byte, e *Entry) []byte {
	return w.appendResource(dst, e, w.positionAttr(e))
}

// appendBaseline appends a resource of a baseline. An entry in the form of a Resource List has no
// datetime and no change, so they are the hub's attributes h:datetime and h:change.
func (w *XMLWriter) appendBaseline(dst []byte, e *Entry) []byte {
	attrs := append(w.positionAttr(e),
		resourcesync.Attr{Namespace: resourcesync.Terms, Name: "change", Value: string(e.Change.Change)},
		resourcesync.Attr{Namespace: resourcesync.Terms, Name: "datetime", Value: string(resourcesync.AppendTimeMicro(nil, e.Micros))})
	return w.appendResource(dst, e, w.appendTimeAttr(attrs, "sourceDatetime", e.Change.Datetime))
}

func (w *XMLWriter) appendResource(dst []byte, e *Entry, attrs []resourcesync.Attr) []byte {
	w.setChange(&e.Change)
	w.item.Change.Change, w.item.Datetime = "", time.Time{}
	w.attrs = append(w.setLastmod(attrs, e), e.Change.Attrs...)
	w.item.Attrs = w.attrs
	return resourcesync.AppendXMLItem(dst, &w.item, w.ns)
}

// positionAttr returns a slice with only the attribute h:position, in w's buffer.
func (w *XMLWriter) positionAttr(e *Entry) []resourcesync.Attr {
	return append(w.attrs[:0], resourcesync.Attr{Namespace: resourcesync.Terms, Name: "position", Value: strconv.FormatUint(e.Position, 10)})
}

// appendTimeAttr appends an attribute of the hub with a time that the source sets, unless t is
// zero.
func (w *XMLWriter) appendTimeAttr(attrs []resourcesync.Attr, name string, t time.Time) []resourcesync.Attr {
	if t.IsZero() {
		return attrs
	}
	return append(attrs, resourcesync.Attr{Namespace: resourcesync.Terms, Name: name, Value: string(resourcesync.AppendTime(nil, t))})
}

// CursorAttrs returns the attributes with the cursors of a document: h:after is the cursor before
// its first entry, and h:cursor the cursor to follow from.
func CursorAttrs(after, cursor Cursor) []resourcesync.Attr {
	return []resourcesync.Attr{
		{Namespace: resourcesync.Terms, Name: "after", Value: after.String()},
		{Namespace: resourcesync.Terms, Name: "cursor", Value: cursor.String()},
	}
}
