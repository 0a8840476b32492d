package claim

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/conntest"
	"github.com/rshub/rshub/internal/testutil/redistest"
)

// shards is how many shards the tests share.
const shards = 256

// An ownership is a period during which a hub assumes that it has a shard.
type ownership struct {
	hold     *Hold
	hub      string
	shard    int
	from, to time.Time
}

// An overlapCheck records the ownerships of all hubs. A recorded ownership is never shorter than
// the real one.
type overlapCheck struct {
	mu   sync.Mutex
	past []ownership
}

// check fails the test if two hubs believed at the same time that they had a shard.
func (w *overlapCheck) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(w.past, func(a, b ownership) int {
		return cmp.Or(cmp.Compare(a.shard, b.shard), a.from.Compare(b.from))
	})
	for i := 1; i < len(w.past); i++ {
		a, b := w.past[i-1], w.past[i]
		if a.shard == b.shard && b.from.Before(a.to) {
			t.Errorf("shard %d: %s believed to have it for %v after %s acquired it", a.shard, a.hub, a.to.Sub(b.from), b.hub)
		}
	}
}

// An idleWorker is a Worker that does no work, and a Store that records the ownerships of its hub.
type idleWorker struct {
	Store
	t       *testing.T
	witness *overlapCheck
	broken  atomic.Bool // the store cannot be reached
	slow    time.Duration

	keeper *Keeper
	mu     sync.Mutex
	works  map[int]*ownership // by shard
	last   map[int]uint64
	gone   int // how many were lost
}

func newDesk(t *testing.T, r Store, w *overlapCheck) *idleWorker {
	d := &idleWorker{Store: r, t: t, witness: w, works: make(map[int]*ownership), last: make(map[int]uint64)}
	d.keeper = NewKeeper(d, d, shards, nil, slog.New(slog.DiscardHandler))
	return d
}

func (d *idleWorker) Acquire(ctx context.Context, shards []int) ([]Claim, error) {
	if d.broken.Load() {
		return nil, feed.ErrUnavailable
	}
	return d.Store.Acquire(ctx, shards)
}

func (d *idleWorker) Renew(ctx context.Context, claims []Claim) ([]Claim, error) {
	if d.broken.Load() {
		return nil, feed.ErrUnavailable
	}
	renewed, err := d.Store.Renew(ctx, claims)
	until := time.Now().Add(d.keeper.validFor()) // a little later than the keeper's own
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range renewed {
		if b := d.works[r.Shard]; b != nil {
			b.to = until
		}
	}
	return renewed, err
}

func (d *idleWorker) Gained(h *Hold) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.works[h.Shard] != nil {
		d.t.Errorf("shard %d: Gained called twice", h.Shard)
	}
	if h.Number <= d.last[h.Shard] {
		d.t.Errorf("shard %d: got number %d after %d", h.Shard, h.Number, d.last[h.Shard])
	}
	d.last[h.Shard] = h.Number
	d.works[h.Shard] = &ownership{hold: h, hub: d.Name(), shard: h.Shard, from: time.Now(), to: h.Until()}
}

// ends records the end of the work on a shard, unless it has ended before.
func (d *idleWorker) ends(h *Hold) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.works[h.Shard]
	if b == nil || b.hold != h {
		return // the claim was lost while its work came to an end
	}
	delete(d.works, h.Shard)
	if now := time.Now(); now.Before(b.to) {
		b.to = now
	}
	d.witness.mu.Lock()
	defer d.witness.mu.Unlock()
	d.witness.past = append(d.witness.past, *b)
}

func (d *idleWorker) Lost(h *Hold) {
	d.ends(h)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone++
}

func (d *idleWorker) Yield(h *Hold) {
	if d.slow == 0 {
		d.ends(h)
		d.keeper.Release(h)
		return
	}
	time.AfterFunc(d.slow, func() {
		d.ends(h)
		d.keeper.Release(h)
	})
}

func (d *idleWorker) lostSoFar() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gone
}

// number returns the number of the newest claim.
func (d *idleWorker) number(shard int) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last[shard]
}

// has returns the shards on which the worker is working.
func (d *idleWorker) has() (shards []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for shard, b := range d.works {
		if b.to.After(time.Now()) {
			shards = append(shards, shard)
		}
	}
	slices.Sort(shards)
	return shards
}

