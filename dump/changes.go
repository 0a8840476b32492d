package dump

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// readPage is how many entries are read from the log at a time.
const readPage = 1_000

// changes makes the Change Dumps of the Change Lists that are closed by now.
func (m *Maker) changes(ctx context.Context, set string, rec *record) error {
	for {
		st, err := m.log.State(ctx, set)
		if err != nil {
			return err
		}
		if st.Begin != rec.Begin || !st.Dumps {
			return errChanged
		}
		rec.fits(&st)
		if _, open := st.Lists(); rec.next() >= open {
			return nil
		}
		if err := m.changeDump(ctx, &st, rec); err != nil {
			return err
		}
	}
}

// errChanged means that the set is another one since the job was begun.
var errChanged = errors.New("the set was described or made anew meanwhile")

// changeDump makes the Change Dump that comes next.
func (m *Maker) changeDump(ctx context.Context, st *feed.State, rec *record) error {
	n, k, begin := rec.next(), uint64(st.ListSize), time.Now()
	b := rec.BegunChanges
	if b == nil {
		b = &begun{made: made{List: n, Log: listLog(st, n)}}
		var err error
		if b.From, err = m.at(ctx, st.Set, max((n-1)*k, st.Floor.Position)); err != nil {
			return err
		}
		if b.At, err = m.at(ctx, st.Set, n*k); err != nil {
			return err
		}
		b.Name = changeKind + "-" + b.Log + "-" + strconv.FormatUint(n, 10)
	}
	w := &writing{Maker: m, set: st.Set, kind: changeKind, of: &b.made, begun: func() error {
		rec.BegunChanges = b
		return m.keep(ctx, st.Set, rec)
	}, last: func(*feed.Entry) {}}
	after := b.From
	if n := len(b.Packages); n > 0 {
		after = b.Packages[n-1].At
	}
	if err := w.all(ctx, st, m.changed(ctx, st.Set, after, b.At)); err != nil {
		return fmt.Errorf("the dump of Change List %d: %w", n, err)
	}
	b.Completed = time.Now().UTC().Truncate(time.Microsecond)
	rec.Changes, rec.BegunChanges = append(rec.Changes, b.made), nil
	if err := m.keep(ctx, st.Set, rec); err != nil {
		return err
	}
	m.made(st.Set, changeKind, &b.made, begin)
	return nil
}

func (m *Maker) at(ctx context.Context, set string, position uint64) (feed.Cursor, error) {
	c, err := m.log.At(ctx, set, position)
	if err != nil {
		return c, fmt.Errorf("the entry at position %d: %w", position, err)
	}
	return c, nil
}

// changed yields the changes after a cursor up to last, and says of each whether its content
// can still be fetched.
func (m *Maker) changed(ctx context.Context, set string, after, last feed.Cursor) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		for after.Position < last.Position {
			b, err := m.log.Since(ctx, set, after, int(min(readPage, last.Position-after.Position)))
			if err == nil && (b.After != after || len(b.Entries) == 0) {
				err = errChanged
			}
			var whys []string
			if err == nil {
				whys, err = m.outdated(ctx, set, b)
			}
			if err != nil {
				yield(item{}, err)
				return
			}
			for i := range b.Entries {
				if !yield(item{entry: &b.Entries[i], why: whys[i]}, nil) {
					return
				}
			}
			after = b.Entries[len(b.Entries)-1].Cursor
		}
		if after != last {
			yield(item{}, errChanged)
		}
	}
}

// Why the content of a change is not asked for: its place has another one by now.
const (
	whyChanged = "the resource was changed again before its content was fetched"
	whyDeleted = "the resource was deleted before its content was fetched"
)

// outdated says of each change of a batch why its content cannot be fetched any more; empty:
// it can.
func (m *Maker) outdated(ctx context.Context, set string, b *feed.Batch) ([]string, error) {
	held, release, err := m.opts.Newest(ctx, set, b.Entries[len(b.Entries)-1].Cursor)
	if err != nil {
		return nil, fmt.Errorf("what the set holds now: %w", err)
	}
	defer release()
	whys := make([]string, len(b.Entries))
	for i := range b.Entries {
		c := &b.Entries[i].Change
		if c.Change == resourcesync.Deleted {
			continue
		}
		newest, ok, err := held.Get(ctx, c.Loc)
		switch {
		case err != nil:
			return nil, fmt.Errorf("what the set holds now: %w", err)
		case !ok:
			whys[i] = whyDeleted
		case newest.Position != b.Entries[i].Position && (c.Hash == "" || c.Hash != newest.Change.Hash):
			whys[i] = whyChanged
		}
	}
	return whys, nil
}
