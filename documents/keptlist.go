package documents

import (
	"context"
	"errors"
	"io"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/resourcesync"
)

// A KeptList is a Resource List that is to be kept elsewhere, when the hub has a newer one. It is
// one document, or an index and the parts that it names.
type KeptList struct {
	*List

	server *Server
	state  feed.State
	pieces []piece
}

// KeepResourceList returns the newest Resource List of a set, in the form that s says; nil if there
// is none, or it has no resources. It blocks while all resources are looked at once.
func (d *Server) KeepResourceList(ctx context.Context, s feed.State) (*KeptList, error) {
	l, err := d.opts.List(ctx, s.Set, feed.Cursor{})
	if e, ok := errors.AsType[*feed.Error](err); ok && e.Status == 404 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := l.Tally(ctx, inventory.Range{})
	if err != nil || all.Count == 0 {
		return nil, err
	}
	k := &KeptList{List: l, server: d, state: s}
	for n := range blocks(all.Count) {
		b, err := cut(ctx, l, all.Count, n+1)
		if err != nil {
			return nil, err
		}
		k.pieces = append(k.pieces, b.pieces...)
	}
	return k, nil
}

// Documents returns of how many documents the list is.
func (k *KeptList) Documents() int {
	if len(k.pieces) == 1 {
		return 1
	}
	return 1 + len(k.pieces)
}

// Write writes document n: 0 is the list, or its index, and the others are its parts. loc returns
// the URL of each. After an error, such as feed.ErrGone when the list is not kept any more, what
// was written is not whole.
func (k *KeptList) Write(ctx context.Context, w io.Writer, n int, loc func(n int) string) error {
	h := k.server.resourcesHeader(k.state.Set, k.List)
	switch {
	case len(k.pieces) == 1:
		return k.server.writeResources(ctx, w, k.state, h, k.List, k.pieces[0])
	case n > 0:
		h.Links = append(h.Links, resourcesync.Link{Rel: "index", Href: loc(0)})
		return k.server.writeResources(ctx, w, k.state, h, k.List, k.pieces[n-1])
	}
	return writeResourceIndex(w, k.state, h, func(yield func(string, error) bool) {
		for i := range k.pieces {
			if !yield(loc(i+1), nil) {
				return
			}
		}
	})
}
