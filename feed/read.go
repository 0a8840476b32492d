package feed

import (
	"io"

	"github.com/rshub/rshub/resourcesync"
)

// A page is the JSON object of a batch.
type page struct {
	Set      string               `json:"set"`
	After    string               `json:"after"`
	Cursor   string               `json:"cursor"`
	Next     string               `json:"next"`
	Diverged bool                 `json:"diverged"`
	Changes  resourcesync.Entries `json:"changes"`
}

// ReadBatch decodes a batch from the JSON object that the format JSON encodes. next is its member
// "next", or empty. Unknown members are skipped, for compatibility with later versions.
//
// ReadBatch rejects an object that contradicts itself: positions and datetimes of entries must
// increase, be after After, and not be after Cursor. An error is a *resourcesync.Error, which names
// the entry if one is invalid, or it wraps the error of r.
func ReadBatch(r io.Reader, l resourcesync.Limits) (b *Batch, next string, err error) {
	b = new(Batch)
	p := page{Changes: resourcesync.Entries{Limits: l, Each: b.appendEntry}}
	if err := resourcesync.ReadPage(r, l, &p); err != nil {
		return nil, "", err
	}
	if err := b.setMembers(&p); err != nil {
		return nil, "", err
	}
	return b, p.Next, nil
}

// ParseEntry decodes one entry as ReadBatch does.
func ParseEntry(text []byte) (Entry, error) {
	e, err := resourcesync.ParseEntry(text)
	if err != nil {
		return Entry{}, err
	}
	return newEntry(e)
}

// appendEntry appends the next entry. It returns an error if the entry is invalid or out of order.
func (b *Batch) appendEntry(e resourcesync.PageEntry) error {
	entry, err := newEntry(e)
	switch {
	case err != nil:
		return err
	case len(b.Entries) > 0 && !b.Entries[len(b.Entries)-1].before(entry.Cursor):
		return resourcesync.Invalidf("position and datetime must be greater than those of the previous entry")
	}
	b.Entries = append(b.Entries, entry)
	return nil
}

// newEntry converts an entry of a page.
func newEntry(e resourcesync.PageEntry) (Entry, error) {
	entry := Entry{Cursor: Cursor{Position: e.Position, Micros: e.Datetime.UnixMicro()}, Change: e.Change}
	entry.Change.Datetime = e.SourceDatetime
	switch {
	case e.Position == 0 || e.Datetime.IsZero():
		return entry, resourcesync.Invalidf("position or datetime is missing")
	case e.Position > MaxNumber || entry.Micros < 0 || entry.Micros > MaxNumber:
		return entry, resourcesync.Invalidf("position or datetime is out of the range of a cursor")
	}
	return entry, nil
}

// setMembers sets the fields of b from the members of the page, and checks them against the
// entries.
func (b *Batch) setMembers(p *page) (err error) {
	if !p.Changes.Present {
		return resourcesync.Invalidf(`"changes" is missing`)
	}
	if err := CheckSet(p.Set); err != nil {
		return err
	}
	b.Set, b.Diverged = p.Set, p.Diverged
	if end, perr := ParseBaselineCursor(p.After); perr == nil { // the end of a baseline
		b.After = end.Cursor
	} else if b.After, err = ParseCursor(p.After); err != nil {
		return err
	}
	if b.Cursor, err = ParseCursor(p.Cursor); err != nil {
		return err
	}
	if b.After.Position > b.Cursor.Position || b.After.Micros > b.Cursor.Micros {
		return resourcesync.Invalidf("after %v is later than cursor %v", b.After, b.Cursor)
	}
	if len(b.Entries) == 0 {
		return nil
	}
	first, last := b.Entries[0].Cursor, b.Entries[len(b.Entries)-1].Cursor
	if !b.After.before(first) || last != b.Cursor && !last.before(b.Cursor) {
		return resourcesync.Invalidf("entries %v to %v are not between after %v and cursor %v", first, last, b.After, b.Cursor)
	}
	return nil
}

// before reports whether an entry at c can precede an entry at d in the same log.
func (c Cursor) before(d Cursor) bool { return c.Position < d.Position && c.Micros < d.Micros }
