package documents

import (
	"context"
	"errors"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
)

// The versions of documents, for those who tell others that a document has changed. Like an
// ETag, a version is another one whenever the bytes of the document are others.

// CapabilityListVersion returns the version of a set's Capability List.
func (d *Server) CapabilityListVersion(ctx context.Context, s feed.State) (string, error) {
	doc, err := d.capabilityList(ctx, s)
	if err != nil {
		return "", err
	}
	return doc.tag, nil
}

// DescriptionVersion returns the version of the Source Description with these sets.
func (d *Server) DescriptionVersion(ctx context.Context, states []feed.State) string {
	return d.descriptionTag(access.NewContext(ctx, access.Caller{Rights: access.All()}), states)
}

// ChangeListURL returns the URL of Change List n of a set. The list need not exist.
func (d *Server) ChangeListURL(s feed.State, n uint64) string {
	return d.base.Document(s.Set, listName(s, n))
}

// ResourceListVersion returns the version of the hub's Resource List of a set, or "" if there is
// none.
func (d *Server) ResourceListVersion(ctx context.Context, s feed.State) (string, error) {
	url, err := d.ownResourceList(ctx, s)
	if url == "" || err != nil {
		return "", err
	}
	l, err := d.list(ctx, s, feed.Cursor{})
	if err != nil {
		return "", err
	}
	return d.formTag(s, "resourcelist", s.Set, l.Cursor(), l.Completed.UnixMicro()), nil
}

// ResourceListURL returns the URL of the hub's Resource List of a set. If that is an index, it
// returns the URL of the first Resource List in it, and that of the index.
func (d *Server) ResourceListURL(ctx context.Context, s feed.State) (url, index string, err error) {
	l, err := d.list(ctx, s, feed.Cursor{})
	if err != nil {
		return "", "", err
	}
	all, err := l.Tally(ctx, inventory.Range{})
	if err != nil {
		return "", "", err
	}
	if all.Count == 0 {
		return "", "", errors.New("the Resource List is empty")
	}
	b, err := d.block(ctx, s.Set, l, all.Count, 1)
	if err != nil {
		return "", "", err
	}
	if all.Count <= maxItems && len(b.pieces) == 1 {
		return d.base.ResourceList(s.Set), "", nil
	}
	return d.base.Document(s.Set, inForm(s, partName(l.Cursor(), 1, 1))), d.base.ResourceList(s.Set), nil
}
