// Package resourcesync reads and writes the documents of the ResourceSync standard
// (ANSI/NISO Z39.99-2017, with its companions on change notification and archives).
// It defines a Change, the documents that carry changes, and their XML and JSON
// forms, and it validates changes.
//
// The package is part of the public API. It has no notion of sets, cursors or servers;
// package feed adds those.
package resourcesync

import "time"

// A ChangeType is what happened to a resource (core section 7, attribute change of rs:md).
type ChangeType string

// The types of a change.
const (
	Created ChangeType = "created"
	Updated ChangeType = "updated"
	Deleted ChangeType = "deleted"
)

// A Change reports that one resource was created, updated or deleted. It has a field
// for everything that an entry of a document can state about a resource (core
// section 7). The zero value of a field means that it is absent. Times are in UTC: the
// readers of this package convert other zones, and read a date without a time as the
// first second of that day. The struct tags serve only the functions of this package
// that read the JSON form; package encoding/json does not produce that form.
type Change struct {
	Loc        string     `json:"loc"`        // absolute URI of the resource
	Change     ChangeType `json:"change"`     // empty only in documents that list resources instead of changes
	Datetime   time.Time  `json:"datetime"`   // time of the change
	Lastmod    time.Time  `json:"lastmod"`    // Last-Modified of the resource
	Changefreq string     `json:"changefreq"` // always, hourly, daily, weekly, monthly, yearly or never
	Hash       string     `json:"hash"`       // "algorithm:hex"; several are separated by one space
	Length     *int64     `json:"length"`     // length in bytes; nil if absent
	Type       string     `json:"type"`       // media type
	Encoding   string     `json:"encoding"`   // content coding
	Path       string     `json:"path"`       // path of the resource in a dump; starts with a slash
	Links      []Link     `json:"-"`          // rs:ln elements
	Attrs      []Attr     `json:"-"`          // attributes of rs:md in foreign namespaces, and CapabilityAttr
}

// A Link relates a resource, or a whole document, to another resource (core section 7,
// element rs:ln). Rel and Href are required. The zero value of any other field means
// that it is absent.
type Link struct {
	Rel      string    `json:"rel"`
	Href     string    `json:"href"`
	Pri      int       `json:"-"` // priority from 1 to 999999; 0 if absent
	Modified time.Time `json:"modified"`
	Hash     string    `json:"hash"`
	Length   *int64    `json:"length"`
	Type     string    `json:"type"`
	Encoding string    `json:"encoding"`
	Path     string    `json:"path"`
	Profile  string    `json:"profile"`
	Attrs    []Attr    `json:"-"`
}

// An Attr is an attribute in a foreign namespace, such as xml:lang or dcterms:title.
// The only attribute without a namespace is the one that CapabilityAttr returns.
type Attr struct {
	Namespace, Name, Value string
}

// CapabilityAttr returns the attribute that marks a change as being about a document of
// the standard with the given capability, instead of about a resource (Framework
// Notification section 3).
func CapabilityAttr(capability string) Attr { return Attr{Name: capabilityName, Value: capability} }

const capabilityName = "capability"

func (a *Attr) isCapability() bool { return a.Namespace == "" && a.Name == capabilityName }

// FrameworkCapability returns the capability of the document that c is about (Framework
// Notification section 3). It returns "" if c is about a resource.
func (c *Change) FrameworkCapability() string {
	for i := range c.Attrs {
		if c.Attrs[i].isCapability() {
			return c.Attrs[i].Value
		}
	}
	return ""
}
