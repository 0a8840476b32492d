package redislog

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
)

// Append adds publishes to a set's log; see changelog.Log. If the answer of Redis is lost, Append
// sends the request again. That is safe, because each call has an id, and the set stores the answer
// to this id for as long as it would accept a late copy of the request.
func (l *Log) Append(ctx context.Context, set string, publishes ...changelog.Publish) ([]changelog.Appended, error) {
	appended, err := l.append(ctx, set, publishes)
	if err != nil {
		if errors.Is(err, feed.ErrNoSet) {
			l.dropTail(set)
		}
		return nil, fmt.Errorf("append to set %q: %w", set, err)
	}
	return appended, nil
}

// maxRecuts is the maximum number of times that the blocks are encoded again because another hub
// appended first. After that, each block has a single entry, which fits at any position.
const maxRecuts = 4

func (l *Log) append(ctx context.Context, set string, publishes []changelog.Publish) ([]changelog.Appended, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := changelog.CheckPublishes(publishes); err != nil {
		return nil, err
	}
	refused := l.unfitReason()
	if refused != nil {
		publishes = refuseAll(publishes, refused)
	}
	a := appendOp{publishes: publishes, id: rand.Text(), common: l.commonArgs(), doubtArgs: l.doubtArgs()}
	var appended []changelog.Appended
	err := l.changeSet(ctx, set, func(c *redisconn.Call, end tail) (err error) {
		appended, err = l.appendTo(ctx, c, set, &a, end)
		return err
	})
	if err == nil && refused != nil && !slices.ContainsFunc(appended, func(a changelog.Appended) bool { return a.Replayed }) {
		return nil, refused
	}
	return appended, err
}

// refuseAll returns copies of the publishes, each with a reason why it must not be added.
func refuseAll(publishes []changelog.Publish, why error) []changelog.Publish {
	publishes = slices.Clone(publishes)
	for i := range publishes {
		publishes[i].Refused = cmp.Or(publishes[i].Refused, why)
	}
	return publishes
}

