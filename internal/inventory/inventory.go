// Package inventory stores what a set holds now: for every resource that exists, its newest change
// with position and datetime, in the order of loc (bytes as stored, never normalized). The log says
// what happened; the inventory says what exists. A follower makes it from the log; an append never
// does.
//
// An inventory is a Root, which is a copy-on-write tree at one cursor, plus the log after that
// cursor. A commit never changes a page: it writes new pages, and then replaces one small record,
// the head. So it does not disturb readers of older roots, and neither a torn or late commit nor
// two commits at once do harm.
//
// A State has the digest of any range of locs, so a destination can prove that it is in sync, or
// find every difference: package audit does.
//
// The package knows no server. Store is an interface that the change memories implement; Memory is
// a Store in memory. Package live maintains the inventories of a hub. docs/dev/inventory.md
// discusses the design.
package inventory

import (
	"context"
	"fmt"
	"sync/atomic"
)

// pageBytes is the default size of a page: Redis stores it in 6,144.
const pageBytes = 6_128

// Options of an Inventory. Zero values are the defaults.
type Options struct {
	Cache     *Cache // shared by all inventories of a process; default: one of its own, of 4 MiB
	PageBytes int    // the most bytes of a page, unless it holds a single resource; default 6,128, which Redis stores without waste

	// Damaged is called with each ErrDamaged that a read of the inventory finds, before
	// the reader gets the error. It may be called concurrently. Default: only the reader
	// learns of it.
	Damaged func(error)
}

// An Inventory is the inventory of one set in a Store. Its methods may be called
// concurrently, by this process and by others. They block until the store has answered or
// ctx is done. Their errors are those of Store, or wrap them.
type Inventory struct {
	store Store
	set   string
	cache *Cache
	limit int         // bytes of a page
	found func(error) // Options.Damaged; may be nil
	swept atomic.Bool // whether pages that earlier processes or failed attempts left were removed
}

// New returns the inventory of a set. It asks the store nothing, and has nothing to
// close.
func New(s Store, set string, o Options) *Inventory {
	if o.Cache == nil {
		o.Cache = NewCache(4 << 20)
	}
	if o.PageBytes <= 0 {
		o.PageBytes = pageBytes
	}
	return &Inventory{store: s, set: set, cache: o.Cache, limit: o.PageBytes, found: o.Damaged}
}

// Set returns the name of the set.
func (v *Inventory) Set() string { return v.set }

// Load returns the record of the set, and the head in it. If the set's log is new, the
// head has no root.
func (v *Inventory) Load(ctx context.Context) (Record, *Head, error) {
	rec, err := v.store.Load(ctx, v.set)
	if err != nil {
		return Record{}, nil, fmt.Errorf("load inventory of set %q: %w", v.set, err)
	}
	head, err := decodeHead(rec.Head)
	if err != nil {
		return rec, nil, v.damaged("the head", err)
	}
	return rec, head, nil
}

// damaged returns an ErrDamaged that names a part of the inventory, and calls
// Options.Damaged with it.
func (v *Inventory) damaged(part string, why error) error {
	e := *ErrDamaged
	e.Text += fmt.Sprintf(": %s of set %q: %v", part, v.set, why)
	e.Detail = fmt.Sprintf("%s of the inventory of set %q is damaged: %v. The hub rebuilds the inventory if its log reaches back to the beginning; try again soon", part, v.set, why)
	if v.found != nil {
		v.found(&e)
	}
	return &e
}

// Tree returns the tree of a root, to read it. While it is read, the root must be
// pinned or be the newest. Once its pages are removed, reading returns feed.ErrGone.
func (v *Inventory) Tree(r Root) *Tree { return &Tree{v: v, root: r} }
