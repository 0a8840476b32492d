package callback_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
)

// A hub that hands a shard over keeps its claim and tries to store progress until that succeeds.
func TestYieldSavesLate(t *testing.T) {
	inWorldOfClaims(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscriber()
		w.pass(time.Second)
		w.store.onCommit(noCommits)
		w.publish("a", 3)
		c.wantChanges(0, 3)
		took := make(chan time.Duration, 1)
		go func() { took <- w.shutdown() }()
		w.pass(20 * time.Second) // longer than a claim lasts without renewal
		select {
		case <-took:
			t.Fatal("the hub discarded progress")
		default:
		}
		if n := w.metric("claims"); n != 1 {
			t.Errorf("got %d claims while the store fails, want 1", n)
		}
		w.store.onCommit(nil)
		if d := <-took; d > 22*time.Second {
			t.Errorf("shutdown took %v, want at most 22s", d)
		}
		if got := w.record(id).Cursor; got != w.head() {
			t.Errorf("stored cursor = %v, want %v", got, w.head())
		}
		w.start()
		c.wantChanges(0, 3)
	})
}

// The store fails while a callback is verified. Once the store is back, the subscription is made. The
// callback is not verified again unless the claim was lost.
func TestOutageDuringVerification(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(s *faultyStore, down bool)
		gets int
	}{
		{"commits fail", func(s *faultyStore, down bool) {
			if s.onCommit(nil); down {
				s.onCommit(noCommits)
			}
		}, 1},
		{"claim lost", func(s *faultyStore, down bool) { s.down.Store(down) }, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorldOfClaims(t, callback.Options{}, func(t *testing.T, w *world) {
				c := w.receiver("a.example")
				c.verify(func(rw http.ResponseWriter, r *http.Request) {
					tt.set(w.store, true)
					confirm(rw, r)
				})
				id := w.do(subscription.Subscribe, c)
				c.verify(confirm)
				w.publish("a", 1)
				w.pass(20 * time.Second)
				if w.exists(id) {
					t.Fatal("the subscription was made while the store failed")
				}
				c.wantRequests(0, 1)
				tt.set(w.store, false)
				w.pass(10 * time.Second)
				c.wantChanges(0, 1)
				c.wantRequests(1, tt.gets)
				w.record(id)
				w.wantEmptyInbox(id)
			})
		})
	}
}

// Claims on all shards that end together are not logged one by one.
func TestClaimsEndTogether(t *testing.T) {
	var log testutil.Log
	inWorldOfClaims(t, callback.Options{Logger: log.Logger(slog.LevelInfo)}, func(t *testing.T, w *world) {
		w.pass(time.Second)
		w.store.down.Store(true)
		w.pass(time.Minute)
		if n := w.metric("claims"); n != 0 {
			t.Fatalf("got %d claims, want 0", n)
		}
		// Both the shards and the Keeper notice that claims ended; each logs that once.
		shards := strings.Count(log.String(), "claims not renewed in time")
		keeper := strings.Count(log.String(), "claims lost;")
		if shards > 1 || keeper > 1 || shards+keeper == 0 {
			t.Errorf("got %d lines of shards and %d of the Keeper, want one or both once", shards, keeper)
		}
	})
}

// A subscription that has to end while the store fails receives nothing more, and ends once the store is
// back.
func TestOutageAtTheEnd(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscriber()
		c.respond(status(http.StatusGone))
		w.store.onCommit(noCommits)
		w.publish("a", 1)
		w.pass(time.Second)
		w.publish("b", 1)
		w.pass(10 * time.Second)
		c.wantRequests(1, 1)
		w.record(id)
		w.store.onCommit(nil)
		w.pass(2 * time.Second)
		c.wantRequests(1, 1)
		if w.exists(id) {
			t.Error("the subscription still exists")
		}
	})
}

// A store that does not answer Join costs no claims.
func TestJoinHangs(t *testing.T) {
	inWorldOfClaims(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscriber()
		w.store.joinHangs.Store(true)
		w.pass(20 * time.Second)
		w.publish("a", 1)
		c.wantChanges(0, 1)
		if n := w.metric("claims_lost_total"); n != 0 {
			t.Errorf("got %d lost claims, want 0", n)
		}
	})
}

// A shard whose commits hang delays the progress of no other shard.
func TestOneShardHangs(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		hanging, good := w.subscribe(w.receiver("a.example")), w.subscribe(w.receiver("b.example"))
		w.pass(time.Second)
		w.store.onCommit(func(ctx context.Context, shard int, _ subscription.Changes, commit func() error) error {
			if shard != hanging.Shard() {
				return commit()
			}
			<-ctx.Done()
			return ctx.Err()
		})
		w.publish("a", 1)
		w.pass(time.Second) // the commit hangs
		w.publish("b", 1)
		w.pass(saveEvery)
		if got := w.record(good).Cursor; got != w.head() {
			t.Errorf("stored cursor = %v, want %v", got, w.head())
		}
		w.store.onCommit(nil)
		w.pass(7 * time.Second)
		if got := w.record(hanging).Cursor; got != w.head() {
			t.Errorf("stored cursor of the shard that hung = %v, want %v", got, w.head())
		}
	})
}

// A shard that cannot be read is not mistaken for an empty one.
func TestDamagedStore(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscriber()
		w.crash()
		w.publish("a", 3)
		w.store.onLoad(damaged)
		w.start()
		w.pass(10 * time.Second)
		w.request(c, subscription.Request{Start: w.head()})
		w.pass(10 * time.Second)
		w.store.onLoad(nil)
		w.pass(time.Minute)
		c.wantChanges(0, 3)
	})
}

// A store that takes no records delays renewals, and nothing else.
func TestFullStore(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		url := c.url
		renew := func(n int) (id subscription.ID) {
			t.Helper()
			for i := range n {
				c.url = url + "?n=" + string(rune('0'+i))
				id = w.request(c, subscription.Request{Start: w.head()})
			}
			return id
		}
		renew(9)
		w.publish("a", 1)
		w.store.onCommit(noRecords)
		renew(8) // as many as the host has permits
		w.publish("b", 1)
		w.pass(5 * time.Minute)
		c.wantRequests(18, 17)
		if n := w.metric("in_flight"); n != 0 {
			t.Errorf("got %d calls in flight, want 0", n)
		}
		w.store.onCommit(nil)
		w.pass(2 * time.Second)
		c.wantRequests(18, 17)
		if r := w.record(subscription.NewID("demo", "", url+"?n=0")); r.Renewed.IsZero() || len(r.Last) != 4 {
			t.Errorf("got %d attempts, renewed at %v; want 4 and a renewal", len(r.Last), r.Renewed)
		}

		// The hub hands the shard over, and the next hub verifies again.
		w.store.onCommit(noRecords)
		renew(1)
		if d := w.shutdown(); d > time.Second {
			t.Errorf("shutdown took %v, want at most 1s", d)
		}
		w.store.onCommit(nil)
		w.start()
		w.pass(time.Second)
		c.wantRequests(18, 19)
	})
}

// A removal deletes a record that the hub does not know: the response to its commit was lost.
func TestRemoveUnknownRecord(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		w.store.onCommit(func(_ context.Context, _ int, _ subscription.Changes, commit func() error) error {
			return errors.Join(feed.ErrUnknown, commit())
		})
		id := w.do(subscription.Subscribe, c)
		w.store.onCommit(nil)
		w.record(id) // operators see it
		w.do(subscription.Remove, c)
		w.pass(time.Minute)
		if w.exists(id) {
			t.Error("the record still exists")
		}
	})
}
