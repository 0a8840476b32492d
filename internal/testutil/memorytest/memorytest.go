// Package memorytest creates change memories on disk for tests, and fills them.
//
// It is for tests of code that reads a memory. The memories themselves are tested by
// changelog/logtest.
package memorytest

import (
	"fmt"
	"os"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// Open returns a new memory. It is closed at the end of the test.
func Open(t testing.TB) *disklog.Log {
	t.Helper()
	log, err := disklog.Open(t.Context(), t.TempDir(), disklog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return log
}

// Changes returns n changes with name in their locs. Each has a length, a foreign attribute, and
// characters that must be escaped.
func Changes(name string, n int) []resourcesync.Change {
	cs := make([]resourcesync.Change, n)
	for i := range cs {
		length := int64(i)
		cs[i] = resourcesync.Change{
			Loc: fmt.Sprintf("https://example.org/%s/%d?a&b", name, i), Change: resourcesync.Updated, Length: &length,
			Attrs: []resourcesync.Attr{{Namespace: "http://example.org/ns", Name: "note", Value: "<x>"}},
		}
	}
	return cs
}

// Fill creates a set with Change Lists of 100 entries and appends publishes to it.
func Fill(t testing.TB, log changelog.Log, set string, publishes ...[]resourcesync.Change) (batches []*feed.Batch) {
	t.Helper()
	if err := log.Make(t.Context(), set, feed.Description{}, 100); err != nil {
		t.Fatal(err)
	}
	for _, p := range publishes {
		a, err := log.Append(t.Context(), set, changelog.Publish{Changes: p})
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, feed.NewBatch(set, a[0].After, a[0].Cursor, p))
	}
	return batches
}

// Main runs the tests of a package that uses fake time (testing/synctest). All tests of a process
// share the compressor and the decompressor of blocks. Main creates them first, because they must
// be created outside of fake time.
func Main(m *testing.M) {
	blocks := changelog.CutBlocks(Changes("a", 100), 1, 100)
	if _, err := blocks[0].Block.Entries(feed.Cursor{Position: 100, Micros: 1_000_000}); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
