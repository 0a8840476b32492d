package writer

import (
	"context"
	"errors"
	"fmt"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

const (
	maxEntries = 1_000 // entries of one read of the log
	maxRuns    = 64    // runs of one commit
)

// follow reads the log up to the head that the last poll found.
func (u *updater) follow(ctx context.Context) error {
	for u.read != u.state.Head {
		if err := u.freeMemory(ctx); err != nil {
			return err
		}
		b, err := u.w.log.Since(ctx, u.set, u.read, maxEntries)
		switch {
		case errors.Is(err, feed.ErrGone):
			err = u.passed(ctx)
		case err != nil:
			err = fmt.Errorf("read log of set %q: %w", u.set, err)
		case b.Diverged:
			err = u.diverged(ctx, b.After)
		case len(b.Entries) == 0:
			return nil
		default:
			u.add(b)
			u.w.pacer.sleepIfDue(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds a batch of the log to the backlog.
func (u *updater) add(b *feed.Batch) {
	before := u.backlog.Bytes()
	u.backlog.Add(b.Entries)
	u.w.pendingBytes += u.backlog.Bytes() - before
	if u.read = b.Cursor; u.read.Position > u.state.Head.Position {
		u.state.Head = u.read
	}
	if u.oldest == 0 {
		u.oldest = b.Entries[0].Micros
	}
}

// freeMemory writes pending changes of this set or another one if they fill the memory.
func (u *updater) freeMemory(ctx context.Context) error {
	w, n := u.w, uint64(u.backlog.Len())
	switch {
	// A run is worthwhile if at least as much must still be read before the next commit.
	case 2*u.backlog.Bytes() >= w.opts.PendingBytes && u.read.Position+n <= u.state.Head.Position && u.runs.Len() < maxRuns:
		return u.writeRun(ctx)
	case w.pendingBytes >= w.opts.PendingBytes:
		return w.commitLargest(ctx, u)
	}
	return nil
}

// writeRun moves the backlog to the store, as a run.
func (u *updater) writeRun(ctx context.Context) (err error) {
	if u.runs == nil {
		if u.runs, err = u.inv.NewRuns(ctx, u.root); err != nil {
			return fmt.Errorf("start runs of set %q: %w", u.set, err)
		}
	}
	n := u.backlog.Len()
	if err := u.runs.Add(ctx, u.backlog.Entries(), func() error { return u.w.pacer.step(ctx) }); err != nil {
		u.forget() // the runs can no longer be used
		return fmt.Errorf("write run of %d resources of set %q: %w", n, u.set, err)
	}
	u.w.pendingBytes -= u.backlog.Bytes()
	u.backlog = inventory.Backlog{}
	return nil
}

// commitLargest commits the largest backlog, or drops it if that fails. It returns an error only if the backlog
// is u's: the update of another set will meet its failure again.
func (w *Writer) commitLargest(ctx context.Context, u *updater) error {
	largest := u
	for _, o := range w.sets {
		if o.backlog.Bytes() > largest.backlog.Bytes() {
			largest = o
		}
	}
	if err := largest.commit(ctx, "memory full"); err != nil {
		if largest.forget(); largest == u {
			return err
		}
	}
	return nil
}
