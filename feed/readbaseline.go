package feed

import (
	"io"

	"github.com/rshub/rshub/resourcesync"
)

// A BaselinePage is a part of a baseline with its resources, as a client receives it.
type BaselinePage struct {
	BaselinePart
	Entries []Entry // newest change of each resource, in the order of loc; empty at the end
}

// A baselineObject is the JSON object of a part of a baseline, or of its end.
type baselineObject struct {
	Set       string               `json:"set"`
	Baseline  *bool                `json:"baseline"` // false at the end
	After     string               `json:"after"`
	Cursor    string               `json:"cursor"`
	Complete  bool                 `json:"complete"`
	Count     *uint64              `json:"count"`
	Restart   bool                 `json:"restart"`
	Position  string               `json:"position"`
	Content   string               `json:"content"`
	Next      string               `json:"next"`
	Resources resourcesync.Entries `json:"resources"` // resources of the part; absent at the end
	Changes   resourcesync.Entries `json:"changes"`   // empty array at the end; absent in other parts
}

// ReadBaseline decodes a part of a baseline from the JSON object that the format JSON encodes. next
// is its member "next", or empty. Unknown members are skipped, for compatibility with later
// versions.
//
// ReadBaseline rejects an object that contradicts itself: resources must be in the order of loc,
// exist, not be newer than Next, and be as many as there are between After and Next (or fewer, if
// the baseline is Uncounted). An error is a *resourcesync.Error, which names the resource if one is
// invalid, or it wraps the error of r.
func ReadBaseline(r io.Reader, l resourcesync.Limits) (b *BaselinePage, next string, err error) {
	b = new(BaselinePage)
	p := baselineObject{
		Resources: resourcesync.Entries{Limits: l, Each: b.appendEntry},
		Changes: resourcesync.Entries{Limits: l, Each: func(resourcesync.PageEntry) error {
			return resourcesync.Invalidf("got changes at the end of a baseline, want none")
		}},
	}
	if err := resourcesync.ReadPage(r, l, &p); err != nil {
		return nil, "", err
	}
	if err := b.setMembers(&p); err != nil {
		return nil, "", err
	}
	return b, p.Next, nil
}

// appendEntry appends the next resource. It returns an error if the resource is invalid or out of
// order.
func (b *BaselinePage) appendEntry(e resourcesync.PageEntry) error {
	entry, err := newEntry(e)
	switch n := len(b.Entries); {
	case err != nil:
		return err
	case e.Change.Change == resourcesync.Deleted:
		return resourcesync.Invalidf("got a deleted resource in a baseline")
	case n > 0 && b.Entries[n-1].Change.Loc >= e.Loc:
		return resourcesync.Invalidf("resources of a baseline must be in the order of loc")
	}
	b.Entries = append(b.Entries, entry)
	return nil
}

// setMembers sets the fields of b from the members of the object, and checks them against the
// resources.
func (b *BaselinePage) setMembers(p *baselineObject) (err error) {
	switch {
	case p.Baseline == nil:
		return resourcesync.Invalidf(`"baseline" is missing`)
	case p.Resources.Present && p.Changes.Present:
		return resourcesync.Invalidf(`got both "resources" and "changes", want one of them`)
	case *p.Baseline && !p.Resources.Present:
		return resourcesync.Invalidf(`"resources" is missing`)
	case !*p.Baseline && !p.Changes.Present:
		return resourcesync.Invalidf(`"changes" is missing`)
	}
	if err := CheckSet(p.Set); err != nil {
		return err
	}
	b.Set, b.Complete, b.Restart, b.End, b.PositionDigest, b.ContentDigest = p.Set, p.Complete, p.Restart, !*p.Baseline, p.Position, p.Content
	if b.Uncounted = p.Count == nil; !b.Uncounted {
		b.Count = *p.Count
	}
	if b.After, err = ParseBaselineCursor(p.After); err != nil {
		return err
	}
	if b.End {
		b.Next.Cursor, err = ParseCursor(p.Cursor)
		return err
	}
	if b.Next, err = ParseBaselineCursor(p.Cursor); err != nil {
		return err
	}
	end := b.After.Rank + uint64(len(b.Entries))
	if b.After.Cursor != b.Next.Cursor || b.After.Root != b.Next.Root || end > b.Next.Rank || end < b.Next.Rank && !b.Uncounted {
		return resourcesync.Invalidf("got %d resources, which does not match after %v and cursor %v", len(b.Entries), b.After, b.Next)
	}
	for i := range b.Entries {
		if at := b.Entries[i].Cursor; at != b.Next.Cursor && !at.before(b.Next.Cursor) {
			return &resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: i + 1, Loc: resourcesync.Shorten(b.Entries[i].Change.Loc),
				Msg: "change is newer than the baseline"}
		}
	}
	return nil
}
