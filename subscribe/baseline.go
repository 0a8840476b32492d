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

// Resources are what a set held at one cursor. The methods block while the store is
// read. They return feed.ErrGone when the resources are not kept any more.
type Resources interface {
	Cursor() feed.Cursor
	Tally(ctx context.Context, r inventory.Range) (digest.Tally, error)
	Walk(ctx context.Context, r inventory.Range) iter.Seq2[*feed.Entry, error]
	Nth(ctx context.Context, n uint64) (loc string, ok bool, err error) // the loc with n resources before it
}

// A Snapshot is what a set held at one cursor, for one reader until Release.
type Snapshot struct {
	Resources
	Complete bool // the hub knew all resources of the set
	Release  func()
}

// The bounds of a baseline.
const (
	maxPartEntries = 1_000
	maxPartBytes   = 512_000
	maxPartLooked  = 50_000  // resources that are read for one part or page, also those of other collections
	partRoom       = 1 << 20 // bytes of memory for the text of a part, and for what is read at one time
	maxRestarts    = 3       // on one connection
)

// A baseline reads for one client what a set holds, part by part. Only one goroutine
// may use it. It keeps no resources between two parts, so a client may take its time.
type baseline struct {
	server *Server
	set    string
	within inventory.Range
	filter feed.Filter // what else chooses resources: a collection
	share  *limit.Share
	buf    []byte // of the text of a part

	snapshot *Snapshot // nil: it is taken when the next part is read
	tally    digest.Tally
	end      uint64              // rank behind the last resource
	place    feed.BaselineCursor // of the next resource
	from     string              // its loc, or one before it with no resource between them
	begun    bool                // the first part was read
	restart  bool                // the next part begins the baseline anew
	restarts int
}

// isBaseline reports whether a client that gives since wants a baseline, or the rest of
// one.
func isBaseline(since string) bool {
	return since == feed.SinceBaseline || strings.Contains(since, "~")
}

