package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// Reasons why an inventory is no longer complete, for people.
const (
	whyLost    = "the log lost its newest changes"
	whyUnknown = "the log no longer has the cursor at which the set was complete"
	whyPassed  = "retention removed changes before the inventory had them"
)

// passed is called when the log no longer has the changes after the cursor u.read. It commits a root at the
// log's floor, without the changes that retention has removed. The first root of a trimmed log is committed
// in this way, too.
func (u *updater) passed(ctx context.Context) error {
	s, err := u.logState(ctx)
	if err != nil {
		return err
	}
	if s.Floor.Position <= u.read.Position {
		return u.revert(ctx, s.Floor) // the log was trimmed after it had lost the cursor
	}
	return u.write(ctx, inventory.Changes{Base: u.root, Anew: u.rebuilding, To: s.Floor, Incomplete: whyPassed}, "trimmed log")
}

// diverged is called when the log has lost the cursor u.read. common is a cursor before it that the log still
// has. If only pending changes were lost, they are read again.
func (u *updater) diverged(ctx context.Context, common feed.Cursor) error {
	if u.read != u.root.Cursor {
		u.dropPending() // perhaps the log still has the cursor of the root
		return nil
	}
	return u.revert(ctx, common)
}

// revert repairs an inventory whose log has lost changes that the newest root has. If the log reaches back to
// its beginning, the next root is built from the whole log. Otherwise revert commits a root without the
// resources that changed after the cursor to.
func (u *updater) revert(ctx context.Context, to feed.Cursor) error {
	s, err := u.logState(ctx)
	if err != nil {
		return err
	}
	if s.Floor.Position == 0 {
		u.w.logger.Warn("the log lost its newest changes; rebuilding the inventory", "set", u.set)
		u.rebuilding = true
		u.dropPending()
		return nil
	}
	if _, err := u.inv.Forget(ctx, u.root, to, whyLost); err != nil {
		return fmt.Errorf("revert set %q to %v: %w", u.set, to, err)
	}
	u.reportIncomplete(inventory.Changes{Base: u.root, To: to, Incomplete: whyLost})
	return u.load(ctx)
}

// verify checks the whole inventory, because a reader found damage, and repairs it.
func (u *updater) verify(ctx context.Context) error {
	err := u.inv.Check(ctx)
	switch {
	case err == nil:
		u.damage = noDamage
	case errors.Is(err, inventory.ErrDamaged):
		u.damage = unrepaired
		return u.rebuild(ctx, err)
	}
	return err
}

// rebuild drops the roots of a damaged inventory, so that the next update builds it from the log. If the log
// does not reach back to its beginning, rebuild returns an error that is not ErrDamaged.
func (u *updater) rebuild(ctx context.Context, damage error) error {
	s, err := u.logState(ctx)
	if err != nil {
		return err
	}
	if s.Floor.Position > 0 && !s.NoInventory {
		return fmt.Errorf("rebuild set %q: the log does not reach back to its beginning: %v", u.set, damage)
	}
	u.w.logger.Error("rebuilding a damaged inventory from the log", "set", u.set, "err", damage)
	// The log has all changes, so the inventory remains as complete as before.
	if err := u.inv.Reset(ctx, ""); err != nil {
		return fmt.Errorf("drop damaged inventory of set %q: %w", u.set, err)
	}
	u.damage = noDamage
	u.forget()
	return nil
}

// logState returns the present state of the set.
func (u *updater) logState(ctx context.Context) (feed.State, error) {
	s, err := u.w.log.State(ctx, u.set)
	return s, cmp.Or(err, u.sameLog(s))
}

// reportIncomplete counts and logs that the inventory lacks changes that the log once had.
func (u *updater) reportIncomplete(c inventory.Changes) {
	if c.Base.Upto == 0 && c.Incomplete == whyPassed {
		u.w.logger.Info("inventory starts without the changes that retention removed", "set", u.set, "cursor", c.To.String())
		return
	}
	u.w.metrics.lost.Inc()
	u.w.logger.Error("an inventory is no longer complete", "set", u.set, "cursor", c.To.String(), "why", c.Incomplete)
}
