package callback

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/internal/redistest"
)

// A memory is a Keep in memory.
type memory struct {
	mu   sync.Mutex
	kept map[string][]byte
}

func (m *memory) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept[key], nil
}

func (m *memory) Scan(_ context.Context, prefix, after string, do func(string, []byte) bool) error {
	m.mu.Lock()
	kept := maps.Clone(m.kept)
	m.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(kept)) {
		if strings.HasPrefix(key, prefix) && key > after && !do(key, kept[key]) {
			break
		}
	}
	return nil
}

func (m *memory) Apply(_ context.Context, writes map[string][]byte, _ bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, v := range writes {
		if m.kept[key] = v; v == nil {
			delete(m.kept, key)
		}
	}
	return nil
}

// A belief is the time in which a hub works on a shard.
type belief struct {
	hold     *hold
	hub      string
	shard    int
	from, to time.Time
}

// A witness keeps what hubs believed, and is wary: what it notes is no shorter
// than what they believed.
type witness struct {
	mu   sync.Mutex
	past []belief
}

// check fails the test if two believed at the same time that a shard is theirs.
func (w *witness) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(w.past, func(a, b belief) int {
		return cmp.Or(cmp.Compare(a.shard, b.shard), a.from.Compare(b.from))
	})
	for i := 1; i < len(w.past); i++ {
		a, b := w.past[i-1], w.past[i]
		if a.shard == b.shard && b.from.Before(a.to) {
			t.Errorf("shard %d: %s believed to have it for %v when %s got it", a.shard, a.hub, a.to.Sub(b.from), b.hub)
		}
	}
}

// A desk is a worker that does nothing, and a registry that watches.
type desk struct {
	Registry
	t       *testing.T
	witness *witness
	broken  atomic.Bool // the registry cannot be reached
	slow    time.Duration

	claims *claims
	mu     sync.Mutex
	works  map[int]*belief // by shard
	last   map[int]uint64
	newest map[int]uint64
	gone   int // how many were lost
}

func newDesk(t *testing.T, r Registry, w *witness) *desk {
	d := &desk{Registry: r, t: t, witness: w, works: make(map[int]*belief), last: make(map[int]uint64), newest: make(map[int]uint64)}
	d.claims = newClaims(d, d, slog.New(slog.DiscardHandler))
	return d
}

func (d *desk) Acquire(ctx context.Context, shards []int) ([]Claim, error) {
	if d.broken.Load() {
		return nil, changelog.ErrUnavailable
	}
	return d.Registry.Acquire(ctx, shards)
}

func (d *desk) Renew(ctx context.Context, claims []Claim) ([]Renewed, error) {
	if d.broken.Load() {
		return nil, changelog.ErrUnavailable
	}
	renewed, err := d.Registry.Renew(ctx, claims)
	until := time.Now().Add(d.claims.counts()) // a little later than what the claims note
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range renewed {
		if b := d.works[r.Shard]; b != nil {
			b.to = until
		}
	}
	return renewed, err
}

func (d *desk) gained(h *hold) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.works[h.Shard] != nil {
		d.t.Errorf("shard %d is gained twice", h.Shard)
	}
	if h.Number <= d.last[h.Shard] {
		d.t.Errorf("shard %d: number %d comes behind %d", h.Shard, h.Number, d.last[h.Shard])
	}
	d.last[h.Shard] = h.Number
	d.works[h.Shard] = &belief{hold: h, hub: d.Name(), shard: h.Shard, from: time.Now(), to: h.Until()}
}

// ends notes that the work on a shard ends now, or has ended by itself.
func (d *desk) ends(h *hold) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.works[h.Shard]
	if b == nil || b.hold != h {
		return // it was lost while it came to an end
	}
	delete(d.works, h.Shard)
	if now := time.Now(); now.Before(b.to) {
		b.to = now
	}
	d.witness.mu.Lock()
	defer d.witness.mu.Unlock()
	d.witness.past = append(d.witness.past, *b)
}

func (d *desk) lost(h *hold) {
	d.ends(h)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone++
}

func (d *desk) yield(h *hold) {
	if d.slow == 0 {
		d.ends(h)
		d.claims.release(h)
		return
	}
	time.AfterFunc(d.slow, func() {
		d.ends(h)
		d.claims.release(h)
	})
}

func (d *desk) inbox(h *hold, newest uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.newest[h.Shard] = newest
}

