package inventory

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sort"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/page"
)

// A sorted is a base in memory: the plainest thing that a Tree has to agree with.
type sorted struct {
	entries []feed.Entry
	sums    []digest.Tally // of the entries before each sumEvery-th
	err     error          // of Find
}

const sumEvery = 8

func newSorted(entries []feed.Entry) *sorted {
	s := &sorted{entries: entries}
	var sum digest.Tally
	for i := range entries {
		if i%sumEvery == 0 {
			s.sums = append(s.sums, sum)
		}
		t := digest.TallyOf(&entries[i])
		sum.Add(&t)
	}
	s.sums = append(s.sums, sum)
	return s
}

func (s *sorted) total() digest.Tally { return s.sums[len(s.sums)-1] }

func (s *sorted) index(loc string) int {
	return sort.Search(len(s.entries), func(i int) bool { return s.entries[i].Change.Loc >= loc })
}

func (s *sorted) Get(_ context.Context, loc string) (e feed.Entry, ok bool, err error) {
	if i := s.index(loc); i < len(s.entries) && s.entries[i].Change.Loc == loc {
		return s.entries[i], true, nil
	}
	return e, false, nil
}

func (s *sorted) Find(ctx context.Context, locs []string, found func(i int, e *feed.Entry)) error {
	if !slices.IsSorted(locs) {
		return fmt.Errorf("the locs do not ascend: %q", locs)
	}
	for i, loc := range locs {
		if e, ok, _ := s.Get(ctx, loc); ok {
			found(i, &e)
		}
	}
	return s.err
}

func (s *sorted) Walk(_ context.Context, r Range) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		var e feed.Entry // one for all, so that a test sees who keeps it
		for i := s.index(r.From); i < len(s.entries) && r.Has(s.entries[i].Change.Loc); i++ {
			e = s.entries[i]
			if !yield(&e, nil) {
				return
			}
		}
	}
}

func (s *sorted) cuts(_ context.Context, r Range, n int) (cuts []string, err error) {
	first, last := s.index(r.From), len(s.entries)
	if r.To != "" {
		last = s.index(r.To)
	}
	for i := 1; i < n; i++ {
		if at := first + (last-first)*i/n; at > first && at < last {
			cuts = append(cuts, page.Separator(s.entries[at-1].Change.Loc, s.entries[at].Change.Loc))
		}
	}
	return slices.Compact(cuts), nil
}

func (s *sorted) before(i int) digest.Tally {
	if i == len(s.entries) {
		return s.total()
	}
	sum := s.sums[i/sumEvery]
	for k := i - i%sumEvery; k < i; k++ {
		t := digest.TallyOf(&s.entries[k])
		sum.Add(&t)
	}
	return sum
}

func (s *sorted) Tally(_ context.Context, r Range) (digest.Tally, error) {
	end := len(s.entries)
	if r.To != "" {
		end = s.index(r.To)
	}
	t, head := s.before(end), s.before(s.index(r.From))
	t.Sub(&head)
	return t, nil
}

func wantTally(t *testing.T, what string, got, want digest.Tally) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %d resources, %d weak, digests %v and %v; want %d, %d, %v and %v", what, got.Count, got.Weak, got.Digest(digest.ByPosition), got.Digest(digest.ByContent),
			want.Count, want.Weak, want.Digest(digest.ByPosition), want.Digest(digest.ByContent))
	}
}
