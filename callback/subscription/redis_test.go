package subscription

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/conntest"
	"github.com/rshub/rshub/internal/testutil/redistest"
)

type redisClaims = claim.Redis

// An onRedis is a hub's registry with its claims.
type onRedis struct {
	*Redis
	*redisClaims
}

func hubOn(t testing.TB, s *redistest.Server, prefix string) onRedis {
	t.Helper()
	return hubWith(t, conntest.Open(t, s.Addr, redisconn.Options{}), prefix, RedisOptions{}, claim.RedisOptions{})
}

func hubWith(t testing.TB, c *redisconn.Conn, prefix string, o RedisOptions, claims claim.RedisOptions) onRedis {
	t.Helper()
	r, err := NewRedis(c, prefix, o)
	if err != nil {
		t.Fatal(err)
	}
	return onRedis{r, claim.NewRedis(c, prefix, ClaimKind, claims)}
}

// An onDisk is the only hub's registry with its claims.
type onDisk struct {
	*Disk
	*claim.Local
}

func openDisk(t testing.TB, data Map) onDisk {
	t.Helper()
	claims, err := claim.OpenLocal(t.Context(), data, Shards)
	if err != nil {
		t.Fatal(err)
	}
	d, err := OpenDisk(t.Context(), data, claims, nil)
	if err != nil {
		t.Fatal(err)
	}
	return onDisk{d, claims}
}

func claimOn(t testing.TB, r claim.Store, shard int) claim.Claim {
	t.Helper()
	claims, err := r.Acquire(t.Context(), []int{shard})
	if err != nil || len(claims) != 1 {
		t.Fatalf("claims are %v, %v", claims, err)
	}
	return claims[0]
}

// subscriptions returns n subscriptions that are in a shard.
func subscriptions(shard, n int) (all []Record) {
	for i := 0; len(all) < n; i++ {
		s := Subscription{Set: "set", Callback: fmt.Sprint("https://example.org/", i), LeaseEnd: time.UnixMicro(1), Made: time.UnixMicro(1)}
		if s.ID().Shard() == shard {
			all = append(all, Record{Subscription: s})
		}
	}
	return all
}

