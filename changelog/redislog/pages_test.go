package redislog

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/storetest"
	"github.com/rshub/rshub/internal/redisconn"
)

func TestPages(t *testing.T) {
	t.Parallel()
	storetest.Store(t, env(shared.url()))
}

func TestPagesOnCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make prove PART=stores")
	}
	t.Parallel()
	storetest.Store(t, env(newCluster(t)))
}

func TestInventories(t *testing.T) {
	t.Parallel()
	storetest.Inventory(t, env(shared.url()))
}

// env returns the memory of one test in a Redis.
func env(url string) func(t *testing.T) storetest.Env {
	return func(t *testing.T) storetest.Env {
		l := start(t, url, Options{Prefix: prefix()})
		return storetest.Env{Store: l.Inventories(), Log: l}
	}
}

// load returns the inventory record of the set.
func load(t testing.TB, s inventory.Store) inventory.Record {
	t.Helper()
	r, err := s.Load(t.Context(), "set")
	ok(t, err)
	return r
}

// swapRecord replaces the inventory record of the set.
func swapRecord(t testing.TB, s inventory.Store, attempt uint64, at feed.Cursor, head string) inventory.Record {
	t.Helper()
	r := load(t, s)
	ok(t, s.Swap(t.Context(), "set", inventory.Swap{Begin: r.Log.Begin, Version: r.Version, At: at, Attempt: attempt, Head: []byte(head)}))
	return load(t, s)
}

// somePages returns the pages with numbers in [from, to]. Page n is in the hash n/64%64, so some
// share a hash.
func somePages(from, to uint64) (pages []inventory.Page) {
	for n := from; n <= to; n++ {
		pages = append(pages, inventory.Page{Number: n, Bytes: fmt.Appendf(nil, "%d \x00\r\n%s", n, strings.Repeat("p", int(n%100)))})
	}
	return pages
}

