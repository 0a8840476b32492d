package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
)

// A job is a set whose inventory this hub makes. Only the maker's goroutine uses it.
type job struct {
	maker *maker
	set   string
	inv   *inventory.Inventory

	state feed.State // as of the last look
	moved time.Time  // when the head was last seen to have moved

	// What the record said. The zero time of loaded means that it has to be read.
	loaded time.Time
	head   *inventory.Head
	root   inventory.Root
	ahead  time.Duration // how far the store's clock is before this hub's

	backlog backlog
	runs    *inventory.Runs // older changes than those in the backlog; nil: there are none
	raced   bool            // another committer has ended runs; the next commit is without
	anew    bool            // the next root holds nothing of this one: the log has lost what this one has
	to      feed.Cursor     // the backlog reaches to here, from the root's cursor, or from the beginning
	next    int             // with fewer resources waiting, the cost of a commit is not asked again
	since   int64           // the datetime of the oldest change that is in no root, in microseconds since 1970; 0: it was not read yet

	asked, damaged bool
	retry          time.Time // after a failure, nothing is done before
	pause          time.Duration
	said           string // the failure that was logged last
}

const (
	costPerChange = 1 << 10          // a commit writes at most so many bytes for each resource that waits
	commitEvery   = time.Second      // and comes no sooner than this after the last
	rootAge       = 10 * time.Minute // a root that is as old is replaced if anything changed
	relookEvery   = 30 * time.Minute // the record of an idle set is read so often
	readEntries   = 1_000            // of the log, in one read
	minPause      = time.Second
	maxPause      = time.Minute
)

func newJob(m *maker, set string) *job {
	return &job{maker: m, set: set, inv: inventory.New(m.live.store, set, inventory.Options{Cache: m.live.cache})}
}

// saw takes what a look at the set has found.
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

// busy reports whether the set is to be looked at often.
func (j *job) busy(now time.Time) bool {
	return j.asked || now.Sub(j.moved) < activeFor || j.waits()
}

// idle reports whether there is nothing to be done.
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
func (j *job) waits() bool { return j.backlog.len() > 0 || j.runs != nil }

// forget drops the backlog and what was read of the record.
func (j *job) forget() {
	j.anew, j.loaded = false, time.Time{}
	j.drop()
}

// drop drops the backlog and the runs. The log has them.
func (j *job) drop() {
	j.maker.waiting -= j.backlog.bytes
	j.backlog, j.runs, j.to, j.next = backlog{}, nil, j.root.Cursor, 0
	if j.anew {
		j.to = feed.Cursor{}
	}
}

// turn does what is to be done for the set.
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
		j.forget() // look at the record anew, soon
		if j.pause == 0 {
			j.pause = 1 // once is normal
			return
		}
	default:
		j.maker.live.metrics.failed.Inc()
	}
	j.pause = min(max(2*j.pause, minPause), maxPause)
	j.retry = time.Now().Add(j.pause)
	if text := err.Error(); text != j.said {
		j.said = text
		j.maker.live.logger.Warn("an inventory cannot be made up to date", "set", j.set, "err", err)
	}
	if j.maker.waiting >= j.maker.live.opts.WaitBytes {
		j.drop() // others need the room
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
		if len(j.head.Roots) > 1 && j.runs == nil { // pins may have ended; a Shrink would end the runs
			if err := j.inv.Shrink(ctx); err != nil {
				return err
			}
		}
	}
	if j.state.NoInventory {
		return j.off(ctx)
	}
	if j.damaged {
		return j.mend(ctx, nil)
	}
	if err := j.read(ctx); err != nil || j.loaded.IsZero() {
		return err
	}
	return j.settle(ctx)
}

// load reads the record. What waits behind another root is dropped.
func (j *job) load(ctx context.Context) error {
	rec, head, err := j.inv.Load(ctx)
	if err != nil {
		return err
	}
	if rec.Log.Begin != j.state.Begin {
		return fmt.Errorf("set %q was made anew: %w", j.set, inventory.ErrLog)
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

// off removes an inventory that the source does not want any more.
func (j *job) off(ctx context.Context) error {
	j.asked = false
	if len(j.head.Roots) == 0 {
		return nil
	}
	if err := j.inv.Reset(ctx, "the source turned the inventory off"); err != nil {
		return err
	}
	return j.load(ctx)
}

// read reads the log up to the head that the last look has found.
func (j *job) read(ctx context.Context) error {
	m := j.maker
	for again := true; j.to != j.state.Head && (again || j.to.Position < j.state.Head.Position); {
		var err error
		if j.spills() {
			err = j.spill(ctx)
		} else if m.waiting >= m.live.opts.WaitBytes {
			err = m.makeRoom(ctx)
		}
		if err != nil || j.loaded.IsZero() {
			return err
		}
		b, err := m.live.log.Since(ctx, j.set, j.to, readEntries)
		switch {
		case errors.Is(err, feed.ErrGone):
			return j.passed(ctx)
		case err != nil:
			return fmt.Errorf("set %q: read the log: %w", j.set, err)
		case b.Diverged:
			if err := j.diverged(ctx, b.After); err != nil || j.loaded.IsZero() {
				return err
			}
			continue // from elsewhere
		case len(b.Entries) == 0:
			return nil
		}
		again = false
		j.add(b)
		m.pace.breathe(ctx)
	}
	return nil
}

// add adds what was read of the log to the backlog.
func (j *job) add(b *feed.Batch) {
	before := j.backlog.bytes
	j.backlog.add(b.Entries)
	j.maker.waiting += j.backlog.bytes - before
	if j.to = b.Cursor; j.to.Position > j.state.Head.Position {
		j.state.Head = j.to
	}
	if j.since == 0 {
		j.since = b.Entries[0].Micros
	}
}

// makeRoom commits the largest backlog.
func (m *maker) makeRoom(ctx context.Context) error {
	var largest *job
	for _, j := range m.jobs {
		if largest == nil || j.backlog.bytes > largest.backlog.bytes {
			largest = j
		}
	}
	err := largest.commit(ctx)
	if err != nil {
		largest.forget()
	}
	return err
}

// settle commits what waits, if it is time to, and makes the root that of a Resource List
// if one is due.
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

// due reports whether what waits is to be committed now.
func (j *job) due(ctx context.Context, list bool) (bool, error) {
	n := j.backlog.len()
	made := time.UnixMicro(j.root.Made).Add(-j.ahead)
	age := time.Since(made)
	switch {
	case j.root.Upto == 0 || j.anew || j.runs != nil:
		return true, nil
	case n == 0:
		return false, nil
	case list || j.asked || age >= rootAge:
		return true, nil
	case age < commitEvery || n < j.next:
		return false, nil
	}
	cost, err := j.inv.Tree(j.root).Cost(ctx, j.backlog.locs())
	if err != nil {
		return false, err
	}
	j.next = max(int(cost/costPerChange), n+n/8) // the cost does not fall when more wait
	return cost <= uint64(n)*costPerChange, nil
}