// baseline begins a baseline, or goes on with one. The caller closes it. If the
// snapshot at the place in since is gone, the baseline begins anew.
func (s *Server) baseline(ctx context.Context, set, since string, filter feed.Filter) (*baseline, error) {
	if err := feed.CheckSet(set); err != nil {
		return nil, err
	}
	if len(filter.Changes) > 0 || len(filter.Types) > 0 {
		return nil, resourcesync.Invalid("change and type cannot choose in a baseline, because it names resources and not changes; prefix and collection can")
	}
	b := &baseline{server: s, set: set, within: inventory.Prefix(filter.Prefix), filter: filter}
	var place feed.BaselineCursor
	if since != feed.SinceBaseline {
		var err error
		if place, err = feed.ParseBaselineCursor(since); err != nil {
			return nil, err
		}
		b.restart = place.IsZero() // no snapshot is there, because no change is
	}
	var err error
	if b.share, err = s.opts.Streams.Take(ctx, partRoom); err != nil {
		return nil, err
	}
	if !b.restart {
		err = b.open(ctx, place)
		b.restart = errors.Is(err, feed.ErrGone) && since != feed.SinceBaseline
	}
	if b.restart {
		err = b.open(ctx, feed.BaselineCursor{})
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// open takes the snapshot at a place, or with the zero Place the newest one. A baseline
// that begins anew takes only a snapshot that the log reaches back to.
func (b *baseline) open(ctx context.Context, at feed.BaselineCursor) error {
	if b.server.opts.Inventories == nil {
		return fmt.Errorf("baseline of set %q: %w", b.set, feed.ErrNoInventory)
	}
	snapshot, err := b.server.opts.Inventories.Snapshot(ctx, b.set, at.Cursor)
	if errors.Is(err, feed.ErrNoSet) && b.server.follower.Waits(b.set) {
		snapshot, err = &Snapshot{Resources: nothing{}, Release: func() {}}, nil
	}
	if err != nil {
		return fmt.Errorf("baseline of set %q: %w", b.set, err)
	}
	err = b.find(ctx, snapshot, at)
	if err == nil && b.restart {
		err = b.reached(ctx)
	}
	if err != nil {
		snapshot.Release()
		return fmt.Errorf("baseline of set %q at %v: %w", b.set, snapshot.Cursor(), err)
	}
	b.snapshot = snapshot
	return nil
}

// find moves b to a place in a snapshot. It returns feed.ErrGone if the place is of a
// snapshot that held other resources, at the same cursor.
func (b *baseline) find(ctx context.Context, snapshot *Snapshot, at feed.BaselineCursor) error {
	all, err := snapshot.Tally(ctx, inventory.Range{})
	if err != nil {
		return err
	}
	sum := all.Digest(digest.ByPosition)
	root := binary.BigEndian.Uint32(sum[:])
	if !at.Cursor.IsZero() && at.Root != root {
		return fmt.Errorf("the place %v is of another snapshot: %w", at, feed.ErrGone)
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
	b.place, b.from = feed.BaselineCursor{Cursor: snapshot.Cursor(), Rank: max(before.Count, min(at.Rank, b.end)), Root: root}, b.within.From
	if b.place.Rank == before.Count || b.place.Rank == b.end {
		return nil
	}
	loc, ok, err := snapshot.Nth(ctx, b.place.Rank)
	if err == nil && !ok {
		err = b.miscounted()
	}
	b.from = loc
	return err
}

// miscounted returns the error for a snapshot with another number of resources than it says.
func (b *baseline) miscounted() error {
	return fmt.Errorf("%w: the snapshot at %v does not hold as many resources as it says", feed.ErrDamaged, b.place.Cursor)
}

// close gives back what b holds. It may be called again.
func (b *baseline) close() {
	b.drop()
	if b.share != nil {
		b.share.Release()
	}
	b.buf = nil
}

func (b *baseline) drop() {
	if b.snapshot != nil {
		b.snapshot.Release()
		b.snapshot = nil
	}
}

// A part is a part of a baseline as text, until the next one is read.
type part struct {
	*feed.BaselinePart
	head, body, tail []byte
	resources        int
}

// next returns the next part in a format. The first part names no resource, so that it
// comes at once. If the snapshot is gone, or the log does not reach back to it at the
// end, the baseline begins anew. After an error because ctx is done, next may be called
// again.
func (b *baseline) next(ctx context.Context, f *feed.Format) (*part, error) {
	p, err := b.read(ctx, f)
	for errors.Is(err, feed.ErrGone) && b.restarts < maxRestarts {
		b.drop()
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
		if err := b.open(ctx, feed.BaselineCursor{}); err != nil {
			return nil, err
		}
	}
	p := &part{BaselinePart: b.part()}
	if b.begun && b.place.Rank == b.end {
		if err := b.finish(ctx, p.BaselinePart); err != nil {
			return nil, err
		}
	}
	w := f.Baseline()
	if b.begun && !p.End {
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
		b.place.Rank += passed
		b.from, p.Next = from, b.place
	}
	b.begun = true
	p.head, p.tail = w.Head(nil, p.BaselinePart, ""), w.Tail(nil, p.BaselinePart, "")
	return p, nil
}

// part returns the part without resources at b's place.
func (b *baseline) part() *feed.BaselinePart {
	return &feed.BaselinePart{Set: b.set, After: b.place, Next: b.place, Complete: b.snapshot.Complete, Restart: b.restart,
		Count: b.tally.Count, Uncounted: b.filter.Collection != ""}
}

// walk calls take with the next resources that the client wants, and with the number of
// those that it took, as long as take returns true. It returns how many resources it
// passed, how many of them were taken, and where the next one is. It passes maxPartLooked
// at most, so a client that wants a small collection is told its place now and then.
func (b *baseline) walk(ctx context.Context, take func(e *feed.Entry, n int) (bool, error)) (passed uint64, n int, from string, err error) {
	from = b.from
	for e, err := range b.snapshot.Walk(ctx, inventory.Range{From: b.from, To: b.within.To}) {
		if err != nil {
			return passed, n, from, fmt.Errorf("baseline of set %q from rank %d: %w", b.set, b.place.Rank, err)
		}
		switch {
		case b.place.Rank+passed == b.end:
			return passed, n, from, b.miscounted()
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
	if b.place.Rank+passed != b.end {
		return passed, n, from, b.miscounted()
	}
	return passed, n, from, nil
}

// reached returns feed.ErrGone unless the log holds what comes after the snapshot.
func (b *baseline) reached(ctx context.Context) error {
	if b.place.IsZero() { // nothing came before
		return nil
	}
	begin, err := b.server.begin.Find(ctx, b.set, b.place.Cursor.String())
	if err == nil && begin.Diverged {
		err = feed.ErrGone
	}
	return err
}

// finish makes p the end of the baseline. It returns feed.ErrGone if the log does not
// hold what comes after it.
func (b *baseline) finish(ctx context.Context, p *feed.BaselinePart) error {
	if err := b.reached(ctx); err != nil {
		return fmt.Errorf("at the end of a baseline of set %q: %w", b.set, err)
	}
	p.End = true
	p.PositionDigest, p.ContentDigest = b.tally.Digest(digest.ByPosition).String(), b.tally.Digest(digest.ByContent).String()
	return nil
}

// nothing is the content of a set that is not made yet.
type nothing struct{}

func (nothing) Cursor() feed.Cursor { return feed.Cursor{} }
func (nothing) Tally(context.Context, inventory.Range) (digest.Tally, error) {
	return digest.Tally{}, nil
}
func (nothing) Nth(context.Context, uint64) (string, bool, error) { return "", false, nil }
func (nothing) Walk(context.Context, inventory.Range) iter.Seq2[*feed.Entry, error] {
	return func(func(*feed.Entry, error) bool) {}
}
