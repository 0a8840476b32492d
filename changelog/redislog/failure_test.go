package redislog

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/testutil/redistest"
)

func TestLostAnswer(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, shared.addr)
	l := start(t, "redis://"+p.Addr(), Options{})
	makeSet(t, l, 3)
	var lost atomic.Int32
	rounds := 12
	if testing.Short() {
		rounds = 4 // each number of lost answers, and the first again
	}
	for i := range rounds {
		n := int32(1 + i%3)
		lost.Store(n) // fewer than the number of attempts
		p.Lose(func() bool { return lost.Add(-1) >= 0 })
		kept := changelog.Publish{Changes: changes("kept", 2), Key: "key", Hash: [32]byte{1}}
		other := kept
		other.Hash[0] = 2
		head := state(t, l).Head
		lost.Store(n)
		a, err := l.Append(t.Context(), "set", changelog.Publish{Changes: changes("x", 4)}, kept, other, changelog.Publish{Changes: changes("y", 1)})
		ok(t, err)
		if a[0].Replayed || a[0].After != head || a[3].Replayed || a[1].Replayed != (i > 0) || !errors.Is(a[2].Err, feed.ErrKeyReused) {
			t.Errorf("append %d with %d lost answers = %+v, want ErrKeyReused for the third, and replays after a lost answer only", i, n, a)
		}
		if s := state(t, l); s.Head != a[3].Cursor {
			t.Fatalf("append %d was added twice: head = %v, want %v", i, s.Head, a[3].Cursor)
		}
	}
	if got := len(all(t, l, feed.Cursor{})); got != rounds*5+2 {
		t.Errorf("got %d entries", got)
	}
	// Delete returns success. The first answer is to the read of the set.
	lost.Store(2)
	p.Lose(func() bool { return lost.Add(-1) == 0 })
	ok(t, l.Delete(t.Context(), "set"))
	p.Lose(func() bool { return true })
	_, err := l.Append(t.Context(), "set", changelog.Publish{Changes: changes("x", 1)})
	wantErr(t, feed.ErrUnavailable, err) // the state was not read
	ok(t, start(t, shared.url(), Options{Prefix: l.opts.Prefix}).Make(t.Context(), "set", feed.Description{}, 10))
	p.Lose(nil)
	l.cacheTail("set", tail{10, 0, state(t, l).Begin}) // reading the state also opens a connection; if only the answer to its greeting were lost, no result would be unknown
	p.Lose(func() bool { return true })
	_, err = l.Append(t.Context(), "set", changelog.Publish{Changes: changes("x", 1)})
	wantErr(t, feed.ErrUnknown, err)
}

// TestLateRequest sends a delayed request after the set has dropped its answer. It is refused,
// because its time is too old.
func TestLateRequest(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	now.Store(time.Now().UnixMicro())
	admin := shared.admin(t)
	tick := func(d time.Duration) {
		now.Add(d.Microseconds())
		ok(t, admin.Set(t.Context(), t.Name(), now.Load(), 0).Err())
	}
	tick(0)
	l := start(t, shared.url(), Options{ClockSkew: time.Second, Now: func() time.Time { return time.UnixMicro(now.Load()) }, edit: func(s string) string {
		return strings.Replace(s, "redis.call('TIME')", "{ 0, redis.call('GET', '"+t.Name()+"') }", 1)
	}})
	makeSet(t, l, 10)
	a := appendOp{publishes: []changelog.Publish{{Changes: changes("a", 1)}}, id: "call", common: l.commonArgs(), doubtArgs: l.doubtArgs()}
	a.cutBlocks(tail{10, 0, state(t, l).Begin})
	first := ""
	for range 400 { // ten seconds
		reply := send(t, l, &a)
		switch reply.Word() {
		case "ok":
			if first == "" {
				first = reply.Text(1)
			}
			if reply.Text(1) != first {
				t.Fatalf("answer = %q, want the first answer %q", reply.Text(1), first)
			}
		case "clock":
		default:
			t.Fatal(reply)
		}
		tick(25 * time.Millisecond)
		add(t, l, "other", 1) // drops old answers
	}
	if n := state(t, l).Head.Position; n != 401 {
		t.Errorf("got head at %d", n)
	}
	checkFewCalls(t, l)
}

// checkFewCalls checks that the set does not store the answers of all calls.
func checkFewCalls(t *testing.T, l *Log) {
	t.Helper()
	for _, calls := range l.keys("set")[5:7] {
		if n := shared.admin(t).HLen(t.Context(), calls).Val(); n > 100 {
			t.Errorf("got the answers of %d calls stored", n)
		}
	}
}

