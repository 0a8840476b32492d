package redislog

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
)

// A scatteredSet is a set with packed and live blocks of several sizes, so that the search by
// interpolation guesses wrong, and examines blocks that it does not need.
type scatteredSet struct {
	log     *Log
	admin   *redis.Client
	entries []feed.Entry
}

func newScatteredSet(t *testing.T) *scatteredSet {
	t.Helper()
	l := startSet(t, shared, 5, Options{})
	singles(t, l, "packed", 10)
	pack(t, l)
	for i, n := range []int{1, 1, 1, 2, 1, 1, 1, 1, 1, 3, 1} {
		add(t, l, fmt.Sprint("live", i), n)
	}
	return &scatteredSet{l, shared.admin(t), all(t, l, feed.Cursor{})}
}

// moved sets the last position of each block in turn to each position of the log, and calls check.
// It restores each block afterwards. A short test tries one in eight.
func (s *scatteredSet) moved(t *testing.T, check func(key, what string)) {
	t.Helper()
	ctx, n := t.Context(), 0
	for _, key := range s.log.keys("set")[1:3] {
		for _, number := range s.admin.HKeys(ctx, key).Val() {
			whole := s.admin.HGet(ctx, key, number).Val()
			last, bytes, err := parseBlock(whole)
			ok(t, err)
			for position := range uint64(len(s.entries) + 2) {
				if n++; position == last.Position || testing.Short() && n%8 > 0 {
					continue
				}
				there := feed.Cursor{Position: position, Micros: last.Micros}
				ok(t, s.admin.HSet(ctx, key, number, there.String()+" "+string(bytes)).Err())
				check(key, fmt.Sprintf("block %s of %s says that it ends at %d instead of %d", number, key, position, last.Position))
			}
			ok(t, s.admin.HSet(ctx, key, number, whole).Err())
		}
	}
}

// TestDamagedPosition gives each block each wrong position; the checksum of a block does not cover
// its position. Wherever a reader starts, it must get either the correct entries or ErrCorrupt, and
// never an entry at a wrong position. A reader of the whole log must get the error.
func TestDamagedPosition(t *testing.T) {
	t.Parallel()
	s := newScatteredSet(t)
	ctx := t.Context()
	starts := []feed.Cursor{state(t, s.log).Floor}
	for _, e := range s.entries {
		starts = append(starts, e.Cursor)
	}
	s.moved(t, func(_, what string) {
		right := func(how string, err error, got, want any) {
			t.Helper()
			if !errors.Is(err, changelog.ErrCorrupt) && (err != nil || !reflect.DeepEqual(got, want)) {
				t.Errorf("%s: %s = %v, %v, want %v", what, how, got, err, want)
			}
		}
		for i, c := range starts {
			b, err := s.log.Since(ctx, "set", c, 2)
			switch want := s.entries[i:]; {
			case err != nil:
				right(fmt.Sprint("after ", c), err, nil, nil)
			case b.Diverged, len(b.Entries) == 0 && len(want) > 0:
				t.Errorf("%s: Since(%v) = %v, want no divergence", what, c, b)
			default:
				right(fmt.Sprint("after ", c), nil, b.Entries, append([]feed.Entry(nil), want[:len(b.Entries)]...)) // a batch may be shorter than its limit
			}
			at, err := s.log.At(ctx, "set", c.Position)
			right(fmt.Sprint("at ", c.Position), err, at, c)
			if i > 0 {
				seek, err := s.log.Seek(ctx, "set", c.Micros)
				right(fmt.Sprint("before ", c.Micros), err, seek, starts[i-1])
			}
		}
		var err error
		c := starts[0]
		for range starts {
			var b *feed.Batch
			if b, err = s.log.Since(ctx, "set", c, 3); err != nil {
				break
			}
			c = b.Cursor
		}
		if !errors.Is(err, changelog.ErrCorrupt) {
			t.Errorf("%s: error = %v, want ErrCorrupt", what, err)
		}
	})
}

// TestDamagedPositionBlocksChanges checks that if a block has a wrong position, retention removes
// no entry that it must retain, and packing moves no block.
func TestDamagedPositionBlocksChanges(t *testing.T) {
	t.Parallel()
	s := newScatteredSet(t)
	l, ctx := s.log, t.Context()
	begin, keys := state(t, l).Begin, l.keys("set")
	log := s.admin.HGet(ctx, keys[0], "log").Val()
	s.moved(t, func(key, what string) {
		defer func() { ok(t, s.admin.HSet(ctx, keys[0], "log", log).Err()) }()
		// Only the step that decides, because the next step would remove blocks that this test restores.
		err := l.read(ctx, func(try *redisconn.Try) error {
			_, err := l.run(try, l.scripts.trim, keys, append([]any{begin, 0, 5, 0, 1, ""}, l.doubtArgs()...)...)
			return err
		})
		if floor := state(t, l).Floor; floor.Position > 0 && floor != s.entries[14].Cursor || err == nil && floor.Position == 0 {
			t.Errorf("%s: Trim removed the entries up to %v: %v", what, floor, err)
		}
		if err != nil {
			wantErr(t, changelog.ErrCorrupt, err)
		}
		ok(t, s.admin.HSet(ctx, keys[0], "log", log).Err())
		if moved, err := l.packStep(ctx, "set"); key == keys[2] && !errors.Is(err, changelog.ErrCorrupt) {
			t.Errorf("%s: Pack() = %d, %v, want 0", what, moved, err)
		}
	})
}
