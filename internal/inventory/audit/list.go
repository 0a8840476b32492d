package audit

import (
	"cmp"
	"errors"
	"io"
	"iter"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// List yields the resources of a list, which has one resource as JSON on each line, in any order.
// The position of a resource is its line. An error ends the list: it is a *resourcesync.Error that
// names the line, or wraps the error of r.
func List(r io.Reader) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		lines := resourcesync.NewNDJSONReader(r, resourcesync.Limits{})
		for {
			c, err := lines.Next()
			if err == io.EOF {
				return
			}
			if err == nil {
				err = checkListed(c, lines.Line())
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(&feed.Entry{Cursor: feed.Cursor{Position: uint64(lines.Line())}, Change: *c}, nil) {
				return
			}
		}
	}
}

func checkListed(c *resourcesync.Change, line int) error {
	c.Change = cmp.Or(c.Change, resourcesync.Updated)
	err := c.Validate()
	if err == nil && c.Change == resourcesync.Deleted {
		err = &resourcesync.Error{Err: resourcesync.ErrInvalid, Loc: resourcesync.Shorten(c.Loc), Msg: "change: got deleted; a list has only existing resources"}
	}
	if e, ok := errors.AsType[*resourcesync.Error](err); ok {
		e.Line = line
	}
	return err
}
