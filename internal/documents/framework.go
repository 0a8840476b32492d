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

// Framework returns the current documents of a set for Framework Notifications (Framework Notification
// section 2): the Capability List, the newest closed Change List and the Resource List, if they exist.
// If the bytes of a document change, so do the fields of its change.
func (d *Server) Framework(ctx context.Context, s feed.State) ([]resourcesync.Change, error) {
	list, err := d.capabilityList(ctx, s)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	if err := list.write(ctx, sum); err != nil {
		return nil, err
	}
	all := []resourcesync.Change{newChange(d.base.CapabilityList(s.Set), resourcesync.CapabilityList, sum)}
	if oldest, open := s.Lists(); open > oldest {
		id, err := d.listID(ctx, s, open-1)
		if err != nil {
			return nil, err
		}
		c := newChange(d.base.Document(s.Set, id.name(s)), resourcesync.ChangeList, nil)
		c.Links = []resourcesync.Link{{Rel: "index", Href: d.base.ChangeListIndex(s.Set)}}
		all = append(all, c)
	}
	l, resources, err := d.ownList(ctx, s.Set)
	if err != nil || l == nil {
		return all, err
	}
	c := newChange(d.base.ResourceList(s.Set), resourcesync.ResourceList, nil)
	if resources > maxItems {
		c.Loc = d.base.Document(s.Set, partName(s, l.Cursor(), l.Completed, 1, 1))
		c.Links = []resourcesync.Link{{Rel: "index", Href: d.base.ResourceList(s.Set)}}
	}
	c.Lastmod = l.Completed.UTC().Truncate(time.Microsecond) // as the memory stores it
	return append(all, c), nil
}

// FrameworkDescription returns the Source Description for the caller in ctx, in the form of Framework.
func (d *Server) FrameworkDescription(ctx context.Context, states []feed.State) (resourcesync.Change, error) {
	sum := sha256.New()
	err := d.writeDescription(ctx, sum, states, 0)
	return newChange(d.base.Description(), resourcesync.Description, sum), err
}

// newChange returns a change of the document at url, without its type. sum is the hash of its bytes, or
// nil.
func newChange(url, capability string, sum hash.Hash) resourcesync.Change {
	c := resourcesync.Change{Loc: url, Attrs: []resourcesync.Attr{resourcesync.CapabilityAttr(capability)}}
	if sum != nil {
		c.Hash, c.Type = "sha-256:"+hex.EncodeToString(sum.Sum(nil)), "application/xml"
	}
	return c
}
