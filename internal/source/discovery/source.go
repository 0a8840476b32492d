// Package discovery finds out what a source offers, from almost any of its URLs: a topic, a
// Capability List, a Source Description, one of the lists, an API catalog, a page that links to one
// of these, or just a site.
//
// It reads only what it needs to find the lists; package harvest reads the lists themselves.
package discovery

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A Source is what a source offers for one set of resources. Each field is an absolute URL, or
// empty if the source does not offer it.
type Source struct {
	CapabilityList string // document that names the others, or empty
	DescribedBy    string // document about the set

	ResourceList string // or an index of Resource Lists
	ResourceDump string // or an index
	ChangeList   string // or an index
	ChangeDump   string // or an index
	Sitemap      string // sitemap, or a robots.txt that names several, if Find found one; it is not part of ResourceSync, but lists resources, too

	Repository string // base URL of a repository that speaks OAI-PMH, if an API catalog named one that answers

	Topic string   // topic of Change Notifications
	Hubs  []string // hubs of the topic, where a destination subscribes

	// Offered only by an rshub (feed.RelBaseline, feed.RelResources, feed.RelAudit).
	Baseline  string
	Resources string
	Audit     string

	rshub bool // whether the topic belongs to an rshub
}

// HubSource returns the source of a set of an rshub of which only the topic is known.
func HubSource(hub feed.Base, set string) *Source { return &Source{Topic: hub.Topic(set), rshub: true} }

// RSHub returns the URL of the rshub and the name of the set, if the topic belongs to an rshub. A
// client.Client can then follow the set.
func (s *Source) RSHub() (hub, set string, ok bool) {
	if !s.rshub {
		return "", "", false
	}
	return splitTopic(s.Topic)
}

// splitTopic returns the hub and the set of a topic, if the topic looks like one of an rshub:
// {hub}/sets/{set}/changes.
func splitTopic(topic string) (hub, set string, ok bool) {
	i := strings.LastIndex(topic, "/sets/")
	if i < 0 {
		return "", "", false
	}
	hub = topic[:i]
	set, ok = feed.Base(hub).ParseTopic(topic)
	return hub, set, ok
}

// merge copies from o the fields that s does not have yet.
func (s *Source) merge(o *Source) {
	for _, f := range []struct {
		to   *string
		from string
	}{
		{&s.CapabilityList, o.CapabilityList}, {&s.DescribedBy, o.DescribedBy},
		{&s.ResourceList, o.ResourceList}, {&s.ResourceDump, o.ResourceDump},
		{&s.ChangeList, o.ChangeList}, {&s.ChangeDump, o.ChangeDump}, {&s.Topic, o.Topic},
		{&s.Baseline, o.Baseline}, {&s.Resources, o.Resources}, {&s.Audit, o.Audit},
	} {
		if *f.to == "" {
			*f.to = f.from
		}
	}
	if len(s.Hubs) == 0 {
		s.Hubs = o.Hubs
	}
	s.rshub = s.rshub || o.rshub && s.Topic == o.Topic
}

// addLink adds one addLink of a topic.
func (s *Source) addLink(rel feed.Link) {
	for name, to := range map[string]*string{feed.RelBaseline: &s.Baseline, feed.RelResources: &s.Resources, feed.RelAudit: &s.Audit} {
		if rel.HasRel(name) && *to == "" {
			*to = rel.URI
		}
	}
	if rel.HasRel("hub") {
		s.Hubs = append(s.Hubs, rel.URI)
	}
	s.rshub = s.rshub || strings.Contains(rel.Rel, resourcesync.Terms+"rel/")
}

// ErrNotFound means that a URL leads to no ResourceSync document.
var ErrNotFound = errors.New("no ResourceSync document found")

// MultipleSets is the error of a URL that leads to more than one set of resources. The caller
// should choose one of Sets, and call Find with its Capability List.
type MultipleSets struct {
	URL  string // URL that names the sets
	Sets []Set
}

// A Set is a set of resources that a Source Description or a page names.
type Set struct {
	CapabilityList string
	DescribedBy    string // document about the set; may be empty
}

// Error lists the Capability Lists, at most twenty.
func (s *MultipleSets) Error() string {
	const most = 20
	var b strings.Builder
	fmt.Fprintf(&b, "%s names %d sets of resources; choose one by its Capability List:", s.URL, len(s.Sets))
	for i, set := range s.Sets {
		if i == most {
			fmt.Fprintf(&b, "\n  and %d more", len(s.Sets)-most)
			break
		}
		b.WriteString("\n  " + set.CapabilityList)
		if set.DescribedBy != "" {
			b.WriteString("  (described by " + set.DescribedBy + ")")
		}
	}
	return b.String()
}
