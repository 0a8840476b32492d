package writer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/inventory"
)

// An updater updates the inventory of one set under one claim. Only the goroutine of updateSets uses it.
type updater struct {
	w    *Writer
	set  string
	hold *claim.Hold
	inv  *inventory.Writer // with the number of hold as its term

	state   feed.State // of the set, as last polled; zero if it was not polled yet
	changed time.Time  // when a poll last found a new head

	// The record, as last loaded.
	loaded time.Time // zero means that it must be loaded
	head   *inventory.Head
	root   inventory.Root // newest root of head
	ahead  time.Duration  // how far the store's clock is ahead of this hub's

	// Changes after root. They can be read from the log again.
	read       feed.Cursor       // cursor up to which the log was read; zero means from its beginning
	backlog    inventory.Backlog // changes in memory
	runs       *inventory.Runs   // older changes, in the store, or nil
	rebuilding bool              // whether the next root has nothing of root, because the log lost entries that root has
	costAt     int               // number of changes in backlog at which the cost of a commit is next computed
	oldest     int64             // datetime of the oldest change that is not in root, in microseconds since 1970; zero if unknown

	requested bool // whether a caller waits for a commit, or damage is reported
	damage    damage

	// Failures of updates since the last success.
	failures int
	retryAt  time.Time // no update before this time
	lastErr  errorText // last error
}

// A damage is what is known of damaged pages.
type damage int

const (
	noDamage   damage = iota
	reported          // a reader found damage: verify the inventory
	unrepaired        // the inventory is damaged, and could not be rebuilt
)

const (
	reloadInterval = 30 * time.Minute // between loads of the record of a set that does not change
	minRetry       = time.Second
	maxRetry       = time.Minute
)

// request makes the next update commit the pending changes. Readers find the same damage again and again, so
// their requests do not shorten the pause before the next repair.
func (u *updater) request(damaged bool) {
	u.requested = true
	if u.damage == noDamage {
		u.retryAt = time.Time{}
		if damaged {
			u.damage = reported
		}
	}
}

// observe notes a polled state of the set.
func (u *updater) observe(s feed.State, now time.Time) {
	if s.Begin != u.state.Begin || s.NoInventory != u.state.NoInventory {
		u.forget()
		u.retryAt = time.Time{}
	}
	if s.Head != u.state.Head {
		u.changed = now
	}
	u.state = s
}

// active reports whether the set must be polled often.
func (u *updater) active(now time.Time) bool {
	return u.requested || u.pending() || now.Sub(u.changed) < activeFor
}

// due reports whether the set needs an update.
func (u *updater) due(now time.Time) bool {
	if now.Before(u.retryAt) || u.state.Set == "" {
		return false
	}
	return u.loadDue(now) || !u.state.NoInventory && (u.read != u.state.Head || u.pending() || u.listDue(now))
}

func (u *updater) loadDue(now time.Time) bool {
	return u.loaded.IsZero() || u.requested || now.Sub(u.loaded) >= reloadInterval
}

// pending reports whether changes are pending a commit.
func (u *updater) pending() bool { return u.backlog.Len() > 0 || u.runs != nil }

// forget makes the next update load the record again, and drops the pending changes.
func (u *updater) forget() {
	u.loaded, u.rebuilding = time.Time{}, false
	u.dropPending()
}

// dropPending drops the pending changes. The next update reads them from the log again.
func (u *updater) dropPending() {
	u.w.pendingBytes -= u.backlog.Bytes()
	u.backlog, u.runs, u.costAt = inventory.Backlog{}, nil, 0
	if u.read = u.root.Cursor; u.rebuilding {
		u.read = feed.Cursor{}
	}
}

// run updates the set, and schedules a retry after a failure.
func (u *updater) run(ctx context.Context) {
	err := u.update(ctx)
	if errors.Is(err, inventory.ErrDamaged) {
		err = u.rebuild(ctx, err)
	}
	switch {
	case ctx.Err() != nil:
		return
	case err == nil:
		u.failures, u.lastErr = 0, ""
		return
	case errors.Is(err, feed.ErrNoSet):
		u.forget()
		u.retryAt = time.Now().Add(maxRetry)
		return
	case errors.Is(err, inventory.ErrFenced), errors.Is(err, inventory.ErrLog):
		// Another hub has the claim, Redis was restarted, or the set was created again. That is normal, unless
		// it happens repeatedly.
		u.forget()
		if u.failures++; u.failures == 1 {
			return
		}
		if errors.Is(err, inventory.ErrFenced) {
			worker{u.w}.Yield(u.hold) // another claim has a higher number; a failover may have lost the present one's
		}
	default:
		u.failures++
		u.w.metrics.late.Inc()
	}
	u.retryAt = time.Now().Add(backoff.Exponential(minRetry, maxRetry, u.failures-1))
	if u.lastErr.changed(err) {
		u.w.logger.Warn("update of an inventory failed", "set", u.set, "err", err)
	}
	if u.w.pendingBytes >= u.w.opts.PendingBytes {
		u.dropPending() // other sets need the memory
	}
}

// update does what the set needs: see the package comment.
func (u *updater) update(ctx context.Context) error {
	var damaged error
	if u.damage != noDamage && !u.state.NoInventory {
		damaged = u.verify(ctx) // perhaps only an older root is damaged, so continue
	}
	if u.loadDue(time.Now()) {
		if err := u.load(ctx); err != nil {
			return err
		}
		if len(u.head.Roots) > 1 || u.head.Garbage > 0 { // pins may have expired, or a sweep is due
			if err := u.inv.Shrink(ctx); err != nil {
				return err
			}
		}
	}
	if u.state.NoInventory {
		return u.removeRoots(ctx)
	}
	for _, step := range []func(context.Context) error{u.follow, u.commitIfDue, u.listIfDue} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return damaged
}

// load reads the record. If it has another newest root, or was forgotten, load drops the pending changes.
func (u *updater) load(ctx context.Context) error {
	rec, head, err := u.inv.Load(ctx)
	if err == nil {
		err = u.sameLog(rec.Log)
	}
	if err != nil {
		return err
	}
	now, root := time.Now(), head.Newest()
	replaced := u.loaded.IsZero() || root.Upto != u.root.Upto
	u.loaded, u.head, u.root, u.ahead = now, head, root, time.UnixMicro(rec.Now).Sub(now)
	if replaced {
		u.oldest, u.rebuilding = 0, false
		u.dropPending()
	}
	return nil
}

// sameLog returns ErrLog if the set was created again since it was polled.
func (u *updater) sameLog(s feed.State) error {
	if s.Begin != u.state.Begin {
		return fmt.Errorf("set %q was created again: %w", u.set, inventory.ErrLog)
	}
	return nil
}

// removeRoots removes the inventory, because the source of the set has turned it off.
func (u *updater) removeRoots(ctx context.Context) error {
	u.requested = false
	if len(u.head.Roots) == 0 && u.head.Garbage == 0 {
		return nil
	}
	if err := u.inv.Reset(ctx, "the source turned the inventory off"); err != nil {
		return err
	}
	return u.load(ctx)
}
