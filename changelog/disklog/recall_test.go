package disklog

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rshub/rshub/changelog"
)

// TestKeyCount is the quick form of what logtest does with 100,000 publishes.
func TestKeyCount(t *testing.T) {
	l := filled(t, "data", Options{FS: vfs.NewMem()})
	defer stop(t, l)
	replayed := func(key string) bool {
		t.Helper()
		a, err := l.Append(t.Context(), "set", changelog.Publish{Key: key, Changes: changes(key, 1)})
		ok(t, err)
		return a[0].Replayed
	}
	replayed("key")
	l.find("set").tip.Keys += changelog.KeyCount - 1
	if !replayed("key") {
		t.Error("a key is forgotten too early")
	}
	replayed("other")
	if replayed("key") {
		t.Error("a key is known after KeyCount others")
	}
}

// TestForget wants no keys to be left in the store after they have expired, however often
// they were used again.
func TestForget(t *testing.T) {
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
			for i := range forgetStep / 2 {
				publishes = append(publishes, changelog.Publish{Key: fmt.Sprint((call*forgetStep/2 + i) * (round + 1)), Changes: changes("x", 1)})
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
			t.Errorf("%q are left", left)
		}
	}
}
