package inventory

import (
	"encoding/json"
	"fmt"

	"github.com/rshub/rshub/feed"
)

// A Root is the tree of a set at one cursor of its log.
type Root struct {
	Cursor feed.Cursor `json:"cursor"` // the root holds what the log says up to here
	Page   uint64      `json:"page"`   // the number of the page at the top; 0: there is no resource
	Height int         `json:"height"` // levels of pages; 0: there is no resource
	Upto   uint64      `json:"upto"`   // identifies the root: it rises from root to root, and no page of the root has a higher number
	Tally  Tally       `json:"tally"`
	Pages  uint64      `json:"pages"` // of the tree
	Bytes  uint64      `json:"bytes"` // of these pages
	Made   int64       `json:"made"`  // when, by the store's clock, in microseconds since 1970
}

// A Pin says that somebody reads a root. While it lasts, the pages of the root stay.
type Pin struct {
	Holder string `json:"holder"`
	Until  int64  `json:"until"` // by the store's clock, in microseconds since 1970
}

// A Kept is a root that lives, with why it lives and what dies with it.
type Kept struct {
	Root
	Pins   []Pin  `json:"pins,omitempty"`
	Listed int64  `json:"listed,omitempty"` // when the root became that of a Resource List, in microseconds since 1970; 0: it is none
	Dead   uint64 `json:"dead,omitempty"`   // first page of the list of this root's pages that newer roots do not have; 0: there is none
}

// A Head is what the record of an inventory says, see Record.Head.
type Head struct {
	Next     uint64      `json:"next"`               // the next page number that nobody has
	Reserved uint64      `json:"reserved,omitempty"` // the attempt has the numbers from here to Next-1; 0: there is no attempt
	Roots    []Kept      `json:"roots,omitempty"`    // oldest first
	Complete feed.Cursor `json:"complete"`           // whoever may publish said that the hub knew all resources as of this cursor; zero: nobody did, or it is not true any more
	Why      string      `json:"why,omitempty"`      // why the inventory is not complete any more, for people
}

// Newest returns the newest root. Without one it returns the zero Root, which holds no
// resource, at the zero cursor.
func (h *Head) Newest() Root {
	if n := len(h.Roots); n > 0 {
		return h.Roots[n-1].Root
	}
	return Root{}
}

// IsComplete reports whether the hub knows all resources of the set at a cursor.
func (h *Head) IsComplete(at feed.Cursor) bool {
	return !h.Complete.IsZero() && at.Position >= h.Complete.Position
}

func (h *Head) encode() []byte {
	b, _ := json.Marshal(h) // strings and numbers only
	return b
}

func decodeHead(b []byte) (*Head, error) {
	h := &Head{Next: 1}
	if len(b) == 0 {
		return h, nil
	}
	if err := json.Unmarshal(b, h); err != nil || h.Next == 0 {
		return nil, fmt.Errorf("%w: its head: %v", ErrDamaged, err)
	}
	return h, nil
}
