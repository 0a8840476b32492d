package changelog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/rshub/rshub/feed"
)

var (
	// ErrCopied means that the store holds a finished copy of the memory already. A
	// hub may have added changes to that copy since.
	ErrCopied = errors.New("the copy is finished")

	// ErrUnfinished means that the store holds an unfinished copy, which no hub can
	// use yet.
	ErrUnfinished = errors.New("it is an unfinished copy of a change memory: run rshub copy again to finish it, or remove it and start the copy again")
)

// An Exporter is a Log that can be copied whole. Both Logs of this module are
// Exporters.
type Exporter interface {
	Log

	// Keys yields the publishes that a set knows by their keys, in the order of
	// their numbers. After an error it yields nothing more.
	Keys(ctx context.Context, set string) iter.Seq2[Known, error]

	// Deleted returns what the sets left that were deleted and not made again.
	Deleted(ctx context.Context) (map[string]Left, error)
}

// A Left is what deleted sets leave for the next set of their name. Datetimes are in
// microseconds since 1970.
type Left struct {
	Upto int64 // the next log begins later than this, unless this lies too far in the future
	Ever int64 // the latest datetime that an entry ever had: later than Upto if a clock was wrong
}

// A Known is a publish that a set knows by its idempotency key.
type Known struct {
	Key           string
	Hash          [32]byte
	Number        uint64      // the set's first key has 1, the next 2, and so on
	After, Cursor feed.Cursor // see Appended
}

// An Importer makes an empty store a copy of a memory. The store has the memory's
// identity from the first step on, but it is a memory only after Finish. Before
// that, opening the store as a Log fails with ErrUnfinished, and a new Importer
// for the same memory goes on with what the store holds.
//
// Each step but Add may be repeated. A step that returned an error may have
// happened: whole, or not at all. A crash before Finish may undo a step, and then
// it undoes all later steps too.
//
// Only one Importer at a time may work in a store, and only one goroutine may use
// it.
type Importer interface {
	// Sets returns what the store holds so far. The Head of a set is the cursor of
	// the newest entry that was added. Its Latest may lie behind its Head, because
	// Begin sets Latest before the entries come.
	Sets(ctx context.Context) ([]feed.State, error)

	// Begin makes a set as s says, except that its Head is after. after is one of
	// two cursors. If it is the floor of s, Begin removes the entries that the set
	// has. If it is the Head that the set has, the entries stay. Begin always removes
	// the keys and the inventory of the set.
	Begin(ctx context.Context, s feed.State, after feed.Cursor) error

	// Add adds blocks directly behind the Head of a set, which must be after.
	Add(ctx context.Context, set string, after feed.Cursor, blocks []PlacedBlock) error

	// AddKeys adds known publishes to a set, in the order of their numbers.
	AddKeys(ctx context.Context, set string, keys []Known) error

	// Deleted removes a set, if it exists, and notes what it left for the next set of
	// its name.
	Deleted(ctx context.Context, set string, left Left) error

	// Finish makes the store a memory with the mark of a copy: see Log. When it returns nil, this step and all
	// earlier ones are durable. Only Close may be called after it.
	Finish(ctx context.Context) error

	// Close releases the store. It removes nothing: an unfinished copy can be
	// continued later.
	Close() error
}

// A PlacedBlock is a block and where it is in a log.
type PlacedBlock struct {
	CutBlock
	Last feed.Cursor // of its last entry
}

// Progress says how far a copy is.
type Progress struct {
	Sets, SetsDone       int
	Changes, ChangesDone uint64 // between floors and heads
	Before               uint64 // how many of ChangesDone an earlier run had copied
}

// A Companion copies what was made from the logs and stands beside them: see Copy.
type Companion interface {
	// Open returns what stands beside the log of a set now, or nil if there is nothing. It
	// holds on to that until Close. The log is copied as it is at a later moment.
	Open(ctx context.Context, set string) (Part, error)
}

// A Part is what stands beside the log of one set. Copy calls the methods in this order,
// and Close in any case. The errors feed.ErrGone and feed.ErrNoSet mean that the set is to
// be copied anew.
type Part interface {
	Copy(ctx context.Context) error   // when the importer has begun the set, and its entries are still to come
	Finish(ctx context.Context) error // when the copy of the set's log is whole
	Close()
}

