package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// A job is a set whose inventory this hub makes. Only the maker's goroutine uses it.
type job struct {
	maker *maker
	set   string
	inv   *inventory.Inventory

	state feed.State // as of the last look
	moved time.Time  // when a look last found a new head

	// The content of the record. If loaded is zero, the record has to be read.
	loaded time.Time
	head   *inventory.Head
	root   inventory.Root
	ahead  time.Duration // how far the store's clock is ahead of this hub's

	backlog inventory.Backlog
	runs    *inventory.Runs // changes that are older than the backlog; nil: none
	raced   bool            // another committer has ended the runs; the next commit uses none
	anew    bool            // the next root is made without this one, because the log has lost entries that this one has
	to      feed.Cursor     // the log is read up to here
	next    int             // the number of waiting resources from which on the cost of a commit is computed again
	since   int64           // the datetime of the oldest change that is in no root, in microseconds since 1970; 0: it was not read yet

	asked, damaged bool
	retry          time.Time // after a failure: no turn before this time
	pause          time.Duration
	said           string // the last logged failure
}

const (
	costPerChange = 1 << 10          // the most bytes that a commit may write for each waiting resource
	commitEvery   = time.Second      // the least time between two commits
	rootAge       = 10 * time.Minute // a root of this age is replaced if anything changed
	relookEvery   = 30 * time.Minute // how often the record of an idle set is read
	readEntries   = 1_000            // the most entries of one read of the log
	minPause      = time.Second
	maxPause      = time.Minute
)

func newJob(m *maker, set string) *job {
	return &job{maker: m, set: set, inv: inventory.New(m.live.store, set, inventory.Options{Cache: m.live.cache})}
}

// saw notes the state that a look at the set has found.
func (j *job) saw(s feed.State, now time.Time) {
	if s.Begin != j.state.Begin || s.NoInventory != j.state.NoInventory {
		j.forget()
		j.retry = time.Time{}
	}
	if s.Head != j.state.Head {
		j.moved = now
	}
	j.state = s
}

// busy reports whether the set has to be looked at often.
func (j *job) busy(now time.Time) bool {
	return j.asked || now.Sub(j.moved) < activeFor || j.waits()
}

// idle reports whether nothing has to be done for the set.
func (j *job) idle(now time.Time) bool {
	if now.Before(j.retry) || j.state.Set == "" {
		return true
	}
	if j.loaded.IsZero() || j.asked || now.Sub(j.loaded) >= relookEvery {
		return false
	}
	return j.state.NoInventory || j.to == j.state.Head && !j.waits() && !j.listDue(now)
}

// waits reports whether changes wait for a commit.
func (j *job) waits() bool { return j.backlog.Len() > 0 || j.runs != nil }

// forget drops the backlog and what was read of the record.
func (j *job) forget() {
	j.anew, j.loaded = false, time.Time{}
	j.drop()
}

// drop drops the backlog and the runs. They can be read from the log again.
func (j *job) drop() {
	j.maker.waiting -= j.backlog.Bytes()
	j.backlog, j.runs, j.to, j.next = inventory.Backlog{}, nil, j.root.Cursor, 0
	if j.anew {
		j.to = feed.Cursor{}
	}
}

// turn does the work that the set needs now.
func (j *job) turn(ctx context.Context) {
	err := j.work(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err == nil:
		j.pause, j.said = 0, ""
		return
	case errors.Is(err, feed.ErrNoSet):
		j.forget()
		j.retry = time.Now().Add(maxPause)
		return
	case errors.Is(err, inventory.ErrRaced), errors.Is(err, inventory.ErrLog):
		j.forget() // read the record again soon
		if j.pause == 0 {
			j.pause = 1 // once is normal, so do not log it
			return
		}
	default:
		j.maker.live.metrics.failed.Inc()
	}
	j.pause = min(max(2*j.pause, minPause), maxPause)
	j.retry = time.Now().Add(j.pause)
	if text := err.Error(); text != j.said {
		j.said = text
		j.maker.live.logger.Warn("update of an inventory failed", "set", j.set, "err", err)
	}
	if j.maker.waiting >= j.maker.live.opts.WaitBytes {
		j.drop() // other sets need the memory
	}
}

func (j *job) work(ctx context.Context) error {
	err := j.steps(ctx)
	if errors.Is(err, inventory.ErrDamaged) {
		return j.mend(ctx, err)
	}
	return err
}