// While Redis is full, nothing new is taken. Existing subscriptions go on.
func TestRedisFull(t *testing.T) {
	s := redistest.Start(t)
	ctx, admin := t.Context(), s.Client()
	r := hubOn(t, s, "p")
	some := subscriptions(1, 2)
	c := claimOn(t, r, 1)
	q := Request{Mode: Subscribe, Set: "set", Callback: some[0].Callback}
	for _, err := range []error{
		r.Send(ctx, q), r.Commit(ctx, c, Changes{Put: some[:1]}), admin.ConfigSet(ctx, "maxmemory", "1").Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Send(ctx, q); !errors.Is(err, feed.ErrFull) {
		t.Errorf("send: %v", err)
	}
	if err := r.Commit(ctx, c, Changes{Put: some[1:]}); !errors.Is(err, feed.ErrFull) {
		t.Errorf("put: %v", err)
	}
	if _, err := r.Join(ctx); err != nil {
		t.Error(err)
	}
	if held, err := r.Renew(ctx, []claim.Claim{c}); err != nil || len(held) != 1 {
		t.Errorf("renewed is %v, %v", held, err)
	}
	claimOn(t, r, 2)
	if err := r.Commit(ctx, c, Changes{Progress: map[ID]Progress{some[0].ID(): {Failed: 7}}}); err != nil {
		t.Error(err)
	}
	if found, err := r.Find(ctx, some[0].ID()); err != nil || found.Failed != 7 {
		t.Errorf("found is %v, %v", found, err)
	}
	requests, err := r.Inbox(ctx, 1, 0, 10)
	if err != nil || len(requests) != 1 {
		t.Fatalf("requests are %v, %v", requests, err)
	}
	if err := r.Commit(ctx, c, Changes{Delete: []ID{some[0].ID()}, Done: []uint64{requests[0].Number}}); err != nil {
		t.Error(err)
	}
	if err := r.Release(ctx, []claim.Claim{c}); err != nil {
		t.Error(err)
	}
	if err := r.Leave(ctx); err != nil {
		t.Error(err)
	}
}

// After Redis has lost everything, numbers still rise, and the holder of an old
// claim is still fenced.
func TestRedisForgets(t *testing.T) {
	s := redistest.Start(t)
	ctx := t.Context()
	r := hubOn(t, s, "p")
	c := claimOn(t, r, 1)
	q := Request{Mode: Retry, Set: "set", Callback: subscriptions(1, 1)[0].Callback}
	last := uint64(0)
	for range 3 {
		for _, cmd := range []func(context.Context) *redis.StatusCmd{s.Client().FlushAll, s.Client().ScriptFlush} {
			if err := cmd(ctx).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Commit(ctx, c, Changes{}); !errors.Is(err, claim.ErrLost) {
			t.Errorf("error is %v", err)
		}
		if held, err := r.Renew(ctx, []claim.Claim{c}); err != nil || len(held) != 0 {
			t.Errorf("renewed is %v, %v", held, err)
		}
		next := claimOn(t, r, 1)
		if next.Number <= c.Number {
			t.Errorf("%v comes behind %v", next, c)
		}
		c = next
		if err := r.Send(ctx, q); err != nil {
			t.Fatal(err)
		}
		if some, err := r.Inbox(ctx, 1, last, 10); err != nil || len(some) != 1 {
			t.Errorf("behind %d are %v, %v", last, some, err)
		} else {
			last = some[0].Number
		}
	}
}

// Redis is killed while many send requests and one commits. What was acknowledged
// is still there. A request that is gone was carried out.
func TestRedisKilled(t *testing.T) {
	s := redistest.Start(t)
	ctx := t.Context()
	r := hubOn(t, s, "p")
	some := subscriptions(1, 1)[0]
	const senders = 4
	var mu sync.Mutex
	sent := make(map[time.Duration]bool)
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(sent)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	passing := func(err error) bool {
		return err == nil || errors.Is(err, feed.ErrUnknown) || errors.Is(err, feed.ErrUnavailable)
	}
	admin := s.Client()
	answers := func() { // so that nothing is repeated without a pause while Redis is down
		testutil.Until(t, "Redis answers", func() bool { return admin.Ping(t.Context()).Err() == nil })
	}
	for n := range senders {
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				lease := time.Duration(i*senders + n)
				err := r.Send(t.Context(), Request{Mode: Subscribe, Set: "set", Callback: some.Callback, Lease: lease})
				if !passing(err) {
					t.Error(err)
					return
				}
				if err != nil {
					answers()
					continue
				}
				mu.Lock()
				sent[lease] = true
				mu.Unlock()
			}
		})
	}
	// The outcome of each request is a record of its own.
	done := make(map[time.Duration]bool)
	c := claimOn(t, r, 1)
	running.Go(func() {
		for ctx.Err() == nil {
			requests, err := r.Inbox(t.Context(), 1, 0, 20)
			var changes Changes
			for _, q := range requests {
				for i := 0; ; i++ {
					callback := fmt.Sprintf("%d/%d", q.Lease, i)
					if NewID("done", "", callback).Shard() == 1 {
						changes.Put = append(changes.Put, Record{Subscription: Subscription{Set: "done", Callback: callback}})
						break
					}
				}
				changes.Done = append(changes.Done, q.Number)
			}
			if err == nil {
				err = r.Commit(t.Context(), c, changes)
			}
			if !passing(err) {
				t.Error(err)
				return
			}
			if err != nil {
				answers()
			}
		}
	})
	for range 3 {
		n := count()
		testutil.Until(t, "more is sent", func() bool { return count() > n+100 || t.Failed() })
		s.Kill()
		s.Restart()
	}
	n := count()
	testutil.Until(t, "more is sent", func() bool { return count() > n+100 || t.Failed() })
	stop()
	running.Wait()
	if t.Failed() {
		return
	}
	for record, err := range r.Load(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		lease, _, _ := strings.Cut(record.Callback, "/")
		n, err := strconv.Atoi(lease)
		if err != nil {
			t.Fatal(err)
		}
		done[time.Duration(n)] = true
	}
	requests, err := r.Inbox(t.Context(), 1, 0, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range requests {
		done[q.Lease] = true
	}
	for lease := range sent {
		if !done[lease] {
			t.Errorf("request %d is lost", lease)
		}
	}
}

