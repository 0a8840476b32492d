package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/resourcesync"
)

// Texts for people: why an inventory is no longer complete.
const (
	whyLost   = "the log lost its newest changes"
	whyGone   = "the log no longer has the cursor at which the set was complete"
	whyPassed = "retention removed changes before the inventory had them"
)

// commit makes a root with the waiting changes.
func (j *job) commit(ctx context.Context) error {
	base := j.root.Upto
	if err := j.load(ctx); err != nil || j.root.Upto != base { // a publisher may just have said that the set is complete
		return err
	}
	to := j.to
	if to.IsZero() {
		to = j.state.Floor
	}
	c := inventory.Changes{Base: j.root, To: to, Anew: j.anew}
	if at := j.head.Complete; !at.IsZero() && at.Position <= to.Position && (j.anew || at.Position > j.root.Cursor.Position) {
		known, err := j.maker.live.knows(ctx, j.set, at)
		if err != nil {
			return err
		}
		if !known {
			c.Incomplete, c.Lapsed = whyGone, at
		}
	}
	return j.make(ctx, c)
}

// make makes a root with the waiting changes, as c says.
func (j *job) make(ctx context.Context, c inventory.Changes) error {
	m := j.maker
	n := j.backlog.Len()
	c.Sorted, c.Runs = j.backlog.Entries(), j.runs
	c.Step = func() error { return m.pace.step(ctx) }
	begin := time.Now()
	root, err := j.inv.Commit(ctx, c)
	if err != nil {
		j.dropRuns(err)
		return fmt.Errorf("set %q: commit %d resources and %d runs: %w", j.set, n, c.Runs.Len(), err)
	}
	j.raced = false
	m.live.metrics.commits.Inc()
	m.live.metrics.duration.Observe(time.Since(begin).Seconds())
	if c.Incomplete != "" {
		m.live.fellBack(j.set, c)
	}
	j.root, j.since, j.anew = root, 0, false
	j.drop()
	return j.load(ctx)
}

// maxRuns is how many runs a commit merges at most.
const maxRuns = 64

// spills reports whether the backlog has to become a run: it takes much memory, and at
// least as much has still to be read before the next commit.
func (j *job) spills() bool {
	n := uint64(j.backlog.Len())
	return 2*j.backlog.Bytes() >= j.maker.live.opts.WaitBytes && j.to.Position+n <= j.state.Head.Position &&
		!j.raced && j.maker.live.Mine(j.set) && j.runs.Len() < maxRuns
}

// spill writes the backlog as a run.
func (j *job) spill(ctx context.Context) (err error) {
	if j.runs == nil {
		if j.runs, err = j.inv.NewRuns(ctx, j.root); err != nil {
			return fmt.Errorf("set %q: begin runs: %w", j.set, err)
		}
	}
	n := j.backlog.Len()
	if err := j.runs.Add(ctx, j.backlog.Entries(), func() error { return j.maker.pace.step(ctx) }); err != nil {
		j.dropRuns(err)
		return fmt.Errorf("set %q: write a run of %d resources: %w", j.set, n, err)
	}
	j.maker.waiting -= j.backlog.Bytes()
	j.backlog = inventory.Backlog{}
	return nil
}

// dropRuns forgets runs that cannot be used after an error.
func (j *job) dropRuns(err error) {
	if j.runs == nil {
		return
	}
	j.raced = errors.Is(err, inventory.ErrRaced)
	j.forget()
}

// knows reports whether the log holds a cursor, or has it as its floor. If retention has
// removed the cursor, nobody knows, and it does not.
func (l *Live) knows(ctx context.Context, set string, at feed.Cursor) (bool, error) {
	has, err := l.log.At(ctx, set, at.Position)
	if errors.Is(err, resourcesync.ErrInvalid) || errors.Is(err, feed.ErrGone) { // behind the head, or before the floor
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("set %q: read log at %v: %w", set, at, err)
	}
	return has == at || at.IsZero(), nil
}

// passed makes a root at the log's floor, on top of the newest root, because
// retention has removed the changes between. The first root of a log without its
// beginning is made so, too.
func (j *job) passed(ctx context.Context) error {
	s, err := j.maker.live.log.State(ctx, j.set)
	if err != nil {
		return err
	}
	if s.Begin != j.state.Begin {
		return fmt.Errorf("set %q was created again: %w", j.set, inventory.ErrLog)
	}
	if j.state = s; s.Floor.Position <= j.to.Position {
		return j.back(ctx, s.Floor) // the log does not know the root's cursor
	}
	return j.make(ctx, inventory.Changes{Base: j.root, Anew: j.anew, To: s.Floor, Incomplete: whyPassed})
}

// diverged goes back after the log has lost its newest entries. common is the
// newest cursor that the log and the job's position have in common. If changes
// waited, diverged only drops them, because the root itself may be all right.
func (j *job) diverged(ctx context.Context, common feed.Cursor) error {
	if j.to != j.root.Cursor { // the root itself may be all right
		j.drop()
		return nil
	}
	return j.back(ctx, common)
}

// back repairs an inventory whose log has lost entries that the newest root has. If
// the log still has its beginning, the inventory is made anew. Otherwise back makes
// a root without the changes after the cursor to.
func (j *job) back(ctx context.Context, to feed.Cursor) error {
	l := j.maker.live
	s, err := l.log.State(ctx, j.set)
	if err != nil {
		return err
	}
	if s.Begin == j.state.Begin && s.Floor.Position == 0 {
		l.logger.Warn("the log lost its newest changes; rebuilding the inventory", "set", j.set)
		j.anew = true
		j.drop()
		return nil
	}
	if _, err := j.inv.Forget(ctx, j.root, to, whyLost); err != nil {
		return fmt.Errorf("set %q: %s: revert to %v: %w", j.set, whyLost, to, err)
	}
	l.fellBack(j.set, inventory.Changes{Base: j.root, To: to, Incomplete: whyLost})
	j.since = 0
	j.forget()
	return nil
}

// fellBack counts and logs that an inventory lacks changes that the log once
// had.
func (l *Live) fellBack(set string, c inventory.Changes) {
	if c.Base.Upto == 0 && c.Incomplete == whyPassed {
		l.logger.Info("inventory starts without the changes that retention removed", "set", set, "cursor", c.To.String())
		return
	}
	l.metrics.fallen.Inc()
	l.logger.Error("an inventory is no longer complete", "set", set, "cursor", c.To.String(), "why", c.Incomplete)
}

// mend makes a damaged inventory anew, if the log still has its beginning. found is the
// damage; nil means that a reader reported damage, so mend checks first. The error, if
// the log has not, is no ErrDamaged.
func (j *job) mend(ctx context.Context, found error) error {
	if found == nil {
		if found = j.inv.Check(ctx); !errors.Is(found, inventory.ErrDamaged) {
			j.damaged = false
			return found
		}
	}
	s, err := j.maker.live.log.State(ctx, j.set)
	if err != nil {
		return err
	}
	if s.Floor.Position > 0 && !s.NoInventory || s.Begin != j.state.Begin {
		return fmt.Errorf("set %q: rebuild: the log does not reach back to its beginning: %v", j.set, found)
	}
	j.maker.live.logger.Error("rebuilding a damaged inventory from the log", "set", j.set, "err", found)
	// The log has every change of the inventory, so the inventory is as complete as before.
	if err := j.inv.Reset(ctx, ""); err != nil {
		return fmt.Errorf("set %q: drop damaged inventory: %w", j.set, err)
	}
	j.damaged = false
	j.forget()
	return nil
}
