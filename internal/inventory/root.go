package inventory

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/digest"
)

// maxHeight is the maximum height of a tree. A damaged head cannot make a reader go deeper.
const maxHeight = 32

// A Root is the tree of a set at one cursor of its log.
type Root struct {
	Begin  int64        `json:"begin"`  // when the log began, as in feed.State
	Cursor feed.Cursor  `json:"cursor"` // newest entry of the log that the root has
	Page   uint64       `json:"page"`   // number of the page at the top; zero without resources
	Height int          `json:"height"` // levels of pages; zero without resources
	Upto   uint64       `json:"upto"`   // identifies the root: it rises from root to root, and no page of the root has a higher number
	Tally  digest.Tally `json:"tally"`
	Pages  uint64       `json:"pages"` // number of pages
	Bytes  uint64       `json:"bytes"` // size of all pages
	Made   int64        `json:"made"`  // when it was made, by the store's clock, in microseconds since 1970
}

// A Pin keeps the pages of a root for a reader, until it expires.
type Pin struct {
	Holder string `json:"holder"`
	Until  int64  `json:"until"` // by the store's clock, in microseconds since 1970
}

// A Kept is a root that is kept, with the reasons to keep it.
type Kept struct {
	Root
	Pins   []Pin  `json:"pins,omitempty"`
	Lost   uint64 `json:"lost,omitempty"`   // how many pages newer roots do not have, about
	Listed int64  `json:"listed,omitempty"` // when the root became the root of a Resource List, by the store's clock, in microseconds since 1970; zero if it did not
}

// A Head is the content of an inventory's record, see Record.Head.
type Head struct {
	Term     uint64      `json:"term,omitempty"`    // highest term of a writer
	Next     uint64      `json:"next"`              // later commits write pages with this number or a higher one
	Garbage  uint64      `json:"garbage,omitempty"` // how many pages dropped roots have left, at most
	Swept    int64       `json:"swept,omitempty"`   // when a sweep last removed them, by the store's clock, in microseconds since 1970
	Roots    []Kept      `json:"roots,omitempty"`   // oldest first
	Complete feed.Cursor `json:"complete"`          // cursor from which on the hub knows all resources, as declared by a publisher; zero if it does not
	Why      string      `json:"why,omitempty"`     // why the inventory is no longer complete, for people
}

// Newest returns the newest root, or the zero Root, which has no resources, at the zero cursor.
func (h *Head) Newest() Root {
	if n := len(h.Roots); n > 0 {
		return h.Roots[n-1].Root
	}
	return Root{}
}

// find returns the root that upto identifies, or nil.
func (h *Head) find(upto uint64) *Kept {
	for i := range h.Roots {
		if h.Roots[i].Upto == upto {
			return &h.Roots[i]
		}
	}
	return nil
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
	if err := json.Unmarshal(b, h); err != nil {
		return nil, err
	}
	if rule := h.broken(); rule != "" {
		return nil, errors.New(rule)
	}
	return h, nil
}

// broken returns the rule that a head breaks, or "".
func (h *Head) broken() string {
	upto := uint64(0)
	for _, k := range h.Roots {
		switch {
		case k.Upto <= upto || k.Upto >= h.Next:
			return fmt.Sprintf("root %d is out of order", k.Upto)
		case k.Page > k.Upto || k.Height < 0 || k.Height > maxHeight || (k.Page == 0) != (k.Height == 0):
			return fmt.Sprintf("root %d is unreadable", k.Upto)
		}
		upto = k.Upto
	}
	if h.Next == 0 {
		return "no next page number"
	}
	return ""
}
