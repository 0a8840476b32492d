package transfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
)

// An inventoryCopy copies inventories together with the logs that they were made from: of
// each its newest root, page by page. An inventory that is damaged, or that the log does
// not reach back to, is left out, and the log says so. Then the hub that starts on the
// copy makes it from the log.
type inventoryCopy struct {
	from, to inventory.Store
	cache    *inventory.Cache
	holder   string
	log      *slog.Logger

	sets      int    // how many inventories are copied
	resources uint64 // how many resources they have
}

var _ changelog.Companion = (*inventoryCopy)(nil)

// newInventoryCopy returns what copies the inventories of a store.
func newInventoryCopy(from, to inventory.Store, log *slog.Logger) *inventoryCopy {
	return &inventoryCopy{
		from: from, to: to,
		cache: inventory.NewCache(1 << 20), holder: "copy " + rand.Text(), log: log,
	}
}

// copyPin is how long a root stays for a copy that was killed.
const copyPin = time.Hour

// Open takes hold of the newest root of a set.
func (c *inventoryCopy) Open(ctx context.Context, set string) (changelog.Part, error) {
	v := inventory.New(c.from, set, inventory.Options{Cache: c.cache})
	p := &inventoryPart{copy: c, inventory: v}
	root, err := v.Pin(ctx, 0, c.holder, copyPin)
	p.pinned = err == nil && root.Upto > 0
	_, head, err := v.Load(ctx)
	if err == nil && !p.pinned { // it may be that the store takes no write now
		root = head.Newest()
	}
	if err != nil {
		p.Close()
		return nil, p.leave(err)
	}
	if root.Upto == 0 && head.Complete.IsZero() {
		return nil, nil // there is no inventory
	}
	p.root, p.head = root, head
	return p, nil
}

// An inventoryPart is the inventory of one set on its way.
type inventoryPart struct {
	copy      *inventoryCopy
	inventory *inventory.Inventory // that is copied
	root      inventory.Root
	head      *inventory.Head
	pinned    bool
	left      bool // it is left out
}

// leave leaves the inventory out if it is damaged, or if the log is not its own. It
// returns any other error.
func (p *inventoryPart) leave(err error) error {
	if !errors.Is(err, inventory.ErrDamaged) && !errors.Is(err, inventory.ErrLog) {
		return err
	}
	p.left = true
	p.copy.log.Warn("an inventory is not copied: the hub makes it from the log", "set", p.inventory.Set(), "err", err)
	return nil
}

// Copy copies the pages.
func (p *inventoryPart) Copy(ctx context.Context) error {
	if err := p.leave(p.pages(ctx)); err != nil {
		return fmt.Errorf("copy the inventory: %w", err)
	}
	p.Close()
	if p.left {
		return p.discard(ctx)
	}
	return nil
}

func (p *inventoryPart) pages(ctx context.Context) error {
	to, set := p.copy.to, p.inventory.Set()
	r, err := to.Load(ctx, set)
	if err != nil {
		return err
	}
	begin := r.Log.Begin
	if p.root.Upto > 0 && p.root.Begin != begin {
		return feed.ErrGone // the set was made anew meanwhile
	}
	attempt := 1 + mrand.Uint64N(feed.MaxNumber)
	if err := to.Swap(ctx, set, inventory.Swap{Begin: begin, Version: r.Version, Attempt: attempt}); err != nil {
		return err
	}
	var some []inventory.Page
	size := 0
	put := func() error {
		err := to.Put(ctx, set, begin, attempt, some)
		some, size = some[:0], 0
		return err
	}
	for page, err := range p.inventory.Tree(p.root).Pages(ctx) {
		if err != nil {
			return err
		}
		if len(some) > 0 && (size+len(page.Bytes) > inventory.MaxPut || len(some) == inventory.MaxNumbers) {
			if err := put(); err != nil {
				return err
			}
		}
		page.Bytes = append([]byte(nil), page.Bytes...)
		some, size = append(some, page), size+len(page.Bytes)
	}
	return put()
}

// Finish makes the pages an inventory.
func (p *inventoryPart) Finish(ctx context.Context) error {
	if p.left {
		return nil
	}
	to, set := p.copy.to, p.inventory.Set()
	r, err := to.Load(ctx, set)
	if err == nil {
		err = to.Swap(ctx, set, inventory.Swap{Begin: r.Log.Begin, Version: r.Version, At: p.root.Cursor, Head: p.head.Only(p.root)})
	}
	if err := p.leave(err); err != nil {
		return fmt.Errorf("copy the inventory: %w", err)
	}
	if p.left {
		return p.discard(ctx)
	}
	p.copy.sets++
	p.copy.resources += p.root.Tally.Count
	return nil
}

// discard removes what is copied of an inventory that is left out.
func (p *inventoryPart) discard(ctx context.Context) error {
	to, set := p.copy.to, p.inventory.Set()
	r, err := to.Load(ctx, set)
	if err == nil {
		err = to.Swap(ctx, set, inventory.Swap{Begin: r.Log.Begin, Version: r.Version})
	}
	if err != nil {
		return fmt.Errorf("remove a part of an inventory: %w", err)
	}
	var some []uint64
	for n, err := range to.Numbers(ctx, set, r.Log.Begin) {
		if err != nil {
			return err
		}
		if some = append(some, n); len(some) == inventory.MaxNumbers {
			if err := to.Remove(ctx, set, r.Log.Begin, some); err != nil {
				return err
			}
			some = some[:0]
		}
	}
	return to.Remove(ctx, set, r.Log.Begin, some)
}

// Close lets go of the root.
func (p *inventoryPart) Close() {
	if !p.pinned {
		return
	}
	p.pinned = false
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := p.inventory.Unpin(ctx, p.root.Upto, p.copy.holder); err != nil {
		p.copy.log.Warn("a root of an inventory stays for an hour more", "set", p.inventory.Set(), "err", err)
	}
}
