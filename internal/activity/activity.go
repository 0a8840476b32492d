// Package activity remembers the last hour of one hub: how many changes each set got, how many were
// delivered, how far followers lagged, what failed, and when destinations were last proved equal.
// The web page shows it.
//
// Everything is in memory, and is lost when the hub stops; Prometheus has longer records. Memory is
// bounded: at most 256 sets have charts, those that somebody views and the busiest. Work is
// bounded, too: the heads of all logs are read every 5 seconds, or less often if that takes long.
package activity

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

// How often a Recorder reads the heads of logs, and what it keeps.
const (
	every    = 5 * time.Second
	share    = 200              // looks take at most 1/share of the time
	peeks    = 10               // peeks take at most 1/peeks of the time
	Step     = 10 * time.Second // the step of a chart
	points   = 360              // the steps of a chart: an hour
	mostSets = 256              // the most sets with charts
	mostKnow = 100_000          // the most sets whose rate is known
	wanted   = 10 * time.Minute // how long a set keeps its chart after the last look at it
)

// A Log tells the heads of logs. Every changelog.Log is one.
type Log interface {
	Sets(ctx context.Context, names ...string) ([]feed.State, error)
}

// A Following says who follows a set at this hub.
type Following struct {
	Followers int           // connections, and subscriptions of callbacks
	Behind    uint64        // how many changes the slowest follower has not got
	Lag       time.Duration // age of the oldest change that a follower has not got
}

// Followers know who follows sets at this hub.
type Followers interface {
	// Following returns the followers of each set that has any. It does not block.
	Following() map[string]Following
}

// Options of a Recorder. Zero values are the defaults.
type Options struct {
	Followers Followers        // default: nobody follows
	Logger    *slog.Logger     // default: discard
	Now       func() time.Time // default: time.Now
}

// A Recorder remembers the last hour. Its methods may be called concurrently.
type Recorder struct {
	log  Log
	opts Options

	delivered atomic.Uint64 // changes of all sets since the last look

	mu     sync.RWMutex
	begun  time.Time // when the first look was; zero: not yet
	total  *chart
	charts map[string]*chart
	known  map[string]*known
	now    map[string]Following
	failed failures
	proofs []Proof // sorted by At

	// Of peeks, which read the heads between two looks.
	pending uint64        // changes of all sets since the last look
	peeked  time.Time     // when the last peek was
	took    time.Duration // how long it took
}

// A known holds the heads of a set's log at the looks of the last minute.
type known struct {
	begin int64 // when the log began
	heads [13]uint64
	times [13]int64 // when the looks were, in milliseconds
	n     int       // number of looks; the arrays hold the newest
}

// New returns a Recorder. It reads the heads of log only while Run runs.
func New(log Log, o Options) *Recorder {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Recorder{log: log, opts: o, total: new(chart), charts: map[string]*chart{}, known: map[string]*known{}}
}

// Run reads the heads of the logs again and again until ctx is done.
func (r *Recorder) Run(ctx context.Context) {
	for pause := time.Duration(0); ; {
		if backoff.Sleep(ctx, pause) != nil {
			return
		}
		begin := time.Now()
		r.look(ctx)
		pause = max(every, share*time.Since(begin))
	}
}

// Delivered counts changes that followers of a set have got.
func (r *Recorder) Delivered(set string, changes int) {
	r.delivered.Add(uint64(changes))
	r.mu.RLock()
	c, free := r.charts[set], len(r.charts) < mostSets
	r.mu.RUnlock()
	if c == nil && free {
		c = r.freeChart(set)
	}
	if c != nil {
		c.delivered.Add(uint64(changes))
	}
}

// freeChart returns the chart of a set, or a new one if no other set has to lose its chart
// for that; otherwise nil.
func (r *Recorder) freeChart(set string) *chart {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.charts[set]
	if c == nil && len(r.charts) < mostSets {
		c = new(chart)
		r.charts[set] = c
	}
	return c
}