// checkPages returns the numbers of the existing pages, and checks their bytes.
func checkPages(t testing.TB, s inventory.Store, begin int64) (numbers []uint64) {
	t.Helper()
	for n, err := range s.Numbers(t.Context(), "set", begin) {
		ok(t, err)
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	found, err := s.Get(t.Context(), "set", begin, numbers)
	ok(t, err)
	for i, n := range numbers {
		if want := somePages(n, n)[0].Bytes; string(found[i]) != string(want) {
			t.Errorf("page %d = %q, want %q", n, found[i], want)
		}
	}
	return numbers
}

// TestRecreateAfterPartialDelete kills a hub while it deletes a set, which leaves the record of the
// inventory and the pages. They are ignored when the set is created again, and the first Swap of
// the new log removes the pages.
func TestRecreateAfterPartialDelete(t *testing.T) {
	t.Parallel()
	l := start(t, shared.url(), Options{Prefix: "old" + prefix()})
	admin, ctx, s := shared.admin(t), t.Context(), l.Inventories()
	makeSet(t, l, 10)
	r := swapRecord(t, s, 7, feed.Cursor{}, "head")
	ok(t, s.Put(ctx, "set", r.Log.Begin, 7, somePages(1, 300)))
	left := admin.HGet(ctx, l.setKey("set"), "inventory").Val()
	remove(t, l)
	if n := admin.Exists(ctx, l.allKeys("set")[1:]...).Val(); n != 0 {
		t.Errorf("got %d keys left", n)
	}
	makeSet(t, l, 10)
	// Simulate that the hub was killed.
	ok(t, admin.HSet(ctx, l.setKey("set"), "inventory", left).Err())
	ok(t, admin.HSet(ctx, l.pageKey("set", 0), "1", "old").Err())

	anew := load(t, s)
	if anew.Version != 0 || anew.Attempt != 0 || len(anew.Head) != 0 || anew.Log.Begin == r.Log.Begin {
		t.Errorf("record = %+v, want an empty one with a new begin", anew)
	}
	wantErr(t, inventory.ErrRaced, s.Put(ctx, "set", anew.Log.Begin, 7, somePages(1, 1)))
	if pages := checkPages(t, s, anew.Log.Begin); len(pages) > 0 {
		t.Errorf("got pages %d", pages)
	}
	if found, err := s.Get(ctx, "set", anew.Log.Begin, []uint64{1, 2}); err != nil || found[0] != nil {
		t.Errorf("page 1 = %q, %v, want none", found[0], err)
	}
	wantErr(t, inventory.ErrLog, s.Swap(ctx, "set", inventory.Swap{Begin: r.Log.Begin, Version: r.Version}))
	swapRecord(t, s, 8, anew.Log.Head, "new")
	if n := admin.Exists(ctx, l.pageKeys("set")...).Val(); n != 0 {
		t.Errorf("got %d keys of pages left", n)
	}
}

// TestSweepDeleted checks that the remains of such sets are removed, a few sets at a time, if the
// sets are not created again, and that nothing else is removed.
func TestSweepDeleted(t *testing.T) {
	t.Parallel()
	l := start(t, shared.url(), Options{Prefix: "sweep" + prefix()})
	admin, ctx, s := shared.admin(t), t.Context(), l.Inventories()
	makeSet(t, l, 10)
	add(t, l, "a", 30)
	r := swapRecord(t, s, 7, feed.Cursor{}, "head")
	ok(t, s.Put(ctx, "set", r.Log.Begin, 7, somePages(1, 300)))
	for i := range 5 {
		name := fmt.Sprint("gone", i)
		ok(t, l.Make(ctx, name, feed.Description{}, 10))
		ok(t, l.Delete(ctx, name))
		if i == 4 {
			break // nothing remained
		}
		ok(t, admin.HSet(ctx, l.setKey(name), "inventory", "1 2 3 4 head").Err())
		for h := range pageHashes {
			ok(t, admin.HSet(ctx, l.pageKey(name, h), "1", "old").Err())
		}
	}
	for i, want := range []int{3, 1, 0} {
		if n, err := l.SweepDeleted(ctx, 3); n != want || err != nil {
			t.Errorf("round %d: SweepDeleted() = %d, %v; want %d", i, n, err, want)
		}
	}
	for i := range 5 {
		name := fmt.Sprint("gone", i)
		if n := admin.Exists(ctx, l.allKeys(name)[1:]...).Val(); n != 0 || admin.HExists(ctx, l.setKey(name), "inventory").Val() {
			t.Errorf("got %d keys of %s left", n, name)
		}
		if !strings.HasPrefix(admin.HGet(ctx, l.setKey(name), "log").Val(), "deleted ") {
			t.Errorf("name of deleted set %s is missing", name)
		}
	}
	if pages := checkPages(t, s, r.Log.Begin); len(pages) != 300 {
		t.Errorf("got %d pages of an existing set", len(pages))
	}
	if state, err := l.State(ctx, "set"); err != nil || state.Head.Position != 30 {
		t.Errorf("State() = %+v, %v, want the head at position 30", state, err)
	}
}

// TestAttemptEndsWithRun restarts Redis, which ends an attempt because pages may be lost. A writer
// that does not notice can write neither pages nor a record that needs them, and can remove
// nothing.
func TestAttemptEndsWithRun(t *testing.T) {
	t.Parallel()
	server := newServer(t, "--appendfsync", "always")
	l := start(t, server.url(), Options{Prefix: prefix()})
	ctx, s := t.Context(), l.Inventories()
	makeSet(t, l, 10)
	at := add(t, l, "a", 3).Cursor
	r := swapRecord(t, s, 7, feed.Cursor{}, "reserved")
	ok(t, s.Put(ctx, "set", r.Log.Begin, 7, somePages(1, 100)))
	again := swapRecord(t, s, 7, feed.Cursor{}, "pinned") // another hub pins a root in the meantime
	if again.Attempt != 7 || again.Version == r.Version {
		t.Errorf("record = %+v, want %+v", again, r)
	}
	ok(t, s.Put(ctx, "set", r.Log.Begin, 7, somePages(101, 200)))
	server.kill()
	ok(t, server.start())

	wantErr(t, inventory.ErrRaced, s.Put(ctx, "set", r.Log.Begin, 7, somePages(201, 201)))
	wantErr(t, inventory.ErrRaced, s.Swap(ctx, "set", inventory.Swap{Begin: r.Log.Begin, Version: again.Version, At: at, Head: []byte("done")}))
	wantErr(t, inventory.ErrRaced, s.Remove(ctx, "set", r.Log.Begin, []uint64{1}))
	now := load(t, s)
	if now.Attempt != 0 || now.Version == again.Version || string(now.Head) != "pinned" || !reflect.DeepEqual(now.Log, again.Log) {
		t.Errorf("record = %+v, want %+v", now, again)
	}
	if n := len(checkPages(t, s, r.Log.Begin)); n != 200 {
		t.Errorf("got %d pages", n)
	}
	now = swapRecord(t, s, 9, at, "next")
	ok(t, s.Remove(ctx, "set", r.Log.Begin, []uint64{1, 2, 130, 999}))
	ok(t, s.Put(ctx, "set", r.Log.Begin, 9, somePages(300, 300)))
	if n := len(checkPages(t, s, r.Log.Begin)); n != 198 || now.Attempt != 9 {
		t.Errorf("got %d pages, record %+v", n, now)
	}
}

// TestLostRecord loses the newest record in a crash of Redis, and then another hub writes a record.
// A hub that has read the lost record must not mistake the new one for it.
func TestLostRecord(t *testing.T) {
	t.Parallel()
	server := newServer(t, "--appendfsync", "always")
	l := start(t, server.url(), Options{Prefix: prefix()})
	ctx, s := t.Context(), l.Inventories()
	makeSet(t, l, 10)
	head := add(t, l, "a", 3).Cursor
	swapRecord(t, s, 0, head, "kept")
	file := readAOF(t, server)
	lost := add(t, l, "lost", 1).Cursor
	r := swapRecord(t, s, 0, lost, "lost")
	server.kill()
	ok(t, os.WriteFile(aof(server), file, 0o600))
	ok(t, server.start())

	other := swapRecord(t, s, 0, head, "other")
	for _, version := range []uint64{r.Version, r.Version + 1} {
		wantErr(t, inventory.ErrRaced, s.Swap(ctx, "set", inventory.Swap{Begin: r.Log.Begin, Version: version, Head: []byte("late")}))
	}
	wantErr(t, inventory.ErrLog, s.Swap(ctx, "set", inventory.Swap{Begin: r.Log.Begin, Version: other.Version, At: lost}))
	if now := load(t, s); !reflect.DeepEqual(now.Head, other.Head) || now.Version != other.Version {
		t.Errorf("record = %+v, want the other hub's", now)
	}
}

// TestDurableWaits checks that only a Durable Swap waits for replicas.
func TestDurableWaits(t *testing.T) {
	t.Parallel()
	l := startOn(t, connect(t, shared.url(), redisconn.Options{Wait: 1, WaitTimeout: time.Millisecond}), Options{})
	s := l.Inventories()
	if err := l.Make(t.Context(), "set", feed.Description{}, 10); !errors.Is(err, feed.ErrUnknown) {
		t.Fatal(err)
	}
	r := swapRecord(t, s, 0, feed.Cursor{}, "x")
	wantErr(t, feed.ErrUnknown, s.Swap(t.Context(), "set", inventory.Swap{Begin: r.Log.Begin, Version: r.Version, Durable: true}))
}

// TestDamagedRecord checks that a damaged record is an error.
func TestDamagedRecord(t *testing.T) {
	l := start(t, shared.url(), Options{Prefix: prefix()})
	s := l.Inventories()
	makeSet(t, l, 10)
	swapRecord(t, s, 0, feed.Cursor{}, "x")
	ok(t, shared.admin(t).HSet(t.Context(), l.setKey("set"), "inventory", "nonsense").Err())
	_, err := s.Load(t.Context(), "set")
	wantErr(t, changelog.ErrCorrupt, err)
}
