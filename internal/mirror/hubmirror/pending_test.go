package hubmirror

import (
	"fmt"
	"testing"

	"github.com/rshub/rshub/feed"
)

// at returns the cursor at a position.
func at(position uint64) feed.Cursor { return feed.Cursor{Position: position, Micros: int64(position)} }

// batch returns a batch of the entries after a position.
func batch(after uint64, entries int) *feed.Batch {
	b := &feed.Batch{Set: "a", After: at(after), Cursor: at(after + uint64(entries))}
	for i := range entries {
		b.Entries = append(b.Entries, feed.Entry{Cursor: at(after + uint64(i) + 1)})
	}
	return b
}

// moved returns a batch whose changes a filter omitted.
func moved(after, to uint64) *feed.Batch {
	return &feed.Batch{Set: "a", After: at(after), Cursor: at(to)}
}

// describe returns a batch as text.
func describe(b *feed.Batch) string {
	if b == nil {
		return "none"
	}
	if b.Diverged {
		return fmt.Sprint("diverged at ", b.Cursor.Position)
	}
	return fmt.Sprintf("%d to %d: %d", b.After.Position, b.Cursor.Position, len(b.Entries))
}

func TestMerge(t *testing.T) {
	for _, tt := range []struct {
		name string
		a, b *feed.Batch
		want string
	}{
		{"first", nil, batch(3, 2), "3 to 5: 2"},
		{"first diverged", nil, diverged(batch(3, 2)), "diverged at 5"},
		{"continues", batch(3, 2), batch(5, 1), "3 to 6: 3"},
		{"after a move", moved(3, 5), batch(5, 1), "3 to 6: 1"},
		{"gap", batch(3, 2), batch(6, 1), "diverged at 7"},
		{"diverged", batch(3, 2), diverged(batch(5, 1)), "diverged at 6"},
		{"after diverged", diverged(batch(3, 2)), batch(5, 1), "diverged at 6"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := describe(merge(tt.a, tt.b)); got != tt.want {
				t.Errorf("merge() = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestRest(t *testing.T) {
	for _, tt := range []struct {
		name string
		b    *feed.Batch
		at   feed.Cursor
		want string
	}{
		{"nothing pending", nil, at(3), "none"},
		{"continues", batch(3, 2), at(3), "3 to 5: 2"},
		{"overlaps", batch(3, 4), at(5), "5 to 7: 2"},
		{"covered", batch(3, 2), at(5), "none"},
		{"ahead", batch(3, 2), at(9), "none"},
		{"behind", batch(3, 2), at(1), "diverged at 5"},
		{"other log", batch(3, 2), feed.Cursor{Position: 4, Micros: 99}, "diverged at 5"},
		{"within a move", moved(3, 8), at(5), "diverged at 8"},
		{"diverged", diverged(batch(3, 2)), at(9), "diverged at 5"},
		{"no cursor", batch(3, 2), feed.Cursor{}, "diverged at 5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := describe(rest(tt.b, tt.at)); got != tt.want {
				t.Errorf("rest() = %s, want %s", got, tt.want)
			}
		})
	}
}
