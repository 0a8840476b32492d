package changelog

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/rshub/rshub/feed"
)

func TestMergeBlock(t *testing.T) {
	for _, gaps := range [][]int64{
		{}, {1}, {2}, {1, 1, 1, 1}, {1, 2, 1, 1}, {1_000_000, 1, 1, 86_400_000_000, 1}, {5, 5, 5, 5, 5},
	} {
		entries := []feed.Entry{{Cursor: feed.Cursor{Position: 1000, Micros: 1_772_600_767_000_089}}}
		for _, gap := range gaps {
			last := entries[len(entries)-1]
			entries = append(entries, feed.Entry{Cursor: feed.Cursor{Position: last.Position + 1, Micros: last.Micros + gap}})
		}
		checkMerge(t, entries)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		entries := []feed.Entry{{Cursor: feed.Cursor{Position: 1, Micros: 1 + random.Int64N(feed.MaxNumber/2)}}}
		for len(entries) < MaxBlockEntries {
			last := entries[len(entries)-1]
			entries = append(entries, feed.Entry{Cursor: feed.Cursor{Position: last.Position + 1, Micros: last.Micros + 1 + random.Int64N(2)*random.Int64N(1<<40)}})
		}
		checkMerge(t, entries)
	}
}

// checkMerge checks that a merged block has the same entries.
func checkMerge(t *testing.T, entries []feed.Entry) {
	t.Helper()
	for i, c := range plain(len(entries)) {
		entries[i].Change = c
	}
	got, err := MergeBlock(entries).Entries(entries[len(entries)-1].Cursor)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, entries) {
		t.Fatalf("MergeBlock().Entries() =\n\t%v, want\n\t%v", got, entries)
	}
}

// TestMergeBlockOfOnePublish checks that a block of one publish has the same bytes, whether it was cut
// or merged.
func TestMergeBlockOfOnePublish(t *testing.T) {
	for _, n := range []int{1, 3, 4, 1000} {
		cut := CutBlocks(plain(n), 1, MaxListSize)
		entries, err := cut[0].Block.Entries(feed.Cursor{Position: uint64(n), Micros: 1_000_000})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(MergeBlock(entries), cut[0].Block) {
			t.Errorf("MergeBlock(%d entries) differs from CutBlocks", n)
		}
	}
}