func (j *job) steps(ctx context.Context) error {
	if j.loaded.IsZero() || j.asked || time.Since(j.loaded) >= relookEvery {
		if err := j.load(ctx); err != nil {
			return err
		}
		if len(j.head.Roots) > 1 || j.head.Garbage > 0 { // pins may have ended, or a sweep be due
			if err := j.inv.Shrink(ctx); err != nil {
				return err
			}
		}
	}
	if j.state.NoInventory {
		return j.off(ctx)
	}
	var damage error
	if j.damaged {
		if damage = j.mend(ctx, nil); !j.damaged {
			return damage
		}
		// Perhaps only an older root is damaged, so go on.
	}
	err := j.read(ctx)
	if err == nil && !j.loaded.IsZero() {
		err = j.settle(ctx)
	}
	return cmp.Or(damage, err)
}

// load reads the record. If there is another newest root, it drops the backlog.
func (j *job) load(ctx context.Context) error {
	rec, head, err := j.inv.Load(ctx)
	if err != nil {
		return err
	}
	if rec.Log.Begin != j.state.Begin {
		return fmt.Errorf("set %q was created again: %w", j.set, inventory.ErrLog)
	}
	now := time.Now()
	j.ahead = time.UnixMicro(rec.Now).Sub(now)
	root := head.Newest()
	fresh := j.loaded.IsZero() || root.Upto != j.root.Upto
	if j.loaded, j.head, j.root = now, head, root; fresh {
		j.since, j.anew = 0, false
		j.drop()
	}
	return nil
}

// off removes the inventory of a set that does not want one any more.
func (j *job) off(ctx context.Context) error {
	j.asked = false
	if len(j.head.Roots) == 0 && j.head.Garbage == 0 {
		return nil
	}
	if err := j.inv.Reset(ctx, "the source turned the inventory off"); err != nil {
		return err
	}
	return j.load(ctx)
}

// read reads the log up to the head of the last look.
func (j *job) read(ctx context.Context) error {
	m := j.maker
	for again := true; j.to != j.state.Head && (again || j.to.Position < j.state.Head.Position); {
		var err error
		if j.spills() {
			err = j.spill(ctx)
		} else if m.waiting >= m.live.opts.WaitBytes {
			err = j.makeRoom(ctx)
		}
		if err != nil || j.loaded.IsZero() {
			return err
		}
		b, err := m.live.log.Since(ctx, j.set, j.to, readEntries)
		switch {
		case errors.Is(err, feed.ErrGone):
			return j.passed(ctx)
		case err != nil:
			return fmt.Errorf("set %q: read log: %w", j.set, err)
		case b.Diverged:
			if err := j.diverged(ctx, b.After); err != nil || j.loaded.IsZero() {
				return err
			}
			continue // read on from the new place
		case len(b.Entries) == 0:
			return nil
		}
		again = false
		j.add(b)
		m.pace.breathe(ctx)
	}
	return nil
}

// add adds a batch of the log to the backlog.
func (j *job) add(b *feed.Batch) {
	before := j.backlog.Bytes()
	j.backlog.Add(b.Entries)
	j.maker.waiting += j.backlog.Bytes() - before
	if j.to = b.Cursor; j.to.Position > j.state.Head.Position {
		j.state.Head = j.to
	}
	if j.since == 0 {
		j.since = b.Entries[0].Micros
	}
}

// makeRoom commits the largest backlog of all sets, to free memory. If that fails, the set
// whose backlog it is drops it. Another set than j meets its failure again in its own turn.
func (j *job) makeRoom(ctx context.Context) error {
	largest := j
	for _, o := range j.maker.jobs {
		if o.backlog.Bytes() > largest.backlog.Bytes() {
			largest = o
		}
	}
	err := largest.commit(ctx)
	if err == nil {
		return nil
	}
	largest.forget()
	if largest != j {
		return nil
	}
	return err
}

// settle commits the backlog if that is due. Then it marks the root as that of a Resource
// List if one is due.
func (j *job) settle(ctx context.Context) error {
	list := j.listDue(time.Now())
	due, err := j.due(ctx, list)
	if err != nil {
		return err
	}
	if due {
		if err := j.commit(ctx); err != nil {
			return err
		}
	}
	j.asked = false
	if j.listDue(time.Now()) {
		return j.list(ctx)
	}
	return nil
}

// due reports whether the backlog has to be committed now.
func (j *job) due(ctx context.Context, list bool) (bool, error) {
	n := j.backlog.Len()
	made := time.UnixMicro(j.root.Made).Add(-j.ahead)
	age := time.Since(made)
	switch {
	case j.root.Upto == 0 || j.anew || j.runs != nil:
		return true, nil
	case n == 0:
		return false, nil
	case list || j.asked || age >= rootAge || age < 0: // below 0: the clock was set back
		return true, nil
	case age < commitEvery || n < j.next:
		return false, nil
	}
	cost, err := j.inv.Tree(j.root).Cost(ctx, &j.backlog)
	if err != nil {
		return false, err
	}
	j.next = max(int(cost/costPerChange), n+n/8) // the cost does not fall when more changes wait
	return cost <= uint64(n)*costPerChange, nil
}
