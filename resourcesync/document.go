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

// A Header is what a document says of itself before its first entry.
type Header struct {
	Index      bool   // a sitemapindex: its entries are documents
	Capability string // as it was read, also a value this package does not know; empty when absent
	From       time.Time
	Until      time.Time
	At         time.Time
	Completed  time.Time
	Links      []Link
	Attrs      []Attr // of the top rs:md, in foreign namespaces
}

// An Item is an entry of a document: a change, or a resource, or in a Source
// Description, a Capability List, an index or an archive, another document with
// its capability and times.
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

// IsChanges says whether the document's entries may be published as changes:
// it is a Change Notification or a Change List, also as older versions of the
// standard named them or failed to, and not an index.
func (h *Header) IsChanges() bool {
	switch h.Capability {
	case ChangeNotification, ChangeListNotification, ChangeList, "":
		return !h.Index
	}
	return false
}
