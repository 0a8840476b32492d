package registrytest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// at is the time in all records.
var at = time.Date(2026, 3, 4, 5, 6, 7, 89_000, time.UTC)

// form is the form of all records but the plain ones.
const form = "atom.xml"

func url(n int) string { return fmt.Sprintf("https://example.org/callback?n=%d&x=<é>", n) }

// record returns a record with a value in each field but Sealed, which is of the key that a
// registry seals with.
func record(set string, n int) subscription.Record {
	return subscription.Record{
		Subscription: subscription.Subscription{
			Set: set, Form: form, Callback: url(n), Former: "fo\x00rmer",
			Terms: subscription.Terms{
				Secret: strings.Repeat("ß€𝄞\x00\"\\\n\u2028", 12) + "1234567", Every: 90 * time.Minute,
				Filter: feed.Filter{Prefix: "https://example.org/*", Changes: []resourcesync.ChangeType{resourcesync.Created}, Types: []string{"text/*"}, Collection: "https://example.org/all"},
			},
			LeaseEnd: at.Add(time.Hour), Token: fmt.Sprint("token", n), By: subscription.ByToken("ä"), Key: "thumbprint", Anyone: true, Made: at, Renewed: at.Add(time.Minute),
			FormerEnd: at.Add(2 * time.Hour), Until: at.Add(3 * time.Hour), Ended: at.Add(4 * time.Hour), Why: "the token is gone",
		},
		Progress: progress(n),
	}
}

func progress(n int) subscription.Progress {
	p := subscription.Progress{
		Cursor: feed.Cursor{Position: uint64(n), Micros: 1<<53 - 1}, From: feed.Cursor{Position: 3, Micros: 4}, Gap: feed.Cursor{Position: 1<<53 - 1, Micros: 5},
		Gaps: n, Diverged: n%2 == 1, Failed: 3, Delivery: uint64(n), Next: at.Add(time.Second),
	}
	for i := range n % 11 {
		p.Last = append(p.Last, subscription.Attempt{
			At: at.Add(time.Duration(i) * time.Millisecond), Kind: "deliver", Status: 200 + i, Took: time.Duration(i) * 1001, Changes: i, Error: strings.Repeat("é", i),
		})
	}
	return p
}

// plain returns a record with only the fields that it must have.
func plain(set string, n int) subscription.Record {
	return subscription.Record{Subscription: subscription.Subscription{Set: set, Callback: fmt.Sprint("https://example.org/", n), LeaseEnd: at, Token: "t", Made: at}}
}

// inShard returns n records of a set that are in the given shard.
func inShard(set string, shard, n int) (all []subscription.Record) {
	for i := 0; len(all) < n; i++ {
		if subscription.NewID(set, form, url(i)).Shard() == shard {
			all = append(all, record(set, i))
		}
	}
	return all
}

func ids(records []subscription.Record) (all []subscription.ID) {
	for i := range records {
		all = append(all, records[i].ID())
	}
	return all
}

func compare(a, b subscription.ID) int { return strings.Compare(string(a[:]), string(b[:])) }

