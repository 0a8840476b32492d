package documents

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/rshub/rshub/feed"
)

// A listID identifies a Change List of a set. Like a cursor, it verifies itself: it contains the datetime
// of the entry at one end of the list. If the log loses that entry or any before it, the entry that
// replaces it has another datetime. So the name of a closed list never refers to another list, and the
// name of an open list never refers to a list with another start.
type listID struct {
	number uint64
	end    listEnd
	micros int64 // datetime of the entry at that end
}

// A listEnd is an end of a list, named like the attribute with its datetime.
type listEnd string

const (
	listFrom  listEnd = "from"  // the entry before the list, in the name of an open list
	listUntil listEnd = "until" // the last entry of a closed list
)

// text returns the part that the names of a list and of its page share. It contains the start of the
// log, which differs if the set is deleted and created again.
func (id listID) text(s feed.State) string {
	return fmt.Sprintf("%d-%d-%s-%d", s.Begin, id.number, id.end, id.micros)
}

// name returns the name of a list of a set.
func (id listID) name(s feed.State) string {
	return withLastmod("changelist-"+id.text(s), s.Lastmod)
}

// position returns the position of the entry whose datetime is in the name.
func (id listID) position(s feed.State) uint64 {
	if id.end == listFrom {
		return (id.number - 1) * uint64(s.ListSize)
	}
	return id.number * uint64(s.ListSize)
}

// parseListID parses the result of listID.text, and ignores what listID.name appends. The caller must
// compare it with the name of the result.
func parseListID(text string) (id listID, ok bool) {
	words := strings.Split(text, "-")
	if len(words) < 4 {
		return id, false
	}
	number, err := strconv.ParseUint(words[1], 10, 64)
	micros, merr := strconv.ParseInt(words[3], 10, 64)
	id = listID{number, listEnd(words[2]), micros}
	return id, err == nil && merr == nil && number > 0 && (id.end == listFrom || id.end == listUntil)
}

// parseListName parses the result of listID.name.
func parseListName(name string) (id listID, ok bool) {
	text, isList := strings.CutPrefix(name, "changelist-")
	text, isXML := strings.CutSuffix(text, ".xml")
	id, ok = parseListID(text)
	return id, ok && isList && isXML
}

// listID returns the current ID of a list. That of a closed list has the datetime of its last entry.
func (d *Server) listID(ctx context.Context, s feed.State, number uint64) (listID, error) {
	id := listID{number: number, end: listUntil}
	if _, open := s.Lists(); number == open {
		id.end = listFrom
	}
	at, err := d.cursorAt(ctx, s.Set, id.position(s))
	id.micros = at.Micros
	return id, err
}

// findList returns the current last entry of a list, and whether the list is closed. It returns
// feed.ErrGone if retention removed the list, and the error none if the set has no such list.
func (d *Server) findList(ctx context.Context, s feed.State, id listID, none error) (last feed.Cursor, closed bool, err error) {
	oldest, open := s.Lists()
	switch {
	case id.number > open, id.number == open && id.end == listUntil:
		return last, false, none
	case id.number < oldest:
		return last, false, fmt.Errorf("change list %d of set %q: %w", id.number, s.Set, feed.ErrGone)
	}
	if last, err = d.cursorAt(ctx, s.Set, id.position(s)); err != nil {
		return last, false, err
	}
	switch closed = id.number < open; {
	case last.Micros != id.micros:
		return last, false, none
	case !closed:
		last = s.Head
	case id.end == listFrom:
		last, err = d.cursorAt(ctx, s.Set, id.number*uint64(s.ListSize))
	}
	return last, closed, err
}