// Copy makes the store behind the Importer a copy of the memory from: the same
// identity, sets, entries with their positions and datetimes, epochs, and keys. So
// both give the same answers, until somebody opens the copy: that begins new epochs. The copy packs entries into full blocks. It goes on with
// what an earlier run left, as far as from still holds the same. After each step
// Copy calls report, which may be nil. Copy blocks until all is done or ctx ends.
//
// Somebody may write to from while it is copied. Then the copy holds each set as
// it was at one moment, and does not hold a set that was made or deleted meanwhile.
//
// What the Companion with copies belongs to the log of its set as it is in the copy. with
// may be nil.
func Copy(ctx context.Context, from Exporter, to Importer, with Companion, report func(Progress)) (Progress, error) {
	c := copying{from: from, to: to, with: with, report: report, held: make(map[string]feed.State), done: make(map[string]bool)}
	if c.report == nil {
		c.report = func(Progress) {}
	}
	err := c.run(ctx)
	return c.Progress, err
}

// A copying is one call of Copy.
type copying struct {
	from   Exporter
	to     Importer
	with   Companion // may be nil
	report func(Progress)

	held map[string]feed.State // what the importer holds of sets that are not done
	done map[string]bool
	Progress
}

func (c *copying) run(ctx context.Context) error {
	held, err := c.to.Sets(ctx)
	if err != nil {
		return err
	}
	for _, s := range held {
		c.held[s.Set] = s
	}
	states, err := c.from.Sets(ctx)
	if err != nil {
		return err
	}
	c.Sets = len(states)
	for _, s := range states {
		c.Changes += s.Len()
	}
	for _, s := range states {
		if err := c.set(ctx, s); err != nil {
			return fmt.Errorf("copy set %q: %w", s.Set, err)
		}
		c.report(c.Progress)
	}
	if err := c.deleted(ctx); err != nil {
		return fmt.Errorf("copy what is left of deleted sets: %w", err)
	}
	return c.to.Finish(ctx)
}

// deleted notes in the copy which sets were deleted, and removes from the copy the
// sets that from no longer has.
func (c *copying) deleted(ctx context.Context) error {
	left, err := c.from.Deleted(ctx)
	if err != nil {
		return err
	}
	gone := make(map[string]Left)
	for set, l := range left {
		if !c.done[set] {
			gone[set] = l
		}
	}
	for set, s := range c.held {
		l := gone[set]
		gone[set] = Left{max(l.Upto, s.Head.Micros), max(l.Ever, s.Head.Micros)}
	}
	for _, set := range slices.Sorted(maps.Keys(gone)) {
		if err := c.to.Deleted(ctx, set, gone[set]); err != nil {
			return err
		}
	}
	return nil
}

// errMoved means that a log no longer holds what its state said.
var errMoved = errors.New("the log changed while it was copied")

// restarts bounds how often the copying of one set begins anew because of errMoved.
const restarts = 10

// set copies a set as it was at the moment of its state s. If the log loses a part
// of that meanwhile, set begins anew with a newer state.
func (c *copying) set(ctx context.Context, s feed.State) error {
	done, before := c.ChangesDone, c.Before
	for try := 1; ; try++ {
		err := c.together(ctx, &s)
		if err == nil {
			c.SetsDone++
			c.done[s.Set] = true
			delete(c.held, s.Set)
			return nil
		}
		if !errors.Is(err, errMoved) && !errors.Is(err, feed.ErrGone) && !errors.Is(err, feed.ErrNoSet) || try == restarts {
			return err
		}
		c.Changes -= s.Len()
		c.ChangesDone, c.Before = done, before
		if s, err = c.from.State(ctx, s.Set); errors.Is(err, feed.ErrNoSet) {
			c.Sets--
			return nil // its deletion is copied in the end
		} else if err != nil {
			return err
		}
		c.Changes += s.Len()
	}
}

// together copies a set, and what stands beside its log. If something does, the log is
// copied as it is now, and not as it was when it had the state s.
func (c *copying) together(ctx context.Context, s *feed.State) error {
	if c.with == nil {
		return c.copy(ctx, *s, nil)
	}
	part, err := c.with.Open(ctx, s.Set)
	if err != nil {
		return err
	}
	if part == nil {
		return c.copy(ctx, *s, nil)
	}
	defer part.Close()
	now, err := c.from.State(ctx, s.Set)
	if err != nil {
		return err
	}
	c.Changes += now.Len() - s.Len()
	*s = now
	if err := c.copy(ctx, now, part); err != nil {
		return err
	}
	return part.Finish(ctx)
}

