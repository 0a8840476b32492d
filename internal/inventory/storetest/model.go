package storetest

import (
	"context"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// A content is the expected content of a root, as a plain map.
type content map[string]feed.Entry

// with returns the content after some entries of the log.
func (c content) with(entries []feed.Entry) content {
	after := maps.Clone(c)
	for i := range entries {
		e := &entries[i]
		if inventory.Exists(e) {
			after[e.Change.Loc] = *e
		} else {
			delete(after, e.Change.Loc)
		}
	}
	return after
}

// without returns the content without the resources that changed after a
// position.
func (c content) without(position uint64) content {
	after := maps.Clone(c)
	maps.DeleteFunc(after, func(_ string, e feed.Entry) bool { return e.Position > position })
	return after
}

// sorted yields the newest entry of each loc, in the order of loc.
func sorted(entries []feed.Entry) iter.Seq[*feed.Entry] {
	newest := map[string]*feed.Entry{}
	for i := range entries {
		newest[entries[i].Change.Loc] = &entries[i]
	}
	return func(yield func(*feed.Entry) bool) {
		for _, loc := range slices.Sorted(maps.Keys(newest)) {
			if !yield(newest[loc]) {
				return
			}
		}
	}
}

// check compares the results of all methods of a tree with the content.
func (c content) check(ctx context.Context, t *inventory.Tree, r *rand.Rand) error {
	locs := slices.Sorted(maps.Keys(c))
	n := 0
	for e, err := range t.Walk(ctx, inventory.Range{}) {
		if err != nil {
			return fmt.Errorf("walk: %w", err)
		}
		if n == len(locs) || e.Change.Loc != locs[n] {
			return fmt.Errorf("walk: got unexpected resource %q at index %d", e.Change.Loc, n)
		}
		if want := c[locs[n]]; !reflect.DeepEqual(*e, want) {
			return fmt.Errorf("walk: got %+v, want %+v", *e, want)
		}
		n++
	}
	if n != len(locs) {
		return fmt.Errorf("walk: got %d resources, want %d", n, len(locs))
	}
	if got, want := t.Root().Tally, c.tally(locs); got != want {
		return fmt.Errorf("tally of the root: got %+v, want %+v", got, want)
	}
	for range 3 {
		if err := c.checkRange(ctx, t, locs, randomRange(r, locs)); err != nil {
			return err
		}
	}
	if err := c.checkFind(ctx, t, r); err != nil {
		return err
	}
	return c.checkNewer(ctx, t, locs, r.Uint64N(2_000))
}

func (c content) tally(locs []string) (sum digest.Tally) {
	for _, loc := range locs {
		e := c[loc]
		one := digest.TallyOf(&e)
		sum.Add(&one)
	}
	return sum
}

// randomRange returns a range whose ends are at locs, between locs, or open.
func randomRange(r *rand.Rand, locs []string) inventory.Range {
	end := func() string {
		if len(locs) == 0 || r.IntN(8) == 0 {
			return ""
		}
		loc := locs[r.IntN(len(locs))]
		switch r.IntN(3) {
		case 0:
			return loc[:r.IntN(len(loc))]
		case 1:
			return loc + "\x00"
		}
		return loc
	}
	switch r.IntN(4) {
	case 0:
		return inventory.Prefix(end())
	case 1:
		return inventory.Range{From: end(), To: end()} // perhaps empty
	}
	from, to := end(), end()
	if to != "" && to < from {
		from, to = to, from
	}
	return inventory.Range{From: from, To: to}
}

func (c content) checkRange(ctx context.Context, t *inventory.Tree, locs []string, r inventory.Range) error {
	var want []string
	for _, loc := range locs {
		if r.Has(loc) {
			want = append(want, loc)
		}
	}
	var got []string
	for e, err := range t.Walk(ctx, r) {
		if err != nil {
			return fmt.Errorf("walk %q: %w", r, err)
		}
		got = append(got, strings.Clone(e.Change.Loc))
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("walk %q: got %d resources, want %d", r, len(got), len(want))
	}
	if tally, err := t.Tally(ctx, r); err != nil || tally != c.tally(want) {
		return fmt.Errorf("tally of %q: got %d resources, error %v, or wrong sums; want %d", r, tally.Count, err, len(want))
	}
	place, _ := slices.BinarySearch(locs, r.From)
	loc, ok, err := t.Nth(ctx, uint64(place))
	if err != nil || ok != (place < len(locs)) || ok && loc != locs[place] {
		return fmt.Errorf("Nth(%d) = %q, %v, %v", place, loc, ok, err)
	}
	return nil
}

// checkFind looks up some locs that exist, and some that do not.
func (c content) checkFind(ctx context.Context, t *inventory.Tree, r *rand.Rand) error {
	var locs []string
	for range r.IntN(60) {
		locs = append(locs, randomLoc(r))
	}
	slices.Sort(locs)
	locs = slices.Compact(locs)
	var found []feed.Entry
	if err := t.Find(ctx, locs, func(i int, e *feed.Entry) {
		if e.Change.Loc != locs[i] {
			found = nil
		}
		found = append(found, *e)
	}); err != nil {
		return fmt.Errorf("find: %w", err)
	}
	for _, loc := range locs {
		want, exists := c[loc]
		if !exists {
			continue
		}
		if len(found) == 0 || !reflect.DeepEqual(found[0], want) {
			return fmt.Errorf("find %q: got %+v, want %+v", loc, found, want)
		}
		found = found[1:]
	}
	if len(found) > 0 {
		return fmt.Errorf("find: got %q, which does not exist", found[0].Change.Loc)
	}
	if len(locs) > 0 {
		want, exists := c[locs[0]]
		if e, ok, err := t.Get(ctx, locs[0]); err != nil || ok != exists || ok && !reflect.DeepEqual(e, want) {
			return fmt.Errorf("Get(%q) = %+v, %v, %v", locs[0], e, ok, err)
		}
	}
	return nil
}

func (c content) checkNewer(ctx context.Context, t *inventory.Tree, locs []string, position uint64) error {
	var got, want []string
	for e, err := range t.Newer(ctx, position) {
		if err != nil {
			return fmt.Errorf("newer than %d: %w", position, err)
		}
		got = append(got, strings.Clone(e.Change.Loc))
	}
	for _, loc := range locs {
		if c[loc].Position > position {
			want = append(want, loc)
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("newer than %d: got %d resources, want %d", position, len(got), len(want))
	}
	return nil
}

// randomLoc returns one of a few hundred locs: short, long, and many with the same long prefix.
func randomLoc(r *rand.Rand) string {
	n := r.IntN(400)
	switch {
	case n < 8:
		return fmt.Sprintf("http://example.org/%s/%d", strings.Repeat("long", 500), n)
	case n < 200:
		return fmt.Sprintf("https://example.org/collection/documents/main/item-%04d.txt", n)
	}
	return fmt.Sprintf("urn:%x", n*7919)
}

// randomChange returns a change of a random kind.
func randomChange(r *rand.Rand) resourcesync.Change {
	c := resourcesync.Change{Loc: randomLoc(r), Change: resourcesync.Updated}
	switch r.IntN(10) {
	case 0, 1, 2:
		return resourcesync.Change{Loc: c.Loc, Change: resourcesync.Deleted}
	case 3:
		c.Change = resourcesync.Created
		return c // with no other data
	case 4:
		c.Datetime = time.Unix(1_700_000_000, 5).UTC()
		c.Links = []resourcesync.Link{{Rel: "describedby", Href: "https://example.org/about", Hash: "md5:00"}}
		c.Attrs = []resourcesync.Attr{{Namespace: "https://example.org/ns", Name: "a", Value: strings.Repeat("v", r.IntN(900))}}
		c.Changefreq, c.Encoding, c.Path = "daily", "gzip", "/p"
	}
	random := make([]byte, 48)
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	length := r.Int64N(1 << 40)
	c.Length, c.Type = &length, []string{"text/plain", "text/html", "image/png"}[r.IntN(3)]
	c.Lastmod = time.Unix(r.Int64N(2_000_000_000), r.Int64N(2)*r.Int64N(1_000_000_000)).UTC()
	c.Hash = "md5:" + hex.EncodeToString(random[:16]) + " sha-256:" + hex.EncodeToString(random[16:])
	switch r.IntN(8) {
	case 0:
		c.Hash = strings.ToUpper(c.Hash)
	case 1:
		c.Hash = "md5:" + hex.EncodeToString(random[:16])
	case 2:
		c.Hash = ""
	}
	return c
}
