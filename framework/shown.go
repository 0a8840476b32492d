// Package framework tells those who follow the framework topic of a set when the set's
// documents change (ResourceSync Framework Notification): a Change List is opened or closed, a
// Resource List or a dump is renewed, the Capability List or the Source Description changes.
//
// Nobody has to say that a document changes. One hub looks at the sets whose framework topic
// somebody has followed, compares what it sees with what was told, and notes the difference in
// the log of the topic. So it costs nothing on the path of a change, and nothing for the other
// sets. From that log the notifications go out like changes.
package framework

import (
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A Document is a document of a set as it was at some moment. The zero Document is one that
// does not exist.
type Document struct {
	Version string `json:"version,omitempty"` // another one whenever the document is another
	Loc     string `json:"loc,omitempty"`
	Index   string `json:"index,omitempty"` // URL of the index that names the document; empty: there is none
}

// A Shown is what a set's documents were at some moment. It is kept with the log of the topic:
// what it says was told.
type Shown struct {
	Begin          int64    `json:"begin,omitempty"`       // when the set's log began, in microseconds since 1970; 0: the set did not exist
	Description    string   `json:"description,omitempty"` // version of the Source Description; empty: nobody has looked at it yet
	CapabilityList string   `json:"capabilitylist,omitempty"`
	ResourceList   Document `json:"resourcelist,omitzero"`
	ResourceDump   Document `json:"resourcedump,omitzero"`
	ChangeDump     Document `json:"changedump,omitzero"`

	// Change Lists are numbered.
	List   uint64 `json:"list,omitempty"`   // number of the newest that had an entry; 0: none had
	Closed uint64 `json:"closed,omitempty"` // number of the newest that was closed; 0: none was
	Name   string `json:"name,omitempty"`   // URL of number List
}

// mostLists is how many Change Lists are told of at once. The others follow at the next look.
const mostLists = 200

// lists sets what is said of Change Lists to that of st, or to a part of it if so many were told
// and many more are there.
func (s *Shown) lists(st *feed.State, told uint64, url func(n uint64) string) {
	oldest, open := st.Lists()
	s.Closed, s.List = open-1, open-1
	if st.Head.Position > s.Closed*uint64(st.ListSize) {
		s.List = open
	}
	if from := max(told, oldest-1); s.List > from && s.List-from > mostLists {
		s.List = from + mostLists
		s.Closed = s.List - 1
	}
	if s.List > 0 {
		s.Name = url(s.List)
	}
}

// difference returns what is to be told of a set when its documents were as in before, and now
// are as in now: events in an order in which they can have happened. url returns the URL of a
// Change List of the set as it is now, and oldest is the number of the oldest that it keeps.
func difference(base feed.Base, set string, before, now *Shown, oldest uint64, url func(n uint64) string) (events []resourcesync.Change) {
	tell := func(capability string, change resourcesync.ChangeType, d Document) {
		c := resourcesync.Change{Loc: d.Loc, Change: change}
		if d.Index != "" {
			c.Links = []resourcesync.Link{{Rel: "index", Href: d.Index}}
		}
		events = append(events, feed.WithCapability(c, capability))
	}
	capabilityList := Document{Loc: base.CapabilityList(set)}
	was := *before
	if was.Begin != 0 && was.Begin != now.Begin {
		tell(resourcesync.CapabilityList, resourcesync.Deleted, capabilityList)
		was = Shown{Description: was.Description}
	}
	if now.Begin != 0 && was.Begin == 0 {
		tell(resourcesync.CapabilityList, resourcesync.Created, capabilityList)
	}
	if now.Begin != 0 {
		list := func(n uint64) Document { return Document{Loc: url(n), Index: base.ChangeListIndex(set)} }
		if was.List > 0 && was.List <= now.List && url(was.List) != was.Name {
			tell(resourcesync.ChangeList, resourcesync.Created, list(was.List)) // the log began a new epoch, or has another form: the list has another name
		}
		for n := max(min(was.Closed, was.List)+1, oldest); n <= now.List; n++ {
			if n > was.List {
				tell(resourcesync.ChangeList, resourcesync.Created, list(n))
			}
			if n > was.Closed && n <= now.Closed {
				tell(resourcesync.ChangeList, resourcesync.Updated, list(n))
			}
		}
		renewed := func(capability string, before, now Document, again resourcesync.ChangeType) {
			switch {
			case now.Version == before.Version || now.Version == "": // that a document went away is told of the Capability List
			case before.Version == "" || now.Index != "": // a document that an index names has a name of its own each time
				tell(capability, resourcesync.Created, now)
			default:
				tell(capability, again, now)
			}
		}
		renewed(resourcesync.ResourceList, was.ResourceList, now.ResourceList, resourcesync.Updated)
		renewed(resourcesync.ResourceDump, was.ResourceDump, now.ResourceDump, resourcesync.Created) // a dump is not updated (section 2.1)
		renewed(resourcesync.ChangeDump, was.ChangeDump, now.ChangeDump, resourcesync.Updated)
		if was.Begin == now.Begin && was.CapabilityList != now.CapabilityList {
			tell(resourcesync.CapabilityList, resourcesync.Updated, capabilityList)
		}
	}
	if was.Description != "" && was.Description != now.Description {
		tell(resourcesync.Description, resourcesync.Updated, Document{Loc: base.Description()})
	}
	return events
}
