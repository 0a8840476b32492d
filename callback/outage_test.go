package callback_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
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

// An outage is a registry with its claims that fails for a while.
type outage struct {
	registrytest.Disk
	claimFor time.Duration // how long claims last; zero means as long as those of Disk; never changed

	tight atomic.Bool // it takes no records
	full  atomic.Bool // it commits nothing
	down  atomic.Bool // it does nothing at all

	damaged atomic.Bool // what it has cannot be loaded

	lost atomic.Pointer[func(shard int) bool]                  // shards that other hubs have; nil means none
	load func(shard int) iter.Seq2[subscription.Record, error] // what Load does instead; nil means that it loads

	alone atomic.Bool  // Join gets no answer
	stuck atomic.Int32 // commits to this shard hang, if it is not 0

	hook atomic.Pointer[func(changes subscription.Changes, commit func() error) error] // what a commit does instead; nil: it commits
}

func (o *outage) is(failing bool) error {
	if failing || o.down.Load() {
		return fmt.Errorf("%w: no answer", feed.ErrUnavailable)
	}
	return nil
}

func (o *outage) isLost(shard int) bool {
	lost := o.lost.Load()
	return lost != nil && (*lost)(shard)
}

func (o *outage) ClaimFor() time.Duration { return cmp.Or(o.claimFor, o.Disk.ClaimFor()) }

func (o *outage) Send(ctx context.Context, r subscription.Request) error {
	if err := o.is(false); err != nil {
		return err
	}
	return o.Disk.Send(ctx, r)
}

func (o *outage) Join(ctx context.Context) ([]string, error) {
	if o.alone.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := o.is(false); err != nil {
		return nil, err
	}
	return o.Disk.Join(ctx)
}

func (o *outage) Acquire(ctx context.Context, shards []int) ([]claim.Claim, error) {
	if err := o.is(false); err != nil {
		return nil, err
	}
	return o.Disk.Acquire(ctx, slices.DeleteFunc(slices.Clone(shards), o.isLost))
}

func (o *outage) Renew(ctx context.Context, claims []claim.Claim) ([]claim.Claim, error) {
	if err := o.is(false); err != nil {
		return nil, err
	}
	return o.Disk.Renew(ctx, slices.DeleteFunc(slices.Clone(claims), func(c claim.Claim) bool { return o.isLost(c.Shard) }))
}

func (o *outage) Release(ctx context.Context, claims []claim.Claim) error {
	if err := o.is(false); err != nil {
		return err
	}
	return o.Disk.Release(ctx, claims)
}

func (o *outage) Leave(ctx context.Context) error {
	if err := o.is(false); err != nil {
		return err
	}
	return o.Disk.Leave(ctx)
}

func (o *outage) Load(ctx context.Context, shard int) iter.Seq2[subscription.Record, error] {
	if o.damaged.Load() {
		return func(yield func(subscription.Record, error) bool) {
			yield(subscription.Record{}, fmt.Errorf("%w: a bad block", changelog.ErrCorrupt))
		}
	}
	if err := o.is(false); err != nil {
		return func(yield func(subscription.Record, error) bool) { yield(subscription.Record{}, err) }
	}
	if o.load != nil {
		return o.load(shard)
	}
	return o.Disk.Load(ctx, shard)
}

func (o *outage) Newest(ctx context.Context, shards []int) ([]uint64, error) {
	if err := o.is(false); err != nil {
		return make([]uint64, len(shards)), err
	}
	return o.Disk.Newest(ctx, shards)
}

func (o *outage) Inbox(ctx context.Context, shard int, after uint64, limit int) ([]subscription.Request, error) {
	if err := o.is(false); err != nil {
		return nil, err
	}
	return o.Disk.Inbox(ctx, shard, after, limit)
}

func (o *outage) Commit(ctx context.Context, c claim.Claim, changes subscription.Changes) error {
	if n := o.stuck.Load(); n != 0 && c.Shard == int(n) {
		<-ctx.Done()
		return ctx.Err()
	}
	if o.tight.Load() && len(changes.Put) > 0 {
		return feed.ErrFull
	}
	if err := o.is(o.full.Load()); err != nil {
		return err
	}
	commit := func() error { return o.Disk.Commit(ctx, c, changes) }
	if hook := o.hook.Load(); hook != nil {
		return (*hook)(changes, commit)
	}
	return commit()
}

// commits sets what a commit does from now on.
func (o *outage) commits(hook func(changes subscription.Changes, commit func() error) error) {
	o.hook.Store(&hook)
}

