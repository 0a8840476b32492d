package mirror

import (
	"context"
	"mime"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/mirror/fetch"
	"github.com/rshub/rshub/mirror/ledger"
	"github.com/rshub/rshub/mirror/patch"
	"github.com/rshub/rshub/resourcesync"
)

// A source may say by a link how the content became what it is (core section 14.4). Then the new
// content is made of the old one and the patch. Only the hash that the source names shows that
// this is right: the mirror may have left out the version in between, and sources make mistakes.
// If it is not right, or nobody can tell, the content is got whole.

// Bounds of what is patched: both contents and the patch are in memory.
const (
	patchedMost = 16 << 20 // bytes of a content
	patchMost   = 1 << 20  // bytes of a patch
	patching    = 2        // at the same time
)

// patchOf returns the link to a patch that this package can apply; nil: there is none, or it is
// not worth its request.
func patchOf(c *resourcesync.Change) *resourcesync.Link {
	if !fetch.NewSum(c.Hash).Verified() {
		return nil
	}
	for i := range c.Links {
		l := &c.Links[i]
		kind, _, _ := mime.ParseMediaType(l.Type)
		if patch.Applies(kind) && strings.EqualFold(l.Rel, resourcesync.RelPatch) && (l.Length == nil || c.Length == nil || *l.Length < *c.Length) {
			return l
		}
	}
	return nil
}

// patched returns the content of an entry, made of the file before it and a patch; nil: there is
// no patch for it, or it is of no use. The content need not be right. The caller calls release when
// it needs the content no more: few contents are in memory at the same time.
func (d *Directory) patched(ctx context.Context, before *ledger.File, e *feed.Entry) (content []byte, release func()) {
	l := patchOf(&e.Change)
	if l == nil || before.Size > patchedMost || e.Change.Length != nil && *e.Change.Length > patchedMost {
		return nil, func() {}
	}
	select {
	case d.patching <- struct{}{}:
		release = func() { <-d.patching }
	case <-ctx.Done():
		return nil, func() {}
	}
	text, err := d.home.Root.ReadFile(before.Path)
	if err != nil {
		return nil, release
	}
	old, err := patch.Of(text)
	if err != nil {
		return nil, release
	}
	to := &fetch.Memory{Most: patchMost}
	if _, err := d.fetcher.Get(ctx, fetch.Wanted{Change: &resourcesync.Change{Loc: l.Href, Hash: l.Hash, Length: l.Length}}, to); err != nil {
		return nil, release
	}
	if content, err = old.Apply(to.Bytes(), patchedMost); err != nil {
		return nil, release
	}
	return content, release
}
