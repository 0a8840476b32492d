package feed

import (
	"cmp"
	"strconv"
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

// Catalog returns the URL of the API catalog of the hub (RFC 9727).
func (b Base) Catalog() string { return string(b) + "/.well-known/api-catalog" }

// CatalogLink returns the value of a Link header that names the API catalog.
func (b Base) CatalogLink() string { return "<" + b.Catalog() + `>; rel="api-catalog"` }

// OpenAPI returns the URL of the OpenAPI document of the hub.
func (b Base) OpenAPI() string { return string(b) + "/openapi.json" }

// DescriptionPart returns the URL of a part of it, if it is an index.
func (b Base) DescriptionPart(n int) string { return b.Description() + "?part=" + strconv.Itoa(n) }

// Topic returns the URL of a set's change notification channel.
func (b Base) Topic(set string) string { return b.TopicIn(set, "") }

// TopicIn returns the URL of a set's channel of another form than change notifications: form is
// the name of the document with the newest changes. Without a form it is Topic.
func (b Base) TopicIn(set, form string) string { return b.Document(set, cmp.Or(form, "changes")) }

// WebSocket returns the topic with the scheme ws or wss. It must never stand in
// a loc: clients that walk a Capability List fail on it.
func (b Base) WebSocket(set string) string { return "ws" + strings.TrimPrefix(b.Topic(set), "http") }

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

// Resources returns the URL at which the resources of a set are read.
func (b Base) Resources(set string) string { return b.Document(set, "resources") }

// Audit returns the URL at which an inventory is compared with that of the hub.
func (b Base) Audit(set string) string { return b.Document(set, "audit") }

// Baseline returns the URL at which the baseline of a set begins.
func (b Base) Baseline(set string) string { return b.Topic(set) + "?since=" + SinceBaseline }

// Subscriptions returns the URL at which an operator lists a set's WebSub
// subscriptions.
func (b Base) Subscriptions(set string) string { return b.Document(set, "subscriptions") }

// Status returns the URL of a WebSub subscription's status. Every client that knows
// the name may read the status, so the name is a secret.
func (b Base) Status(name string) string { return string(b) + "/subscriptions/" + name }

// Link returns the value of the Link header that a set's topic and each of its
// deliveries have: the relations self and hub (Change Notification sections 4.1 and 4.3),
// and resourcesync, which leads to the Capability List (core section 6.3.3), in one field.
func (b Base) Link(set string) string { return b.LinkIn(set, "") }

// LinkIn is Link for the topic that TopicIn returns.
func (b Base) LinkIn(set, form string) string {
	return "<" + b.TopicIn(set, form) + `>; rel="self", <` + b.Hub() + `>; rel="hub", <` + b.CapabilityList(set) + `>; rel="resourcesync"`
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

// ParseTopic returns the set whose topic a URL is. ok is false when the URL is
// not a topic of this hub.
func (b Base) ParseTopic(topic string) (set string, ok bool) {
	set, form, ok := b.ParseDocument(topic)
	return set, ok && form == "changes"
}

// ParseDocument returns the set and the name of the document at a URL. ok is false when the
// URL is not one of a set of this hub.
func (b Base) ParseDocument(url string) (set, name string, ok bool) {
	path, ok := strings.CutPrefix(url, b.Set(""))
	set, name, found := strings.Cut(path, "/")
	return set, name, ok && found && CheckSet(set) == nil
}