// A single hub claims every shard immediately and retains them.
func TestKeeperAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local, err := OpenLocal(t.Context(), &testutil.Map{}, shards)
		if err != nil {
			t.Fatal(err)
		}
		d := newDesk(t, local, new(overlapCheck))
		d.slow = 3 * time.Second
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			d.keeper.Run(ctx, 10*time.Second)
		}()
		synctest.Wait()
		if n := len(d.has()); n != shards {
			t.Fatalf("got %d shards", n)
		}
		time.Sleep(5 * time.Minute)
		if n := len(d.has()); n != shards || d.lostSoFar() > 0 {
			t.Errorf("got %d shards, %d lost", n, d.lostSoFar())
		}
		// The store cannot be reached for a while: the claims end four seconds
		// after the last renewal. Later the hub claims again, with higher numbers.
		d.broken.Store(true)
		time.Sleep(3400 * time.Millisecond)
		synctest.Wait()
		if n := len(d.has()); n != shards {
			t.Errorf("got %d shards", n)
		}
		time.Sleep(600 * time.Millisecond)
		synctest.Wait()
		if n := len(d.has()); n != 0 {
			t.Errorf("got %d shards after a long time", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if d.lostSoFar() != shards {
			t.Errorf("got %d lost shards", d.lostSoFar())
		}
		d.broken.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(d.has()); n != shards {
			t.Errorf("got %d reacquired shards", n)
		}

		begun := time.Now()
		stop()
		<-ended
		if n := len(d.has()); n != 0 || d.lostSoFar() != shards || time.Since(begun) != d.slow {
			t.Errorf("Run ended with %d shards, %d lost, after %v", n, d.lostSoFar()-shards, time.Since(begun))
		}
		if held, err := d.Store.Renew(t.Context(), []Claim{{1, d.last[1], d.Name()}}); err != nil || len(held) != 0 {
			t.Errorf("Renew() = %v, %v", held, err)
		}
		d.witness.check(t)
	})
}

// A worker that does not stop its work in time loses its claims.
func TestKeeperDropsClaimsAfterGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local, err := OpenLocal(t.Context(), &testutil.Map{}, shards)
		if err != nil {
			t.Fatal(err)
		}
		d := newDesk(t, local, new(overlapCheck))
		released := 0
		d.keeper.worker = stuckWorker{d, &released}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		begun := time.Now()
		d.keeper.step(t.Context())
		d.keeper.Run(ctx, 7*time.Second)
		if time.Since(begun) != 7*time.Second || d.lostSoFar() != shards-1 || released != 1 {
			t.Errorf("after %v: %d shards lost, %d released", time.Since(begun), d.lostSoFar(), released)
		}
	})
}

// A stuckWorker releases only one shard.
type stuckWorker struct {
	*idleWorker
	released *int
}

func (s stuckWorker) Yield(h *Hold) {
	if h.Shard == 17 {
		*s.released++
		s.idleWorker.Yield(h)
	}
}

// A testHub is a hub that runs until it is frozen.
type testHub struct {
	*idleWorker
	frozen atomic.Bool
	end    context.CancelFunc
	ended  chan struct{}
}