// copy copies a set. part may be nil.
func (c *copying) copy(ctx context.Context, s feed.State, part Part) error {
	after, err := c.after(ctx, s)
	if err != nil {
		return err
	}
	held := s
	held.Head = after
	c.held[s.Set] = held
	if err := c.to.Begin(ctx, s, after); err != nil {
		return err
	}
	if part != nil {
		if err := part.Copy(ctx); err != nil {
			return err
		}
	}
	c.ChangesDone += after.Position - s.Floor.Position
	c.Before += after.Position - s.Floor.Position
	if err := c.entries(ctx, s, after); err != nil {
		return err
	}
	return c.keys(ctx, s)
}

// after returns the cursor to go on behind: the newest entry that an earlier run
// has copied, if the log still has that entry and the same floor; else the floor.
func (c *copying) after(ctx context.Context, s feed.State) (feed.Cursor, error) {
	h, ok := c.held[s.Set]
	if !ok || h.Floor != s.Floor || h.Head.Position > s.Head.Position {
		return s.Floor, nil
	}
	b, err := c.from.Since(ctx, s.Set, h.Head, 1)
	switch {
	case errors.Is(err, feed.ErrGone), err == nil && b.Diverged:
		return s.Floor, nil
	case err != nil:
		return s.Floor, err
	}
	return h.Head, nil
}

// entries copies the entries behind a cursor up to the head. A goroutine reads and
// encodes the next entries while the importer writes the last ones. The goroutine
// has ended when entries returns.
func (c *copying) entries(ctx context.Context, s feed.State, after feed.Cursor) error {
	ctx, cancel := context.WithCancel(ctx)
	parts := make(chan []PlacedBlock, 2)
	read := make(chan error, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		defer close(parts)
		read <- c.read(ctx, s, after, parts)
	})
	for part := range parts {
		if err := c.to.Add(ctx, s.Set, after, part); err != nil {
			return err
		}
		last := part[len(part)-1].Last
		c.ChangesDone += last.Position - after.Position
		after = last
		held := c.held[s.Set]
		held.Head = after
		c.held[s.Set] = held
		c.report(c.Progress)
	}
	return <-read
}

const (
	readLimit  = 10_000  // entries in one read
	partBytes  = 1 << 20 // about so many bytes of blocks in one Add, and
	partBlocks = 10      // at most so many blocks
)

// read sends the entries behind a cursor up to the head, in full blocks.
func (c *copying) read(ctx context.Context, s feed.State, after feed.Cursor, parts chan<- []PlacedBlock) error {
	var entries []feed.Entry // those that are in no block yet
	var part []PlacedBlock
	size := 0
	send := func() error {
		if len(part) == 0 {
			return nil
		}
		select {
		case parts <- part:
			part, size = nil, 0
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// cut makes blocks until at most left entries are in no block.
	cut := func(left int) error {
		for len(entries) > left {
			block, n := FillBlock(entries, s.ListSize)
			part = append(part, PlacedBlock{CutBlock{block, n}, entries[n-1].Cursor})
			entries = entries[n:]
			if size += len(block); size >= partBytes || len(part) >= partBlocks {
				if err := send(); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for after.Position < s.Head.Position {
		b, err := c.from.Since(ctx, s.Set, after, readLimit)
		if err != nil {
			return err
		}
		if b.Diverged || len(b.Entries) == 0 {
			return errMoved
		}
		found := b.Entries[:min(uint64(len(b.Entries)), s.Head.Position-after.Position)]
		for i := range found {
			here := found[i].Cursor
			if here.Position != after.Position+1 || here.Micros <= after.Micros {
				return fmt.Errorf("%w: %v follows %v", ErrCorrupt, here, after)
			}
			after = here
		}
		entries = append(entries, found...)
		if err := cut(MaxBlockEntries); err != nil {
			return err
		}
	}
	if after != s.Head {
		return errMoved
	}
	return errors.Join(cut(0), send())
}

// keysAtOnce is how many keys one AddKeys has at most.
const keysAtOnce = 1_000

// keys copies the publishes that a set knows by their keys. It leaves out those
// whose entries came after the state s: the copy does not have these entries.
func (c *copying) keys(ctx context.Context, s feed.State) error {
	var keys []Known
	for k, err := range c.from.Keys(ctx, s.Set) {
		if err != nil {
			return fmt.Errorf("its idempotency keys: %w", err)
		}
		if k.Cursor.Position > s.Head.Position {
			continue
		}
		if keys = append(keys, k); len(keys) == keysAtOnce {
			if err := c.to.AddKeys(ctx, s.Set, keys); err != nil {
				return err
			}
			keys = keys[:0]
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return c.to.AddKeys(ctx, s.Set, keys)
}
