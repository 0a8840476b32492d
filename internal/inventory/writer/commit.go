package writer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rshub/rshub/internal/inventory"
)

const (
	cheap          = "cheap commit" // a reason, see situation.reason
	costPerChange  = 1 << 10        // maximum bytes written per pending change, for a commit to be cheap
	commitInterval = time.Second
	maxRootAge     = 10 * time.Minute
)

// A situation has the facts that decide whether to commit.
type situation struct {
	hasRoot, rebuilding, hasRuns, requested, listDue bool
	pending                                          int           // changes in memory
	age                                              time.Duration // of the newest root; negative if the store's clock was set back
}

// reason returns why to commit now, or "" if the changes can wait. The reason cheap holds only if the commit also
// writes at most costPerChange for each change. That is not known here, because pages must be read to compute it.
func (s situation) reason() string {
	switch {
	case !s.hasRoot:
		return "first root"
	case s.rebuilding:
		return "rebuild after lost entries"
	case s.hasRuns:
		return "changes in runs"
	case s.pending == 0:
		return ""
	case s.listDue:
		return "resource list due"
	case s.requested:
		return "request"
	case s.age >= maxRootAge || s.age < 0:
		return "old root"
	case s.age >= commitInterval:
		return cheap
	}
	return ""
}

// commitIfDue commits the pending changes if there is a reason.
func (u *updater) commitIfDue(ctx context.Context) (err error) {
	now := time.Now()
	why := situation{
		hasRoot: u.root.Upto > 0, rebuilding: u.rebuilding, hasRuns: u.runs != nil, requested: u.requested, listDue: u.listDue(now),
		pending: u.backlog.Len(), age: now.Add(u.ahead).Sub(time.UnixMicro(u.root.Made)),
	}.reason()
	due := why != ""
	if why == cheap {
		due, err = u.isCheap(ctx)
	}
	if due && err == nil {
		err = u.commit(ctx, why)
	}
	if err == nil {
		u.requested = u.damage == reported // then verify again
	}
	return err
}

// isCheap reports whether a commit writes at most costPerChange for each pending change. More changes do not
// reduce the cost of a commit, so it returns false without computing the cost until enough changes are pending.
func (u *updater) isCheap(ctx context.Context) (bool, error) {
	n := u.backlog.Len()
	if n < u.costAt {
		return false, nil
	}
	cost, err := u.inv.Tree(u.root).Cost(ctx, &u.backlog)
	if err != nil {
		return false, err
	}
	u.costAt = max(int(cost/costPerChange), n+n/8)
	return cost <= uint64(n)*costPerChange, nil
}

// commit commits the pending changes. It first loads the record: a publisher may just have declared the set
// complete.
func (u *updater) commit(ctx context.Context, why string) error {
	base := u.root.Upto
	if err := u.load(ctx); err != nil || u.root.Upto != base {
		return err
	}
	c := inventory.Changes{Base: u.root, To: cmp.Or(u.read, u.state.Floor), Anew: u.rebuilding}
	declared := u.head.Complete
	if !declared.IsZero() && declared.Position <= c.To.Position && (u.rebuilding || declared.Position > u.root.Cursor.Position) {
		known, err := inventory.Knows(ctx, u.w.log, u.set, declared)
		if err != nil {
			return err
		}
		if !known {
			c.Incomplete, c.Lapsed = whyUnknown, declared
		}
	}
	return u.write(ctx, c, why)
}

// write commits c with the pending changes, and loads the new record.
func (u *updater) write(ctx context.Context, c inventory.Changes, why string) error {
	n, start := u.backlog.Len(), time.Now()
	c.Sorted, c.Runs = u.backlog.Entries(), u.runs
	c.Step = func() error { return u.w.pacer.step(ctx) }
	root, err := u.inv.Commit(ctx, c)
	if err != nil {
		if u.runs != nil {
			u.forget() // the runs can no longer be used
		}
		return fmt.Errorf("commit %d resources and %d runs of set %q: %w", n, c.Runs.Len(), u.set, err)
	}
	u.w.metrics.commits.Inc()
	u.w.metrics.duration.Observe(time.Since(start).Seconds())
	u.w.logger.Debug("committed an inventory", "set", u.set, "cursor", root.Cursor.String(), "reason", why)
	if c.Incomplete != "" {
		u.reportIncomplete(c)
	}
	return u.load(ctx)
}

// listDue reports whether a Resource List is due whose root is at the cursor up to which the log was read.
func (u *updater) listDue(now time.Time) bool {
	at := cmp.Or(u.read, u.state.Floor)
	if u.head == nil || !u.head.IsComplete(at) {
		return false
	}
	for _, k := range slices.Backward(u.head.Roots) {
		if k.Listed == 0 || !u.head.IsComplete(k.Cursor) {
			continue
		}
		age := now.Add(u.ahead).Sub(time.UnixMicro(k.Listed)) // negative if the store's clock was set back
		return k.Cursor != at && (age >= u.w.opts.ListInterval || age < 0)
	}
	return true
}

// listIfDue marks the newest root for a Resource List if one is due, and drops the root of the list before the last.
func (u *updater) listIfDue(ctx context.Context) error {
	if !u.listDue(time.Now()) {
		return nil
	}
	if err := u.inv.List(ctx, u.root.Upto); err != nil {
		return fmt.Errorf("mark Resource List of set %q: %w", u.set, err)
	}
	u.w.metrics.lists.Inc()
	if err := u.inv.Shrink(ctx); err != nil {
		return err
	}
	return u.load(ctx)
}