// peek counts the changes of all sets since the last look. It does nothing if an earlier
// peek took too long for that.
func (r *Recorder) peek(ctx context.Context) {
	now := r.opts.Now()
	r.mu.Lock()
	due := now.Sub(r.peeked) >= peeks*r.took
	if due {
		r.peeked = now // no other caller does the same
	}
	r.mu.Unlock()
	if !due {
		return
	}
	begin := time.Now()
	states, err := r.log.Sets(ctx)
	if err != nil {
		return // the next look logs it
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took, r.pending = time.Since(begin), 0
	for _, st := range states {
		r.pending += r.sinceLookLocked(&st)
	}
}

// sinceLookLocked returns how many changes were added to a set since the last look.
func (r *Recorder) sinceLookLocked(st *feed.State) uint64 {
	k := r.known[st.Set]
	switch {
	case r.begun.IsZero() || k == nil && len(r.known) >= mostKnow:
		return 0
	case k == nil:
		return st.Head.Position
	case k.begin != st.Begin:
		return 0 // as in knowLocked
	}
	last := k.heads[(k.n-1)%len(k.heads)]
	return max(st.Head.Position, last) - last
}

// look looks at all sets, and at who follows them.
func (r *Recorder) look(ctx context.Context) {
	states, err := r.log.Sets(ctx)
	if err != nil {
		if ctx.Err() == nil {
			r.opts.Logger.Debug("the activity of sets is not known", "err", err)
		}
		return
	}
	var following map[string]Following
	if r.opts.Followers != nil {
		following = r.opts.Followers.Following()
	}
	now := r.opts.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now, r.pending = following, 0
	first := r.begun.IsZero()
	if first {
		r.begun = now
	}
	slot := now.UnixNano() / int64(Step)
	alive := make(map[string]bool, len(states))
	sum, lag := uint64(0), time.Duration(0)
	for _, st := range states {
		alive[st.Set] = true
		added := r.knowLocked(&st, now, first)
		sum += added
		c := r.charts[st.Set]
		if c == nil && added > 0 {
			c = r.chartLocked(st.Set, now, added)
		}
		f := following[st.Set]
		lag = max(lag, f.Lag)
		if c != nil {
			c.add(slot, added, c.delivered.Swap(0), f.Lag)
		}
	}
	r.total.add(slot, sum, r.delivered.Swap(0), lag)
	for set := range r.known {
		if !alive[set] {
			delete(r.known, set)
		}
	}
	for set := range r.charts {
		if !alive[set] {
			delete(r.charts, set)
		}
	}
}

// knowLocked notes the head of a set. It returns how many changes were added since the
// last look. Changes that were there at the first look do not count, because they may
// be old.
func (r *Recorder) knowLocked(st *feed.State, now time.Time, first bool) (added uint64) {
	k := r.known[st.Set]
	head := st.Head.Position
	switch {
	case k == nil && len(r.known) >= mostKnow:
		return 0
	case k == nil:
		k = &known{begin: st.Begin}
		r.known[st.Set] = k
		if !first {
			added = head // the set was made since the last look
		}
		k.see(head-added, now.Add(-every))
	case k.begin != st.Begin || head < k.heads[(k.n-1)%len(k.heads)]: // the set was made anew, or its log lost its newest entries
		*k = known{begin: st.Begin}
	default:
		added = head - k.heads[(k.n-1)%len(k.heads)]
	}
	k.see(head, now)
	return added
}

func (k *known) see(head uint64, now time.Time) {
	i := k.n % len(k.heads)
	k.heads[i], k.times[i] = head, now.UnixMilli()
	k.n++
}

// rate returns the changes per second, averaged over about the last minute.
func (k *known) rate() float64 {
	if k.n < 2 {
		return 0
	}
	last, first := (k.n-1)%len(k.heads), max(k.n-len(k.heads), 0)%len(k.heads)
	took := float64(k.times[last]-k.times[first]) / 1000
	if took <= 0 {
		return 0
	}
	return float64(k.heads[last]-k.heads[first]) / took
}

// A Now is the present state of a set.
type Now struct {
	Following
	Rate  float64 // changes per second, over the last minute
	Known bool    // whether the rate is known
}

// Now returns the state of a set as of the last look.
func (r *Recorder) Now(set string) Now {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n := Now{Following: r.now[set]}
	if k := r.known[set]; k != nil {
		n.Rate, n.Known = k.rate(), true
	}
	return n
}

// A chart is the last hour of one set, or of all sets. Slot i of each array belongs
// to the newest step whose number modulo the array's size is i.
type chart struct {
	delivered atomic.Uint64 // changes since the last look
	asked     time.Time     // when the chart was last looked at

	slots      [points]int64 // the number of the step that the slot holds
	changes    [points]uint32
	deliveries [points]uint32
	lag        [points]float32 // the greatest lag in the step, in seconds
}

func (c *chart) add(slot int64, changes, delivered uint64, lag time.Duration) {
	i := slot % points
	if c.slots[i] != slot {
		c.slots[i], c.changes[i], c.deliveries[i], c.lag[i] = slot, 0, 0, 0
	}
	c.changes[i] = plus(c.changes[i], changes)
	c.deliveries[i] = plus(c.deliveries[i], delivered)
	c.lag[i] = max(c.lag[i], float32(lag.Seconds()))
}

func plus(a uint32, b uint64) uint32 { return uint32(min(uint64(a)+b, math.MaxUint32)) }

// sum returns how many changes the last hour had.
func (c *chart) sum(now int64) (n uint64) {
	for i, slot := range c.slots {
		if slot > now-points {
			n += uint64(c.changes[i])
		}
	}
	return n
}

// chartLocked returns a new chart for a set. If there are already as many charts as
// allowed, the set with the fewest changes in the last hour loses its chart, but only if
// nobody looks at it and it had fewer changes than the new set has now. If no chart can
// be dropped, chartLocked returns nil.
func (r *Recorder) chartLocked(set string, now time.Time, added uint64) *chart {
	if len(r.charts) >= mostSets {
		least, quiet := "", added
		slot := now.UnixNano() / int64(Step)
		for name, c := range r.charts {
			if now.Sub(c.asked) < wanted {
				continue
			}
			if n := c.sum(slot); n < quiet {
				least, quiet = name, n
			}
		}
		if least == "" {
			return nil
		}
		delete(r.charts, least)
	}
	c := new(chart)
	r.charts[set] = c
	return c
}

// An Hour is what happened in the last hour, in steps. The newest step is last, and is
// still under way. All slices have the same length.
type Hour struct {
	From       time.Time // when the first step began
	Changes    []uint32  // changes that the change memory accepted, from all hubs
	Deliveries []uint32  // changes that this hub delivered
	Lag        []float32 // the greatest lag of a follower of this hub, in seconds
}

// Hour returns the last hour of a set, or of all sets if set is empty. The first call for
// a set begins its chart. An Hour has no steps from before the hub started, or from
// before the chart began. The changes are as of the last look.
func (r *Recorder) Hour(set string) Hour {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hourLocked(set, 0)
}

// hourLocked is Hour with changes since the last look. It needs r.mu held.
func (r *Recorder) hourLocked(set string, pending uint64) Hour {
	now := r.opts.Now()
	last := now.UnixNano() / int64(Step)
	c, delivered := r.total, &r.delivered
	if set != "" {
		if c = r.charts[set]; c == nil {
			if c = r.chartLocked(set, now, math.MaxUint64); c == nil {
				c = new(chart) // no chart is free: this one stays empty
			}
		}
		c.asked, delivered = now, &c.delivered
	}
	first := last
	if !r.begun.IsZero() {
		first = max(r.begun.UnixNano()/int64(Step), last-points+1)
	}
	h := Hour{From: time.Unix(0, first*int64(Step)).UTC()}
	for slot := first; slot <= last; slot++ {
		i := slot % points
		if c.slots[i] != slot {
			h.Changes, h.Deliveries, h.Lag = append(h.Changes, 0), append(h.Deliveries, 0), append(h.Lag, 0)
			continue
		}
		h.Changes, h.Deliveries, h.Lag = append(h.Changes, c.changes[i]), append(h.Deliveries, c.deliveries[i]), append(h.Lag, c.lag[i])
	}
	if newest := len(h.Changes) - 1; newest >= 0 { // otherwise the clock was set back
		h.Changes[newest] = plus(h.Changes[newest], pending)
		h.Deliveries[newest] = plus(h.Deliveries[newest], delivered.Load())
	}
	return h
}

// hourNow is Hour with the changes until now. st is the present state of the set, nil for
// all sets.
func (r *Recorder) hourNow(ctx context.Context, st *feed.State) Hour {
	if st == nil {
		r.peek(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.hourLocked("", r.pending)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hourLocked(st.Set, r.sinceLookLocked(st))
}
