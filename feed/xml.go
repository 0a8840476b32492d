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

// An XMLWriter writes entries as XML, with the attributes of the hub on them.
// It keeps scratch space, so only one goroutine may use it.
type XMLWriter struct {
	lastmod Lastmod

	ns    *resourcesync.Namespaces
	item  resourcesync.Item
	attrs []resourcesync.Attr
}

// NewXMLWriter returns a writer for one urlset.
func NewXMLWriter() *XMLWriter { return NewListWriter(LastmodOfSource) }

// NewListWriter returns a writer for one list of a set whose description says l.
func NewListWriter(l Lastmod) *XMLWriter { return &XMLWriter{lastmod: l, ns: l.Namespaces()} }

// AppendHeader appends the beginning of a document, up to its first entry.
func (w *XMLWriter) AppendHeader(dst []byte, h *resourcesync.Header) []byte {
	return resourcesync.AppendXMLHeader(dst, w.lastmod.Header(h), w.ns)
}

// AppendEntry appends one entry. Its position is the attribute h:position, and
// the source's own datetime the attribute h:sourceDatetime. If lastmod is the datetime of
// the hub, that of the source is the attribute h:sourceLastmod.
func (w *XMLWriter) AppendEntry(dst []byte, e *Entry) []byte {
	w.take(&e.Change)
	w.item.Datetime = w.lastmod.Down(e.Time())
	attrs := w.source(w.position(e), "sourceDatetime", e.Change.Datetime)
	w.attrs = append(w.setLastmod(attrs, e), e.Change.Attrs...)
	w.item.Attrs = w.attrs
	return resourcesync.AppendXMLItem(dst, &w.item, w.ns)
}

// take makes c the item that is written, without its paths: they are for the manifests of
// packages alone (core section 7).
func (w *XMLWriter) take(c *resourcesync.Change) {
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

// setLastmod sets the lastmod of the item. It appends that of the source, if it is another.
func (w *XMLWriter) setLastmod(attrs []resourcesync.Attr, e *Entry) []resourcesync.Attr {
	if w.lastmod == LastmodOfSource {
		return attrs
	}
	w.item.Lastmod = w.lastmod.Down(e.Time())
	return w.source(attrs, "sourceLastmod", e.Change.Lastmod)
}

// AppendResource appends a resource of a Resource List by its newest change e (core
// section 10.1). The position of the change is the attribute h:position. What else is
// said of the change, and not of the resource, is left out.
func (w *XMLWriter) AppendResource(dst []byte, e *Entry) []byte {
	return w.appendResource(dst, e, w.position(e))
}

// appendBaseline appends a resource of a baseline. In a Resource List an entry has no
// datetime and no change, so these are attributes of the hub, too.
func (w *XMLWriter) appendBaseline(dst []byte, e *Entry) []byte {
	attrs := append(w.position(e),
		resourcesync.Attr{Namespace: resourcesync.Terms, Name: "change", Value: string(e.Change.Change)},
		resourcesync.Attr{Namespace: resourcesync.Terms, Name: "datetime", Value: string(resourcesync.AppendTimeMicro(nil, e.Micros))})
	return w.appendResource(dst, e, w.source(attrs, "sourceDatetime", e.Change.Datetime))
}

func (w *XMLWriter) appendResource(dst []byte, e *Entry, attrs []resourcesync.Attr) []byte {
	w.take(&e.Change)
	w.item.Change.Change, w.item.Datetime = "", time.Time{}
	w.attrs = append(w.setLastmod(attrs, e), e.Change.Attrs...)
	w.item.Attrs = w.attrs
	return resourcesync.AppendXMLItem(dst, &w.item, w.ns)
}

// position returns the attribute h:position alone, in w's scratch space.
func (w *XMLWriter) position(e *Entry) []resourcesync.Attr {
	return append(w.attrs[:0], resourcesync.Attr{Namespace: resourcesync.Terms, Name: "position", Value: strconv.FormatUint(e.Position, 10)})
}

// source appends an attribute with a time that the source gave, if it did.
func (w *XMLWriter) source(attrs []resourcesync.Attr, name string, t time.Time) []resourcesync.Attr {
	if t.IsZero() {
		return attrs
	}
	return append(attrs, resourcesync.Attr{Namespace: resourcesync.Terms, Name: name, Value: string(resourcesync.AppendTime(nil, t))})
}

// CursorAttrs returns the attributes that say where a document stands in the
// log: h:after is the cursor before its first entry, h:cursor is the cursor to
// follow from.
func CursorAttrs(after, cursor Cursor) []resourcesync.Attr {
	return []resourcesync.Attr{
		{Namespace: resourcesync.Terms, Name: "after", Value: after.String()},
		{Namespace: resourcesync.Terms, Name: "cursor", Value: cursor.String()},
	}
}
