package feed

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

// A Base is the URL of a hub, without a trailing slash. Its methods return the URLs of everything
// that the hub serves. No other code builds them.
type Base string

// Hub returns the URL that accepts WebSub requests, and publishes that name the topic in a Link
// header.
func (b Base) Hub() string { return string(b) + "/hub" }

// Sets returns the URL of the list of all sets.
func (b Base) Sets() string { return string(b) + "/sets" }

// Set returns the URL at which clients read, describe and delete a set.
func (b Base) Set(set string) string { return b.Sets() + "/" + set }

// Description returns the URL of the Source Description, which lists all sets.
func (b Base) Description() string { return string(b) + "/.well-known/resourcesync" }

// Catalog returns the URL of the hub's API catalog (RFC 9727).
func (b Base) Catalog() string { return string(b) + "/.well-known/api-catalog" }

// CatalogLink returns a Link header value that names the API catalog.
func (b Base) CatalogLink() string { return "<" + b.Catalog() + `>; rel="api-catalog"` }

// OpenAPI returns the URL of the hub's OpenAPI document.
func (b Base) OpenAPI() string { return string(b) + "/openapi.json" }

// DescriptionPart returns the URL of part n of a Source Description that is an index.
func (b Base) DescriptionPart(n int) string { return b.Description() + "?part=" + strconv.Itoa(n) }

// Topic returns the URL of a set's change notification channel.
func (b Base) Topic(set string) string { return b.TopicIn(set, "") }

// TopicIn returns the URL of a set's channel in another form than change notifications. form is the
// name of the document with the newest changes. If form is empty, TopicIn returns the Topic.
func (b Base) TopicIn(set, form string) string { return b.Document(set, cmp.Or(form, "changes")) }

// Changes returns the URL of the WebSocket that follows any number of sets.
func (b Base) Changes() string { return string(b) + "/changes" }

// WebSocket returns the topic with the scheme ws or wss. It must never be used as a loc: clients
// that follow the locs of a Capability List fail on this scheme.
func (b Base) WebSocket(set string) string { return "ws" + strings.TrimPrefix(b.Topic(set), "http") }

// Document returns the URL of a document of a set by its name.
func (b Base) Document(set, name string) string { return b.Set(set) + "/" + name }

// CapabilityList returns the URL of a set's Capability List.
func (b Base) CapabilityList(set string) string { return b.Document(set, "capabilitylist.xml") }

// ChangeList returns the URL of a set's rolling Change List.
func (b Base) ChangeList(set string) string { return b.Document(set, "changelist.xml") }

// ChangeListIndex returns the URL of a set's Change List Index.
func (b Base) ChangeListIndex(set string) string { return b.Document(set, "changelist-index.xml") }

// ResourceList returns the URL of a set's Resource List or Resource List Index.
func (b Base) ResourceList(set string) string { return b.Document(set, "resourcelist.xml") }

// Resources returns the URL of the resources in a set's inventory.
func (b Base) Resources(set string) string { return b.Document(set, "resources") }

// Audit returns the URL at which clients compare their resources with the set's inventory.
func (b Base) Audit(set string) string { return b.Document(set, "audit") }

// Baseline returns the URL at which a baseline of a set starts.
func (b Base) Baseline(set string) string { return b.Topic(set) + "?since=" + SinceBaseline }

// Subscriptions returns the URL at which an operator lists a set's WebSub subscriptions.
func (b Base) Subscriptions(set string) string { return b.Document(set, "subscriptions") }

// Status returns the URL of the status of the WebSub subscription with the given name. The name is
// a secret, since every client that knows it may read the status.
func (b Base) Status(name string) string { return string(b) + "/subscriptions/" + name }

// Link returns the value of the Link header of a set's topic and of each delivery. It has the
// relations self and hub (Change Notification sections 4.1 and 4.3), and resourcesync, which names
// the Capability List (core section 6.3.3).
func (b Base) Link(set string) string { return b.LinkIn(set, "") }

// LinkIn is like Link, for the topic that TopicIn returns.
func (b Base) LinkIn(set, form string) string {
	return "<" + b.TopicIn(set, form) + `>; rel="self", <` + b.Hub() + `>; rel="hub", <` + b.CapabilityList(set) + `>; rel="resourcesync"`
}

// Relation types of the links that InventoryLink returns.
const (
	RelBaseline  = resourcesync.Terms + "rel/baseline"
	RelResources = resourcesync.Terms + "rel/resources"
	RelAudit     = resourcesync.Terms + "rel/audit"
)

// InventoryLink returns a Link header value that names the baseline, the resources and the audit of
// a set.
func (b Base) InventoryLink(set string) string {
	return "<" + b.Baseline(set) + `>; rel="` + RelBaseline + `", <` + b.Resources(set) + `>; rel="` + RelResources + `", <` + b.Audit(set) + `>; rel="` + RelAudit + `"`
}

// ParseTopic returns the set that has the given topic. ok is false if the URL is not a topic of
// this hub.
func (b Base) ParseTopic(topic string) (set string, ok bool) {
	set, form, ok := b.ParseDocument(topic)
	return set, ok && form == "changes"
}

// ParseDocument returns the set and the name of the document at the given URL. ok is false if the
// URL does not belong to a set of this hub.
func (b Base) ParseDocument(url string) (set, name string, ok bool) {
	path, ok := strings.CutPrefix(url, b.Set(""))
	set, name, found := strings.Cut(path, "/")
	return set, name, ok && found && CheckSet(set) == nil
}
