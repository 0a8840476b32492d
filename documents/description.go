package documents

import (
	"context"
	"errors"
	"io"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// description returns the Source Description (core section 8), with the
// Capability Lists of the sets that the caller in ctx may follow. The standard
// has no place for a set's title.
func (d *Server) description(ctx context.Context, states []feed.State) *document {
	tag := d.descriptionTag(ctx, states)
	return &document{
		tag:  tag,
		keep: min(d.opts.CacheBytes/2, int64(1+len(states))*4<<10),
		write: func(ctx context.Context, w io.Writer) error {
			states, err := d.log.Sets(ctx) // anew, so that no slow client keeps them
			if err != nil {
				return err
			}
			if d.descriptionTag(ctx, states) != tag {
				return errChanged
			}
			return d.writeDescription(ctx, w, states)
		},
	}
}

// errChanged says that sets were made, deleted or described between the two looks at them
// that a Source Description takes. Nothing was sent.
var errChanged = errors.New("the sets changed while they were read")

// descriptionTag returns the tag of a description: that of its bytes, as in small.
func (d *Server) descriptionTag(ctx context.Context, states []feed.State) string {
	h := d.newTag()
	_, _ = io.WriteString(h, "small ")
	_ = d.writeDescription(ctx, h, states) // a hash does not fail
	_, _ = io.WriteString(h, "\n")
	return sum(h)
}

func (d *Server) writeDescription(ctx context.Context, w io.Writer, states []feed.State) error {
	h, ns := &resourcesync.Header{Capability: resourcesync.Description}, &resourcesync.Namespaces{}
	buf := resourcesync.AppendXMLHeader(nil, h, ns)
	for i := range states {
		if !access.FromContext(ctx).Rights.Sees(states[i]) {
			continue
		}
		item := d.setItem(states[i])
		if buf = resourcesync.AppendXMLItem(buf, &item, ns); len(buf) >= writePage {
			if _, err := w.Write(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	_, err := w.Write(resourcesync.AppendXMLFooter(buf, h))
	return err
}

// setDescription returns a Source Description with one set. A well-known client
// looks for it beside the set's lists, and fails on a description with several
// sets.
func (d *Server) setDescription(_ context.Context, s feed.State) (*document, error) {
	return d.small(&resourcesync.Document{
		Header: resourcesync.Header{Capability: resourcesync.Description},
		Items:  []resourcesync.Item{d.setItem(s)},
	}), nil
}

// setItem returns a set's item in a Source Description.
func (d *Server) setItem(s feed.State) resourcesync.Item {
	return resourcesync.Item{
		Change:     resourcesync.Change{Loc: d.base.CapabilityList(s.Set), Links: describedBy(s)},
		Capability: resourcesync.CapabilityList,
	}
}

// capabilityList returns the Capability List of a set (core section 9; Change
// Notification section 5; Framework Notification section 5). It names the source's own documents where the hub has
// none. Its link rel=up leads to the description at the root. The standard asks for
// the description "that enumerates all Capability Lists offered by the Source", and
// the set's own description does not do that.
func (d *Server) capabilityList(ctx context.Context, s feed.State) (*document, error) {
	resourceList, err := d.ownResourceList(ctx, s)
	if err != nil {
		return nil, err
	}
	if resourceList == "" {
		resourceList = s.ResourceList
	}
	resourceDump, changeDump, err := d.dumps(ctx, s)
	if err != nil {
		return nil, err
	}
	resourceLists, changeLists := "", ""
	if s.Archives {
		changes, resources, err := d.opts.Archives(ctx, s.Set)
		if err != nil {
			return nil, err
		}
		if changes {
			changeLists = d.base.ChangeListArchive(s.Set)
		}
		if resources {
			resourceLists = d.base.ResourceListArchive(s.Set)
		}
	}
	doc := &resourcesync.Document{Header: resourcesync.Header{
		Capability: resourcesync.CapabilityList,
		Links:      append(describedBy(s), resourcesync.Link{Rel: "up", Href: d.base.Description()}),
	}}
	doc.Items = appendCapability(doc.Items, resourcesync.ResourceList, resourceList)
	doc.Items = appendCapability(doc.Items, resourcesync.ResourceDump, resourceDump)
	doc.Items = appendCapability(doc.Items, resourcesync.ChangeList, d.base.ChangeListIndex(s.Set))
	doc.Items = appendCapability(doc.Items, resourcesync.ChangeDump, changeDump)
	doc.Items = appendCapability(doc.Items, resourcesync.ResourceListArchive, resourceLists)
	doc.Items = appendCapability(doc.Items, resourcesync.ChangeListArchive, changeLists)
	if !d.opts.NoPush(s.Set) {
		topic := d.base.Topic(s.Set)
		links := []resourcesync.Link{
			{Rel: "hub", Href: d.base.Hub()},
			{Rel: resourcesync.Terms + "rel/websocket", Href: d.base.WebSocket(s.Set)},
			{Rel: resourcesync.Terms + "rel/event-stream", Href: topic, Type: "text/event-stream"},
		}
		if d.opts.Inventories && !s.NoInventory {
			links = append(links,
				resourcesync.Link{Rel: feed.RelBaseline, Href: d.base.Baseline(s.Set)},
				resourcesync.Link{Rel: feed.RelResources, Href: d.base.Resources(s.Set)},
				resourcesync.Link{Rel: feed.RelAudit, Href: d.base.Audit(s.Set)})
		}
		doc.Items = append(doc.Items, resourcesync.Item{
			Change:     resourcesync.Change{Loc: topic, Links: links},
			Capability: resourcesync.ChangeNotification,
		})
		framework := feed.FrameworkTopic(s.Set)
		doc.Items = append(doc.Items, resourcesync.Item{
			Change: resourcesync.Change{Loc: d.base.Topic(framework), Links: []resourcesync.Link{
				{Rel: "hub", Href: d.base.Hub()},
				{Rel: resourcesync.Terms + "rel/websocket", Href: d.base.WebSocket(framework)},
				{Rel: resourcesync.Terms + "rel/event-stream", Href: d.base.Topic(framework), Type: "text/event-stream"},
			}},
			Capability: resourcesync.FrameworkNotification,
		})
	}
	return d.small(doc), nil
}

// dumps returns the URLs of the Resource Dump and the Change Dump of a set: those of the hub,
// else the source's own; empty: there is none.
func (d *Server) dumps(ctx context.Context, s feed.State) (resources, changes string, err error) {
	resources, changes = s.ResourceDump, s.ChangeDump
	if !s.Dumps {
		return resources, changes, nil
	}
	hasResources, hasChanges, err := d.opts.Dumps(ctx, s.Set)
	if hasResources {
		resources = d.base.ResourceDump(s.Set)
	}
	if hasChanges {
		changes = d.base.ChangeDump(s.Set)
	}
	return resources, changes, err
}

// appendCapability adds the URL of a document to a Capability List, unless it is empty.
func appendCapability(items []resourcesync.Item, capability, url string) []resourcesync.Item {
	if url == "" {
		return items
	}
	return append(items, resourcesync.Item{Change: resourcesync.Change{Loc: url}, Capability: capability})
}

// describedBy returns the link to the source's document about the set, if there
// is one.
func describedBy(s feed.State) []resourcesync.Link {
	if s.DescribedBy == "" {
		return nil
	}
	return []resourcesync.Link{{Rel: "describedby", Href: s.DescribedBy}}
}
