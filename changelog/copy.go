package changelog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
)

var (
	// ErrCopied means that what is to become a copy of a memory is one already: it
	// was finished, and may have gone on since.
	ErrCopied = errors.New("the copy is finished")

	// ErrUnfinished means that a copy was begun and not finished: it is no memory
	// yet.
	ErrUnfinished = errors.New("it is an unfinished copy of a change memory: run rshub copy again to finish it, or remove it to begin anew")
)

// An Exporter is a Log that can be copied whole. The Logs of this module are.
type Exporter interface {
	Log

	// Keys yields the publishes that a set knows by their keys, in the order of
	// their numbers. An error is the last that it yields.
	Keys(ctx context.Context, set string) iter.Seq2[Known, error]

	// Deleted returns the sets that were deleted and not made again, each with the
	// datetime that a set made again under its name must begin after, in
	// microseconds.
	Deleted(ctx context.Context) (map[string]int64, error)
}

// A Known is a publish that a set knows by its idempotency key.
type Known struct {
	Key           string
	Hash          [32]byte
	Number        uint64 // counts the set's keys, from 1
	After, Cursor Cursor // see Appended
}

// An Importer makes an empty store a copy of a memory: it has the memory's
// identity from its first step on, and is a memory after Finish. Until then a
// Log that opens the store fails with ErrUnfinished, and an Importer for the
// same memory goes on with what it holds.
//
// Each step but Add may be repeated. A step that failed may be done, whole or
// not at all. What a step did may be lost in a crash before Finish, but then
// with all that came after it.
//
// Only one Importer at a time may be at work in a store, in one goroutine.
type Importer interface {
	// Sets returns what the store holds by now. The Head of a set is the cursor of
	// the newest entry that was added; Latest may lie behind it.
	Sets(ctx context.Context) ([]State, error)

	// Begin makes a set as s says, except that its Head is after: the floor of s,
	// and whatever the set held is removed; or the Head that the set has, and its
	// entries stay. Its keys are removed.
	Begin(ctx context.Context, s State, after Cursor) error

	// Add adds blocks directly behind the Head of a set, which must be after.
	Add(ctx context.Context, set string, after Cursor, blocks []PlacedBlock) error

	// AddKeys adds known publishes to a set, in the order of their numbers.
	AddKeys(ctx context.Context, set string, keys []Known) error

	// Deleted removes a set, if there is one, and notes the datetime that one made
	// again must begin after.
	Deleted(ctx context.Context, set string, micros int64) error

	// Finish makes the store a memory, in one step that is durable with all before
	// it. Nothing but Close may be called after it.
	Finish(ctx context.Context) error

	// Close releases the store. What is there stays.
	Close() error
}

// A PlacedBlock is a block with its place in a log.
type PlacedBlock struct {
	CutBlock
	Last Cursor // of its last entry
}

// Progress says how far a copy is.
type Progress struct {
	Sets, SetsDone       int
	Changes, ChangesDone uint64 // between floors and heads
	Before               uint64 // of ChangesDone: were there from an earlier run
}

// Copy makes the store behind to a copy of the memory from: the same identity,
// sets, entries with their positions and datetimes, and keys, so that it answers
// everything the same. Blocks are made full. It goes on with what an earlier run
// left, as far as that still is what from holds. report, which may be nil, is
// called after each step.
//
// from may be written to meanwhile. Of each set the copy then holds what the set
// was at one moment, and of a set that was deleted or made meanwhile nothing.
func Copy(ctx context.Context, from Exporter, to Importer, report func(Progress)) (Progress, error) {
	c := copying{from: from, to: to, report: report, held: make(map[string]State), done: make(map[string]bool)}
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
	report func(Progress)

	held map[string]State // what the importer holds of sets that are not done
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
		c.Changes += s.length()
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

// length is the number of entries.
func (s State) length() uint64 { return s.Head.Position - s.Floor.Position }

// deleted copies what deleted sets left, and removes what the importer holds of
// sets that are gone.
func (c *copying) deleted(ctx context.Context) error {
	left, err := c.from.Deleted(ctx)
	if err != nil {
		return err
	}
	gone := make(map[string]int64)
	for set, micros := range left {
		if !c.done[set] {
			gone[set] = micros
		}
	}
	for set, s := range c.held {
		gone[set] = max(gone[set], s.Head.Micros)
	}
	for _, set := range slices.Sorted(maps.Keys(gone)) {
		if err := c.to.Deleted(ctx, set, gone[set]); err != nil {
			return err
		}
	}
	return nil
}

// errMoved means that a log is not any more what its state said.
var errMoved = errors.New("the log changed while it was copied")

// restarts bounds how often a set is begun anew because its log moved.
const restarts = 10

// set copies a set as it was at the moment of its state. Where its log lost a
// part of that meanwhile, it is copied as it is then.
func (c *copying) set(ctx context.Context, s State) error {
	done, before := c.ChangesDone, c.Before
	for try := 1; ; try++ {
		err := c.copy(ctx, s)
		if err == nil {
			c.SetsDone++
			c.done[s.Set] = true
			delete(c.held, s.Set)
			return nil
		}
		if !errors.Is(err, errMoved) && !errors.Is(err, ErrGone) && !errors.Is(err, ErrNoSet) || try == restarts {
			return err
		}
		c.Changes -= s.length()
		c.ChangesDone, c.Before = done, before
		if s, err = c.from.State(ctx, s.Set); errors.Is(err, ErrNoSet) {
			c.Sets--
			return nil // its deletion is copied in the end
		} else if err != nil {
			return err
		}
		c.Changes += s.length()
	}
}

func (c *copying) copy(ctx context.Context, s State) error {
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
	c.ChangesDone += after.Position - s.Floor.Position
	c.Before += after.Position - s.Floor.Position
	if err := c.entries(ctx, s, after); err != nil {
		return err
	}
	return c.keys(ctx, s)
}

// after returns the cursor to go on behind: the newest entry that an earlier run
// has copied, if it has copied nothing that is no more so; else the floor.
func (c *copying) after(ctx context.Context, s State) (Cursor, error) {
	h, ok := c.held[s.Set]
	if !ok || h.Floor != s.Floor || h.Head.Position > s.Head.Position {
		return s.Floor, nil
	}
	b, err := c.from.Since(ctx, s.Set, h.Head, 1)
	switch {
	case errors.Is(err, ErrGone), err == nil && b.Diverged:
		return s.Floor, nil
	case err != nil:
		return s.Floor, err
	}
	return h.Head, nil
}

// entries copies the entries behind a cursor up to the head. It reads and
// encodes while the importer writes.
func (c *copying) entries(ctx context.Context, s State, after Cursor) error {
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
	partBytes  = 1 << 20 // of blocks in one Add, about; and
	partBlocks = 10
)

// read sends the entries behind a cursor up to the head, in full blocks.
func (c *copying) read(ctx context.Context, s State, after Cursor, parts chan<- []PlacedBlock) error {
	var entries []Entry // that are not in a block yet
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
	// cut makes blocks until at most a number of entries is left.
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

// keysAtOnce bounds one AddKeys.
const keysAtOnce = 1_000

// keys copies what a set knows. What it came to know behind the head of s is
// left out.
func (c *copying) keys(ctx context.Context, s State) error {
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
