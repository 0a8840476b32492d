package redislog

import (
	"context"
	"fmt"
	"strconv"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
)

// Trim applies retention to a set and removes its expired keys. Because it is called regularly, it
// does two more things: it packs the set if that saves much memory, and at most once a minute it
// checks that the servers still do not evict keys. If they do, Append fails until they stop.
func (l *Log) Trim(ctx context.Context, set string, r changelog.Retention) (int, error) {
	removed, err := l.trim(ctx, set, r)
	if err != nil {
		return removed, fmt.Errorf("trim set %q: %w", set, err)
	}
	return removed, nil
}

func (l *Log) trim(ctx context.Context, set string, r changelog.Retention) (removed int, err error) {
	age, keyAge := r.Age.Microseconds(), changelog.KeyAge.Microseconds()
	if r.Doubtful {
		age, keyAge = 0, feed.MaxNumber
	}
	hold := ""
	if r.Unread != nil {
		hold = strconv.FormatUint(r.Unread.Position, 10)
	}
	for {
		var reply redisconn.Answer
		err := l.changeSet(ctx, set, func(c *redisconn.Call, end tail) error {
			return l.do(ctx, c, func(t *redisconn.Try) (err error) {
				reply, err = l.run(t, l.scripts.trim, l.keys(set), append([]any{end.begin, age, r.Count, keyAge, changelog.KeyCount, hold}, l.doubtArgs()...)...)
				return err
			})
		})
		if err != nil {
			return removed, err
		}
		removed += int(reply.Number(1))
		if reply.Number(2) == 1 {
			continue
		}
		if reply.Number(6) == 1 {
			if err := l.sweep(ctx, set); err != nil {
				return removed, err
			}
		}
		if worthPacking(reply.Number(3), reply.Number(4), reply.Number(5)) {
			if _, err := l.pack(ctx, set); err != nil {
				return removed, err
			}
		}
		return removed, l.recheckServers(ctx)
	}
}

// Tick records the time of Redis's clock; see changelog.Log.
func (l *Log) Tick(ctx context.Context) (doubtful bool, err error) {
	err = l.read(ctx, func(t *redisconn.Try) error {
		a, err := l.run(t, l.scripts.tick, []string{l.memoryKey()}, changelog.ClockStep.Microseconds(), changelog.ClockDoubt.Microseconds())
		if err == nil {
			doubtful = a.Number(1) == 1
			l.clock.Store(&changelog.Clock{At: a.Number(2), Doubted: a.Number(3)})
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("record the time: %w", err)
	}
	return doubtful, nil
}

// doubtArgs returns the arguments of the scripts' function doubtful: the time after which the clock
// is in doubt, and the start and the end of the present doubt.
func (l *Log) doubtArgs() []any {
	c := l.clock.Load()
	after, from, until := int64(feed.MaxNumber), int64(0), int64(0)
	if c.At > 0 {
		after = c.At + changelog.ClockStep.Microseconds()
	}
	if c.Doubted > 0 {
		from, until = c.Doubted, c.Doubted+changelog.ClockDoubt.Microseconds()
	}
	return []any{after, from, until}
}

// worthPacking reports whether packing saves much memory. It does if live blocks are small on
// average and the lists are long enough for larger blocks. Blocks of 50 entries or more are large
// enough, because merging them saves little.
func worthPacking(listSize, blocks, entries int64) bool {
	return entries < blocks*min(50, listSize/2)
}
