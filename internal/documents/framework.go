package documents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// Framework returns the documents of a set that framework notifications are about (Framework
// Notification section 2), as they are now: the Capability List, the newest Change List that
// is closed, and the Resource List, if there are such. The fields of each differ from those of
// another time if its bytes do.
func (d *Server) Framework(ctx context.Context, s feed.State) ([]resourcesync.Change, error) {
	list, err := d.capabilityList(ctx, s)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	if err := list.write(ctx, sum); err != nil {
		return nil, err
	}
	all := []resourcesync.Change{changed(d.base.CapabilityList(s.Set), resourcesync.CapabilityList, sum)}
	if oldest, open := s.Lists(); open > oldest {
		id, err := d.listID(ctx, s, open-1)
		if err != nil {
			return nil, err
		}
		c := changed(d.base.Document(s.Set, id.name(s)), resourcesync.ChangeList, nil)
		c.Links = []resourcesync.Link{{Rel: "index", Href: d.base.ChangeListIndex(s.Set)}}
		all = append(all, c)
	}
	l, resources, err := d.ownList(ctx, s.Set)
	if err != nil || l == nil {
		return all, err
	}
	c := changed(d.base.ResourceList(s.Set), resourcesync.ResourceList, nil)
	if resources > maxItems {
		c.Loc = d.base.Document(s.Set, partName(s, l.Cursor(), l.Completed, 1, 1))
		c.Links = []resourcesync.Link{{Rel: "index", Href: d.base.ResourceList(s.Set)}}
	}
	c.Lastmod = l.Completed.UTC().Truncate(time.Microsecond) // as the memory keeps it
	return append(all, c), nil
}

// FrameworkDescription returns the Source Description that the caller in ctx sees, as
// Framework returns the documents of a set.
func (d *Server) FrameworkDescription(ctx context.Context, states []feed.State) (resourcesync.Change, error) {
	sum := sha256.New()
	err := d.writeDescription(ctx, sum, states, 0)
	return changed(d.base.Description(), resourcesync.Description, sum), err
}

// changed returns a change of the document at a URL, which has the digest sum. What happened
// to it, nobody has found out yet.
func changed(url, capability string, sum hash.Hash) resourcesync.Change {
	c := resourcesync.Change{Loc: url, Attrs: []resourcesync.Attr{resourcesync.CapabilityAttr(capability)}}
	if sum != nil {
		c.Hash, c.Type = "sha-256:"+hex.EncodeToString(sum.Sum(nil)), "application/xml"
	}
	return c
}
