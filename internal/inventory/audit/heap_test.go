package audit

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/storetest"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/resourcesync"
)

// longLocs returns a state of n resources with locs of 2 KB. The decoded text of a page takes about a
// megabyte, because a page has a common prefix once, and its text for each resource.
func longLocs(t *testing.T, n int, hash func(i int) int) *inventory.State {
	entries := make([]feed.Entry, n)
	for i := range entries {
		entries[i] = feed.Entry{Cursor: feed.Cursor{Position: uint64(i + 1), Micros: int64(i + 1)}, Change: resourcesync.Change{
			Loc: longLoc(i), Change: resourcesync.Created, Hash: fmt.Sprintf("md5:%032x", hash(i)),
		}}
	}
	return storetest.Holding(t, inventory.Options{}, feed.Cursor{Position: uint64(n), Micros: int64(n)}, entries)
}

func longLoc(i int) string {
	return "https://example.org/" + strings.Repeat("x", 2000) + fmt.Sprintf("/%06d", i)
}

// TestReplyOwnsItsText checks that a Reply does not keep decoded pages in memory.
func TestReplyOwnsItsText(t *testing.T) {
	const n, ranges = 3_000, 90
	state := longLocs(t, n, func(int) int { return 0 })
	for _, tt := range []struct {
		name  string
		width int // resources in a range
		q     Question
	}{
		{"listed", 1, Question{}},
		{"listed with details", 1, Question{Details: true}},
		{"split", 33 * MaxSplit / 64, Question{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := tt.q
			q.At, q.By = state.Cursor(), digest.ByContent
			for i := range ranges {
				first := i * n / ranges
				q.Ranges = append(q.Ranges, RangeQuestion{Range: inventory.Range{From: longLoc(first), To: longLoc(first + tt.width)}})
			}
			var reply Reply
			kept := testutil.RetainedBytes(t, func() any {
				var err error
				if reply, err = Answer(t.Context(), state, q); err != nil {
					t.Fatal(err)
				}
				return &reply
			})
			if size := int64(len(reply.AppendJSON(nil))); len(reply.Ranges) < ranges || kept > 2*size {
				t.Errorf("%d ranges keep %d bytes, want at most 2 x %d", len(reply.Ranges), kept, size)
			}
		})
	}
}

// TestDifferencesOwnTheirText checks that differences do not keep decoded pages in memory.
func TestDifferencesOwnTheirText(t *testing.T) {
	const n, each = 2000, 50
	own := longLocs(t, n, func(int) int { return 0 })
	theirs := longLocs(t, n, func(i int) int {
		if i%each == 0 {
			return 1
		}
		return 0
	})
	ask := func(ctx context.Context, q Question) (Reply, error) { return Answer(ctx, theirs, q) }
	var found []Difference
	kept := testutil.RetainedBytes(t, func() any {
		for d, err := range Compare(t.Context(), own, digest.ByContent, inventory.Range{}, ask) {
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, d)
		}
		return found
	})
	size := int64(0)
	for _, d := range found {
		size += d.Own.Change.Memory() + d.Theirs.Change.Memory()
	}
	if len(found) != n/each || kept > size {
		t.Errorf("%d differences keep %d bytes, want at most %d", len(found), kept, size)
	}
}
