package subscribe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/resourcesync"
)

// Resources provides the resources of a set at one cursor. The methods block while they read the
// store, and return feed.ErrGone if the resources are no longer available.
type Resources interface {
	Cursor() feed.Cursor
	Tally(ctx context.Context, r inventory.Range) (digest.Tally, error)
	Walk(ctx context.Context, r inventory.Range) iter.Seq2[*feed.Entry, error]
	Nth(ctx context.Context, n uint64) (loc string, ok bool, err error) // loc of the resource with rank n
}

// A Snapshot is the state of a set at one cursor, for one reader. It is valid until Release.
type Snapshot struct {
	Resources
	Complete bool // reports whether the hub knows all resources of the set
	Release  func()
}

// Limits of a baseline.
const (
	maxPartEntries = 1_000
	maxPartBytes   = 512_000
	maxPartLooked  = 50_000  // resources read for one part or page, including other collections
	partRoom       = 1 << 20 // memory for the text of a part and the resources read at a time, in bytes
	maxRestarts    = 3       // on one connection
)

// A baseline reads the resources of a set for one client, part by part. It is not safe for
// concurrent use. It retains no resources between two parts, so a client may be slow.
type baseline struct {
	server *Server
	set    string
	within inventory.Range
	filter feed.Filter // further filter: a collection
	share  *limit.Share
	buf    []byte // buffer for the text of a part

	snapshot *Snapshot // nil until the next part is read
	tally    digest.Tally
	end      uint64              // rank after the last resource
	position feed.BaselineCursor // cursor of the next resource
	from     string              // loc of the next resource, or a smaller one without resources in between
	started  bool                // the first part was read
	restart  bool                // the next part starts the baseline over
	restarts int
}

// isBaseline reports whether since asks for a baseline, or the rest of one.
func isBaseline(since string) bool {
	return since == feed.SinceBaseline || strings.Contains(since, "~")
}