func newRig(t *testing.T, r Store, w *overlapCheck) *testHub {
	ctx, end := context.WithCancel(t.Context())
	g := &testHub{idleWorker: newDesk(t, r, w), end: end, ended: make(chan struct{})}
	go func() {
		defer close(g.ended)
		tick := time.NewTicker(g.keeper.interval())
		defer tick.Stop()
		for ctx.Err() == nil {
			if !g.frozen.Load() {
				g.keeper.step(ctx)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(g.kill)
	return g
}

func (g *testHub) kill() {
	g.end()
	<-g.ended
}

// balanced reports whether each hub has the shards that are assigned to it.
func balanced(rigs ...*testHub) bool {
	var live []string
	for _, g := range rigs {
		live = append(live, g.Name())
	}
	for _, g := range rigs {
		if !slices.Equal(g.has(), assignedShards(live, g.Name(), shards)) {
			return false
		}
	}
	return true
}

// Three hubs share the shards. One dies, one is frozen and resumes, one is slow to hand over. At no
// time do two hubs have the same shard.
func TestKeepersShareShards(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendfsync", "no")
	w := new(overlapCheck)
	hub := func() *testHub {
		r := NewRedis(conntest.Open(t, s.Addr, redisconn.Options{}), "test", "work", RedisOptions{ClaimFor: time.Second, LiveFor: 500 * time.Millisecond})
		return newRig(t, r, w)
	}
	a := hub()
	testutil.Until(t, "one has all", func() bool { return balanced(a) })
	a.slow = 10 * time.Millisecond
	b := hub()
	c := hub()
	begun := time.Now()
	testutil.Until(t, "three share", func() bool { return balanced(a, b, c) })
	t.Logf("three share after %v: %d, %d, %d", time.Since(begun), len(a.has()), len(b.has()), len(c.has()))

	begun = time.Now()
	c.kill()
	testutil.Until(t, "two share", func() bool { return balanced(a, b) })
	t.Logf("two share after %v", time.Since(begun))

	before := b.has()
	b.frozen.Store(true)
	testutil.Until(t, "one has all", func() bool { return balanced(a) })
	if n := len(b.has()); n != 0 {
		t.Errorf("frozen hub has %d shards", n)
	}
	b.frozen.Store(false)
	testutil.Until(t, "two share", func() bool { return balanced(a, b) })
	if b.lostSoFar() < len(before) {
		t.Errorf("frozen hub had %d shards and lost %d", len(before), b.lostSoFar())
	}
	a.kill()
	b.kill()
	w.check(t)
	if len(w.past) == 0 {
		t.Error("no claims recorded")
	}
}

// Redis loses all data and with it all claims. The hubs share the shards again, and no claim number
// is reused.
func TestKeepersAfterDataLoss(t *testing.T) {
	s := redistest.Start(t, "--appendfsync", "no")
	var rigs []*testHub
	for range 2 {
		r := NewRedis(conntest.Open(t, s.Addr, redisconn.Options{}), "test", "work", RedisOptions{ClaimFor: time.Second, LiveFor: 500 * time.Millisecond})
		rigs = append(rigs, newRig(t, r, new(overlapCheck)))
	}
	testutil.Until(t, "two share", func() bool { return balanced(rigs...) })
	before := max(rigs[0].number(shards/2), rigs[1].number(shards/2))
	if err := s.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	testutil.Until(t, "all shards are claimed again", func() bool {
		return balanced(rigs...) && min(rigs[0].lostSoFar(), rigs[1].lostSoFar()) > 0
	})
	if after := max(rigs[0].number(shards/2), rigs[1].number(shards/2)); after <= before {
		t.Errorf("got number %d after %d, want higher", after, before)
	}
}

// A hub that shuts down is replaced long before its claims would expire.
func TestKeeperHandsOver(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendfsync", "no")
	w := new(overlapCheck)
	var hubs []*idleWorker
	var ends []func()
	for range 2 {
		r := NewRedis(conntest.Open(t, s.Addr, redisconn.Options{}), "test", "work", RedisOptions{ClaimFor: time.Minute, LiveFor: time.Minute})
		if _, err := r.Join(t.Context()); err != nil { // both, before either claims: the first would have all, and hand over a few each six seconds
			t.Fatal(err)
		}
		d := newDesk(t, r, w)
		d.slow = time.Millisecond
		hubs = append(hubs, d)
	}
	for _, d := range hubs {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			d.keeper.Run(ctx, 10*time.Second)
		}()
		ends = append(ends, func() { stop(); <-ended })
	}
	testutil.Until(t, "two share", func() bool {
		a, b := len(hubs[0].has()), len(hubs[1].has())
		return a+b == shards && a > shards/4 && b > shards/4
	})
	begun := time.Now()
	ends[0]()
	testutil.Until(t, "one has all", func() bool { return len(hubs[1].has()) == shards })
	if d := time.Since(begun); d > hubs[0].ClaimFor()/2 {
		t.Errorf("the other hub got all shards after %v", d)
	} else {
		t.Logf("the other hub has all after %v", d)
	}
	ends[1]()
	w.check(t)
	if fmt.Sprint(hubs[0].lostSoFar(), hubs[1].lostSoFar()) != "0 0" {
		t.Errorf("lost claims: %d and %d, want none", hubs[0].lostSoFar(), hubs[1].lostSoFar())
	}
}
