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

// A redisHub is the registry and the claims of one of several hubs.
type redisHub struct {
	*Redis
	*redisClaims
}

func newRedisHub(t testing.TB, c *redisconn.Conn, prefix string, claims claim.RedisOptions) redisHub {
	t.Helper()
	r, err := NewRedis(c, prefix, RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return redisHub{r, claim.NewRedis(c, prefix, ClaimKind, claims)}
}

// startRedis starts a Redis, and returns it with a hub.
func startRedis(t *testing.T) (*redistest.Server, redisHub) {
	t.Helper()
	s := redistest.Start(t)
	return s, newRedisHub(t, conntest.Open(t, s.Addr, redisconn.Options{}), "p", claim.RedisOptions{})
}

func acquire(t testing.TB, claims claim.Store, shard int) claim.Claim {
	t.Helper()
	acquired, err := claims.Acquire(t.Context(), []int{shard})
	if err != nil || len(acquired) != 1 {
		t.Fatalf("Acquire(%d) = %v, %v, want a claim", shard, acquired, err)
	}
	return acquired[0]
}

func mustCommit(t testing.TB, r Registry, c claim.Claim, changes Changes) {
	t.Helper()
	if err := r.Commit(t.Context(), c, changes); err != nil {
		t.Fatalf("Commit() = %v", err)
	}
}

// recordsIn returns n records of a shard.
func recordsIn(shard, n int) (all []Record) {
	for i := 0; len(all) < n; i++ {
		s := Subscription{Set: "set", Callback: fmt.Sprint("https://example.org/", i), LeaseEnd: time.UnixMicro(1), Made: time.UnixMicro(1)}
		if s.ID().Shard() == shard {
			all = append(all, Record{Subscription: s})
		}
	}
	return all
}

// A full Redis adds nothing, and existing subscriptions continue.
func TestRedisFull(t *testing.T) {
	s, r := startRedis(t)
	ctx, records, c := t.Context(), recordsIn(1, 2), acquire(t, r, 1)
	id, q := records[0].ID(), Request{Mode: Subscribe, Set: "set", Callback: records[0].Callback}
	mustCommit(t, r, c, Changes{Put: records[:1]})
	if err := r.Send(ctx, q); err != nil {
		t.Fatal(err)
	}
	if err := s.Client().ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Send(ctx, q); !errors.Is(err, feed.ErrFull) {
		t.Errorf("Send() = %v, want ErrFull", err)
	}
	if err := r.Commit(ctx, c, Changes{Put: records[1:]}); !errors.Is(err, feed.ErrFull) {
		t.Errorf("Commit() of a record = %v, want ErrFull", err)
	}
	if _, err := r.Join(ctx); err != nil {
		t.Errorf("Join() = %v", err)
	}
	if held, err := r.Renew(ctx, []claim.Claim{c}); err != nil || len(held) != 1 {
		t.Errorf("Renew() = %v, %v, want the claim", held, err)
	}
	acquire(t, r, 2)
	mustCommit(t, r, c, Changes{Progress: map[ID]Progress{id: {Failed: 7}}})
	if found, err := r.Find(ctx, id); err != nil || found.Failed != 7 {
		t.Errorf("Find() = %v, %v, want the new progress", found, err)
	}
	requests, err := r.Inbox(ctx, 1, 0, 10)
	if err != nil || len(requests) != 1 {
		t.Fatalf("Inbox() = %v, %v, want one request", requests, err)
	}
	mustCommit(t, r, c, Changes{Delete: []ID{id}, Done: []uint64{requests[0].Number}})
	if err := errors.Join(r.Release(ctx, []claim.Claim{c}), r.Leave(ctx)); err != nil {
		t.Error(err)
	}
}

// After Redis has lost everything, numbers still rise, and the holder of an old claim is fenced.
func TestRedisForgets(t *testing.T) {
	s, r := startRedis(t)
	ctx, c, last := t.Context(), acquire(t, r, 1), uint64(0)
	q := Request{Mode: Retry, Set: "set", Callback: recordsIn(1, 1)[0].Callback}
	for range 3 {
		for _, flush := range []func(context.Context) *redis.StatusCmd{s.Client().FlushAll, s.Client().ScriptFlush} {
			if err := flush(ctx).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Commit(ctx, c, Changes{}); !errors.Is(err, claim.ErrLost) {
			t.Errorf("Commit() = %v, want ErrLost", err)
		}
		if held, err := r.Renew(ctx, []claim.Claim{c}); err != nil || len(held) != 0 {
			t.Errorf("Renew() = %v, %v, want no claim", held, err)
		}
		next := acquire(t, r, 1)
		if next.Number <= c.Number {
			t.Errorf("claim after %v: got %v, want a higher number", c, next)
		}
		c = next
		if err := r.Send(ctx, q); err != nil {
			t.Fatal(err)
		}
		requests, err := r.Inbox(ctx, 1, last, 10)
		if err != nil || len(requests) != 1 {
			t.Fatalf("Inbox() after %d = %v, %v, want one request", last, requests, err)
		}
		last = requests[0].Number
	}
}

// Redis is killed while many hubs send requests and one commits. Acknowledged requests are still in the
// inbox, and a request that left it was executed.
func TestRedisKilled(t *testing.T) {
	const senders = 4
	s, r := startRedis(t)
	callback, c := recordsIn(1, 1)[0].Callback, acquire(t, r, 1)
	var mu sync.Mutex
	sent := map[time.Duration]bool{} // requests by their leases
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(sent)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	admin := s.Client()
	// try reports whether a call succeeded. If Redis is down, it waits.
	try := func(err error) bool {
		switch {
		case err == nil:
			return true
		case errors.Is(err, feed.ErrUnknown), errors.Is(err, feed.ErrUnavailable):
			testutil.Until(t, "Redis replies", func() bool { return admin.Ping(t.Context()).Err() == nil })
		default:
			t.Error(err)
			stop()
		}
		return false
	}
	var wg sync.WaitGroup
	for n := range senders {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				lease := time.Duration(i*senders + n)
				if try(r.Send(t.Context(), Request{Mode: Subscribe, Set: "set", Callback: callback, Lease: lease})) {
					mu.Lock()
					sent[lease] = true
					mu.Unlock()
				}
			}
		})
	}
	wg.Go(func() { // executes each request by putting a record
		for ctx.Err() == nil {
			requests, err := r.Inbox(t.Context(), 1, 0, 20)
			if !try(err) {
				continue
			}
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
			try(r.Commit(t.Context(), c, changes))
		}
	})
	for i := range 4 {
		if i > 0 {
			s.Kill()
			s.Restart()
		}
		n := count()
		testutil.Until(t, "more is sent", func() bool { return count() > n+100 || t.Failed() })
	}
	stop()
	wg.Wait()
	if t.Failed() {
		return
	}
	for record, err := range r.Load(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		text, _, _ := strings.Cut(record.Callback, "/")
		lease, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		delete(sent, time.Duration(lease))
	}
	requests, err := r.Inbox(t.Context(), 1, 0, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range requests {
		delete(sent, q.Lease)
	}
	if len(sent) > 0 {
		t.Errorf("%d acknowledged requests were lost: %v", len(sent), sent)
	}
}

