package redislog

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
)

var _ changelog.Exporter = (*Log)(nil)

// keysAtOnce is how many keys one read returns at most.
const keysAtOnce = 1_000

// Keys yields the publishes that a set knows by their keys, see changelog.Exporter.
func (l *Log) Keys(ctx context.Context, set string) iter.Seq2[changelog.Known, error] {
	return func(yield func(changelog.Known, error) bool) {
		for after := int64(0); ; {
			var reply redisconn.Answer
			err := l.read(ctx, func(t *redisconn.Try) (err error) {
				reply, err = l.ask(t, l.scripts.keys, l.keys(set), after, keysAtOnce)
				return err
			})
			var upto int64
			if err == nil {
				upto, err = strconv.ParseInt(reply.Text(1), 10, 64)
			}
			if err != nil {
				yield(changelog.Known{}, fmt.Errorf("read the keys of set %q: %w", set, err))
				return
			}
			if upto <= after {
				return
			}
			after = upto
			for i := 2; i+1 < len(reply); i += 2 {
				k, err := decodeKnown(reply.Text(i), reply.Text(i+1))
				if err != nil {
					yield(k, fmt.Errorf("read the keys of set %q: %w", set, err))
					return
				}
				if !yield(k, nil) {
					return
				}
			}
		}
	}
}

// decodeKnown reads what is kept of a publish that had a key: see known in lib.lua.
func decodeKnown(number, text string) (k changelog.Known, err error) {
	if len(text) < len(k.Hash) {
		return k, fmt.Errorf("%w: what is known by key %s has %d bytes", changelog.ErrCorrupt, number, len(text))
	}
	rest := text[copy(k.Hash[:], text):]
	after, rest, _ := strings.Cut(rest, " ")
	cursor, key, _ := strings.Cut(rest, " ")
	k.Key = key
	if k.Number, err = strconv.ParseUint(number, 10, 64); err == nil {
		k.After, err = feed.ParseCursor(after)
	}
	if err == nil {
		k.Cursor, err = feed.ParseCursor(cursor)
	}
	if err != nil {
		return k, corrupt("what is known by key "+number, err)
	}
	return k, nil
}

// encodeKnown writes what decodeKnown reads, except the number.
func encodeKnown(k changelog.Known) []byte {
	b := append(make([]byte, 0, 100+len(k.Key)), k.Hash[:]...)
	b = append(k.After.Append(b), ' ')
	b = append(k.Cursor.Append(b), ' ')
	return append(b, k.Key...)
}

// Deleted returns what the sets left that were deleted and not made again.
func (l *Log) Deleted(ctx context.Context) (map[string]changelog.Left, error) {
	deleted := make(map[string]changelog.Left)
	names, err := l.names(ctx)
	if err == nil {
		err = l.everySet(ctx, names, []string{"log", "was", "left"}, func(name string, values []any) error {
			v := redisconn.Answer(values)
			micros, ok := strings.CutPrefix(v.Text(0), "deleted ")
			if !ok {
				return nil
			}
			upto, err := strconv.ParseInt(micros, 10, 64)
			if err != nil {
				return corrupt("what it left", err)
			}
			left := changelog.Left{Upto: upto, Ever: upto}
			if was, err := strconv.ParseInt(v.Text(1), 10, 64); err == nil {
				left.Ever = max(left.Ever, was)
			}
			if c, err := feed.ParseCursor(v.Text(2)); err == nil && int64(c.Position) == upto {
				left.Ever = max(left.Ever, c.Micros)
			}
			deleted[name] = left
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list the deleted sets: %w", err)
	}
	return deleted, nil
}
