package redislog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rshub/rshub/changelog"
)

// Append adds publishes to a set's log. A try whose answer was lost is made
// again: the call has an id, and the set remembers its answer for as long as
// the same request could still arrive and be taken.
func (l *Log) Append(ctx context.Context, set string, publishes ...changelog.Publish) ([]changelog.Appended, error) {
	appended, err := l.append(ctx, set, publishes)
	if err != nil {
		if errors.Is(err, changelog.ErrNoSet) {
			l.forget(set)
		}
		return nil, fmt.Errorf("append to set %q: %w", set, err)
	}
	return appended, nil
}

// recuts is how often blocks are cut anew because another hub was faster; then
// they are cut so that they fit anywhere.
const recuts = 4

func (l *Log) append(ctx context.Context, set string, publishes []changelog.Publish) ([]changelog.Appended, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := changelog.CheckPublishes(publishes); err != nil {
		return nil, err
	}
	if err := l.refused(); err != nil {
		return nil, err
	}
	p, err := l.place(ctx, set)
	if err != nil {
		return nil, err
	}
	a := appending{publishes: publishes, id: rand.Text(), common: l.common()}
	a.cut(p)
	c := new(call)
	for try := 1; ; try++ {
		args := a.args(&l.opts)
		var reply answer
		err := l.do(ctx, c, func(ctx context.Context) (err error) {
			args[0] = l.ID() // which may have changed
			reply, err = l.tellAll(ctx, l.scripts.append, l.keys(set), args)
			if err == nil && reply.word() == "clock" {
				err = a.late(reply)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if reply.word() == "ok" {
			appended, head, err := a.read(reply.text(1))
			if err != nil {
				return nil, err
			}
			l.saw(head)
			l.keep(set, place{p.size, head.Position})
			return appended, nil
		}
		if p.size, err = a.recut(reply, try); err != nil {
			return nil, verdict(ctx, c, err)
		}
	}
}

// An appending is one call of Append on its way. A request of it that comes
// late is known by its id, or refused for the hub's clock, which is the same in
// all of them.
type appending struct {
	publishes []changelog.Publish
	blocks    [][]changelog.CutBlock // of each publish, cut for where it is thought to go
	id        string
	common    []any
}

// cut encodes the publishes for the places that they get if nobody is faster.
func (a *appending) cut(p place) {
	first := p.position + 1
	a.blocks = make([][]changelog.CutBlock, len(a.publishes))
	for i, publish := range a.publishes {
		a.blocks[i] = changelog.CutBlocks(publish.Changes, first, p.size)
		first += uint64(len(publish.Changes))
	}
}

// recut encodes the publishes anew that did not fit where they would go by an
// answer. It returns the list size.
func (a *appending) recut(reply answer, try int) (size int, err error) {
	size, err = strconv.Atoi(reply.text(1))
	if reply.word() != "cut" || err != nil || size < 1 || len(reply) != 2+len(a.publishes) {
		return 0, refuse("%w: the answer to an append is %q", changelog.ErrCorrupt, reply.word())
	}
	k := size
	if try >= recuts {
		k = 1
	}
	for i, publish := range a.publishes {
		position, err := strconv.ParseInt(reply.text(2+i), 10, 64)
		if err != nil {
			return 0, refuse("%w: the answer to an append: %v", changelog.ErrCorrupt, err)
		}
		if position >= 0 && (k < size || !fit(a.blocks[i], uint64(position), size)) {
			a.blocks[i] = changelog.CutBlocks(publish.Changes, uint64(position)+1, k)
		}
	}
	return size, nil
}

// fit reports whether blocks stay within lists when they follow a position.
func fit(blocks []changelog.CutBlock, position uint64, listSize int) bool {
	k := uint64(listSize)
	for _, b := range blocks {
		if position%k+uint64(b.Count) > k {
			return false
		}
		position += uint64(b.Count)
	}
	return true
}

// args are the arguments of append.lua. A brief key is looked for in the same
// call only: nobody sends it again in another, and this one has its id.
func (a *appending) args(o *Options) []any {
	wait := ""
	if o.Wait > 0 {
		wait = "wait"
	}
	n := 8
	for _, blocks := range a.blocks {
		n += 4 + 2*len(blocks)
	}
	args := make([]any, 0, n)
	args = append(args, a.common...)
	args = append(args, a.id, changelog.KeyAge.Microseconds(), changelog.KeyCount, wait, len(a.publishes))
	for i := range a.publishes {
		p := &a.publishes[i]
		kind := ""
		switch {
		case p.Key != "" && p.Brief:
			kind = "brief"
		case p.Key != "":
			kind = "kept"
		}
		args = append(args, kind, p.Key, p.Hash[:], len(a.blocks[i]))
		for _, b := range a.blocks[i] {
			args = append(args, b.Count, []byte(b.Block))
		}
	}
	return args
}

// read reads the answer of append.lua, and returns the head that it makes.
func (a *appending) read(text string) ([]changelog.Appended, changelog.Cursor, error) {
	fields := strings.Fields(text)
	next := func() string {
		if len(fields) == 0 {
			return ""
		}
		f := fields[0]
		fields = fields[1:]
		return f
	}
	head, err := changelog.ParseCursor(next())
	first, ferr := strconv.ParseInt(next(), 10, 64)
	errs := []error{err, ferr}
	micros := first - 1
	appended := make([]changelog.Appended, len(a.publishes))
	for i := range appended {
		if len(fields) > 0 && fields[0] == strconv.Itoa(i) {
			next()
			if next() == "reused" {
				appended[i].Err = changelog.ErrKeyReused
				continue
			}
			after, err := changelog.ParseCursor(next())
			last, lerr := changelog.ParseCursor(next())
			errs = append(errs, err, lerr)
			appended[i] = changelog.Appended{After: after, Cursor: last, Count: int(last.Position - after.Position), Replayed: true}
			continue
		}
		n := len(a.publishes[i].Changes)
		micros += int64(n)
		last := changelog.Cursor{Position: head.Position + uint64(n), Micros: micros}
		appended[i] = changelog.Appended{After: head, Cursor: last, Count: n, Blocks: a.blocks[i]}
		head = last
	}
	if err := errors.Join(errs...); err != nil || len(fields) > 0 {
		return nil, head, fmt.Errorf("%w: the answer to an append: %q", changelog.ErrUnknown, text)
	}
	return appended, head, nil
}

// late is the error for clocks that differ too much.
func (a *appending) late(reply answer) error {
	now, _ := strconv.ParseInt(reply.text(1), 10, 64)
	head, _ := changelog.ParseCursor(reply.text(2))
	hub, _ := a.common[1].(int64)
	return late(now, head, hub)
}

// A place is where the next entry of a set is thought to go. It may be wrong:
// then blocks are cut anew.
type place struct {
	size     int
	position uint64
}

func (l *Log) place(ctx context.Context, set string) (place, error) {
	l.mu.Lock()
	p, ok := l.places[set]
	l.mu.Unlock()
	if ok {
		return p, nil
	}
	s, err := l.state(ctx, set)
	return place{s.ListSize, s.Head.Position}, err
}

func (l *Log) keep(set string, p place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.places[set] = p
}

func (l *Log) forget(set string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.places, set)
}
