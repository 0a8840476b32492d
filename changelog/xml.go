package changelog

import (
	"strconv"

	"github.com/rshub/rshub/resourcesync"
)

// An XMLWriter writes entries as XML, with the hub's own attributes on them. It
// keeps scratch space, so it is for one goroutine.
type XMLWriter struct {
	ns    *resourcesync.Namespaces
	item  resourcesync.Item
	attrs []resourcesync.Attr
}

// NewXMLWriter returns a writer for a urlset.
func NewXMLWriter() *XMLWriter {
	ns := resourcesync.NewNamespaces("h", resourcesync.Terms)
	ns.Micros = true
	return &XMLWriter{ns: ns}
}

// AppendHeader appends a document up to its first entry.
func (w *XMLWriter) AppendHeader(dst []byte, h *resourcesync.Header) []byte {
	return resourcesync.AppendXMLHeader(dst, h, w.ns)
}

// AppendEntry appends one entry with its h:position, and the source's own
// datetime as h:sourceDatetime.
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

// placeAttrs returns the attributes of a document that say where it stands in
// the log: the cursor before its first entry, and the one to follow on from.
func placeAttrs(after, cursor Cursor) []resourcesync.Attr {
	return []resourcesync.Attr{
		{Namespace: resourcesync.Terms, Name: "after", Value: after.String()},
		{Namespace: resourcesync.Terms, Name: "cursor", Value: cursor.String()},
	}
}
