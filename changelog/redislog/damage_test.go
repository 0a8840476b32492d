package redislog

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
)

// TestDamageAtRest flips bytes in the data of a set in Redis, and truncates it. The error must name
// the damaged part, and no entry may be returned with a wrong position or content. An append-only
// file has no checksum, so nothing else would notice the damage. With RSHUB_PROVE, the test tries
// every byte.
//
// A datetime has no checksum: it is stored next to its block, and in the log. It is compared with
// the datetimes before and after it, and a cursor with another datetime is treated as one of a log
// that lost its tail.
func TestDamageAtRest(t *testing.T) {
	if testing.Short() {
		t.Skip("reads the memory for each damage")
	}
	l := startSet(t, shared, 20, Options{})
	history(t, l)
	admin, ctx := shared.admin(t), t.Context()
	w := seenOf(t, l)
	keys := l.keys("set")
	rng := testutil.Rand(t)
	fates := map[string]map[string]int{}
	damageField := func(kind, key, field, what, value string) {
		whole := admin.HGet(ctx, key, field).Val()
		ok(t, admin.HSet(ctx, key, field, value).Err())
		defer func() { ok(t, admin.HSet(ctx, key, field, whole).Err()) }()
		if fates[kind] == nil {
			fates[kind] = map[string]int{}
		}
		fates[kind][w.checkDamaged(t, l, fmt.Sprintf("%s %s %s: %.60q is %.60q", kind, field, what, whole, value))]++
	}
	for kind, key := range map[string]string{"log": keys[0], "packed": keys[1], "live": keys[2]} {
		fields := admin.HKeys(ctx, key).Val()
		if kind == "log" {
			fields = []string{"log"}
		}
		for _, field := range fields {
			whole := admin.HGet(ctx, key, field).Val()
			cursor, _, _ := strings.Cut(whole, " ")
			for i := range len(whole) { // many blocks exist, so a few bytes of each suffice
				odds := 0.2
				switch {
				case os.Getenv("RSHUB_PROVE") != "":
					odds = 1
				case kind != "log" && i < len(cursor):
					odds = 0.05
				case kind != "log":
					odds = 0.005
				}
				if rng.Float64() >= odds {
					continue
				}
				flipped := []byte(whole)
				flipped[i] ^= byte(1 + rng.IntN(255))
				damageField(kind, key, field, fmt.Sprint("flipped at ", i), string(flipped))
				if c := whole[i]; c >= '0' && c <= '9' { // damage that still looks like a number
					flipped[i] = '0' + (c-'0'+byte(1+rng.IntN(9)))%10
					damageField(kind, key, field, fmt.Sprint("another digit at ", i), string(flipped))
				}
				damageField(kind, key, field, fmt.Sprint("cut at ", i), whole[:i])
			}
		}
	}
	for kind, all := range fates {
		t.Logf("%-8s %v", kind, all)
	}
	if got := seenOf(t, l); !reflect.DeepEqual(got, w) {
		t.Error("the test did not restore all data")
	}
}

// A seenSet is the visible state of a set.
type seenSet struct {
	state   feed.State
	entries []feed.Entry
}

func seenOf(t *testing.T, l *Log) seenSet {
	t.Helper()
	s := state(t, l)
	return seenSet{s, all(t, l, s.Floor)}
}

// checkDamaged reads all of a damaged set, and returns the effect of the damage.
func (w seenSet) checkDamaged(t *testing.T, l *Log, what string) (fate string) {
	t.Helper()
	ctx := t.Context()
	fate = "nothing is missing"
	bad := func(err error) bool {
		switch {
		case err == nil:
			return false
		case errors.Is(err, changelog.ErrCorrupt):
			fate = "named"
		case errors.Is(err, feed.ErrGone), errors.Is(err, feed.ErrNoSet):
			fate = "gone"
		default:
			if !strings.Contains(err.Error(), "is after the newest entry") {
				t.Errorf("%s: %v, want it to say that the cursor is after the newest entry", what, err)
			}
			fate = "gone"
		}
		return true
	}
	first := w.state.Floor.Position + 1
	check := func(e feed.Entry) {
		if e.Position < first || e.Position >= first+uint64(len(w.entries)) {
			t.Errorf("%s: got an unexpected entry at position %d", what, e.Position)
			return
		}
		want := w.entries[e.Position-first]
		if !reflect.DeepEqual(e.Change, want.Change) {
			t.Errorf("%s: position %d = %s, want %s", what, e.Position, e.Change.Loc, want.Change.Loc)
		}
		if e.Micros != want.Micros && fate != "named" {
			fate = "another datetime"
		}
	}
	_, err := l.State(ctx, "set")
	bad(err)
	starts := []feed.Cursor{w.state.Floor}
	for i := 3; i < len(w.entries); i += 11 {
		starts = append(starts, w.entries[i].Cursor)
	}
	for _, at := range starts {
		for _, limit := range []int{1000, 7} {
			for at := at; ; {
				b, err := l.Since(ctx, "set", at, limit)
				if bad(err) {
					break
				}
				for _, e := range b.Entries {
					check(e)
				}
				if b.Diverged || len(b.Entries) == 0 {
					if b.Diverged && fate == "nothing is missing" {
						fate = "diverged"
					}
					break
				}
				at = b.Cursor
			}
		}
	}
	for i := 1; i < len(w.entries); i += 9 {
		e := w.entries[i]
		if c, err := l.At(ctx, "set", e.Position); !bad(err) && c.Position != e.Position {
			t.Errorf("%s: cursor %v has position %d", what, c, e.Position)
		}
		_, err := l.Seek(ctx, "set", e.Micros)
		bad(err)
	}
	return fate
}

// TestDamagedKey damages the record of a key. The error must report that, and retention must
// continue with the other sets.
func TestDamagedKey(t *testing.T) {
	t.Parallel()
	l := startSet(t, shared, 10, Options{})
	p := changelog.Publish{Changes: changes("a", 1), Key: "key"}
	_, err := l.Append(t.Context(), "set", p)
	ok(t, err)
	known := l.keys("set")[3]
	whole := shared.admin(t).HGet(t.Context(), known, "1").Val()
	for _, bad := range []string{"", whole[:40], strings.Replace(whole, "-", "+", 2)} {
		ok(t, shared.admin(t).HSet(t.Context(), known, "1", bad).Err())
		_, err := l.Append(t.Context(), "set", p)
		wantErr(t, changelog.ErrCorrupt, err)
		_, err = l.Trim(t.Context(), "set", changelog.Retention{})
		wantErr(t, changelog.ErrCorrupt, err)
	}
}
