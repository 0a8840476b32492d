package resourcesync

import (
	"io"
	"strconv"
	"time"
)

// A Page is what a hub says of a page of changes: which part of the log of which set
// it shows. ReadJSON ignores these members: a client that publishes such a page to another
// hub means only the changes.
type Page struct {
	Set      string
	After    string // the cursor before the first change
	Cursor   string // the cursor to go on from
	Next     string // URL of the next page; empty when there is none
	Diverged bool   // the hub has lost entries that the client's cursor counts
}

// A PageEntry is a change as a hub shows it. Its Datetime is the hub's.
type PageEntry struct {
	Change
	Position       uint64    // 0 when absent
	SourceDatetime time.Time // the datetime that the source gave
}

// ReadPage reads a page of changes as a hub writes it, and calls each with every
// change in turn. So only one change is in memory. It follows the rules of ReadJSON,
// except that it skips members that it does not know: a later version of the hub may
// write more. When each returns an error, ReadPage stops and returns that error.
//
// Its errors are those of ReadJSON and of each. An *Error gets the number of its
// entry.
func ReadPage(r io.Reader, l Limits, each func(PageEntry) error) (Page, error) {
	var p Page
	err := readPage(r, l, each, func(j *jsonInput, l Limits, each func(*Change) error) error { return j.page(&p, l, each) })
	if err != nil {
		return Page{}, err
	}
	return p, nil
}

// readPage reads a page with one of the methods of jsonInput, and what follows it.
func readPage(r io.Reader, l Limits, each func(PageEntry) error, read func(*jsonInput, Limits, func(*Change) error) error) error {
	l = l.withDefaults()
	j := &jsonInput{entry: new(PageEntry)}
	j.dec.Reset(newLimitReader(r, l.Bytes))
	err := read(j, l, func(c *Change) error {
		e := *j.entry
		*j.entry = PageEntry{}
		e.Change = *c
		return each(e)
	})
	if err != nil {
		return err
	}
	return j.end()
}

func (j *jsonInput) page(p *Page, l Limits, each func(*Change) error) error {
	changes := false
	err := j.object("the page", func(name []byte) (err error) {
		switch string(name) {
		case "set":
			return j.string("set", &p.Set)
		case "after":
			return j.string("after", &p.After)
		case "cursor":
			return j.string("cursor", &p.Cursor)
		case "next":
			return j.string("next", &p.Next)
		case "diverged":
			p.Diverged, err = j.bool("diverged")
			return err
		case "changes":
			changes = true
			return j.changes(`"changes"`, l, nil, each)
		}
		return j.pass()
	})
	if err != nil {
		return err
	}
	return j.require(member{"set", p.Set != ""}, member{"after", p.After != ""}, member{"cursor", p.Cursor != ""}, member{"changes", changes})
}

// A member is one that a page must have, and whether the page has it.
type member struct {
	name string
	ok   bool
}

// require returns an error that names the first member that is missing.
func (j *jsonInput) require(members ...member) error {
	for _, m := range members {
		if !m.ok {
			return j.fail(quote(m.name) + " is missing")
		}
	}
	return nil
}

// position reads the position of an entry, for ReadPage.
func (j *jsonInput) position() error {
	if j.entry == nil { // a published change: its position in another hub means nothing here
		return j.ignore()
	}
	v, err := j.value('0', "position", "a number")
	if err != nil || v == nil {
		return err
	}
	if j.entry.Position, err = strconv.ParseUint(string(v), 10, 64); err != nil {
		return j.fail("position is a whole number, not " + Shorten(string(v)))
	}
	return nil
}

// sourceDatetime reads the sourceDatetime of an entry, for ReadPage.
func (j *jsonInput) sourceDatetime() error {
	if j.entry == nil { // as for position
		return j.ignore()
	}
	return j.time("sourceDatetime", &j.entry.SourceDatetime)
}

func (j *jsonInput) bool(name string) (bool, error) {
	switch kind := j.dec.PeekKind(); kind {
	case 't', 'f', 'n':
		return kind == 't', j.skip()
	case 0:
		return false, j.broken()
	default:
		return false, j.fail(name + " is a boolean, not " + kindName(kind))
	}
}