// baseline starts or resumes a baseline. The caller must close it. If the snapshot of since is
// gone, the baseline starts over.
func (s *Server) baseline(ctx context.Context, set, since string, filter feed.Filter) (*baseline, error) {
	if err := feed.CheckSet(set); err != nil {
		return nil, err
	}
	if len(filter.Changes) > 0 || len(filter.Types) > 0 {
		return nil, resourcesync.Invalidf("change and type cannot be used with a baseline, which has resources instead of changes; use prefix and collection")
	}
	b := &baseline{server: s, set: set, within: inventory.Prefix(filter.Prefix), filter: filter}
	var place feed.BaselineCursor
	if since != feed.SinceBaseline {
		var err error
		if place, err = feed.ParseBaselineCursor(since); err != nil {
			return nil, err
		}
		b.restart = place.IsZero() // without changes there is no snapshot
	}
	var err error
	if b.share, err = s.opts.Streams.Acquire(ctx, partRoom); err != nil {
		return nil, err
	}
	if !b.restart {
		err = b.openSnapshot(ctx, place)
		b.restart = errors.Is(err, feed.ErrGone) && since != feed.SinceBaseline
	}
	if b.restart {
		err = b.openSnapshot(ctx, feed.BaselineCursor{})
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// openSnapshot opens the snapshot at a cursor, or the newest one if at is zero. A baseline that starts
// over uses only a snapshot that the log reaches back to.
func (b *baseline) openSnapshot(ctx context.Context, at feed.BaselineCursor) error {
	if b.server.opts.Inventories == nil {
		return fmt.Errorf("baseline of set %q: %w", b.set, feed.ErrNoInventory)
	}
	snapshot, err := b.server.opts.Inventories.Snapshot(ctx, b.set, at.Cursor)
	if errors.Is(err, feed.ErrNoSet) && b.server.follower.Waits(b.set) {
		snapshot, err = &Snapshot{Resources: emptySnapshot{}, Release: func() {}}, nil
	}
	if err != nil {
		return fmt.Errorf("baseline of set %q: %w", b.set, err)
	}
	err = b.seek(ctx, snapshot, at)
	if err == nil && b.restart {
		err = b.checkLog(ctx)
	}
	if err != nil {
		snapshot.Release()
		return fmt.Errorf("baseline of set %q at %v: %w", b.set, snapshot.Cursor(), err)
	}
	b.snapshot = snapshot
	return nil
}

// seek moves b to a cursor in a snapshot. It returns feed.ErrGone if the cursor belongs to a
// snapshot with other resources at the same log cursor.
func (b *baseline) seek(ctx context.Context, snapshot *Snapshot, at feed.BaselineCursor) error {
	all, err := snapshot.Tally(ctx, inventory.Range{})
	if err != nil {
		return err
	}
	sum := all.Digest(digest.ByPosition)
	root := binary.BigEndian.Uint32(sum[:])
	if !at.Cursor.IsZero() && at.Root != root {
		return fmt.Errorf("cursor %v belongs to another snapshot: %w", at, feed.ErrGone)
	}
	before := digest.Tally{}
	if b.within.From != "" {
		if before, err = snapshot.Tally(ctx, inventory.Range{To: b.within.From}); err != nil {
			return err
		}
	}
	if b.tally, err = snapshot.Tally(ctx, b.within); err != nil {
		return err
	}
	b.end = before.Count + b.tally.Count
	b.position, b.from = feed.BaselineCursor{Cursor: snapshot.Cursor(), Rank: max(before.Count, min(at.Rank, b.end)), Root: root}, b.within.From
	if b.position.Rank == before.Count || b.position.Rank == b.end {
		return nil
	}
	loc, ok, err := snapshot.Nth(ctx, b.position.Rank)
	if err == nil && !ok {
		err = b.countError()
	}
	b.from = loc
	return err
}

// countError returns the error for a snapshot whose number of resources differs from its count.
func (b *baseline) countError() error {
	return fmt.Errorf("%w: the number of resources of the snapshot at %v differs from its count", feed.ErrDamaged, b.position.Cursor)
}

// close releases the resources of b. It may be called more than once.
func (b *baseline) close() {
	b.releaseSnapshot()
	if b.share != nil {
		b.share.Release()
	}
	b.buf = nil
}

func (b *baseline) releaseSnapshot() {
	if b.snapshot != nil {
		b.snapshot.Release()
		b.snapshot = nil
	}
}

// A part is an encoded part of a baseline, valid until the next one is read.
type part struct {
	*feed.BaselinePart
	head, body, tail []byte
	resources        int
}

// next returns the next part in a format. The first part has no resources, so that it arrives
// immediately. If the snapshot is gone, or the log does not reach back to it at the end, the
// baseline starts over. After an error because ctx is done, next may be called again.
func (b *baseline) next(ctx context.Context, f *feed.Format) (*part, error) {
	p, err := b.read(ctx, f)
	for errors.Is(err, feed.ErrGone) && b.restarts < maxRestarts {
		b.releaseSnapshot()
		b.restart = true
		b.restarts++
		p, err = b.read(ctx, f)
	}
	if err != nil {
		return nil, err
	}
	b.restart = false
	return p, nil
}

func (b *baseline) read(ctx context.Context, f *feed.Format) (*part, error) {
	if b.snapshot == nil {
		if err := b.openSnapshot(ctx, feed.BaselineCursor{}); err != nil {
			return nil, err
		}
	}
	p := &part{BaselinePart: b.part()}
	if b.started && b.position.Rank == b.end {
		if err := b.finish(ctx, p.BaselinePart); err != nil {
			return nil, err
		}
	}
	w := f.Baseline()
	if b.started && !p.End {
		text, size := b.buf[:0], 0
		passed, n, from, err := b.walk(ctx, func(e *feed.Entry, n int) (bool, error) {
			if size += e.Change.Size(); n > 0 && (n == maxPartEntries || size > maxPartBytes) {
				return false, nil
			}
			text = w.Entry(text, e, n == 0)
			return true, nil
		})
		if err != nil {
			return nil, err
		}
		b.buf, p.body, p.resources = text, text, n
		b.position.Rank += passed
		b.from, p.Next = from, b.position
	}
	b.started = true
	p.head, p.tail = w.Head(nil, p.BaselinePart, ""), w.Tail(nil, p.BaselinePart, "")
	return p, nil
}

// part returns a part without resources at b's cursor.
func (b *baseline) part() *feed.BaselinePart {
	return &feed.BaselinePart{Set: b.set, After: b.position, Next: b.position, Complete: b.snapshot.Complete, Restart: b.restart,
		Count: b.tally.Count, Uncounted: b.filter.Collection != ""}
}

// walk calls take with the next matching resources and the number of resources taken, as long as
// take returns true. It returns the number of resources passed, the number taken, and the loc of
// the next one. It passes at most maxPartLooked, so that a client of a small collection gets its
// cursor now and then.
func (b *baseline) walk(ctx context.Context, take func(e *feed.Entry, n int) (bool, error)) (passed uint64, n int, from string, err error) {
	from = b.from
	for e, err := range b.snapshot.Walk(ctx, inventory.Range{From: b.from, To: b.within.To}) {
		if err != nil {
			return passed, n, from, fmt.Errorf("baseline of set %q from rank %d: %w", b.set, b.position.Rank, err)
		}
		switch {
		case b.position.Rank+passed == b.end:
			return passed, n, from, b.countError()
		case passed == maxPartLooked:
			return passed, n, e.Change.Loc, nil
		case b.filter.Match(&e.Change):
			if ok, err := take(e, n); err != nil || !ok {
				return passed, n, e.Change.Loc, err
			}
			n++
		}
		passed++
		from = e.Change.Loc + "\x00"
	}
	if b.position.Rank+passed != b.end {
		return passed, n, from, b.countError()
	}
	return passed, n, from, nil
}

// checkLog returns feed.ErrGone unless the log has the changes after the snapshot.
func (b *baseline) checkLog(ctx context.Context) error {
	if b.position.IsZero() { // there were no changes before
		return nil
	}
	begin, err := b.server.startFinder.Find(ctx, b.set, b.position.Cursor.String())
	if err == nil && begin.Diverged {
		err = feed.ErrGone
	}
	return err
}

// finish makes p the end of the baseline. It returns feed.ErrGone if the log does not have the
// changes after it.
func (b *baseline) finish(ctx context.Context, p *feed.BaselinePart) error {
	if err := b.checkLog(ctx); err != nil {
		return fmt.Errorf("end of a baseline of set %q: %w", b.set, err)
	}
	p.End = true
	p.PositionDigest, p.ContentDigest = b.tally.Digest(digest.ByPosition).String(), b.tally.Digest(digest.ByContent).String()
	return nil
}

// emptySnapshot is the snapshot of a set that does not exist yet.
type emptySnapshot struct{}

func (emptySnapshot) Cursor() feed.Cursor { return feed.Cursor{} }
func (emptySnapshot) Tally(context.Context, inventory.Range) (digest.Tally, error) {
	return digest.Tally{}, nil
}
func (emptySnapshot) Nth(context.Context, uint64) (string, bool, error) { return "", false, nil }
func (emptySnapshot) Walk(context.Context, inventory.Range) iter.Seq2[*feed.Entry, error] {
	return func(func(*feed.Entry, error) bool) {}
}
