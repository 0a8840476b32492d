package redislog

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/memorytest"
)

// oldDir has what earlier programs wrote, see its README.md.
const oldDir = "../../server/testdata/8d9d0c4"

// A publish that an earlier program took is known by its key, and is not added again.
func TestOldKeys(t *testing.T) {
	f, err := os.Open(filepath.Join(oldDir, "answers.json.gz"))
	ok(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	ok(t, err)
	var answers map[string]struct{ Time time.Time }
	ok(t, json.NewDecoder(z).Decode(&answers))

	s := newServer(t, "--dir", memorytest.Unpack(t, filepath.Join(oldDir, "redis.tar.gz")))
	now := func() time.Time { return answers["redis"].Time.Add(time.Hour) }
	l := start(t, s.url(), Options{Prefix: "rshub", Now: now, edit: storeClock})
	n := 0
	for k, err := range l.Keys(t.Context(), "many") {
		ok(t, err)
		n++
		for _, hash := range [][32]byte{k.Hash, {}} {
			a, err := l.Append(t.Context(), "many", changelog.Publish{Changes: changes("new", 1), Key: k.Key, Hash: hash})
			ok(t, err)
			if hash != k.Hash {
				wants(t, feed.ErrKeyReused, a[0].Err)
			} else if !a[0].Replayed || a[0].After != k.After || a[0].Cursor != k.Cursor {
				t.Errorf("key %s is answered with %+v, it was %+v", k.Key, a[0], k)
			}
		}
	}
	if n != 3 {
		t.Errorf("%d keys", n)
	}
}