var recordTests = []test{
	{"roundtrip", false, func(h *hub) {
		if n := len(record("set", 1).Secret); n != 199 {
			h.Fatalf("the secret has %d bytes", n)
		}
		want := inShard("set", 7, 30)
		want = append(want, inShard("other.set", 7, 3)...)
		for i := range 4000 {
			if r := plain("plain", i); r.ID().Shard() == 7 {
				want = append(want, r)
			}
		}
		h.has(7)
		h.put(want...)
		h.has(7, want...)
		h.has(8)
		_, err := h.Find(h.ctx, subscription.ID{7, 1})
		h.wants(subscription.ErrNoSubscription, err)
		for r, err := range h.Load(h.ctx, 7) { // a caller may stop early
			h.ok(err)
			if r.Token == "" {
				h.Error("no token")
			}
			break
		}
		h.restart()
		h.has(7, want...)
	}},
	{"each of the terms", false, func(h *hub) {
		all := Terms(h)
		records := inShard("set", 5, len(all))
		var requests []subscription.Request
		for i, name := range slices.Sorted(maps.Keys(all)) {
			records[i].Terms = all[name]
			requests = append(requests, request(&records[i], i))
			h.ok(h.Send(h.ctx, requests[i]))
		}
		h.put(records...)
		h.restart()
		h.has(5, records...)
		got := h.inbox(5, 100)
		for i := range min(len(got), len(requests)) {
			requests[i].Number = got[i].Number
		}
		h.same(got, requests)
	}},
	{"changes", false, func(h *hub) {
		r := inShard("set", 3, 4)
		c := h.claim(3)
		commit := func(changes subscription.Changes) {
			h.Helper()
			for range 2 { // a commit that is made again changes nothing
				h.ok(h.Commit(h.ctx, c, changes))
			}
		}
		commit(subscription.Changes{})
		commit(subscription.Changes{Put: r[:2]})
		r[0].Progress = progress(21)
		commit(subscription.Changes{Progress: map[subscription.ID]subscription.Progress{r[0].ID(): progress(21)}})
		h.has(3, r[:2]...)
		// Put comes first, then Progress, then Delete.
		commit(subscription.Changes{
			Put:      []subscription.Record{r[2], r[3]},
			Progress: map[subscription.ID]subscription.Progress{r[1].ID(): progress(9), r[2].ID(): progress(8), r[3].ID(): progress(7)},
			Delete:   []subscription.ID{r[1].ID(), r[3].ID(), {3}},
		})
		r[2].Progress = progress(8)
		h.has(3, r[0], r[2])
		_, err := h.Find(h.ctx, r[1].ID())
		h.wants(subscription.ErrNoSubscription, err)
		// A subscription that is made again has new progress.
		r[1].Progress, r[0].Secret = progress(2), ""
		commit(subscription.Changes{Put: []subscription.Record{r[0], r[1]}})
		h.has(3, r[:3]...)
		h.restart()
		h.has(3, r[:3]...)
	}},
	{"many at once", false, func(h *hub) {
		r := inShard("set", 1, 1200)
		c := h.claim(1)
		h.ok(h.Commit(h.ctx, c, subscription.Changes{Put: r}))
		p := make(map[subscription.ID]subscription.Progress)
		for i := range r {
			r[i].Progress = progress(i + 1)
			p[r[i].ID()] = r[i].Progress
		}
		h.ok(h.Commit(h.ctx, c, subscription.Changes{Progress: p}))
		h.has(1, r...)
		h.ok(h.Commit(h.ctx, c, subscription.Changes{Delete: ids(r[3:])}))
		h.has(1, r[:3]...)
	}},
	{"refused whole", false, func(h *hub) {
		r := inShard("set", 3, 2)
		c := h.claim(3)
		bad := r[1]
		bad.Secret = "\xff"
		stray := inShard("set", 4, 1)[0]
		for what, changes := range map[string]subscription.Changes{
			"no UTF-8":                 {Put: []subscription.Record{r[0], bad}},
			"record elsewhere":         {Put: []subscription.Record{r[0], stray}},
			"progress elsewhere":       {Put: r[:1], Progress: map[subscription.ID]subscription.Progress{stray.ID(): progress(1)}},
			"deletes what's elsewhere": {Put: r[:1], Delete: []subscription.ID{stray.ID()}},
		} {
			if err := h.Commit(h.ctx, c, changes); err == nil {
				h.Errorf("%s: no error", what)
			}
		}
		h.has(3)
		h.has(4)
		q := request(&r[0], 1)
		q.Secret = "\xff"
		h.wants(resourcesync.ErrInvalid, h.Send(h.ctx, q))
		canceled, cancel := context.WithCancel(h.ctx)
		cancel()
		h.wants(context.Canceled, h.Commit(canceled, c, subscription.Changes{Put: r}))
		h.wants(context.Canceled, h.Send(canceled, request(&r[0], 1)))
		_, err := h.Find(canceled, r[0].ID())
		h.wants(context.Canceled, err)
		h.has(3)
	}},
}
