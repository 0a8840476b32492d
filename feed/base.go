package feed

import (
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

// A Base is the URL that a hub is reached by, without a slash at its end. Its
// methods return the URLs of everything that the hub serves, so that this file
// is the only place that knows them.
type Base string

// Hub returns the URL that takes WebSub requests, and publishes whose Link
// header names the topic.
func (b Base) Hub() string { return string(b) + "/hub" }

// Sets returns the URL of the list of all sets.
func (b Base) Sets() string { return string(b) + "/sets" }

// Set returns the URL at which a set is shown, described and deleted.
func (b Base) Set(set string) string { return b.Sets() + "/" + set }

// Description returns the URL of the Source Description with every set.
func (b Base) Description() string { return string(b) + "/.well-known/resourcesync" }

// Topic returns the URL of a topic by its name. That of a set is the set's change notification
// channel; for the other topics of a set see FrameworkTopic and AtomTopic.
func (b Base) Topic(topic string) string {
	set := SetOf(topic)
	switch {
	case set == topic:
		return b.Document(set, "changes")
	case IsFramework(topic):
		return b.Document(set, "framework")
	}
	return b.Document(set, "atom.xml")
}

// WebSocket returns the URL of a topic with the scheme ws or wss. It must never stand in
// a loc: clients that walk a Capability List fail on it.
func (b Base) WebSocket(topic string) string {
	return "ws" + strings.TrimPrefix(b.Topic(topic), "http")
}

// Document returns the URL of one of a set's documents.
func (b Base) Document(set, name string) string { return b.Set(set) + "/" + name }

// CapabilityList returns the URL of a set's Capability List.
func (b Base) CapabilityList(set string) string { return b.Document(set, "capabilitylist.xml") }

// ChangeList returns the URL of a set's rolling Change List.
func (b Base) ChangeList(set string) string { return b.Document(set, "changelist.xml") }

// ChangeListIndex returns the URL of a set's Change List Index.
func (b Base) ChangeListIndex(set string) string { return b.Document(set, "changelist-index.xml") }

// ResourceList returns the URL of a set's Resource List, or of the index of several.
func (b Base) ResourceList(set string) string { return b.Document(set, "resourcelist.xml") }

// ResourceDump returns the URL of a set's Resource Dump, or of the index of its parts.
func (b Base) ResourceDump(set string) string { return b.Document(set, "resourcedump.xml") }

// ChangeDump returns the URL of a set's Change Dump, or of an index of several.
func (b Base) ChangeDump(set string) string { return b.Document(set, "changedump.xml") }

// Content returns the URL of a file that a set's dumps are made of.
func (b Base) Content(set, name string) string { return b.Document(set, "content/"+name) }

// ChangeListArchive returns the URL of a set's Change List Archive, or of an index of several.
func (b Base) ChangeListArchive(set string) string { return b.Document(set, "changelist-archive.xml") }

// ResourceListArchive returns the URL of a set's Resource List Archive, or of an index of several.
func (b Base) ResourceListArchive(set string) string {
	return b.Document(set, "resourcelist-archive.xml")
}

// Archived returns the URL of a document that a set's archive names.
func (b Base) Archived(set, name string) string { return b.Document(set, "archive/"+name) }

// Resources returns the URL at which the resources of a set are read.
func (b Base) Resources(set string) string { return b.Document(set, "resources") }

// Audit returns the URL at which an inventory is compared with that of the hub.
func (b Base) Audit(set string) string { return b.Document(set, "audit") }

// Baseline returns the URL at which the baseline of a set begins.
func (b Base) Baseline(set string) string { return b.Topic(set) + "?since=" + SinceBaseline }

// Subscriptions returns the URL at which an operator lists a set's WebSub
// subscriptions.
func (b Base) Subscriptions(set string) string { return b.Document(set, "subscriptions") }

// Status returns the URL of a WebSub subscription's status. Whoever knows the
// name may read the status, so the name is a secret.
func (b Base) Status(name string) string { return string(b) + "/subscriptions/" + name }

// Dictionary returns the URL of the dictionary of a name; see feed/compressed.
func (b Base) Dictionary(name string) string { return string(b) + "/dictionaries/" + name }

// Link returns the value of the Link header that a topic and each of its
// deliveries have (Change Notification sections 4.1 and 4.3): the relations
// self and hub in one field.
func (b Base) Link(topic string) string {
	return "<" + b.Topic(topic) + `>; rel="self", <` + b.Hub() + `>; rel="hub"`
}

// The relations of links to what the inventory of a set offers.
const (
	RelBaseline  = resourcesync.Terms + "rel/baseline"
	RelResources = resourcesync.Terms + "rel/resources"
	RelAudit     = resourcesync.Terms + "rel/audit"
)

// InventoryLink returns the value of a Link header that names what the inventory of a
// set offers.
func (b Base) InventoryLink(set string) string {
	return "<" + b.Baseline(set) + `>; rel="` + RelBaseline + `", <` + b.Resources(set) + `>; rel="` + RelResources + `", <` + b.Audit(set) + `>; rel="` + RelAudit + `"`
}

// ParseTopic returns the set whose change notification channel a URL is. ok is false when the
// URL is none of this hub.
func (b Base) ParseTopic(url string) (set string, ok bool) {
	topic, ok := b.FindTopic(url)
	if !ok || SetOf(topic) != topic {
		return "", false
	}
	return topic, true
}

// FindTopic returns the name of the topic that a URL is of. ok is false when the URL is
// not a topic of this hub.
func (b Base) FindTopic(url string) (topic string, ok bool) {
	path, ok := strings.CutPrefix(url, b.Set(""))
	set, _, _ := strings.Cut(path, "/")
	if !ok || CheckSet(set) != nil {
		return "", false
	}
	for _, topic := range Topics(set) {
		if b.Topic(topic) == url {
			return topic, true
		}
	}
	return "", false
}
