package redislog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/redisconn"
)

// pages is the inventory.Store of a Log. Each step that changes the inventory of a set is one
// script.
type pages struct{ log *Log }

var _ inventory.Store = (*pages)(nil)

// Inventories returns the store of the sets' inventories, which is part of the memory. The term of a
// writer ends when Redis is restarted or replaced by another server, because its pages may then be
// lost. A hub whose Redis user may not call INFO does not notice that.
func (l *Log) Inventories() inventory.Store { return &pages{log: l} }

// Load returns the inventory record of a set.
func (p *pages) Load(ctx context.Context, set string) (inventory.Record, error) {
	r, _, err := p.load(ctx, set)
	if err != nil {
		return inventory.Record{}, fmt.Errorf("load the inventory of set %q: %w", set, err)
	}
	return r, nil
}

// load returns the inventory record of a set and its version, which changes with each write.
func (p *pages) load(ctx context.Context, set string) (r inventory.Record, version string, err error) {
	l, n := p.log, len(stateFields)
	fields := make([]any, n)
	for i, f := range stateFields {
		fields[i] = f
	}
	err = l.read(ctx, func(t *redisconn.Try) error {
		a, err := l.run(t, l.scripts.load, l.keys(set), fields...)
		if err != nil {
			return err
		}
		if len(a) != 5+n {
			return refuse("%w: unexpected answer of %d parts", changelog.ErrCorrupt, len(a))
		}
		if r.Log, err = l.decodeState(set, a[5:]); err != nil {
			return redisconn.Refuse(err)
		}
		var errs [2]error
		r.Now, errs[0] = strconv.ParseInt(a.Text(1), 10, 64)
		r.Term, errs[1] = strconv.ParseUint(a.Text(3), 10, 64)
		if err := errors.Join(errs[:]...); err != nil {
			return redisconn.Refuse(corruptError("inventory record", err))
		}
		version, r.Head = a.Text(2), []byte(a.Text(4))
		return nil
	})
	return r, version, err
}

// maxUpdates is how often Update tries while others update the same record.
const maxUpdates = 50

// Update changes the inventory record of a set. It waits for replicas only if u.Durable is set; then
// they also have all earlier writes.
func (p *pages) Update(ctx context.Context, set string, u inventory.Update) error {
	for range maxUpdates {
		done, err := p.update(ctx, set, u)
		if err != nil {
			return fmt.Errorf("write the inventory of set %q: %w", set, err)
		}
		if done {
			return nil
		}
	}
	return fmt.Errorf("write the inventory of set %q: others have changed it %d times in the meantime: %w", set, maxUpdates, feed.ErrUnavailable)
}

// update tries to change the record of a set. done is false if another update was faster.
func (p *pages) update(ctx context.Context, set string, u inventory.Update) (done bool, err error) {
	r, before, err := p.load(ctx, set)
	if err == nil {
		err = u.Change(&r)
	}
	if err == nil && len(r.Head) > inventory.MaxHead {
		err = fmt.Errorf("inventory head: got %d bytes, want at most %d", len(r.Head), inventory.MaxHead)
	}
	if err != nil {
		return false, err
	}
	l, keys := p.log, p.log.keys(set)
	if before == "0" {
		keys = append(keys, l.pageKeys(set)...)
	}
	send := l.run
	if u.Durable {
		send = l.runWait
	}
	// A lost version must not be used again: a hub that has read the first record would
	// mistake the second one for the same.
	version := 2 * (1 + rand.Uint64N(feed.MaxNumber/2-1))
	err = l.write(ctx, func(t *redisconn.Try) error {
		a, err := send(t, l.scripts.swap, keys, r.Log.Begin, before, version, r.Term, u.At.Position, u.At.Micros, r.Head)
		switch {
		case errors.Is(err, errSetChanged): // it was created again
			done, err = false, nil
		case err == nil && a.Word() == "log":
			err = redisconn.Refuse(inventory.ErrLog)
		case err == nil:
			done = a.Word() != "raced"
		}
		return err
	})
	return done, err
}

// Put writes pages of a set.
func (p *pages) Put(ctx context.Context, set string, begin int64, term uint64, put []inventory.Page) error {
	numbers := make([]uint64, len(put))
	for i := range put {
		numbers[i] = put[i].Number
	}
	err := p.change(ctx, p.log.scripts.put, set, begin, term, numbers, func(args []any, i int) []any {
		return append(args, put[i].Number, put[i].Bytes)
	})
	if err != nil {
		return fmt.Errorf("write pages of the inventory of set %q: %w", set, err)
	}
	return nil
}

// change runs a script that changes pages under the term of a writer; see pageArgs.
func (p *pages) change(ctx context.Context, s *redisconn.Script, set string, begin int64, term uint64, numbers []uint64, add func(args []any, i int) []any) error {
	if len(numbers) == 0 {
		return ctx.Err()
	}
	if term == 0 {
		return inventory.ErrFenced
	}
	l := p.log
	keys, args := l.pageArgs(set, numbers, []any{begin, term}, add)
	return l.write(ctx, func(t *redisconn.Try) error {
		a, err := l.run(t, s, keys, args...)
		switch {
		case errors.Is(err, errSetChanged):
			err = redisconn.Refuse(inventory.ErrLog)
		case err == nil && a.Word() == "fenced":
			err = redisconn.Refuse(inventory.ErrFenced)
		}
		return err
	})
}

