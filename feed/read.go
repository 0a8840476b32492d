package feed

import (
	"io"

	"github.com/rshub/rshub/resourcesync"
)

// A page is the object that the format JSON writes of a batch.
type page struct {
	Set      string               `json:"set"`
	After    string               `json:"after"`
	Cursor   string               `json:"cursor"`
	Next     string               `json:"next"`
	Diverged bool                 `json:"diverged"`
	Changes  resourcesync.Entries `json:"changes"`
}

// ReadBatch reads the object that the format JSON writes. next is its member
// "next", empty when there is none. Unknown members are skipped, because a
// later hub may say more.
//
// An object that contradicts itself is refused: entries must be in order, after
// After and not after Cursor. An error is a *resourcesync.Error, which names
// the entry if it is about one, or it wraps the error of r.
func ReadBatch(r io.Reader, l resourcesync.Limits) (b *Batch, next string, err error) {
	b = new(Batch)
	p := page{Changes: resourcesync.Entries{Limits: l, Each: b.add}}
	if err := resourcesync.ReadPage(r, l, &p); err != nil {
		return nil, "", err
	}
	if err := b.place(&p); err != nil {
		return nil, "", err
	}
	return b, p.Next, nil
}

// ParseEntry reads one entry as ReadBatch does.
func ParseEntry(text []byte) (Entry, error) {
	e, err := resourcesync.ParseEntry(text)
	if err != nil {
		return Entry{}, err
	}
	return entryOf(e)
}

// add appends the next entry, or returns why it cannot be the next.
func (b *Batch) add(e resourcesync.PageEntry) error {
	entry, err := entryOf(e)
	switch {
	case err != nil:
		return err
	case len(b.Entries) > 0 && !b.Entries[len(b.Entries)-1].before(entry.Cursor):
		return resourcesync.Invalid("positions and datetimes rise from one entry to the next")
	}
	b.Entries = append(b.Entries, entry)
	return nil
}

// entryOf returns the entry that a hub shows as e.
func entryOf(e resourcesync.PageEntry) (Entry, error) {
	entry := Entry{Cursor: Cursor{Position: e.Position, Micros: e.Datetime.UnixMicro()}, Change: e.Change}
	entry.Change.Datetime = e.SourceDatetime
	switch {
	case e.Position == 0 || e.Datetime.IsZero():
		return entry, resourcesync.Invalid("an entry has a position and a datetime")
	case e.Position > MaxNumber || entry.Micros < 0 || entry.Micros > MaxNumber:
		return entry, resourcesync.Invalid("the position or the datetime lies beyond what a cursor holds")
	}
	return entry, nil
}

// place sets what the object says of the whole batch, and checks that the
// entries agree with it.
func (b *Batch) place(p *page) (err error) {
	if !p.Changes.There {
		return resourcesync.Invalid(`"changes" is missing`)
	}
	if err := CheckSet(p.Set); err != nil {
		return err
	}
	b.Set, b.Diverged = p.Set, p.Diverged
	if end, perr := ParsePlace(p.After); perr == nil { // it is the end of a baseline
		b.After = end.Cursor
	} else if b.After, err = ParseCursor(p.After); err != nil {
		return err
	}
	if b.Cursor, err = ParseCursor(p.Cursor); err != nil {
		return err
	}
	if b.After.Position > b.Cursor.Position || b.After.Micros > b.Cursor.Micros {
		return resourcesync.Invalid("after, which is %v, lies behind cursor, which is %v", b.After, b.Cursor)
	}
	if len(b.Entries) == 0 {
		return nil
	}
	first, last := b.Entries[0].Cursor, b.Entries[len(b.Entries)-1].Cursor
	if !b.After.before(first) || last != b.Cursor && !last.before(b.Cursor) {
		return resourcesync.Invalid("the entries %v to %v do not lie between after, which is %v, and cursor, which is %v", first, last, b.After, b.Cursor)
	}
	return nil
}

// before reports whether an entry at c stands before an entry at d in one log.
func (c Cursor) before(d Cursor) bool { return c.Position < d.Position && c.Micros < d.Micros }
