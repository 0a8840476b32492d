// Package resourcesync implements the documents of the ResourceSync standard (ANSI/NISO
// Z39.99-2017, with its companions on change notification and archives): a Change, the documents
// that carry changes, and their XML and JSON forms.
//
// It is a part of the public API. It reads and writes documents, and validates changes. It knows no
// sets, cursors or servers: package feed adds those.
package resourcesync

import "time"

// ChangeType says what happened to a resource (core section 7, rs:md change).
type ChangeType string

// The three things that can happen to a resource.
const (
	Created ChangeType = "created"
	Updated ChangeType = "updated"
	Deleted ChangeType = "deleted"
)

// A Change says that one resource was created, updated or deleted. It has a field
// for everything that an entry may say of a resource (core section 7). The zero
// value of a field means that it is absent. Times are in UTC: the readers of this
// package convert other zones, and take a date without a time as the first second of
// that day. The tags are for this package, whose functions read and write the JSON form.
type Change struct {
	Loc        string     `json:"loc"`        // the resource's URI, absolute
	Change     ChangeType `json:"change"`     // empty only where a document lists resources, not changes
	Datetime   time.Time  `json:"datetime"`   // when the change happened
	Lastmod    time.Time  `json:"lastmod"`    // the resource's own Last-Modified
	Changefreq string     `json:"changefreq"` // always, hourly, daily, weekly, monthly, yearly, never
	Hash       string     `json:"hash"`       // "alg:hex", several separated by one space
	Length     *int64     `json:"length"`     // in bytes; nil when absent
	Type       string     `json:"type"`       // media type
	Encoding   string     `json:"encoding"`   // content coding
	Path       string     `json:"path"`       // of the resource within a dump; it begins with a slash
	Links      []Link     `json:"-"`          // rs:ln
	Attrs      []Attr     `json:"-"`          // the attributes of rs:md in foreign namespaces, and CapabilityAttr
}

// A Link relates a resource, or a whole document, to another (core section 7,
// rs:ln). Rel and Href are required.
type Link struct {
	Rel      string    `json:"rel"`
	Href     string    `json:"href"`
	Pri      int       `json:"-"` // 1 to 999999; 0 when absent
	Modified time.Time `json:"modified"`
	Hash     string    `json:"hash"`
	Length   *int64    `json:"length"`
	Type     string    `json:"type"`
	Encoding string    `json:"encoding"`
	Path     string    `json:"path"`
	Profile  string    `json:"profile"`
	Attrs    []Attr    `json:"-"`
}

// An Attr is an attribute in a namespace that is not the standard's. The one attribute
// without a namespace is CapabilityAttr.
type Attr struct {
	Namespace, Name, Value string
}

// CapabilityAttr returns the attribute of a change that is about a document of the standard,
// and not about a resource: it says what the document is (Framework Notification section 3).
func CapabilityAttr(capability string) Attr { return Attr{Name: capabilityName, Value: capability} }

const capabilityName = "capability"

func (a *Attr) isCapability() bool { return a.Namespace == "" && a.Name == capabilityName }

// FrameworkCapability returns what the document is that a change is about (Framework Notification
// section 3); empty: the change is about a resource.
func (c *Change) FrameworkCapability() string {
	for i := range c.Attrs {
		if c.Attrs[i].isCapability() {
			return c.Attrs[i].Value
		}
	}
	return ""
}