// Every error wraps the one by which callers decide.
func TestRedisErrors(t *testing.T) {
	s := redistest.Start(t)
	ctx := t.Context()
	r := hubOn(t, s, "p")
	some := subscriptions(1, 1)
	c := claimOn(t, r, 1)
	if err := r.Commit(ctx, c, Changes{Put: some}); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"subscription", "progress"} {
		id := some[0].ID()
		key := map[string]string{"subscription": r.recordsKey(1), "progress": r.progressKey(1)}[what]
		if err := s.Client().HSet(ctx, key, id[:], "{").Err(); err != nil {
			t.Fatal(err)
		}
		_, err := r.Find(ctx, some[0].ID())
		_, _, listed := r.List(ctx, "set", ID{}, 10)
		for _, err := range []error{err, listed} {
			if !errors.Is(err, changelog.ErrCorrupt) || errors.Is(err, feed.ErrUnknown) || !strings.Contains(err.Error(), what) {
				t.Errorf("a damaged %s: %v", what, err)
			}
		}
		if err := r.Commit(ctx, c, Changes{Put: some}); err != nil {
			t.Fatal(err)
		}
	}
	s.Kill()
	testutil.Until(t, "it cannot be reached", func() bool {
		err := r.Send(ctx, Request{Set: "set"})
		if err == nil {
			t.Fatal("no error")
		}
		return errors.Is(err, feed.ErrUnavailable)
	})
	if held, err := r.Renew(ctx, []claim.Claim{c}); !errors.Is(err, feed.ErrUnavailable) || len(held) != 0 {
		t.Errorf("renewed is %v, %v", held, err)
	}
	for _, prefix := range []string{"", "a{b", "}"} {
		if _, err := NewRedis(conntest.Open(t, s.Addr, redisconn.Options{}), prefix, RedisOptions{}); err == nil {
			t.Errorf("prefix %q is taken", prefix)
		}
	}
}