// Errors wrap the sentinels on which callers branch.
func TestRedisErrors(t *testing.T) {
	s, r := startRedis(t)
	ctx, records, c := t.Context(), recordsIn(1, 1), acquire(t, r, 1)
	id := records[0].ID()
	for part, key := range map[string]string{"subscription": r.recordsKey(1), "progress": r.progressKey(1)} {
		mustCommit(t, r, c, Changes{Put: records})
		if err := s.Client().HSet(ctx, key, id[:], "{").Err(); err != nil {
			t.Fatal(err)
		}
		_, findErr := r.Find(ctx, id)
		_, _, listErr := r.List(ctx, "set", ID{}, 10)
		for _, err := range []error{findErr, listErr} {
			if !errors.Is(err, changelog.ErrCorrupt) || errors.Is(err, feed.ErrUnknown) || !strings.Contains(err.Error(), part) {
				t.Errorf("error of a damaged %s: got %v, want ErrCorrupt", part, err)
			}
		}
	}
	s.Kill()
	testutil.Until(t, "Redis is unavailable", func() bool {
		err := r.Send(ctx, Request{Set: "set"})
		if err == nil {
			t.Fatal("Send() to a killed Redis = nil")
		}
		return errors.Is(err, feed.ErrUnavailable)
	})
	if held, err := r.Renew(ctx, []claim.Claim{c}); !errors.Is(err, feed.ErrUnavailable) || len(held) != 0 {
		t.Errorf("Renew() = %v, %v, want ErrUnavailable", held, err)
	}
	for _, prefix := range []string{"", "a{b", "}"} {
		if _, err := NewRedis(nil, prefix, RedisOptions{}); err == nil {
			t.Errorf("NewRedis() with prefix %q = nil, want an error", prefix)
		}
	}
}