// TestClockSetBack trims sets while the clock is years ahead. After it was set back, the answers to
// appends expire in time as before.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	now.Store(time.Now().UnixMicro())
	l := startSet(t, shared, 10, Options{ClockSkew: time.Second, Now: func() time.Time { return time.UnixMicro(now.Load()) }, edit: storeClock})
	add(t, l, "a", 1)
	now.Add(years.Microseconds())
	trim(t, l, 0)
	now.Add(-years.Microseconds())
	for range 400 { // ten seconds
		now.Add(25_000)
		add(t, l, "a", 1)
	}
	checkFewCalls(t, l)
}

func TestEmptiedRedis(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	l := startSet(t, s, 10, Options{})
	c := add(t, l, "a", 3).Cursor
	ok(t, s.admin(t).FlushAll(t.Context()).Err())
	_, err := l.Append(t.Context(), "set", changelog.Publish{Changes: changes("b", 1)})
	wantErr(t, feed.ErrNoSet, err)
	_, err = l.Since(t.Context(), "set", c, 0)
	wantErr(t, feed.ErrGone, err)
	id := l.ID()
	makeSet(t, l, 10) // the memory starts again
	_, err = l.Since(t.Context(), "set", c, 0)
	wantErr(t, feed.ErrGone, err)
	add(t, l, "b", 1)
	if again := start(t, s.url(), Options{Prefix: l.opts.Prefix}); again.ID() != id {
		t.Error("identity changed")
	}
}

func TestFullRedis(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	l := startSet(t, s, 10, Options{})
	kept := changelog.Publish{Changes: changes("kept", 1), Key: "key"}
	_, err := l.Append(t.Context(), "set", kept)
	ok(t, err)
	add(t, l, "a", 39)
	pages := l.Inventories()
	begin := setRecord(t, pages, 7, feed.Cursor{}, "").Log.Begin
	ok(t, pages.Put(t.Context(), "set", begin, 7, somePages(1, 70)))
	before := state(t, l)
	ok(t, s.admin(t).ConfigSet(t.Context(), "maxmemory", "1000000").Err())
	_, err = l.Append(t.Context(), "set", changelog.Publish{Changes: changes("b", 3)})
	wantErr(t, feed.ErrFull, err)
	wantErr(t, feed.ErrFull, l.Check(t.Context()))
	wantErr(t, feed.ErrFull, l.Make(t.Context(), "other", feed.Description{}, 10))
	wantErr(t, feed.ErrFull, pages.Put(t.Context(), "set", begin, 7, somePages(71, 140)))
	setRecord(t, pages, 8, feed.Cursor{}, "x") // a full Redis accepts records and the removal of pages
	ok(t, pages.Remove(t.Context(), "set", begin, 8, []uint64{3, 64}))
	if n := len(checkPages(t, pages, begin)); n != 68 {
		t.Errorf("got %d pages", n)
	}
	if s := state(t, l); s != before {
		t.Errorf("state = %v, want %v", s, before)
	}
	if n := len(all(t, l, feed.Cursor{})); n != 40 {
		t.Errorf("got %d entries", n)
	}
	a, err := l.Append(t.Context(), "set", kept)
	if err != nil || !a[0].Replayed {
		t.Errorf("Append() of a retry = %v, %v, want it replayed", a, err)
	}
	removed, err := l.Trim(t.Context(), "set", changelog.Retention{Count: 1})
	if removed != 30 {
		t.Errorf("Trim() = %d, %v, want 30", removed, err)
	}
	start(t, s.url(), Options{Prefix: l.opts.Prefix})
	ok(t, l.Delete(t.Context(), "set"))
	ok(t, s.admin(t).ConfigSet(t.Context(), "maxmemory", "0").Err())
	makeSet(t, l, 10)
	add(t, l, "b", 3)
}

// TestFullRedisWaits checks that a retry of a stored publish does not fail because Redis is full.
func TestFullRedisWaits(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	o := Options{Prefix: startSet(t, s, 10, Options{}).opts.Prefix}
	l := startOn(t, connect(t, s.url(), redisconn.Options{Wait: 1, WaitTimeout: 10 * time.Millisecond}), o)
	kept := changelog.Publish{Changes: changes("kept", 1), Key: "key"}
	for _, most := range []string{"0", "1000000"} {
		ok(t, s.admin(t).ConfigSet(t.Context(), "maxmemory", most).Err())
		_, err := l.Append(t.Context(), "set", kept)
		wantErr(t, feed.ErrUnknown, err)
	}
}

