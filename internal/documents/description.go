package documents

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/resourcesync"
)

// descriptionTries is the number of attempts to write a Source Description before a 503. Each attempt
// reads the sets twice within a short time, so few attempts fail, even while a client creates one set
// after another.
const descriptionTries = 5

// errSetsChanged means that the sets have changed since the tag of a Source Description was computed.
var errSetsChanged = errors.New("the sets have changed")

// description returns the Source Description (core section 8) with the Capability Lists of the sets that
// the caller in ctx may follow. The standard has no place for titles of sets. If there are too many sets
// for one document, it is an index of parts; part is the number of a part from 1, or 0 for the document
// itself. Writing it fails with errSetsChanged if the sets have changed in the meantime.
func (d *Server) description(ctx context.Context, states []feed.State, part int) (*document, error) {
	tag, err := d.descriptionTag(ctx, states, part)
	if err != nil {
		return nil, err
	}
	return &document{
		tag:       tag,
		maxCached: min(d.opts.CacheBytes/2, int64(1+len(states))*4<<10),
		write: func(ctx context.Context, w io.Writer) error {
			states, err := d.log.Sets(ctx) // again, so that slow clients do not hold them in memory
			if err != nil {
				return err
			}
			if is, err := d.descriptionTag(ctx, states, part); err != nil || is != tag {
				return errSetsChanged
			}
			return d.writeDescription(ctx, w, states, part)
		},
	}, nil
}

// descriptionTag returns the tag of a description, computed from its bytes as in small.
func (d *Server) descriptionTag(ctx context.Context, states []feed.State, part int) (string, error) {
	h := d.newTag()
	_, _ = io.WriteString(h, "small ") // a hash never fails
	if err := d.writeDescription(ctx, h, states, part); err != nil {
		return "", err
	}
	_, _ = io.WriteString(h, "\n")
	return sum(h), nil
}

