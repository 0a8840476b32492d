package redislog

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/rshub/rshub/changelog"
)

var _ changelog.Exporter = (*Log)(nil)

// keysAtOnce bounds one read of keys.
const keysAtOnce = 1_000

// Keys yields the publishes that a set knows by their keys.
func (l *Log) Keys(ctx context.Context, set string) iter.Seq2[changelog.Known, error] {
	return func(yield func(changelog.Known, error) bool) {
		for after := int64(0); ; {
			var reply answer
			err := l.read(ctx, func(ctx context.Context) (err error) {
				reply, err = l.ask(ctx, l.scripts.keys, l.keys(set), after, keysAtOnce)
				return err
			})
			var upto int64
			if err == nil {
				upto, err = strconv.ParseInt(reply.text(1), 10, 64)
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
				k, err := decodeKnown(reply.text(i), reply.text(i+1))
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

// decodeKnown reads what is kept of a publish that had a key, see lib.lua.
func decodeKnown(number, text string) (k changelog.Known, err error) {
	if len(text) < len(k.Hash) {
		return k, fmt.Errorf("%w: what is known by key %s has %d bytes", changelog.ErrCorrupt, number, len(text))
	}
	rest := text[copy(k.Hash[:], text):]
	after, rest, _ := strings.Cut(rest, " ")
	cursor, key, _ := strings.Cut(rest, " ")
	k.Key = key
	if k.Number, err = strconv.ParseUint(number, 10, 64); err == nil {
		k.After, err = changelog.ParseCursor(after)
	}
	if err == nil {
		k.Cursor, err = changelog.ParseCursor(cursor)
	}
	if err != nil {
		return k, corrupt("what is known by key "+number, err)
	}
	return k, nil
}

// encodeKnown writes it.
func encodeKnown(k changelog.Known) []byte {
	b := append(make([]byte, 0, 100+len(k.Key)), k.Hash[:]...)
	b = append(k.After.Append(b), ' ')
	b = append(k.Cursor.Append(b), ' ')
	return append(b, k.Key...)
}

// Deleted returns the sets that were deleted and not made again.
func (l *Log) Deleted(ctx context.Context) (map[string]int64, error) {
	deleted := make(map[string]int64)
	names, err := l.names(ctx)
	if err == nil {
		err = l.everySet(ctx, names, []string{"log"}, func(name string, values []any) (err error) {
			log, _ := values[0].(string)
			if micros, ok := strings.CutPrefix(log, "deleted "); ok {
				if deleted[name], err = strconv.ParseInt(micros, 10, 64); err != nil {
					return corrupt("what it left", err)
				}
			}
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list the deleted sets: %w", err)
	}
	return deleted, nil
}
