// Package registrytest states what every registry of subscriptions must do: the
// contract of callback.Registry in running form. A backend runs it in a test of
// its own.
package registrytest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/resourcesync"
)

// A Backend is a kind of registry.
type Backend struct {
	// New provides for one store, which is empty, and is the backend's to clean up
	// when the test ends.
	New func(t *testing.T) Store

	// Shared says that several hubs may have it open at once. The tests of how
	// they get along need claims that last less than a second.
	Shared bool
}

// A Store is what a registry is kept in.
type Store struct {
	Open    func() callback.Registry // opens the registry for a hub
	Restart func()                   // ends the store as a crash does, and starts it again; the registries must be opened anew. nil: only they are
}

// Run runs the suite. Every subtest has a store of its own.
func Run(t *testing.T, b Backend) {
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"records", recordTests},
		{"inbox", inboxTests},
		{"list", listTests},
		{"claims", claimTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) {
					if test.shared && !b.Shared {
						t.Skip("needs a store that hubs share")
					}
					s := b.New(t)
					test.run(&hub{T: t, Registry: s.Open(), ctx: t.Context(), store: s})
				})
			}
		})
	}
}

type test struct {
	name   string
	shared bool // it needs several hubs
	run    func(h *hub)
}

// A hub is a registry under test, with steps that fail the test instead of
// returning an error.
type hub struct {
	*testing.T
	callback.Registry
	ctx   context.Context
	store Store
}

func (h *hub) ok(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *hub) wants(want, err error) {
	h.Helper()
	if !errors.Is(err, want) {
		h.Fatalf("error is %v, want %v", err, want)
	}
}

// other is another hub of the same store.
func (h *hub) other() *hub {
	o := *h
	o.Registry = h.store.Open()
	return &o
}

// restart crashes the store. What the hub does from then on, another hub does.
func (h *hub) restart() {
	if h.store.Restart != nil {
		h.store.Restart()
	}
	h.Registry = h.store.Open()
}

// until waits for a condition.
func (h *hub) until(what string, done func() bool) {
	h.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
		if done() {
			return
		}
	}
	h.Fatalf("never: %s", what)
}

// claim claims a shard, if need be when the claim of another hub has ended.
func (h *hub) claim(shard int) (c callback.Claim) {
	h.Helper()
	h.until("the shard is free", func() bool {
		claims, err := h.Acquire(h.ctx, []int{shard})
		h.ok(err)
		if len(claims) == 1 {
			c = claims[0]
		}
		return len(claims) == 1
	})
	if c.Shard != shard || c.Number == 0 {
		h.Fatalf("the claim on shard %d is %v", shard, c)
	}
	return c
}

// held reports whether a claim can be renewed, and the newest request.
func (h *hub) held(c callback.Claim) (newest uint64, ok bool) {
	h.Helper()
	held, err := h.Renew(h.ctx, []callback.Claim{c})
	h.ok(err)
	if len(held) == 0 {
		return 0, false
	}
	if len(held) != 1 || held[0].Claim != c {
		h.Fatalf("of claim %v is renewed: %v", c, held)
	}
	return held[0].Newest, true
}

// put commits records to their shards.
func (h *hub) put(records ...callback.Record) {
	h.Helper()
	shards := make(map[int][]callback.Record)
	for _, r := range records {
		s := r.ID().Shard()
		shards[s] = append(shards[s], r)
	}
	claims, err := h.Acquire(h.ctx, slices.Collect(maps.Keys(shards)))
	h.ok(err)
	if len(claims) != len(shards) {
		h.Fatalf("%d of %d shards are claimed", len(claims), len(shards))
	}
	for _, c := range claims {
		h.ok(h.Commit(h.ctx, c, callback.Changes{Put: shards[c.Shard]}))
	}
	h.ok(h.Release(h.ctx, claims))
}

// load returns the records of a shard.
func (h *hub) load(shard int) map[callback.ID]callback.Record {
	h.Helper()
	all := make(map[callback.ID]callback.Record)
	for r, err := range h.Load(h.ctx, shard) {
		h.ok(err)
		if _, twice := all[r.ID()]; twice {
			h.Errorf("subscription %v is there twice", r.ID())
		}
		all[r.ID()] = r
	}
	return all
}

// has fails the test unless a shard has exactly the records.
func (h *hub) has(shard int, want ...callback.Record) {
	h.Helper()
	all := h.load(shard)
	if len(all) != len(want) {
		h.Errorf("shard %d has %d records, want %d", shard, len(all), len(want))
	}
	for _, w := range want {
		h.same(all[w.ID()], w)
		found, err := h.Find(h.ctx, w.ID())
		h.ok(err)
		h.same(found, w)
	}
}

func (h *hub) same(got, want any) {
	h.Helper()
	if !reflect.DeepEqual(got, want) {
		h.Errorf("is\n%+v, want\n%+v", got, want)
	}
}

