package resourcesync

import "time"

// The capabilities: what a document is, and what a Capability List offers.
const (
	Description            = "description"
	CapabilityList         = "capabilitylist"
	ResourceList           = "resourcelist"
	ResourceDump           = "resourcedump"
	ResourceDumpManifest   = "resourcedump-manifest"
	ChangeList             = "changelist"
	ChangeDump             = "changedump"
	ChangeDumpManifest     = "changedump-manifest"
	ChangeNotification     = "change-notification"
	FrameworkNotification  = "framework-notification"
	ResourceListArchive    = "resourcelist-archive"
	ResourceDumpArchive    = "resourcedump-archive"
	ChangeListArchive      = "changelist-archive"
	ChangeDumpArchive      = "changedump-archive"
	ChangeListNotification = "changelist-notification" // what version 1.0 called ChangeNotification
)

// A Header is what a document says of itself before its first entry. The zero value
// of a field means that it is absent.
type Header struct {
	Index      bool   // the document is a sitemapindex: its entries are documents
	Capability string // as it was read, also a value that this package does not know
	From       time.Time
	Until      time.Time
	At         time.Time
	Completed  time.Time
	Links      []Link
	Attrs      []Attr // the attributes of the top rs:md in foreign namespaces
}

// An Item is an entry of a document: a change or a resource. In a Source Description,
// a Capability List, an index or an archive it is another document, with its
// capability and times.
type Item struct {
	Change
	Capability string
	From       time.Time
	Until      time.Time
	At         time.Time
	Completed  time.Time
}

// A Document is a whole document in memory.
type Document struct {
	Header
	Items []Item
}

// ListsChanges reports whether the document's entries may be published as changes. The
// document must be a Change Notification, a Framework Notification or a Change List, and
// not an index. The name that version 1.0 had for a Change Notification is accepted, and so
// is a document without a capability, as older versions of the standard allowed.
func (h *Header) ListsChanges() bool {
	switch h.Capability {
	case ChangeNotification, ChangeListNotification, FrameworkNotification, ChangeList, "":
		return !h.Index
	}
	return false
}