func (d *desk) lostSoFar() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gone
}

// number is that of the newest claim.
func (d *desk) number(shard int) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last[shard]
}

// has returns the shards that it works on now.
func (d *desk) has() (shards []int) {
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

// A hub alone has everything at once, and keeps it.
func TestClaimsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, err := OpenDisk(t.Context(), &memory{kept: make(map[string][]byte)})
		if err != nil {
			t.Fatal(err)
		}
		d := newDesk(t, disk, new(witness))
		d.slow = 3 * time.Second
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			d.claims.run(ctx, 10*time.Second)
		}()
		synctest.Wait()
		if n := len(d.has()); n != Shards {
			t.Fatalf("it has %d shards", n)
		}
		time.Sleep(5 * time.Minute)
		if n := len(d.has()); n != Shards || d.lostSoFar() > 0 {
			t.Errorf("after a while it has %d shards and lost %d", n, d.lostSoFar())
		}
		r := Request{Mode: Retry, Set: "set", Callback: "https://example.org/"}
		if err := d.Send(ctx, r); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		id := r.ID()
		some, err := d.Inbox(ctx, id.Shard(), 0, 10)
		if err != nil || len(some) != 1 || d.newest[id.Shard()] != some[0].Number || len(d.newest) != 1 {
			t.Errorf("in the inbox are %v, %v, and told was %v", some, err, d.newest)
		}

		// The registry cannot be reached for a while: the claims end four seconds
		// after the last renewal, and come back with higher numbers.
		d.broken.Store(true)
		time.Sleep(3400 * time.Millisecond)
		synctest.Wait()
		if n := len(d.has()); n != Shards {
			t.Errorf("soon it has %d shards", n)
		}
		time.Sleep(600 * time.Millisecond)
		synctest.Wait()
		if n := len(d.has()); n != 0 {
			t.Errorf("after all that time it has %d shards", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if d.lostSoFar() != Shards {
			t.Errorf("%d shards are lost", d.lostSoFar())
		}
		d.broken.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(d.has()); n != Shards {
			t.Errorf("it has got back %d shards", n)
		}

		begun := time.Now()
		stop()
		<-ended
		if n := len(d.has()); n != 0 || d.lostSoFar() != Shards || time.Since(begun) != d.slow {
			t.Errorf("it ends with %d shards, %d lost, after %v", n, d.lostSoFar()-Shards, time.Since(begun))
		}
		if held, err := d.Registry.Renew(t.Context(), []Claim{{1, d.last[1]}}); err != nil || len(held) != 0 {
			t.Errorf("the registry says %v, %v", held, err)
		}
		d.witness.check(t)
	})
}

// A worker that does not come to an end in time has lost what it has.
func TestClaimsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, err := OpenDisk(t.Context(), &memory{kept: make(map[string][]byte)})
		if err != nil {
			t.Fatal(err)
		}
		d := newDesk(t, disk, new(witness))
		released := 0
		d.claims.worker = stuck{d, &released}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		begun := time.Now()
		d.claims.step(t.Context())
		d.claims.run(ctx, 7*time.Second)
		if time.Since(begun) != 7*time.Second || d.lostSoFar() != Shards-1 || released != 1 {
			t.Errorf("after %v %d are lost and %d released", time.Since(begun), d.lostSoFar(), released)
		}
	})
}

// stuck comes to an end with one shard only.
type stuck struct {
	*desk
	released *int
}

func (s stuck) yield(h *hold) {
	if h.Shard == 17 {
		*s.released++
		s.desk.yield(h)
	}
}

// until waits for a condition.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-tick.C {
		if done() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

// A rig is a hub that steps until it is frozen.
type rig struct {
	*desk
	frozen atomic.Bool
	end    context.CancelFunc
	ended  chan struct{}
}