// inbox returns what is in a shard's inbox, read some at a time.
func (h *hub) inbox(shard, limit int) (all []callback.Request) {
	h.Helper()
	for after := uint64(0); ; {
		some, err := h.Inbox(h.ctx, shard, after, limit)
		h.ok(err)
		if len(some) > limit {
			h.Fatalf("%d requests, the limit is %d", len(some), limit)
		}
		for _, r := range some {
			if r.Number <= after {
				h.Fatalf("request %d comes behind %d", r.Number, after)
			}
			after = r.Number
		}
		if len(some) == 0 {
			return all
		}
		all = append(all, some...)
	}
}

func numbers(requests []callback.Request) (all []uint64) {
	for _, r := range requests {
		all = append(all, r.Number)
	}
	return all
}

// at is the time of everything.
var at = time.Date(2026, 3, 4, 5, 6, 7, 89_000, time.UTC)

func url(n int) string { return fmt.Sprintf("https://example.org/callback?n=%d&x=<é>", n) }

// record is a record with something in each field.
func record(set string, n int) callback.Record {
	return callback.Record{
		Subscription: callback.Subscription{
			Set: set, Callback: url(n), Secret: strings.Repeat("ß€𝄞\x00\"\\\n\u2028", 12) + "1234567",
			Filter:   changelog.Filter{Prefix: "https://example.org/*", Changes: []resourcesync.ChangeType{resourcesync.Created}, Types: []string{"text/*"}},
			LeaseEnd: at.Add(time.Hour), Token: fmt.Sprint("token", n), Made: at, Renewed: at.Add(time.Minute),
		},
		Progress: progress(n),
	}
}

func progress(n int) callback.Progress {
	p := callback.Progress{
		Cursor: changelog.Cursor{Position: uint64(n), Micros: 1<<53 - 1}, Gap: changelog.Cursor{Position: 1<<53 - 1, Micros: 5},
		Gaps: n, Diverged: n%2 == 1, Failed: 3, Next: at.Add(time.Second),
	}
	for i := range n % 11 {
		p.Last = append(p.Last, callback.Attempt{
			At: at.Add(time.Duration(i) * time.Millisecond), Kind: "deliver", Status: 200 + i, Took: time.Duration(i) * 1001, Changes: i, Error: strings.Repeat("é", i),
		})
	}
	return p
}

// plain is a record with only what it must have.
func plain(set string, n int) callback.Record {
	return callback.Record{Subscription: callback.Subscription{Set: set, Callback: fmt.Sprint("https://example.org/", n), LeaseEnd: at, Token: "t", Made: at}}
}

// inShard returns n records of a set that are in one shard.
func inShard(set string, shard, n int) (all []callback.Record) {
	for i := 0; len(all) < n; i++ {
		if callback.NewID(set, url(i)).Shard() == shard {
			all = append(all, record(set, i))
		}
	}
	return all
}

func ids(records []callback.Record) (all []callback.ID) {
	for i := range records {
		all = append(all, records[i].ID())
	}
	return all
}

func compare(a, b callback.ID) int { return strings.Compare(string(a[:]), string(b[:])) }

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
		_, err := h.Find(h.ctx, callback.ID{7, 1})
		h.wants(callback.ErrNoSubscription, err)
		for r, err := range h.Load(h.ctx, 7) { // one may stop
			h.ok(err)
			if r.Token == "" {
				h.Error("no token")
			}
			break
		}
		h.restart()
		h.has(7, want...)
	}},
	{"changes", false, func(h *hub) {
		r := inShard("set", 3, 4)
		c := h.claim(3)
		commit := func(changes callback.Changes) {
			h.Helper()
			for range 2 { // made again it does the same
				h.ok(h.Commit(h.ctx, c, changes))
			}
		}
		commit(callback.Changes{})
		commit(callback.Changes{Put: r[:2]})
		r[0].Progress = progress(21)
		commit(callback.Changes{Progress: map[callback.ID]callback.Progress{r[0].ID(): progress(21), r[3].ID(): progress(22)}})
		h.has(3, r[:2]...)
		// Put comes first, then progress, and what is deleted is deleted.
		commit(callback.Changes{
			Put:      []callback.Record{r[2], r[3]},
			Progress: map[callback.ID]callback.Progress{r[1].ID(): progress(9), r[2].ID(): progress(8), r[3].ID(): progress(7)},
			Delete:   []callback.ID{r[1].ID(), r[3].ID(), {3}},
		})
		r[2].Progress = progress(8)
		h.has(3, r[0], r[2])
		_, err := h.Find(h.ctx, r[1].ID())
		h.wants(callback.ErrNoSubscription, err)
		commit(callback.Changes{Progress: map[callback.ID]callback.Progress{r[1].ID(): progress(1)}})
		h.has(3, r[0], r[2])
		// Who comes back begins anew.
		r[1].Progress, r[0].Secret = progress(2), ""
		commit(callback.Changes{Put: []callback.Record{r[0], r[1]}})
		h.has(3, r[:3]...)
		h.restart()
		h.has(3, r[:3]...)
	}},
	{"many at once", false, func(h *hub) {
		r := inShard("set", 1, 1200)
		c := h.claim(1)
		h.ok(h.Commit(h.ctx, c, callback.Changes{Put: r}))
		p := make(map[callback.ID]callback.Progress)
		for i := range r {
			r[i].Progress = progress(i + 1)
			p[r[i].ID()] = r[i].Progress
		}
		h.ok(h.Commit(h.ctx, c, callback.Changes{Progress: p}))
		h.has(1, r...)
		h.ok(h.Commit(h.ctx, c, callback.Changes{Delete: ids(r[3:])}))
		h.has(1, r[:3]...)
	}},
	{"refused whole", false, func(h *hub) {
		r := inShard("set", 3, 2)
		c := h.claim(3)
		bad := r[1]
		bad.Secret = "\xff"
		stray := inShard("set", 4, 1)[0]
		for what, changes := range map[string]callback.Changes{
			"no UTF-8":                 {Put: []callback.Record{r[0], bad}},
			"record elsewhere":         {Put: []callback.Record{r[0], stray}},
			"progress elsewhere":       {Put: r[:1], Progress: map[callback.ID]callback.Progress{stray.ID(): progress(1)}},
			"deletes what's elsewhere": {Put: r[:1], Delete: []callback.ID{stray.ID()}},
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
		h.wants(context.Canceled, h.Commit(canceled, c, callback.Changes{Put: r}))
		h.wants(context.Canceled, h.Send(canceled, request(&r[0], 1)))
		_, err := h.Find(canceled, r[0].ID())
		h.wants(context.Canceled, err)
		h.has(3)
	}},
}

