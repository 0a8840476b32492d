package feed

import (
	"io"

	"github.com/rshub/rshub/resourcesync"
)

// A BaselinePage is a part of a baseline with its resources, as a client gets it.
type BaselinePage struct {
	BaselinePart
	Entries []Entry // in the order of loc, each the newest change of a resource; none at the end
}

// A baselineObject is the object that the format JSON writes of a part of a baseline, or of
// its end.
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
	Resources resourcesync.Entries `json:"resources"` // of a part
	Changes   resourcesync.Entries `json:"changes"`   // at the end, where there is none
}

// ReadBaseline reads the object that the format JSON writes of a part of a baseline.
// next is its member "next", empty when there is none. Unknown members are skipped,
// because a later hub may say more.
//
// An object that contradicts itself is refused: resources must be in the order of loc,
// exist, be as many as lie between After and Place (or fewer, if the baseline is
// Uncounted), and not be newer than Place. An error is a *resourcesync.Error, which names
// the resource if it is about one, or it wraps the error of r.
func ReadBaseline(r io.Reader, l resourcesync.Limits) (b *BaselinePage, next string, err error) {
	b = new(BaselinePage)
	p := baselineObject{
		Resources: resourcesync.Entries{Limits: l, Each: b.add},
		Changes: resourcesync.Entries{Limits: l, Each: func(resourcesync.PageEntry) error {
			return resourcesync.Invalid("the end of a baseline has no changes yet")
		}},
	}
	if err := resourcesync.ReadPage(r, l, &p); err != nil {
		return nil, "", err
	}
	if err := b.place(&p); err != nil {
		return nil, "", err
	}
	return b, p.Next, nil
}

// add appends the next resource, or returns why it cannot be the next.
func (b *BaselinePage) add(e resourcesync.PageEntry) error {
	entry, err := entryOf(e)
	switch n := len(b.Entries); {
	case err != nil:
		return err
	case e.Change.Change == resourcesync.Deleted:
		return resourcesync.Invalid("a baseline has only resources that exist")
	case n > 0 && b.Entries[n-1].Change.Loc >= e.Loc:
		return resourcesync.Invalid("the resources of a baseline are in the order of loc")
	}
	b.Entries = append(b.Entries, entry)
	return nil
}

// place sets what the object says of the whole part, and checks that the resources agree
// with it.
func (b *BaselinePage) place(p *baselineObject) (err error) {
	switch {
	case p.Baseline == nil:
		return resourcesync.Invalid(`"baseline" is missing`)
	case p.Resources.There && p.Changes.There:
		return resourcesync.Invalid("resources of a baseline and changes do not stand in one page")
	case *p.Baseline && !p.Resources.There:
		return resourcesync.Invalid(`"resources" is missing`)
	case !*p.Baseline && !p.Changes.There:
		return resourcesync.Invalid(`"changes" is missing`)
	}
	if err := CheckSet(p.Set); err != nil {
		return err
	}
	b.Set, b.Complete, b.Restart, b.End, b.Position, b.Content = p.Set, p.Complete, p.Restart, !*p.Baseline, p.Position, p.Content
	if b.Uncounted = p.Count == nil; !b.Uncounted {
		b.Count = *p.Count
	}
	if b.After, err = ParsePlace(p.After); err != nil {
		return err
	}
	if b.End {
		b.Place.Cursor, err = ParseCursor(p.Cursor)
		return err
	}
	if b.Place, err = ParsePlace(p.Cursor); err != nil {
		return err
	}
	end := b.After.Rank + uint64(len(b.Entries))
	if b.After.Cursor != b.Place.Cursor || b.After.Root != b.Place.Root || end > b.Place.Rank || end < b.Place.Rank && !b.Uncounted {
		return resourcesync.Invalid("%d resources do not lead from %v to %v", len(b.Entries), b.After, b.Place)
	}
	for i := range b.Entries {
		if at := b.Entries[i].Cursor; at != b.Place.Cursor && !at.before(b.Place.Cursor) {
			return &resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: i + 1, Loc: resourcesync.Shorten(b.Entries[i].Change.Loc),
				Rule: "its change is newer than the baseline"}
		}
	}
	return nil
}
