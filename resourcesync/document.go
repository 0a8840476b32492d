package resourcesync

import "time"

// The capabilities, which identify the kind of a document. A Capability List names them.
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
	ChangeListNotification = "changelist-notification" // name of ChangeNotification in version 1.0
)

// A Header is what a document states about itself before its first entry. The zero
// value of a field means that it is absent.
type Header struct {
	Index      bool   // whether the document is a sitemapindex, whose entries are documents
	Capability string // one of the constants above, or any other value that was read
	From       time.Time
	Until      time.Time
	At         time.Time
	Completed  time.Time
	Links      []Link
	Attrs      []Attr // attributes of the rs:md of the document in foreign namespaces
}

// An Item is an entry of a document: a change or a resource. In a Source Description, a
// Capability List, an index or an archive, it is another document with a capability and
// times of its own.
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

// ListsChanges reports whether the entries of the document may be published as changes.
// The document must be a Change Notification, a Framework Notification or a Change
// List, and not an index. ListsChanges also accepts the name that version 1.0 used for
// a Change Notification, and a document without a capability, which older versions of
// the standard allowed.
func (h *Header) ListsChanges() bool {
	switch h.Capability {
	case ChangeNotification, ChangeListNotification, FrameworkNotification, ChangeList, "":
		return !h.Index
	}
	return false
}
