package callback_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/subscription/registrytest"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/testutil"
)

// A faultyStore is a registry, and the store of its claims, with faults. The zero value has none.
type faultyStore struct {
	registrytest.Disk
	claimFor time.Duration // lifetime of claims; zero means the lifetime of Disk

	down      atomic.Bool                           // claims, commits and checks of inboxes fail
	joinHangs atomic.Bool                           // Join gets no response
	lost      atomic.Pointer[func(shard int) bool]  // shards that another hub has, or nil
	commit    atomic.Pointer[commitFunc]            // replaces Commit, or nil
	load      atomic.Pointer[func(int) recordsFunc] // replaces Load, or nil
}

// A commitFunc commits changes to a shard; commit is what does that without a fault.
type commitFunc func(ctx context.Context, shard int, changes subscription.Changes, commit func() error) error

// A recordsFunc yields the records of a shard.
type recordsFunc = iter.Seq2[subscription.Record, error]

// noCommits is a store that cannot be written.
func noCommits(context.Context, int, subscription.Changes, func() error) error {
	return feed.ErrUnavailable
}

// noRecords is a store that is full: it takes progress, but no records.
func noRecords(_ context.Context, _ int, changes subscription.Changes, commit func() error) error {
	if len(changes.Put) > 0 {
		return feed.ErrFull
	}
	return commit()
}

// damaged is a store that cannot be read.
func damaged(int) recordsFunc {
	return func(yield func(subscription.Record, error) bool) {
		yield(subscription.Record{}, fmt.Errorf("%w: a bad block", changelog.ErrCorrupt))
	}
}

// onCommit replaces Commit, or restores it if f is nil.
func (s *faultyStore) onCommit(f commitFunc) {
	if f == nil {
		s.commit.Store(nil)
		return
	}
	s.commit.Store(&f)
}

// onLoad replaces Load, or restores it if f is nil.
func (s *faultyStore) onLoad(f func(shard int) recordsFunc) {
	if f == nil {
		s.load.Store(nil)
		return
	}
	s.load.Store(&f)
}

// err returns the error of a store that is down.
func (s *faultyStore) err() error {
	if s.down.Load() {
		return fmt.Errorf("%w: no answer", feed.ErrUnavailable)
	}
	return nil
}

func (s *faultyStore) isLost(shard int) bool {
	lost := s.lost.Load()
	return lost != nil && (*lost)(shard)
}

func (s *faultyStore) ClaimFor() time.Duration { return cmp.Or(s.claimFor, s.Disk.ClaimFor()) }

func (s *faultyStore) Join(ctx context.Context) ([]string, error) {
	if s.joinHangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Disk.Join(ctx)
}

func (s *faultyStore) Acquire(ctx context.Context, shards []int) ([]claim.Claim, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	return s.Disk.Acquire(ctx, slices.DeleteFunc(slices.Clone(shards), s.isLost))
}

func (s *faultyStore) Renew(ctx context.Context, claims []claim.Claim) ([]claim.Claim, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	return s.Disk.Renew(ctx, slices.DeleteFunc(slices.Clone(claims), func(c claim.Claim) bool { return s.isLost(c.Shard) }))
}

func (s *faultyStore) Release(ctx context.Context, claims []claim.Claim) error {
	if err := s.err(); err != nil {
		return err
	}
	return s.Disk.Release(ctx, claims)
}

func (s *faultyStore) Load(ctx context.Context, shard int) recordsFunc {
	if load := s.load.Load(); load != nil {
		return (*load)(shard)
	}
	return s.Disk.Load(ctx, shard)
}

func (s *faultyStore) Newest(ctx context.Context, shards []int) ([]uint64, error) {
	if err := s.err(); err != nil {
		return make([]uint64, len(shards)), err
	}
	return s.Disk.Newest(ctx, shards)
}

func (s *faultyStore) Commit(ctx context.Context, c claim.Claim, changes subscription.Changes) error {
	if err := s.err(); err != nil {
		return err
	}
	commit := func() error { return s.Disk.Commit(ctx, c, changes) }
	if f := s.commit.Load(); f != nil {
		return (*f)(ctx, c.Shard, changes, commit)
	}
	return commit()
}

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
		w.wantMetric("claims", 1)
		w.store.onCommit(nil)
		if d := <-took; d > 22*time.Second {
			t.Errorf("shutdown took %v, want at most 22s", d)
		}
		w.wantStored(id, w.head())
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
		w.wantMetric("claims", 0)
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
		w.wantGone(id)
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
		w.wantMetric("claims_lost_total", 0)
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
		w.wantStored(good, w.head())
		w.store.onCommit(nil)
		w.pass(7 * time.Second)
		w.wantStored(hanging, w.head())
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
		w.wantMetric("in_flight", 0)
		w.store.onCommit(nil)
		w.pass(2 * time.Second)
		c.wantRequests(18, 17)
		if r := w.record(subscription.NewID("demo", "", url+"?n=0")); r.Renewed.IsZero() || len(r.Last) != 4 {
			t.Errorf("got %d attempts, renewed at %v; want 4 and a renewal", len(r.Last), r.Renewed)
		}

		// The hub hands the shard over, and the next hub verifies again.
		w.store.onCommit(noRecords)
		renew(1)
		w.wantShutdown(time.Second)
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
		w.wantGone(id)
	})
}
