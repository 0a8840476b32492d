package redislog

import (
	"context"
	"fmt"

	"github.com/rshub/rshub/changelog"
)

// Trim applies retention to a set and forgets expired keys. As it is called
// from time to time, it also packs the set where that saves much, and looks at
// the server: whether Append may go on (see Check).
func (l *Log) Trim(ctx context.Context, set string, r changelog.Retention) (int, error) {
	removed, err := l.trim(ctx, set, r)
	if err != nil {
		return removed, fmt.Errorf("trim set %q: %w", set, err)
	}
	return removed, nil
}

func (l *Log) trim(ctx context.Context, set string, r changelog.Retention) (removed int, err error) {
	for {
		var reply answer
		err := l.do(ctx, new(call), func(ctx context.Context) (err error) {
			reply, err = l.ask(ctx, l.scripts.trim, l.keys(set), r.Age.Microseconds(), r.Count, changelog.KeyAge.Microseconds(), changelog.KeyCount)
			return err
		})
		if err != nil {
			return removed, err
		}
		removed += int(reply.number(1))
		if reply.number(2) == 1 {
			continue
		}
		if reply.number(6) == 1 {
			if err := l.sweep(ctx, set); err != nil {
				return removed, err
			}
		}
		if saves(reply.number(3), reply.number(4), reply.number(5)) {
			if _, err := l.pack(ctx, set); err != nil {
				return removed, err
			}
		}
		return removed, l.fitByNow(ctx)
	}
}

// saves reports whether packing saves much: live blocks are small on average,
// and lists leave room for larger ones. A block of 50 entries takes hardly more
// than its part of a larger one.
func saves(listSize, blocks, entries int64) bool {
	return entries < blocks*min(50, listSize/2)
}
