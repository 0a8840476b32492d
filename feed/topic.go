package feed

import (
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

// Inside the hub, a topic has a name. The topic of a set's changes is named like the set.
// A set has more topics, and the name of each is that of the set, a colon, and one of these
// words. No set's name has a colon, so a name says which topic is meant.
const (
	frameworkWord = ":framework"
	atomWord      = ":atom"
)

// FrameworkTopic returns the name of the topic of a set that tells of changes to the set's
// documents (Framework Notification section 2). Its entries are in a log of their own, which
// has the same name.
func FrameworkTopic(set string) string { return set + frameworkWord }

// AtomTopic returns the name of the topic of a set that delivers the set's changes as Atom. Its
// entries are those of the set's log.
func AtomTopic(set string) string { return set + atomWord }

// IsFramework reports whether a topic is the FrameworkTopic of a set.
func IsFramework(topic string) bool { return strings.HasSuffix(topic, frameworkWord) }

// IsAtom reports whether a topic is the AtomTopic of a set.
func IsAtom(topic string) bool { return strings.HasSuffix(topic, atomWord) }

// SetOf returns the set that a topic belongs to. The rights of a topic are those of its set.
func SetOf(topic string) string {
	set, _, _ := strings.Cut(topic, ":")
	return set
}

// LogOf returns the name of the log that the entries of a topic are in.
func LogOf(topic string) string { return strings.TrimSuffix(topic, atomWord) }

// Topics returns the names of all topics of a set.
func Topics(set string) []string { return []string{set, FrameworkTopic(set), AtomTopic(set)} }

// CheckLog returns nil when name is the name of a log: that of a set, or the FrameworkTopic of
// one. Otherwise the error is that of CheckSet.
func CheckLog(name string) error { return CheckSet(strings.TrimSuffix(name, frameworkWord)) }

// The capability of the document that an entry of a FrameworkTopic is about is kept as an
// attribute of the hub's own namespace. No publisher can send one of these.
const capabilityAttr = "capability"

// WithCapability returns an entry of a FrameworkTopic: a change of the document at c.Loc, which
// has the given capability.
func WithCapability(c resourcesync.Change, capability string) resourcesync.Change {
	c.Attrs = []resourcesync.Attr{{Namespace: resourcesync.Terms, Name: capabilityAttr, Value: capability}}
	return c
}

// takeCapability returns the capability that WithCapability has put into a change, and the
// other attributes. It is empty in a change of a resource.
func takeCapability(attrs []resourcesync.Attr) (capability string, others []resourcesync.Attr) {
	if len(attrs) > 0 && attrs[0].Namespace == resourcesync.Terms && attrs[0].Name == capabilityAttr {
		return attrs[0].Value, attrs[1:]
	}
	return "", attrs
}