// Keys start with the prefix, and the keys of a shard have the same text in braces.
func TestRedisKeys(t *testing.T) {
	s := redistest.Start(t)
	conn := conntest.Open(t, s.Addr, redisconn.Options{})
	r, other := newRedisHub(t, conn, "some:prefix", claim.RedisOptions{}), newRedisHub(t, conn, "some", claim.RedisOptions{})
	ctx, records := t.Context(), recordsIn(17, 1)
	if _, err := r.Join(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.Send(ctx, Request{Set: "set", Callback: records[0].Callback}); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, r, acquire(t, r, 17), Changes{Put: records})
	keys, err := s.Client().Keys(ctx, "*").Result()
	if err != nil || len(keys) != 5 {
		t.Errorf("keys: got %q, %v, want 5", keys, err)
	}
	for _, key := range keys {
		rest, ok := strings.CutPrefix(key, "some:prefix:")
		if !ok || rest != "hubs" && !strings.HasPrefix(rest, "{callback/17}:") {
			t.Errorf("key %q: want one of shard 17 with the prefix", key)
		}
	}
	if live, err := other.Join(ctx); err != nil || len(live) != 1 {
		t.Errorf("Join() with another prefix = %v, %v, want one hub", live, err)
	}
	acquire(t, other, 17)
	if _, err := other.Find(ctx, records[0].ID()); !errors.Is(err, ErrNoSubscription) {
		t.Errorf("Find() with another prefix = %v, want ErrNoSubscription", err)
	}
}