// appendTo sends an append until its blocks fit.
func (l *Log) appendTo(ctx context.Context, c *redisconn.Call, set string, a *appendOp, end tail) ([]changelog.Appended, error) {
	a.cutBlocks(end)
	for attempt := 1; ; attempt++ {
		args := a.args(l.conn.Waits())
		var reply redisconn.Answer
		err := l.do(ctx, c, func(t *redisconn.Try) (err error) {
			args[0] = l.ID() // it may have changed since the last attempt
			reply, err = l.runWaitArgs(t, l.scripts.append, l.keys(set), args)
			if err == nil && reply.Word() == "clock" {
				err = l.clockError(a, reply)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if reply.Word() == "ok" {
			appended, head, err := a.decodeAnswer(reply.Text(1))
			if err != nil {
				return nil, err
			}
			end.position = head.Position
			l.cacheTail(set, end)
			return appended, nil
		}
		if end.size, err = a.recutBlocks(reply, attempt); err != nil {
			return nil, c.Verdict(ctx, err)
		}
	}
}

// An appendOp is a call of Append in progress. All requests of the call have the same id and the
// same time of the hub's clock. So a late copy of a request does no harm: the set knows its id, or
// refuses it because its time is too old.
type appendOp struct {
	publishes []changelog.Publish
	begin     int64                  // begin of the intended log
	blocks    [][]changelog.CutBlock // blocks of each publish, encoded for the positions that this hub expects
	id        string
	common    []any // see Log.common
	doubtArgs []any // see Log.doubts
}

// cutBlocks encodes the publishes for the log whose tail is end, for the positions that they get
// unless another append comes first.
func (a *appendOp) cutBlocks(end tail) {
	a.begin = end.begin
	first := end.position + 1
	a.blocks = make([][]changelog.CutBlock, len(a.publishes))
	for i, publish := range a.publishes {
		if publish.Refused != nil {
			continue // without blocks, it only gets its earlier result if the set has seen it
		}
		a.blocks[i] = changelog.CutBlocks(publish.Changes, first, end.size)
		first += uint64(len(publish.Changes))
	}
}

// recutBlocks encodes again the publishes whose blocks do not fit at the positions in the answer
// "cut". It returns the list size. attempt counts the requests from 1.
func (a *appendOp) recutBlocks(reply redisconn.Answer, attempt int) (size int, err error) {
	size, err = strconv.Atoi(reply.Text(1))
	if reply.Word() != "cut" || err != nil || size < 1 || len(reply) != 2+len(a.publishes) {
		return 0, refuse("%w: unexpected answer to an append: %q", changelog.ErrCorrupt, reply.Word())
	}
	k := size
	if attempt >= maxRecuts {
		k = 1
	}
	for i, publish := range a.publishes {
		position, err := strconv.ParseInt(reply.Text(2+i), 10, 64)
		if err != nil {
			return 0, refuse("%w: answer to an append: %v", changelog.ErrCorrupt, err)
		}
		if position >= 0 && (k < size || !changelog.Fit(a.blocks[i], uint64(position), size)) {
			a.blocks[i] = changelog.CutBlocks(publish.Changes, uint64(position)+1, k)
		}
	}
	return size, nil
}

// args returns the arguments of append.lua.
func (a *appendOp) args(waits bool) []any {
	wait := ""
	if waits {
		wait = "wait"
	}
	n := 12
	for _, blocks := range a.blocks {
		n += 4 + 2*len(blocks)
	}
	args := make([]any, 0, n)
	args = append(args, a.common...)
	args = append(args, a.begin, a.id, changelog.KeyAge.Microseconds(), changelog.KeyCount, wait)
	args = append(append(args, a.doubtArgs...), len(a.publishes))
	for i := range a.publishes {
		p := &a.publishes[i]
		args = append(args, p.Key, p.Hash[:], p.Unless, len(a.blocks[i]))
		for _, b := range a.blocks[i] {
			args = append(args, b.Count, []byte(b.Block))
		}
	}
	return args
}

// decodeAnswer decodes the answer of append.lua. It also returns the set's head after the append.
func (a *appendOp) decodeAnswer(text string) ([]changelog.Appended, feed.Cursor, error) {
	fields := strings.Fields(text)
	next := func() string {
		if len(fields) == 0 {
			return ""
		}
		f := fields[0]
		fields = fields[1:]
		return f
	}
	head, err := feed.ParseCursor(next())
	first, ferr := strconv.ParseInt(next(), 10, 64)
	errs := []error{err, ferr}
	micros := first - 1
	appended := make([]changelog.Appended, len(a.publishes))
	for i := range appended {
		if len(fields) > 0 && fields[0] == strconv.Itoa(i) {
			next()
			switch next() {
			case "reused":
				appended[i].Err = feed.ErrKeyReused
				continue
			case "refused":
				appended[i].Err = a.publishes[i].Refused
				continue
			}
			after, err := feed.ParseCursor(next())
			last, lerr := feed.ParseCursor(next())
			errs = append(errs, err, lerr)
			appended[i] = changelog.Appended{After: after, Cursor: last, Count: int(last.Position - after.Position), Replayed: true}
			continue
		}
		n := len(a.publishes[i].Changes)
		micros += int64(n)
		last := feed.Cursor{Position: head.Position + uint64(n), Micros: micros}
		appended[i] = changelog.Appended{After: head, Cursor: last, Count: n, Blocks: a.blocks[i]}
		head = last
	}
	if err := errors.Join(errs...); err != nil || len(fields) > 0 {
		return nil, head, fmt.Errorf("%w: answer to an append: %q", feed.ErrUnknown, text)
	}
	return appended, head, nil
}

// clockError returns the error for the answer "clock": the clocks differ too much, or the set's
// newest entry is too far in the future.
func (l *Log) clockError(a *appendOp, reply redisconn.Answer) error {
	now, _ := strconv.ParseInt(reply.Text(1), 10, 64)
	hub, _ := a.common[1].(int64)
	if err := l.compareClocks(now, hub); err != nil {
		return err
	}
	head, _ := feed.ParseCursor(reply.Text(2))
	return redisconn.Refuse(feed.NewClockError(head, time.UnixMicro(now)))
}

// A tail is the end of a set's log according to this hub. Other hubs also append, so it may be
// outdated. Then append.lua reports that, and the blocks are encoded again.
type tail struct {
	size     int    // list size
	position uint64 // position of the newest entry
	begin    int64  // begin of the log, different for each log with the same name
}

// tail returns the cached tail of a set, or reads it.
func (l *Log) tail(ctx context.Context, set string) (tail, error) {
	l.mu.Lock()
	end, ok := l.tails[set]
	l.mu.Unlock()
	if ok {
		return end, nil
	}
	s, err := l.state(ctx, set)
	return tail{s.ListSize, s.Head.Position, s.Begin}, err
}

func (l *Log) cacheTail(set string, end tail) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tails[set] = end
}

func (l *Log) dropTail(set string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tails, set)
}