// groupByHash groups the indexes of numbers by the hash of the page.
func groupByHash(numbers []uint64) (by [pageHashes][]int) {
	for i, n := range numbers {
		h := pageHash(n)
		by[h] = append(by[h], i)
	}
	return by
}

// pageArgs returns the keys and arguments of a script that works on pages; see paged in lib.lua.
// add appends the arguments of the page with index i.
func (l *Log) pageArgs(set string, numbers []uint64, args []any, add func(args []any, i int) []any) ([]string, []any) {
	keys := l.keys(set)
	for h, here := range groupByHash(numbers) {
		if len(here) == 0 {
			continue
		}
		keys = append(keys, l.pageKey(set, h))
		count := len(args)
		args = append(args, 0)
		for _, i := range here {
			args = add(args, i)
		}
		args[count] = len(args) - count - 1
	}
	return keys, args
}

// Get returns pages of a set. It uses no script, because a script copies each page and is ten times
// slower. Instead it reads the record after the pages, to check which log they belong to.
func (p *pages) Get(ctx context.Context, set string, begin int64, numbers []uint64) ([][]byte, error) {
	found, err := p.get(ctx, set, begin, numbers)
	if err != nil && !errors.Is(err, feed.ErrNoSet) {
		return nil, fmt.Errorf("read pages of the inventory of set %q: %w", set, err)
	}
	return found, nil
}

func (p *pages) get(ctx context.Context, set string, begin int64, numbers []uint64) ([][]byte, error) {
	found := make([][]byte, len(numbers))
	if len(numbers) == 0 {
		return found, ctx.Err()
	}
	var keys []string
	var fields [][]string
	by := groupByHash(numbers)
	for h, here := range by {
		if len(here) == 0 {
			continue
		}
		names := make([]string, len(here))
		for i, at := range here {
			names[i] = strconv.FormatUint(numbers[at], 10)
		}
		keys, fields = append(keys, p.log.pageKey(set, h)), append(fields, names)
	}
	keys, fields = append(keys, p.log.setKey(set)), append(fields, []string{"memory", "log", "begin", "inventory"})
	var answers []redisconn.Answer
	if err := p.log.read(ctx, func(t *redisconn.Try) (err error) {
		if answers, err = t.HMGetEach(keys, fields); err != nil {
			return err
		}
		return p.log.checkOwned(answers[len(keys)-1], begin)
	}); err != nil {
		return found, err
	}
	at := 0
	for _, here := range by {
		if len(here) == 0 {
			continue
		}
		for i, n := range here {
			if page, ok := answers[at][i].(string); ok {
				found[n] = []byte(page)
			}
		}
		at++
	}
	return found, nil
}

// checkOwned returns nil if the pages of a set belong to the log that started at begin, and
// feed.ErrNoSet if that log no longer exists or has no inventory. set has the fields memory, log,
// begin and inventory of the set.
func (l *Log) checkOwned(set redisconn.Answer, begin int64) error {
	log, own := set.Text(1), strconv.FormatInt(begin, 10)
	switch {
	case log == "" || strings.HasPrefix(log, "deleted "):
		return redisconn.Refuse(feed.ErrNoSet)
	case set.Text(0) != l.ID():
		return l.otherMemory(set.Text(0))
	case set.Text(2) != own || !strings.HasPrefix(set.Text(3), own+" "):
		return redisconn.Refuse(feed.ErrNoSet)
	}
	return nil
}

// Remove removes pages of a set.
func (p *pages) Remove(ctx context.Context, set string, begin int64, term uint64, numbers []uint64) error {
	err := p.change(ctx, p.log.scripts.remove, set, begin, term, numbers, func(args []any, i int) []any { return append(args, numbers[i]) })
	if err != nil && !errors.Is(err, inventory.ErrLog) && !errors.Is(err, feed.ErrNoSet) {
		return fmt.Errorf("remove pages of the inventory of set %q: %w", set, err)
	}
	return nil
}

// Numbers yields the numbers of the pages of a set.
func (p *pages) Numbers(ctx context.Context, set string, begin int64) iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		for h := range pageHashes {
			found, err := p.numbers(ctx, set, begin, h)
			if err != nil {
				yield(0, fmt.Errorf("list the pages of the inventory of set %q: %w", set, err))
				return
			}
			for _, n := range found {
				if !yield(n, nil) {
					return
				}
			}
		}
	}
}

// numbers returns the numbers of the pages in one hash.
func (p *pages) numbers(ctx context.Context, set string, begin int64, hash int) (found []uint64, err error) {
	l := p.log
	err = l.read(ctx, func(t *redisconn.Try) error {
		a, err := l.run(t, l.scripts.numbers, append(l.keys(set), l.pageKey(set, hash)), begin)
		if err != nil {
			return err
		}
		found = found[:0]
		for i := 1; i < len(a); i++ {
			n, err := strconv.ParseUint(a.Text(i), 10, 64)
			if err != nil {
				return redisconn.Refuse(corruptError("number of a page", err))
			}
			found = append(found, n)
		}
		return nil
	})
	if errors.Is(err, errSetChanged) || errors.Is(err, feed.ErrNoSet) {
		return nil, nil
	}
	return found, err
}