func TestEviction(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--maxmemory-policy", "allkeys-lru")
	policy := func(is string) { ok(t, s.admin(t).ConfigSet(t.Context(), "maxmemory-policy", is).Err()) }
	_, err := openAt(t, s.url(), Options{})
	wantErr(t, feed.ErrUnavailable, err)
	if !strings.Contains(err.Error(), "allkeys-lru") || !strings.Contains(err.Error(), "noeviction") {
		t.Errorf("error = %v, want it to name both policies", err)
	}
	policy("noeviction")
	l := startSet(t, s, 10, Options{})
	add(t, l, "a", 1)
	kept := changelog.Publish{Changes: changes("kept", 1), Key: "key"}
	_, err = l.Append(t.Context(), "set", kept)
	ok(t, err)
	policy("volatile-lru")
	wantErr(t, feed.ErrUnavailable, l.Check(t.Context()))
	if a, err := l.Append(t.Context(), "set", kept, changelog.Publish{Changes: changes("b", 1)}); err != nil || !a[0].Replayed || !errors.Is(a[1].Err, feed.ErrUnavailable) {
		t.Errorf("Append of a retry and a new publish = %+v, %v, want a replay, and ErrUnavailable for the new one", a, err)
	}
	_, err = l.Append(t.Context(), "set", changelog.Publish{Changes: changes("b", 1)})
	wantErr(t, feed.ErrUnavailable, err)
	policy("noeviction")
	ok(t, l.Check(t.Context()))
	add(t, l, "b", 1)
}

// TestWithoutInfo checks that a user who may not run INFO gets a warning, but also a secret and
// inventories.
func TestWithoutInfo(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	ok(t, server.admin(t).ACLSetUser(t.Context(), "hub", "on", ">pass#word", "~*", "&*", "+@all", "-info").Err())
	url := "redis://hub:pass%23word@" + server.addr
	var log bytes.Buffer
	o := Options{Prefix: prefix()}
	a := start(t, url, o)
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	b := start(t, url, o)
	if text := log.String(); !strings.Contains(text, "make sure that its maxmemory-policy is noeviction") || strings.Contains(text, "word") {
		t.Errorf("log output = %s, want the advice about maxmemory-policy without the password", text)
	}
	if a.Secret() == "" || a.Secret() != b.Secret() {
		t.Errorf("Secret() = %q and %q, want equal ones", a.Secret(), b.Secret())
	}
	_, err := openAt(t, "redis://hub:wrong@"+server.addr, Options{})
	wantErr(t, feed.ErrUnavailable, err)

	makeSet(t, a, 10)
	s := a.Inventories()
	r := setRecord(t, s, 7, feed.Cursor{}, "x")
	ok(t, s.Put(t.Context(), "set", r.Log.Begin, 7, somePages(1, 3)))
	ok(t, s.Remove(t.Context(), "set", r.Log.Begin, 7, []uint64{2}))
	setRecord(t, s, 0, feed.Cursor{}, "y")
	if n := len(checkPages(t, s, r.Log.Begin)); n != 2 {
		t.Errorf("got %d pages", n)
	}
}

func TestClockSkew(t *testing.T) {
	var off atomic.Int64
	l := startSet(t, shared, 10, Options{Now: func() time.Time { return time.Now().Add(time.Duration(off.Load())) }})
	add(t, l, "a", 1)
	for _, d := range []time.Duration{2 * time.Minute, -2 * time.Minute} {
		off.Store(int64(d))
		before := state(t, l)
		_, err := l.Append(t.Context(), "set", changelog.Publish{Changes: changes("b", 1)})
		wantErr(t, feed.ErrClock, err)
		wantErr(t, feed.ErrClock, l.Check(t.Context()))
		if s := state(t, l); s != before {
			t.Errorf("state = %v, want %v", s, before)
		}
	}
	off.Store(int64(30 * time.Second))
	add(t, l, "b", 1)
	ok(t, l.Check(t.Context()))
}

// wrongClock returns a log on a Redis whose clock a test can set ahead.
func wrongClock(t *testing.T) (l *Log, ahead func(time.Duration)) {
	ahead = func(d time.Duration) { ok(t, shared.admin(t).Set(t.Context(), t.Name(), int64(d.Seconds()), 0).Err()) }
	ahead(0)
	return startSet(t, shared, 10, Options{edit: func(s string) string {
		return strings.Replace(s, "return t[1] * 1000000", "return (t[1] + redis.call('GET', '"+t.Name()+"')) * 1000000", 1)
	}}), ahead
}

const years = 10 * 365 * 24 * time.Hour

