package redislog

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/testutil"
)

// TestKill kills Redis under load and starts it again. Every acknowledged change must exist. Every
// existing change must have been published, and none may exist twice.
func TestKill(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--appendfsync", "always")
	l := startSet(t, s, 100, Options{})
	const publishers, kills = 6, 3
	var running sync.WaitGroup
	var mu sync.Mutex
	acknowledged := make(map[string]feed.Cursor)
	stop := make(chan struct{})
	progress := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(acknowledged)
	}
	for p := range publishers {
		running.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				what := fmt.Sprintf("%d-%d", p, i)
				publish := changelog.Publish{Changes: changes(what, 1+i%3), Key: what}
				for { // like a client that retries with its key
					a, err := l.Append(t.Context(), "set", publish)
					if err == nil {
						mu.Lock()
						acknowledged[what] = a[0].Cursor
						mu.Unlock()
						break
					}
					if !errors.Is(err, feed.ErrUnknown) && !errors.Is(err, feed.ErrUnavailable) {
						t.Error(err)
						return
					}
				}
				if i%10 == p {
					if _, err := l.Pack(t.Context(), "set"); err != nil && !errors.Is(err, feed.ErrUnknown) && !errors.Is(err, feed.ErrUnavailable) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for range kills {
		n := progress()
		testutil.Until(t, "100 publishes more are acknowledged", func() bool { return progress() > n+100 || t.Failed() })
		s.kill()
		ok(t, s.start())
	}
	n := progress()
	testutil.Until(t, "20 publishes more are acknowledged", func() bool { return progress() > n+20 || t.Failed() })
	close(stop)
	running.Wait()
	at := make(map[string]feed.Cursor)
	for _, e := range all(t, l, feed.Cursor{}) {
		if _, ok := at[e.Change.Loc]; ok {
			t.Errorf("%s was stored twice", e.Change.Loc)
		}
		at[e.Change.Loc] = e.Cursor
	}
	for what, c := range acknowledged {
		var n int
		_, err := fmt.Sscanf(what[strings.Index(what, "-")+1:], "%d", &n)
		ok(t, err)
		if got := at[fmt.Sprintf("https://example.org/%s/%d", what, n%3)]; got != c {
			t.Errorf("%s was acknowledged at %v, got it at %v", what, c, got)
		}
	}
}

// follow makes a server the replica of another server, and returns when it is in sync.
func follow(t *testing.T, replica, primary *server) {
	t.Helper()
	host, port, _ := strings.Cut(primary.addr, ":")
	admin := replica.admin(t)
	ok(t, admin.ReplicaOf(t.Context(), host, port).Err())
	testutil.Until(t, "the replica follows", func() bool {
		return strings.Contains(admin.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
}

// TestFailover promotes a replica that does not have the last writes.
func TestFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make prove PART=stores")
	}
	t.Parallel()
	primary, replica := newServer(t), newServer(t)
	follow(t, replica, primary)
	const skew = 50 * time.Millisecond
	before := startOn(t, connect(t, primary.url(), redisconn.Options{Wait: 1, WaitTimeout: time.Second}), Options{})
	o := Options{Prefix: before.opts.Prefix}
	makeSet(t, before, 10)
	singles := func(l *Log, what string, n int) (last changelog.Appended) {
		for i := range n {
			last = add(t, l, fmt.Sprint(what, i), 2)
		}
		return last
	}
	kept := singles(before, "kept", 30)
	testutil.Until(t, "the entries are older than the skew", func() bool {
		now, err := before.syncIdentity(t.Context(), "")
		ok(t, err)
		return now > kept.Cursor.Micros+2*skew.Microseconds()
	})
	ok(t, replica.admin(t).ReplicaOf(t.Context(), "no", "one").Err())
	lonely := start(t, primary.url(), o)
	lost := singles(lonely, "lost", 10)
	entries := all(t, lonely, feed.Cursor{})
	_, err := before.Append(t.Context(), "set", changelog.Publish{Changes: changes("unmet", 1)})
	wantErr(t, feed.ErrUnknown, err)

	after := start(t, replica.url(), o)
	o.ClockSkew = skew
	follower := start(t, replica.url(), o)
	if after.ID() != before.ID() {
		t.Error("identity of the replica differs")
	}
	for range 2 { // in the first round the head is before the cursor's position, in the second another entry has it
		for _, e := range entries[60:] {
			b, err := follower.Since(t.Context(), "set", e.Cursor, 0)
			ok(t, err)
			if !b.Diverged || b.After.Position > 60 || b.After.Micros < entries[0].Micros {
				t.Fatalf("Since(%v), a lost cursor: After = %v, Diverged = %t, want a loss at or before position 60", e.Cursor, b.After, b.Diverged)
			}
		}
		b, err := follower.Since(t.Context(), "set", kept.Cursor, 0)
		if err != nil || b.Diverged || b.After != kept.Cursor {
			t.Fatalf("Since(%v), a preserved cursor = %v, %v, want a batch after the cursor", kept.Cursor, b, err)
		}
		singles(after, "new", 20)
	}
	// A follower that had read the lost entries gets all new entries.
	seen := make(map[string]bool)
	for c := lost.Cursor; ; {
		b, err := follower.Since(t.Context(), "set", c, 7)
		ok(t, err)
		if len(b.Entries) == 0 {
			break
		}
		for _, e := range b.Entries {
			seen[e.Change.Loc] = true
		}
		c = b.Cursor
	}
	for i := range 20 {
		for n := range 2 {
			if loc := fmt.Sprintf("https://example.org/new%d/%d", i, n); !seen[loc] {
				t.Errorf("follower missed %s", loc)
			}
		}
	}
	// A replica accepts no writes.
	follow(t, replica, primary)
	_, err = after.Append(t.Context(), "set", changelog.Publish{Changes: changes("x", 1)})
	wantErr(t, feed.ErrUnavailable, err)
}

// TestWait checks that without a replica neither a publish nor its retry is acknowledged.
func TestWait(t *testing.T) {
	t.Parallel()
	primary, replica := newServer(t), newServer(t)
	ctx := t.Context()
	l := start(t, primary.url(), Options{})
	makeSet(t, l, 10)
	l = startOn(t, connect(t, primary.url(), redisconn.Options{Wait: 1, WaitTimeout: 100 * time.Millisecond}), Options{Prefix: l.opts.Prefix})
	p := changelog.Publish{Changes: changes("a", 1), Key: "key"}
	for range 2 {
		_, err := l.Append(ctx, "set", p)
		wantErr(t, feed.ErrUnknown, err)
	}
	wantErr(t, feed.ErrUnknown, l.Check(ctx))
	follow(t, replica, primary)
	testutil.Until(t, "the replica has it all", func() bool { return l.Check(ctx) == nil })
	l = startOn(t, connect(t, primary.url(), redisconn.Options{Wait: 1, WaitTimeout: time.Minute}), Options{Prefix: l.opts.Prefix}) // the replica may be slow
	ok(t, primary.admin(t).ScriptFlush(ctx).Err())
	before := written(t, primary)
	a, err := l.Append(ctx, "set", p)
	if err != nil || !a[0].Replayed || a[0].Cursor.Position != 1 {
		t.Errorf("Append() = %v, %v, want position 1, replayed", a, err)
	}
	if n := len(all(t, l, feed.Cursor{})); n != 1 {
		t.Errorf("got %d entries", n)
	}
	// Some versions of Redis wait only for writes of the same connection. There, a retry that writes
	// nothing is acknowledged although the replica does not have the first publish yet.
	if written(t, primary) == before {
		t.Error("retry wrote nothing, so it did not wait for replicas")
	}
}

// written returns the number of bytes that a server has sent to its replicas.
func written(t *testing.T, s *server) string {
	t.Helper()
	info, err := s.admin(t).InfoMap(t.Context(), "replication").Result()
	ok(t, err)
	return info["Replication"]["master_repl_offset"]
}