// A hub that hands a shard over tries to save its progress until that is done, and keeps
// the claim until then.
func TestYieldSavesLate(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscribed()
		time.Sleep(time.Second)
		w.store.full.Store(true)
		w.published("a", 3)
		c.check(0, 3)
		begin, done := time.Now(), make(chan struct{})
		go func() {
			defer close(done)
			w.shutdown()
		}()
		time.Sleep(20 * time.Second) // longer than a claim lasts by itself
		select {
		case <-done:
			t.Fatal("it gave up what it could not save")
		default:
		}
		if n := w.gauge("claims"); n != 1 {
			t.Errorf("it has %d claims while it waits", n)
		}
		w.store.full.Store(false)
		<-done
		if took := time.Since(begin); took > 22*time.Second {
			t.Errorf("it took %v", took)
		}
		if r := w.saved(id); r.Cursor != w.head() {
			t.Errorf("saved %v, want %v", r.Cursor, w.head())
		}
		w.start(callback.Options{})
		w.settled()
		c.check(0, 3)
	})
}

// The store fails while a callback is asked. Once the store is back the subscription is
// kept, and as long as the claim holds the callback is not asked again.
func TestOutageDuringVerification(t *testing.T) {
	for _, test := range []struct {
		name  string
		down  func(*outage) *atomic.Bool
		asked int
	}{
		{"commits fail", func(o *outage) *atomic.Bool { return &o.full }, 1},
		{"the claim is lost", func(o *outage) *atomic.Bool { return &o.down }, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
				fails := test.down(w.store)
				c := w.listen("a.example")
				c.agrees(func(w http.ResponseWriter, r *http.Request) {
					fails.Store(true)
					_, _ = io.WriteString(w, r.URL.Query().Get("hub.challenge"))
				})
				id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url})
				c.agrees(nil)
				w.publish("a", 1)
				time.Sleep(20 * time.Second)
				if !w.gone(id) {
					t.Fatal("it was made while the store failed")
				}
				if tries, _, asked := c.counts(); tries != 0 || asked != 1 {
					t.Errorf("%d deliveries and %d questions while the store failed", tries, asked)
				}
				fails.Store(false)
				w.pass(10 * time.Second)
				c.check(0, 1)
				if w.gone(id) || c.questions() != test.asked {
					t.Errorf("gone %v, asked %d times, want %d", w.gone(id), c.questions(), test.asked)
				}
				w.noRequests(id)
			})
		})
	}
}

// TestClaimsEndTogether checks that claims on all shards that end together are not logged one by one.
func TestClaimsEndTogether(t *testing.T) {
	var log testutil.Log
	inWorld(t, callback.Options{Logger: log.Logger(slog.LevelInfo)}, func(t *testing.T, w *world) {
		time.Sleep(time.Second)
		w.store.down.Store(true)
		time.Sleep(time.Minute)
		if n := w.gauge("claims"); n != 0 {
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

// A subscription that is to end while the store fails gets nothing more, and ends once
// the store is back.
func TestOutageAtTheEnd(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscribed()
		c.says(status(410))
		w.store.full.Store(true)
		w.publish("a", 1)
		time.Sleep(time.Second)
		w.publish("b", 1)
		time.Sleep(10 * time.Second)
		if tries, _, _ := c.counts(); tries != 1 || w.gone(id) {
			t.Errorf("%d tries; gone %v", tries, w.gone(id))
		}
		w.store.full.Store(false)
		w.pass(2 * time.Second)
		if tries, _, _ := c.counts(); tries != 1 || !w.gone(id) {
			t.Errorf("afterwards %d tries; gone %v", tries, w.gone(id))
		}
	})
}

// A part of the store that does not answer costs no claims of others.
func TestJoinHangs(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscribed()
		w.store.alone.Store(true)
		time.Sleep(20 * time.Second)
		w.published("a", 1)
		c.check(0, 1)
		if lost := w.gauge("claims_lost_total"); lost != 0 {
			t.Errorf("%v claims were lost", lost)
		}
	})
}

// A shard whose commits hang delays the progress of no other.
func TestOneShardHangs(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		stuck, good := w.listen("a.example"), w.listen("b.example")
		other, id := w.subscribe(stuck), w.subscribe(good)
		time.Sleep(time.Second)
		w.store.stuck.Store(int32(other.Shard()))
		w.publish("a", 1)
		time.Sleep(time.Second) // the commit hangs
		w.publish("b", 1)
		w.pass(saveEvery)
		if r := w.saved(id); r.Cursor != w.head() {
			t.Errorf("saved %v, want %v", r.Cursor, w.head())
		}
		w.store.stuck.Store(0)
		w.pass(7 * time.Second)
		if r := w.saved(other); r.Cursor != w.head() {
			t.Errorf("afterwards %v, want %v", r.Cursor, w.head())
		}
	})
}

// A shard that cannot be read is not taken for an empty one.
func TestDamagedStore(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, _ := w.subscribed()
		w.crash()
		w.publish("a", 3)
		w.store.damaged.Store(true)
		w.start(callback.Options{})
		time.Sleep(10 * time.Second)
		w.send(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Start: w.head()})
		time.Sleep(10 * time.Second)
		w.store.damaged.Store(false)
		w.pass(time.Minute)
		c.check(0, 3)
	})
}
