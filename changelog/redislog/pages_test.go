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

// setRecord changes the inventory record of the set.
func setRecord(t testing.TB, s inventory.Store, term uint64, at feed.Cursor, head string) inventory.Record {
	t.Helper()
	ok(t, s.Update(t.Context(), "set", update(term, at, head)))
	return load(t, s)
}

func update(term uint64, at feed.Cursor, head string) inventory.Update {
	return inventory.Update{At: at, Change: func(r *inventory.Record) error {
		r.Term, r.Head = term, []byte(head)
		return nil
	}}
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
// inventory and the pages. They are ignored when the set is created again, and the first Update of
// the new log removes the pages.
func TestRecreateAfterPartialDelete(t *testing.T) {
	t.Parallel()
	l := start(t, shared.url(), Options{Prefix: "old" + prefix()})
	admin, ctx, s := shared.admin(t), t.Context(), l.Inventories()
	makeSet(t, l, 10)
	r := setRecord(t, s, 7, feed.Cursor{}, "head")
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
	if anew.Term != 0 || len(anew.Head) != 0 || anew.Log.Begin == r.Log.Begin {
		t.Errorf("record = %+v, want an empty one with a new begin", anew)
	}
	wantErr(t, inventory.ErrFenced, s.Put(ctx, "set", anew.Log.Begin, 7, somePages(1, 1)))
	if pages := checkPages(t, s, anew.Log.Begin); len(pages) > 0 {
		t.Errorf("got pages %d", pages)
	}
	if found, err := s.Get(ctx, "set", anew.Log.Begin, []uint64{1, 2}); err != nil || found[0] != nil {
		t.Errorf("page 1 = %q, %v, want none", found[0], err)
	}
	setRecord(t, s, 8, anew.Log.Head, "new")
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
	r := setRecord(t, s, 7, feed.Cursor{}, "head")
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

// TestTermEndsWithRun restarts Redis, which ends the term of a writer because pages may be lost. Then
// the writer can write and remove nothing until it begins its term again.
func TestTermEndsWithRun(t *testing.T) {
	t.Parallel()
	server := newServer(t, "--appendfsync", "always")
	l := start(t, server.url(), Options{Prefix: prefix()})
	ctx, s := t.Context(), l.Inventories()
	makeSet(t, l, 10)
	at := add(t, l, "a", 3).Cursor
	r := setRecord(t, s, 7, feed.Cursor{}, "begun")
	ok(t, s.Put(ctx, "set", r.Log.Begin, 7, somePages(1, 100)))
	if r = setRecord(t, s, 7, feed.Cursor{}, "pinned"); r.Term != 7 { // by another hub
		t.Errorf("term after an update of another hub: got %d, want 7", r.Term)
	}
	ok(t, s.Put(ctx, "set", r.Log.Begin, 7, somePages(101, 200)))
	server.kill()
	ok(t, server.start())

	wantErr(t, inventory.ErrFenced, s.Put(ctx, "set", r.Log.Begin, 7, somePages(201, 201)))
	wantErr(t, inventory.ErrFenced, s.Remove(ctx, "set", r.Log.Begin, 7, []uint64{1}))
	now := load(t, s)
	if now.Term != 0 || string(now.Head) != "pinned" || !reflect.DeepEqual(now.Log, r.Log) {
		t.Errorf("record = %+v, want %+v without a term", now, r)
	}
	if n := len(checkPages(t, s, r.Log.Begin)); n != 200 {
		t.Errorf("pages: got %d, want 200", n)
	}
	now = setRecord(t, s, 7, at, "next")
	ok(t, s.Remove(ctx, "set", r.Log.Begin, 7, []uint64{1, 2, 130, 999}))
	ok(t, s.Put(ctx, "set", r.Log.Begin, 7, somePages(300, 300)))
	if n := len(checkPages(t, s, r.Log.Begin)); n != 198 || now.Term != 7 {
		t.Errorf("got %d pages and term %d, want 198 and 7", n, now.Term)
	}
}

// TestLostRecord loses the newest record in a crash of Redis, in the middle of an update of another
// hub that has read the lost record. The update starts over.
func TestLostRecord(t *testing.T) {
	t.Parallel()
	server := newServer(t, "--appendfsync", "always")
	l := start(t, server.url(), Options{Prefix: prefix()})
	ctx, s := t.Context(), l.Inventories()
	makeSet(t, l, 10)
	head := add(t, l, "a", 3).Cursor
	setRecord(t, s, 0, head, "kept")
	file := readAOF(t, server)
	lost := add(t, l, "lost", 1).Cursor
	setRecord(t, s, 0, lost, "lost")
	var read []string
	ok(t, s.Update(ctx, "set", inventory.Update{Change: func(r *inventory.Record) error {
		if read = append(read, string(r.Head)); len(read) == 1 {
			server.kill()
			ok(t, os.WriteFile(aof(server), file, 0o600))
			ok(t, server.start())
			setRecord(t, s, 0, head, "other")
		}
		r.Head = append(r.Head, " updated"...)
		return nil
	}}))
	if want := []string{"lost", "other"}; !slices.Equal(read, want) {
		t.Errorf("records in the update: got %q, want %q", read, want)
	}
	wantErr(t, inventory.ErrLog, s.Update(ctx, "set", update(0, lost, "late")))
	if now := load(t, s); string(now.Head) != "other updated" {
		t.Errorf("head: got %q, want %q", now.Head, "other updated")
	}
}

// TestDurableWaits checks that only a Durable Update waits for replicas.
func TestDurableWaits(t *testing.T) {
	t.Parallel()
	l := startOn(t, connect(t, shared.url(), redisconn.Options{Wait: 1, WaitTimeout: time.Millisecond}), Options{})
	s := l.Inventories()
	if err := l.Make(t.Context(), "set", feed.Description{}, 10); !errors.Is(err, feed.ErrUnknown) {
		t.Fatal(err)
	}
	setRecord(t, s, 0, feed.Cursor{}, "x")
	durable := update(0, feed.Cursor{}, "y")
	durable.Durable = true
	wantErr(t, feed.ErrUnknown, s.Update(t.Context(), "set", durable))
}

// TestDamagedRecord checks that a damaged record is an error.
func TestDamagedRecord(t *testing.T) {
	l := start(t, shared.url(), Options{Prefix: prefix()})
	s := l.Inventories()
	makeSet(t, l, 10)
	setRecord(t, s, 0, feed.Cursor{}, "x")
	ok(t, shared.admin(t).HSet(t.Context(), l.setKey("set"), "inventory", "nonsense").Err())
	_, err := s.Load(t.Context(), "set")
	wantErr(t, changelog.ErrCorrupt, err)
}
