package feed

import (
	"strconv"

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
	ns    *resourcesync.Namespaces
	item  resourcesync.Item
	attrs []resourcesync.Attr
}

// NewXMLWriter returns a writer for one urlset.
func NewXMLWriter() *XMLWriter {
	ns := resourcesync.NewNamespaces("h", resourcesync.Terms)
	ns.Micros = true
	return &XMLWriter{ns: ns}
}

// AppendHeader appends the beginning of a document, up to its first entry.
func (w *XMLWriter) AppendHeader(dst []byte, h *resourcesync.Header) []byte {
	return resourcesync.AppendXMLHeader(dst, h, w.ns)
}

// AppendEntry appends one entry. Its position is the attribute h:position, and
// the source's own datetime the attribute h:sourceDatetime.
func (w *XMLWriter) AppendEntry(dst []byte, e *Entry) []byte {
	w.item.Change = e.Change
	w.item.Datetime = e.Time()
	w.attrs = append(w.attrs[:0], resourcesync.Attr{Namespace: resourcesync.Terms, Name: "position", Value: strconv.FormatUint(e.Position, 10)})
	if !e.Change.Datetime.IsZero() {
		w.attrs = append(w.attrs, resourcesync.Attr{Namespace: resourcesync.Terms, Name: "sourceDatetime", Value: string(resourcesync.AppendTime(nil, e.Change.Datetime))})
	}
	w.attrs = append(w.attrs, e.Change.Attrs...)
	w.item.Attrs = w.attrs
	return resourcesync.AppendXMLItem(dst, &w.item, w.ns)
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
