// Package inventory stores the resources of a set that exist: for each its newest change with position and
// datetime, in the order of loc (bytes as stored, never normalized). The log has what happened, the inventory
// what exists. A follower of the log makes it; an append never does.
//
// An inventory is a Root, which is a copy-on-write tree at one cursor, plus the log after that cursor. A
// commit never changes a page: it writes new pages, and then replaces one small record, the head. So it does
// not disturb readers of older roots, and torn or late commits do no harm. A set has one Writer at a time.
//
// A State has the digest of any range of locs, so a destination can prove that it is in sync, or
// find every difference: package audit does.
//
// The package knows no server. Store is an interface that the change memories implement; Memory is a Store in
// memory. Package writer commits the inventories of a hub, and package reader reads them. docs/dev/inventory.md
// discusses the design.
package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/rshub/rshub/feed"
)

// pageBytes is the default size of a page: Redis stores it in 6,144.
const pageBytes = 6_128

// Options of an Inventory. Zero values are the defaults.
type Options struct {
	Cache     *Cache // may be shared by all inventories of a process; default: a new one of 4 MiB
	PageBytes int    // maximum size of a page with more than one resource; default 6,128, which Redis stores without waste

	// Damaged is called with each ErrDamaged that a read of the inventory finds, before the reader gets the
	// error. It may be called concurrently. Default: none.
	Damaged func(error)
}

// An Inventory is the inventory of one set in a Store. A Writer commits to it. Its methods may be called
// concurrently, by this process and by others. They block until the store has responded or ctx is done. For
// errors, see Store.
type Inventory struct {
	store Store
	set   string
	cache *Cache
	limit int         // bytes of a page
	found func(error) // Options.Damaged; may be nil
}

// New returns the inventory of a set. It does not access the store, and there is nothing to close.
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

// Load returns the record of the set, and the head in it. The head of a new log has no root.
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

// errUnchanged means that the record need not be changed.
var errUnchanged = errors.New("unchanged")

// update changes the record and the head in it, unless change returns an error. change may be called again.
func (v *Inventory) update(ctx context.Context, u Update, change func(*Record, *Head) error) error {
	var refused error
	u.Change = func(rec *Record) error {
		head, err := decodeHead(rec.Head)
		if err != nil {
			err = v.damaged("the head", err)
		} else {
			err = change(rec, head)
		}
		if err == nil {
			if rec.Head = head.encode(); len(rec.Head) > MaxHead {
				err = fmt.Errorf("head of set %q: too many pins (%d bytes): %w", v.set, len(rec.Head), feed.ErrOverloaded)
			}
		}
		refused = err
		return err
	}
	err := v.store.Update(ctx, v.set, u)
	switch {
	case refused == errUnchanged:
		return nil
	case refused != nil:
		return refused
	case err != nil:
		return fmt.Errorf("update inventory of set %q: %w", v.set, err)
	}
	return nil
}

// damaged returns an ErrDamaged that names a part of the inventory, and calls Options.Damaged with it.
func (v *Inventory) damaged(part string, why error) error {
	e := *ErrDamaged
	e.Text += fmt.Sprintf(": %s of set %q: %v", part, v.set, why)
	e.Detail = fmt.Sprintf("%s of the inventory of set %q is damaged: %v. The hub rebuilds the inventory if its log reaches back to the beginning; try again soon", part, v.set, why)
	if v.found != nil {
		v.found(&e)
	}
	return &e
}

// Tree returns the tree of a root. While it is read, the root must be pinned or be the newest. Once its pages
// are removed, reading returns feed.ErrGone.
func (v *Inventory) Tree(r Root) *Tree { return &Tree{v: v, root: r} }