var listTests = []test{
	{"pages", false, func(h *hub) {
		want := make(map[string][]callback.Record)
		for set, n := range map[string]int{"a": 700, "b": 40, "c*[?\\": 1} {
			for i := range n {
				want[set] = append(want[set], record(set, i))
			}
			slices.SortFunc(want[set], func(a, b callback.Record) int { return compare(a.ID(), b.ID()) })
		}
		h.put(slices.Concat(slices.Collect(maps.Values(want))...)...)
		for set, want := range want {
			for _, limit := range []int{1, 7, 40, 350, 1000} {
				if limit == 1 && len(want) > 50 {
					continue // it takes long
				}
				var got []callback.Record
				for after := (callback.ID{}); ; {
					page, more, err := h.List(h.ctx, set, after, limit)
					h.ok(err)
					got = append(got, page...)
					if more != (len(got) < len(want)) || len(page) > limit || more && len(page) != limit {
						h.Fatalf("set %q by %d: %d records, more is %t behind %d of %d", set, limit, len(page), more, len(got), len(want))
					}
					if !more {
						break
					}
					after = page[len(page)-1].ID()
				}
				h.same(got, want)
			}
		}
		page, more, err := h.List(h.ctx, "none", callback.ID{}, 10)
		if err != nil || more || len(page) > 0 {
			h.Errorf("of no set: %d, %t, %v", len(page), more, err)
		}
	}},
	{"while records come and go", false, func(h *hub) {
		var stay, move []callback.Record
		for i := range 300 {
			if r := record("set", i); i%2 == 0 {
				stay = append(stay, r)
			} else {
				move = append(move, r)
			}
		}
		slices.SortFunc(stay, func(a, b callback.Record) int { return compare(a.ID(), b.ID()) })
		h.put(stay...)
		ctx, stop := context.WithCancel(h.ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				for _, r := range move {
					claims, err := h.Acquire(h.ctx, []int{r.ID().Shard()})
					if err == nil && len(claims) == 1 {
						err = h.Commit(h.ctx, claims[0], callback.Changes{Put: []callback.Record{r}})
					}
					if err == nil && r.Failed > 0 && len(claims) == 1 {
						err = h.Commit(h.ctx, claims[0], callback.Changes{Delete: []callback.ID{r.ID()}})
					}
					if err != nil || len(claims) != 1 {
						h.Errorf("%d claims, %v", len(claims), err)
						return
					}
					if ctx.Err() != nil {
						return
					}
				}
			}
		}()
		defer func() { stop(); <-ended }()
		for round := range 3 {
			seen := make(map[callback.ID]bool)
			for after := (callback.ID{}); ; {
				page, more, err := h.List(h.ctx, "set", after, 20)
				h.ok(err)
				for i := range page {
					if id := page[i].ID(); compare(id, after) <= 0 {
						h.Fatalf("%v comes behind %v", id, after)
					} else {
						after, seen[id] = id, true
					}
				}
				if !more {
					break
				}
			}
			for i := range stay {
				if !seen[stay[i].ID()] {
					h.Fatalf("in round %d subscription %v is skipped", round, stay[i].ID())
				}
			}
		}
	}},
}