func newRig(t *testing.T, r Registry, w *witness) *rig {
	ctx, end := context.WithCancel(t.Context())
	g := &rig{desk: newDesk(t, r, w), end: end, ended: make(chan struct{})}
	go func() {
		defer close(g.ended)
		tick := time.NewTicker(g.claims.every())
		defer tick.Stop()
		for ctx.Err() == nil {
			if !g.frozen.Load() {
				g.claims.step(ctx)
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

func (g *rig) kill() {
	g.end()
	<-g.ended
}

// balanced reports whether each has what it should have.
func balanced(rigs ...*rig) bool {
	var live []string
	for _, g := range rigs {
		live = append(live, g.Name())
	}
	for _, g := range rigs {
		if !slices.Equal(g.has(), wanted(live, g.Name())) {
			return false
		}
	}
	return true
}

// Three hubs share, one dies, one is frozen and comes back, one is slow to hand
// over; at no time do two have the same shard.
func TestClaimsTogether(t *testing.T) {
	s := redistest.Start(t, "--appendfsync", "no")
	w := new(witness)
	hub := func() *rig {
		r, err := NewRedis(s.Client(), "test", RedisOptions{ClaimFor: time.Second, LiveFor: 500 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		return newRig(t, r, w)
	}
	a := hub()
	until(t, "one has all", func() bool { return balanced(a) })
	a.slow = 10 * time.Millisecond
	b := hub()
	c := hub()
	begun := time.Now()
	until(t, "three share", func() bool { return balanced(a, b, c) })
	t.Logf("three share after %v: %d, %d, %d", time.Since(begun), len(a.has()), len(b.has()), len(c.has()))

	begun = time.Now()
	c.kill()
	until(t, "two share", func() bool { return balanced(a, b) })
	if d := time.Since(begun); d > 6*time.Second {
		t.Errorf("two share after %v", d)
	} else {
		t.Logf("two share after %v", d)
	}

	before := b.has()
	b.frozen.Store(true)
	until(t, "one has all", func() bool { return balanced(a) })
	if n := len(b.has()); n != 0 {
		t.Errorf("who is frozen has %d shards", n)
	}
	b.frozen.Store(false)
	until(t, "two share", func() bool { return balanced(a, b) })
	if b.lostSoFar() < len(before) {
		t.Errorf("who was frozen had %d shards and lost %d", len(before), b.lostSoFar())
	}
	a.kill()
	b.kill()
	w.check(t)
	if len(w.past) == 0 {
		t.Error("nothing was seen")
	}
}

// Redis loses everything, and with it who has what: all find their places again,
// and no number comes again.
func TestClaimsForgotten(t *testing.T) {
	s := redistest.Start(t, "--appendfsync", "no")
	var rigs []*rig
	for range 2 {
		r, err := NewRedis(s.Client(), "test", RedisOptions{ClaimFor: time.Second, LiveFor: 500 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		rigs = append(rigs, newRig(t, r, new(witness)))
	}
	until(t, "two share", func() bool { return balanced(rigs...) })
	before := max(rigs[0].number(Shards/2), rigs[1].number(Shards/2))
	if err := s.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	until(t, "all is claimed anew", func() bool {
		return balanced(rigs...) && min(rigs[0].lostSoFar(), rigs[1].lostSoFar()) > 0
	})
	if after := max(rigs[0].number(Shards/2), rigs[1].number(Shards/2)); after <= before {
		t.Errorf("number %d comes behind %d", after, before)
	}
}

// Who ends in an orderly way is replaced long before its claims would end.
func TestClaimsLeave(t *testing.T) {
	s := redistest.Start(t, "--appendfsync", "no")
	w := new(witness)
	var hubs []*desk
	var ends []func()
	for range 2 {
		r, err := NewRedis(s.Client(), "test", RedisOptions{})
		if err != nil {
			t.Fatal(err)
		}
		d := newDesk(t, r, w)
		d.slow = time.Millisecond
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			d.claims.run(ctx, 10*time.Second)
		}()
		hubs, ends = append(hubs, d), append(ends, func() { stop(); <-ended })
	}
	until(t, "two share", func() bool {
		a, b := len(hubs[0].has()), len(hubs[1].has())
		return a+b == Shards && a > Shards/4 && b > Shards/4
	})
	begun := time.Now()
	ends[0]()
	until(t, "one has all", func() bool { return len(hubs[1].has()) == Shards })
	if d := time.Since(begun); d > hubs[0].ClaimFor()/2 {
		t.Errorf("the other hub has all after %v", d)
	} else {
		t.Logf("the other hub has all after %v", d)
	}
	ends[1]()
	w.check(t)
	if fmt.Sprint(hubs[0].lostSoFar(), hubs[1].lostSoFar()) != "0 0" {
		t.Errorf("lost are %d and %d", hubs[0].lostSoFar(), hubs[1].lostSoFar())
	}
}
