package reader

import (
	"bytes"
	"context"
	"slices"

	"github.com/rshub/rshub/internal/inventory"
)

// A record is the record of a set that has an inventory.
type record struct {
	inventory.Record
	head *inventory.Head
}

// load reads the record of a set. It returns errOff if the set has no inventory.
func load(ctx context.Context, inv *inventory.Inventory) (*record, error) {
	rec, head, err := inv.Load(ctx)
	if err == nil && rec.Log.NoInventory {
		err = errOff
	}
	if err != nil {
		return nil, err
	}
	return &record{rec, head}, nil
}

// equal reports whether two records of a set have the same roots and the same ends of the log.
func (rec *record) equal(other *record) bool {
	return other != nil && bytes.Equal(rec.Head, other.Head) && rec.Log.Begin == other.Log.Begin && rec.Log.Floor == other.Log.Floor && rec.Log.Head == other.Log.Head
}

// has reports whether a root still exists. The zero Root always does.
func (rec *record) has(root inventory.Root) bool {
	return root.Upto == 0 || slices.ContainsFunc(rec.head.Roots, func(k inventory.Kept) bool { return k.Upto == root.Upto })
}

// before returns the newest root that is not after a position, or the zero Root.
func (rec *record) before(position uint64) inventory.Root {
	for _, k := range slices.Backward(rec.head.Roots) {
		if k.Cursor.Position <= position {
			return k.Root
		}
	}
	return inventory.Root{}
}