// TestClockAheadAfterTick sets the clock of Redis ahead after a Tick. Nothing may be removed by
// age.
func TestClockAheadAfterTick(t *testing.T) {
	t.Parallel()
	l, ahead := wrongClock(t)
	kept := changelog.Publish{Changes: changes("a", 35), Key: "key"}
	_, err := l.Append(t.Context(), "set", kept)
	ok(t, err)
	doubtful, err := l.Tick(t.Context())
	if err != nil || doubtful {
		t.Fatal(doubtful, err)
	}
	ahead(years)
	_, err = l.Trim(t.Context(), "set", changelog.Retention{Age: time.Hour})
	ok(t, err)
	ahead(0)
	if s := state(t, l); s.Floor.Position != 0 {
		t.Errorf("Floor = %v, want position 0", s.Floor)
	}
	if a, err := l.Append(t.Context(), "set", kept); err != nil || !a[0].Replayed {
		t.Errorf("key was removed: %v", err)
	}
}

// TestMakeWithWrongClock checks that no set is created while the clock of Redis is ahead, because
// it would accept no change after the clock is corrected.
func TestMakeWithWrongClock(t *testing.T) {
	t.Parallel()
	l, ahead := wrongClock(t)
	ahead(years)
	wantErr(t, feed.ErrClock, l.Make(t.Context(), "new", feed.Description{}, 10))
	makeSet(t, l, 10) // succeeds, because the set exists
	ahead(0)
	ok(t, l.Make(t.Context(), "new", feed.Description{}, 10))
	_, err := l.Append(t.Context(), "new", changelog.Publish{Changes: changes("a", 1)})
	ok(t, err)
}

func TestDamage(t *testing.T) {
	l := startSet(t, shared, 100, Options{})
	for range 5 {
		add(t, l, "a", 10)
	}
	entries := all(t, l, feed.Cursor{})
	admin, ctx := shared.admin(t), t.Context()
	ok(t, admin.HDel(ctx, l.keys("set")[2], "3").Err())
	for _, c := range []feed.Cursor{entries[19].Cursor, entries[24].Cursor} {
		_, err := l.Since(ctx, "set", c, 0)
		wantErr(t, changelog.ErrCorrupt, err)
	}
	ok(t, admin.HDel(ctx, l.keys("set")[2], "4", "5").Err())
	_, err := l.At(ctx, "set", 45)
	wantErr(t, changelog.ErrCorrupt, err)
	if !strings.Contains(err.Error(), "is missing in ") || strings.Contains(err.Error(), "user_script") {
		t.Errorf("error = %v, want it to name the missing key without the script", err)
	}
	_, err = l.Since(ctx, "set", entries[19].Cursor, 0)
	wantErr(t, changelog.ErrCorrupt, err)
}

// TestSetsWithDamagedSet checks that Sets returns all other sets if one is damaged.
func TestSetsWithDamagedSet(t *testing.T) {
	l := start(t, shared.url(), Options{})
	for _, set := range []string{"bad", "good", "other"} {
		ok(t, l.Make(t.Context(), set, feed.Description{}, 10))
	}
	ok(t, shared.admin(t).HSet(t.Context(), l.setKey("bad"), "size", 0).Err())
	for _, names := range [][]string{nil, {"bad", "good", "other"}} {
		states, err := l.Sets(t.Context(), names...)
		wantErr(t, changelog.ErrCorrupt, err)
		if len(states) != 2 || states[0].Set != "good" || states[1].Set != "other" || !strings.Contains(err.Error(), `"bad"`) {
			t.Errorf("Sets() = %v, %v, want the good sets and an error that names \"bad\"", states, err)
		}
	}
}

// TestUndeclaredCluster checks that a server of a Cluster is refused if its URL does not declare
// it, unless it serves all slots.
func TestUndeclaredCluster(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--cluster-enabled", "yes")
	admin := s.admin(t)
	for _, tt := range []struct {
		name     string
		from, to int
		want     string
	}{
		{"no slot", 0, -1, "serves 0 of 16384 slots; add ?cluster=true"},
		{"one slot", 5, 5, "serves 1 of 16384 slots; add ?cluster=true"},
		{"two ranges", 100, 200, "serves 102 of 16384 slots; add ?cluster=true"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.from <= tt.to {
				ok(t, admin.ClusterAddSlotsRange(t.Context(), tt.from, tt.to).Err())
			}
			_, err := openAt(t, s.url(), Options{})
			if err == nil || !strings.Contains(err.Error(), tt.want) || IsTemporary(err) {
				t.Errorf("Open() = %v (IsTemporary %v), want %q", err, IsTemporary(err), tt.want)
			}
		})
	}
	for _, r := range [][2]int{{0, 4}, {6, 99}, {201, 16383}} {
		ok(t, admin.ClusterAddSlotsRange(t.Context(), r[0], r[1]).Err())
	}
	for {
		info, err := admin.ClusterInfo(t.Context()).Result()
		if ok(t, err); strings.Contains(info, "cluster_state:ok") {
			break
		}
	}
	startSet(t, s, 10, Options{})
}