// writeDescription writes a Source Description, an index of parts, or a part. It returns a 404 if there
// is no such part.
func (d *Server) writeDescription(ctx context.Context, w io.Writer, states []feed.State, part int) error {
	states = slices.DeleteFunc(slices.Clone(states), func(s feed.State) bool { return !access.FromContext(ctx).Rights.MaySee(s) })
	ends := d.descriptionEnds(states)
	h, items := d.descriptionHeader(), func(yield func(*resourcesync.Item) bool) {
		for i := range states {
			if item := d.setItem(states[i]); !yield(&item) {
				return
			}
		}
	}
	switch n := len(ends); {
	case part > n || part > 0 && n == 1:
		return notFound("no such part of the Source Description " + d.base.Description())
	case part > 0:
		h.Links = append(h.Links, resourcesync.Link{Rel: "index", Href: d.base.Description()})
		start := 0
		if part > 1 {
			start = ends[part-2]
		}
		states = states[start:ends[part-1]]
	case n > 1:
		h.Index = true
		items = func(yield func(*resourcesync.Item) bool) {
			for i := range ends {
				item := resourcesync.Item{Change: resourcesync.Change{Loc: d.base.DescriptionPart(i + 1)}, Capability: resourcesync.Description}
				if !yield(&item) {
					return
				}
			}
		}
	}
	ns := &resourcesync.Namespaces{Index: h.Index}
	buf := resourcesync.AppendXMLHeader(nil, h, ns)
	for item := range items {
		if buf = resourcesync.AppendXMLItem(buf, item, ns); len(buf) >= writePage {
			if _, err := w.Write(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	_, err := w.Write(resourcesync.AppendXMLFooter(buf, h))
	return err
}

// descriptionEnds returns the end index of each part of a Source Description in states. Each part has at
// most maxItems items and maxBytes bytes.
func (d *Server) descriptionEnds(states []feed.State) (ends []int) {
	count, size := 0, headBytes
	for i := range states {
		item := d.setItem(states[i])
		n := item.Change.Size()
		if count == maxItems || count > 0 && size+n > maxBytes {
			ends = append(ends, i)
			count, size = 0, headBytes
		}
		count, size = count+1, size+n
	}
	return append(ends, len(states))
}

func (d *Server) descriptionHeader() *resourcesync.Header {
	return &resourcesync.Header{Capability: resourcesync.Description, Links: describedBy(d.opts.DescribedBy)}
}

// setDescription returns a Source Description with one set. A well-known client looks for it next to the
// lists of the set, and fails on a description with several sets.
func (d *Server) setDescription(_ context.Context, s feed.State) (*document, error) {
	return d.small(&resourcesync.Document{
		Header: *d.descriptionHeader(),
		Items:  []resourcesync.Item{d.setItem(s)},
	}), nil
}

// setItem returns the item of a set in a Source Description.
func (d *Server) setItem(s feed.State) resourcesync.Item {
	return resourcesync.Item{
		Change:     resourcesync.Change{Loc: d.base.CapabilityList(s.Set), Links: describedBy(s.DescribedBy)},
		Capability: resourcesync.CapabilityList,
	}
}

// capabilityList returns the Capability List of a set (core section 9; Change Notification section 5).
// It links to the documents of the source for those that the hub does not have. Its link rel=up leads to
// the description at the root, because the standard requires the description "that enumerates all
// Capability Lists offered by the Source", which the description of the set does not.
func (d *Server) capabilityList(ctx context.Context, s feed.State) (*document, error) {
	own, _, err := d.ownList(ctx, s.Set)
	if err != nil {
		return nil, err
	}
	resourceList := s.ResourceList
	if own != nil {
		resourceList = d.base.ResourceList(s.Set)
	}
	doc := &resourcesync.Document{Header: resourcesync.Header{
		Capability: resourcesync.CapabilityList,
		Links:      append(describedBy(s.DescribedBy), resourcesync.Link{Rel: "up", Href: d.base.Description()}),
	}}
	doc.Items = appendCapability(doc.Items, resourcesync.ResourceList, resourceList)
	doc.Items = appendCapability(doc.Items, resourcesync.ResourceDump, s.ResourceDump)
	doc.Items = appendCapability(doc.Items, resourcesync.ChangeList, d.base.ChangeListIndex(s.Set))
	doc.Items = appendCapability(doc.Items, resourcesync.ChangeDump, s.ChangeDump)
	if !s.NoPush {
		topic := d.base.Topic(s.Set)
		links := []resourcesync.Link{
			{Rel: "hub", Href: d.base.Hub()},
			{Rel: resourcesync.Terms + "rel/websocket", Href: d.base.WebSocket(s.Set)},
			{Rel: resourcesync.Terms + "rel/event-stream", Href: topic, Type: "text/event-stream"},
		}
		if d.opts.Inventories != nil && !s.NoInventory {
			links = append(links,
				resourcesync.Link{Rel: feed.RelBaseline, Href: d.base.Baseline(s.Set)},
				resourcesync.Link{Rel: feed.RelResources, Href: d.base.Resources(s.Set)},
				resourcesync.Link{Rel: feed.RelAudit, Href: d.base.Audit(s.Set)})
		}
		doc.Items = append(doc.Items, resourcesync.Item{
			Change:     resourcesync.Change{Loc: topic, Links: links},
			Capability: feed.Capability(s.Set),
		})
		if s.Framework {
			doc.Items = append(doc.Items, resourcesync.Item{
				Change:     resourcesync.Change{Loc: d.base.Topic(feed.FrameworkSet(s.Set)), Links: []resourcesync.Link{{Rel: "hub", Href: d.base.Hub()}}},
				Capability: resourcesync.FrameworkNotification,
			})
		}
	}
	return d.small(doc), nil
}

// appendCapability appends the URL of a document to a Capability List unless it is empty.
func appendCapability(items []resourcesync.Item, capability, url string) []resourcesync.Item {
	if url == "" {
		return items
	}
	return append(items, resourcesync.Item{Change: resourcesync.Change{Loc: url}, Capability: capability})
}

// describedBy returns the link to a document about a set or the hub, or nil if url is empty.
func describedBy(url string) []resourcesync.Link {
	if url == "" {
		return nil
	}
	return []resourcesync.Link{{Rel: "describedby", Href: url}}
}
