package inventory

import "context"

// Check reads all that the inventory keeps, and returns what is wrong with it: pages that
// are missing or damaged, in the wrong order, or with other counts and sums than they
// should have (ErrDamaged), and pages that are nobody's. It reads every page once. If
// somebody commits meanwhile, it returns ErrRaced.
func (v *Inventory) Check(ctx context.Context) error { panic("being written") }
