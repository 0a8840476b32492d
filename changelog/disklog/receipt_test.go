package disklog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// TestExpireKeys checks that no keys are left in the store after they have expired, no matter how
// often they were used again.
func TestExpireKeys(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := filled(t, "data", Options{FS: vfs.NewMem(), Now: func() time.Time { return now }})
	defer stop(t, l)
	rounds := 3
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		for call := range 4 {
			var publishes []changelog.Publish
			for i := range expireBatchSize / 2 {
				publishes = append(publishes, changelog.Publish{Key: fmt.Sprint((call*expireBatchSize/2 + i) * (round + 1)), Changes: changes("x", 1)})
			}
			_, err := l.Append(t.Context(), "set", publishes...)
			ok(t, err)
		}
		now = now.Add(changelog.KeyAge + time.Hour)
	}
	_, err := l.Trim(t.Context(), "set", changelog.Retention{})
	ok(t, err)
	for _, prefix := range []string{"key/", "age/"} {
		if left := keysOf(t, l, prefix); len(left) > 0 {
			t.Errorf("got keys %q after they expired, want none", left)
		}
	}
}

// TestKeysAndDeleted checks the data for a copy of the memory: the known keys in the order of their
// use, each with its last use, and the tombstones of deleted sets, unless they were created again.
func TestKeysAndDeleted(t *testing.T) {
	t.Parallel()
	l := filled(t, "data", Options{FS: vfs.NewMem()})
	defer stop(t, l)
	appended := map[string]changelog.Appended{}
	for _, key := range []string{"b", "a", "c"} {
		a, err := l.Append(t.Context(), "set", changelog.Publish{Key: key, Hash: [32]byte{key[0]}, Changes: changes(key, 2)})
		ok(t, err)
		appended[key] = a[0]
	}
	var order string
	for k, err := range l.Keys(t.Context(), "set") {
		ok(t, err)
		order += k.Key
		if a := appended[k.Key]; k.Hash != [32]byte{k.Key[0]} || k.After != a.After || k.Cursor != a.Cursor {
			t.Errorf("record of key %s = %+v, want %+v", k.Key, k, a)
		}
	}
	if order != "bac" {
		t.Errorf("got keys %s", order)
	}
	for range l.Keys(t.Context(), "set") {
		break // the sequence must stop
	}
	for _, set := range []string{"gone", "again"} {
		ok(t, l.Make(t.Context(), set, feed.Description{}, 10))
		_, err := l.Append(t.Context(), set, changelog.Publish{Changes: changes(set, 3)})
		ok(t, err)
		ok(t, l.Delete(t.Context(), set))
	}
	ok(t, l.Make(t.Context(), "again", feed.Description{}, 10))
	left, err := l.Deleted(t.Context())
	ok(t, err)
	if len(left) != 1 || left["gone"] == (changelog.Tombstone{}) {
		t.Errorf("Deleted() = %+v, want only the set \"gone\"", left)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Deleted(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for _, err := range l.Keys(ended, "set") {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
}
