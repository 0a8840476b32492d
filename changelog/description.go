package changelog

import (
	"context"

	"github.com/rshub/rshub/resourcesync"
)

// description is the Source Description (core section 8): a Capability List a
// set. The standard has no place for a set's title.
func (d *Documents) description(ctx context.Context, states []State) *document {
	doc := &resourcesync.Document{Header: resourcesync.Header{Capability: resourcesync.Description}}
	for _, s := range states {
		if d.opts.MayFollow(ctx, s.Set) {
			doc.Items = append(doc.Items, d.setItem(s))
		}
	}
	return d.small(doc)
}

// setDescription is a Source Description with one set alone: a known client
// asks for it beside the set's lists, and fails on one with several sets.
func (d *Documents) setDescription(_ context.Context, s State) (*document, error) {
	return d.small(&resourcesync.Document{
		Header: resourcesync.Header{Capability: resourcesync.Description},
		Items:  []resourcesync.Item{d.setItem(s)},
	}), nil
}

func (d *Documents) setItem(s State) resourcesync.Item {
	return resourcesync.Item{
		Change:     resourcesync.Change{Loc: d.CapabilityList(s.Set), Links: describedBy(s)},
		Capability: resourcesync.CapabilityList,
	}
}

// capabilityList is the Capability List of a set (core section 9; Change
// Notification section 5). Its rel=up is the description at the root: the
// standard wants the one "that enumerates all Capability Lists offered by the
// Source", which the set's own does not.
func (d *Documents) capabilityList(_ context.Context, s State) (*document, error) {
	doc := &resourcesync.Document{Header: resourcesync.Header{
		Capability: resourcesync.CapabilityList,
		Links:      append(describedBy(s), resourcesync.Link{Rel: "up", Href: d.Description()}),
	}}
	doc.Items = append(doc.Items, resourcesync.Item{
		Change:     resourcesync.Change{Loc: d.ChangeListIndex(s.Set)},
		Capability: resourcesync.ChangeList,
	})
	if !d.opts.NoPush(s.Set) {
		topic := d.Topic(s.Set)
		doc.Items = append(doc.Items, resourcesync.Item{
			Change: resourcesync.Change{Loc: topic, Links: []resourcesync.Link{
				{Rel: "hub", Href: d.Hub()},
				{Rel: resourcesync.Terms + "rel/websocket", Href: d.WebSocket(s.Set)},
				{Rel: resourcesync.Terms + "rel/event-stream", Href: topic, Type: "text/event-stream"},
			}},
			Capability: resourcesync.ChangeNotification,
		})
	}
	return d.small(doc), nil
}

// describedBy returns the link to what the source says of the set, if it does.
func describedBy(s State) []resourcesync.Link {
	if s.DescribedBy == "" {
		return nil
	}
	return []resourcesync.Link{{Rel: "describedby", Href: s.DescribedBy}}
}