// Keys begin with the prefix, and are in the right slot.
func TestRedisKeys(t *testing.T) {
	s := redistest.Start(t)
	ctx := t.Context()
	r := hubOn(t, s, "some:prefix")
	c := claimOn(t, r, 17)
	some := subscriptions(17, 1)
	if _, err := r.Join(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.Send(ctx, Request{Set: "set", Callback: some[0].Callback}); err != nil {
		t.Fatal(err)
	}
	if err := r.Commit(ctx, c, Changes{Put: some}); err != nil {
		t.Fatal(err)
	}
	keys, err := s.Client().Keys(ctx, "*").Result()
	if err != nil || len(keys) != 5 {
		t.Errorf("the keys are %q, %v", keys, err)
	}
	for _, key := range keys {
		rest, ok := strings.CutPrefix(key, "some:prefix:")
		if !ok || rest != "hubs" && !strings.HasPrefix(rest, "{callback/17}:") {
			t.Errorf("key %q", key)
		}
	}
	other := hubOn(t, s, "some")
	if live, err := other.Join(ctx); err != nil || len(live) != 1 {
		t.Errorf("live are %v, %v", live, err)
	}
	claimOn(t, other, 17)
	if _, err := other.Find(ctx, some[0].ID()); !errors.Is(err, ErrNoSubscription) {
		t.Errorf("error is %v", err)
	}
}

// Send, and commits that put or delete records, wait for the replicas. Commits of
// progress do not, because lost progress is only delivered again.
func TestRedisWait(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	host, port, _ := strings.Cut(primary.Addr, ":")
	replica := redistest.Start(t, "--replicaof", host+" "+port)
	ctx := t.Context()
	r := hubWith(t, conntest.Open(t, primary.Addr, redisconn.Options{Wait: 1, WaitTimeout: 100 * time.Millisecond}), "p", RedisOptions{}, claim.RedisOptions{})
	patient := hubWith(t, conntest.Open(t, primary.Addr, redisconn.Options{Wait: 1, WaitTimeout: time.Minute}), "p", RedisOptions{}, claim.RedisOptions{})
	some := subscriptions(1, 2)
	request := Request{Mode: Subscribe, Set: "set", Callback: some[0].Callback}
	testutil.Until(t, "the replica follows", func() bool { return r.Send(ctx, request) == nil })
	c := claimOn(t, r, 1)
	all := Changes{Put: some, Progress: map[ID]Progress{some[0].ID(): {Failed: 1}}}
	if err := patient.Commit(ctx, c, all); err != nil {
		t.Fatal(err)
	}
	client := replica.Client()
	if n, err := client.HLen(ctx, r.recordsKey(1)).Result(); n != 2 {
		t.Errorf("the replica has %d records, %v", n, err)
	}
	if n, err := client.XLen(ctx, r.inboxKey(1)).Result(); n == 0 {
		t.Errorf("the replica has no request, %v", err)
	}

	c = claimOn(t, r, 1) // the numbers of commits are those of one Redis
	replica.Kill()
	for what, err := range map[string]error{
		"a request":    r.Send(ctx, request),
		"put records":  r.Commit(ctx, c, all),
		"deleted ones": r.Commit(ctx, c, Changes{Delete: []ID{some[1].ID()}}),
		"a fresh script": func() error {
			primary.Client().ScriptFlush(ctx)
			return r.Send(ctx, request)
		}(),
	} {
		if !errors.Is(err, feed.ErrUnknown) || strings.Count(err.Error(), feed.ErrUnknown.Error()) != 1 || !strings.Contains(err.Error(), "confirmed by 0 replicas, want 1") {
			t.Errorf("of %s without a replica: %v", what, err)
		}
	}
	if err := r.Commit(ctx, c, Changes{Progress: all.Progress, Done: []uint64{1}}); err != nil {
		t.Errorf("a progress waits: %v", err)
	}
	if err := r.Commit(ctx, claim.Claim{Shard: 1, Number: c.Number + 1, Holder: c.Holder}, all); !errors.Is(err, claim.ErrLost) {
		t.Errorf("under no claim: %v", err)
	}
	r.Redis.opts.InboxMax = 1
	if err := r.Send(ctx, request); !errors.Is(err, ErrBusy) {
		t.Errorf("to a full inbox: %v", err)
	}
	if n, err := primary.Client().HLen(ctx, r.recordsKey(1)).Result(); n != 1 {
		t.Errorf("the primary has %d records, %v", n, err)
	}
}

// A record that cannot be read is named in an error. The others are loaded.
func TestRedisCorrupt(t *testing.T) {
	s := redistest.Start(t)
	r := hubOn(t, s, "p")
	some := subscriptions(1, 3)
	if err := r.Commit(t.Context(), claimOn(t, r, 1), Changes{Put: some}); err != nil {
		t.Fatal(err)
	}
	bad := some[1].ID()
	if err := s.Client().HSet(t.Context(), r.recordsKey(1), bad[:], "no JSON").Err(); err != nil {
		t.Fatal(err)
	}
	loadsOthers(t, r, 1, bad)
}

// loadsOthers fails the test unless two records of a shard are loaded, and one
// record gives an error.
func loadsOthers(t *testing.T, r Registry, shard int, bad ID) {
	t.Helper()
	loaded, refused := 0, 0
	for _, err := range r.Load(t.Context(), shard) {
		switch {
		case err == nil:
			loaded++
		case errors.Is(err, changelog.ErrCorrupt) && strings.Contains(err.Error(), bad.String()):
			refused++
		default:
			t.Error(err)
		}
	}
	if loaded != 2 || refused != 1 {
		t.Errorf("%d were loaded, %d refused", loaded, refused)
	}
	if _, err := r.Find(t.Context(), bad); !errors.Is(err, changelog.ErrCorrupt) {
		t.Errorf("Find: %v", err)
	}
}

// The hub gave up a commit that arrives after a later one.
func TestRedisLateCommit(t *testing.T) {
	s := redistest.Start(t)
	proxy := redistest.NewProxy(t, s.Addr)
	r := hubWith(t, conntest.Open(t, proxy.Addr(), redisconn.Options{}), "p", RedisOptions{}, claim.RedisOptions{})
	ctx, c, some := t.Context(), claimOn(t, r, 1), subscriptions(1, 1)
	id := some[0].ID()
	commit := func(changes Changes) {
		t.Helper()
		if err := r.Commit(ctx, c, changes); err != nil {
			t.Fatalf("Commit() = %v", err)
		}
	}
	commit(Changes{Put: some}) // Redis knows the script from now on
	proxy.Decide(func(request bool) redistest.Fate {
		if request {
			return redistest.Late
		}
		return redistest.Passed
	})
	if err := r.Commit(ctx, c, Changes{Delete: []ID{id}}); !errors.Is(err, feed.ErrUnknown) {
		t.Fatalf("Commit() without a reply = %v, want ErrUnknown", err)
	}
	proxy.Decide(nil)
	commit(Changes{Put: some})
	proxy.Release()
	if _, err := r.Find(ctx, id); err != nil {
		t.Errorf("Find() after a late deletion = %v, want the record", err)
	}
	c = claimOn(t, r, 1)
	commit(Changes{Delete: []ID{id}})
}