// Send waits for the replicas, and so do commits that put or delete records. Commits of progress do not.
func TestRedisWait(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	host, port, _ := strings.Cut(primary.Addr, ":")
	replica := redistest.Start(t, "--replicaof", host+" "+port)
	hub := func(wait time.Duration) redisHub {
		return newRedisHub(t, conntest.Open(t, primary.Addr, redisconn.Options{Wait: 1, WaitTimeout: wait}), "p", claim.RedisOptions{})
	}
	ctx, r, patient, records := t.Context(), hub(100*time.Millisecond), hub(time.Minute), recordsIn(1, 2)
	request := Request{Mode: Subscribe, Set: "set", Callback: records[0].Callback}
	testutil.Until(t, "the replica follows", func() bool { return r.Send(ctx, request) == nil })
	changes := Changes{Put: records, Progress: map[ID]Progress{records[0].ID(): {Failed: 1}}}
	c := acquire(t, patient, 1)
	mustCommit(t, patient, c, changes)
	if n, err := replica.Client().HLen(ctx, r.recordsKey(1)).Result(); n != 2 {
		t.Errorf("records at the replica: got %d, %v, want 2", n, err)
	}
	if n, err := replica.Client().XLen(ctx, r.inboxKey(1)).Result(); n == 0 {
		t.Errorf("requests at the replica: got none, %v", err)
	}
	if err := patient.Release(ctx, []claim.Claim{c}); err != nil {
		t.Fatal(err)
	}
	c = acquire(t, r, 1)
	replica.Kill()
	for _, tt := range []struct {
		name string
		call func() error
	}{
		{"Send", func() error { return r.Send(ctx, request) }},
		{"put", func() error { return r.Commit(ctx, c, changes) }},
		{"delete", func() error { return r.Commit(ctx, c, Changes{Delete: []ID{records[1].ID()}}) }},
		{"Send of an unknown script", func() error {
			primary.Client().ScriptFlush(ctx)
			return r.Send(ctx, request)
		}},
	} {
		err := tt.call()
		if !errors.Is(err, feed.ErrUnknown) || strings.Count(err.Error(), feed.ErrUnknown.Error()) != 1 || !strings.Contains(err.Error(), "confirmed by 0 replicas, want 1") {
			t.Errorf("%s without a replica: got %v, want ErrUnknown", tt.name, err)
		}
	}
	if err := r.Commit(ctx, c, Changes{Progress: changes.Progress, Done: []uint64{1}}); err != nil {
		t.Errorf("Commit() of progress without a replica = %v", err)
	}
	if err := r.Commit(ctx, claim.Claim{Shard: 1, Number: c.Number + 1, Holder: c.Holder}, changes); !errors.Is(err, claim.ErrLost) {
		t.Errorf("Commit() without a claim = %v, want ErrLost", err)
	}
	r.Redis.opts.InboxMax = 1
	if err := r.Send(ctx, request); !errors.Is(err, ErrBusy) {
		t.Errorf("Send() to a full inbox = %v, want ErrBusy", err)
	}
	if n, err := primary.Client().HLen(ctx, r.recordsKey(1)).Result(); n != 1 {
		t.Errorf("records: got %d, %v, want 1", n, err)
	}
}

// The hub gave up a commit that arrives after a later one.
func TestRedisLateCommit(t *testing.T) {
	s := redistest.Start(t)
	proxy := redistest.NewProxy(t, s.Addr)
	r := newRedisHub(t, conntest.Open(t, proxy.Addr(), redisconn.Options{}), "p", claim.RedisOptions{})
	ctx, c, records := t.Context(), acquire(t, r, 1), recordsIn(1, 1)
	id := records[0].ID()
	mustCommit(t, r, c, Changes{Put: records}) // Redis knows the script from now on
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
	mustCommit(t, r, c, Changes{Put: records})
	proxy.Release()
	if _, err := r.Find(ctx, id); err != nil {
		t.Errorf("Find() after a late deletion = %v, want the record", err)
	}
	mustCommit(t, r, acquire(t, r, 1), Changes{Delete: []ID{id}})
}

func TestRedisCorrupt(t *testing.T) {
	s, r := startRedis(t)
	testCorrupt(t, r, r, func(id ID) error { return s.Client().HSet(t.Context(), r.recordsKey(1), id[:], "no JSON").Err() })
}

// testCorrupt damages one of three records of a shard. The others are loaded, and errors name the damaged
// one.
func testCorrupt(t *testing.T, r Registry, claims claim.Store, damage func(ID) error) {
	t.Helper()
	records := recordsIn(1, 3)
	mustCommit(t, r, acquire(t, claims, 1), Changes{Put: records})
	id := records[1].ID()
	if err := damage(id); err != nil {
		t.Fatal(err)
	}
	loaded, invalid := 0, 0
	for _, err := range r.Load(t.Context(), 1) {
		switch {
		case err == nil:
			loaded++
		case errors.Is(err, changelog.ErrCorrupt) && strings.Contains(err.Error(), id.String()):
			invalid++
		default:
			t.Error(err)
		}
	}
	if loaded != 2 || invalid != 1 {
		t.Errorf("Load(): got %d records and %d errors, want 2 and 1", loaded, invalid)
	}
	if _, err := r.Find(t.Context(), id); !errors.Is(err, changelog.ErrCorrupt) {
		t.Errorf("Find() of the damaged record = %v, want ErrCorrupt", err)
	}
}
