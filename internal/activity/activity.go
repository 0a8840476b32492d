// Package activity records the last hour of one hub: how many changes each set received, how many
// were delivered, how far followers lagged, what failed, and when destinations were last verified
// to be equal. The web page shows it.
//
// All records are in memory and are lost when the hub stops; Prometheus has longer records. Memory
// is bounded: at most 256 sets have charts, namely those that are viewed and the busiest. Work is
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

// Intervals and limits of a Recorder.
const (
	lookInterval = 5 * time.Second
	lookShare    = 200              // heads are read for at most 1/lookShare of the time
	peekShare    = 10               // pending changes are counted for at most 1/peekShare of the time
	Step         = 10 * time.Second // interval between two points of a chart
	maxSteps     = 360              // number of steps in a chart: an hour
	maxCharts    = 256              // maximum number of sets with charts
	maxRates     = 100_000          // maximum number of sets whose rate is known
	chartLease   = 10 * time.Minute // time for which a set keeps its chart after it was last viewed
)

// A Log returns the heads of logs. Every changelog.Log implements it.
type Log interface {
	Sets(ctx context.Context, names ...string) ([]feed.State, error)
}

// A Following describes the followers of a set at this hub.
type Following struct {
	Followers int           // number of connections and callback subscriptions
	Behind    uint64        // number of changes that the slowest follower has not received
	Lag       time.Duration // age of the oldest change that a follower has not received
}

// Followers reports the followers of sets at this hub.
type Followers interface {
	// Following returns the followers of each set that has any. It does not block.
	Following() map[string]Following
}

// Options configures a Recorder. The zero value uses the defaults.
type Options struct {
	Followers Followers        // default: no followers
	Logger    *slog.Logger     // default: discard
	Now       func() time.Time // default: time.Now
}

// A Recorder records the last hour. It is safe for concurrent use.
type Recorder struct {
	log  Log
	opts Options

	delivered atomic.Uint64 // changes of all sets since the heads were last read

	mu        sync.RWMutex
	startedAt time.Time // time of the first reading; zero before it
	total     *chart
	charts    map[string]*chart
	rates     map[string]*headHistory
	following map[string]Following
	failures  failures
	proofs    []Proof // sorted by At

	// Pending changes are counted between two readings of Run.
	pending  uint64        // changes of all sets since the last reading
	lastPeek time.Time     // time of the last count
	peekTime time.Duration // duration of the last count
}

// A headHistory holds the heads of a set's log in the last minute.
type headHistory struct {
	begin int64 // start of the log
	heads [13]uint64
	times [13]int64 // times of the readings in milliseconds
	n     int       // number of readings; the arrays hold the newest
}

// New returns a Recorder. It reads the heads of log only while Run is running.
func New(log Log, o Options) *Recorder {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Recorder{log: log, opts: o, total: new(chart), charts: map[string]*chart{}, rates: map[string]*headHistory{}}
}

// Run reads the heads of the logs periodically until ctx is done.
func (r *Recorder) Run(ctx context.Context) {
	for pause := time.Duration(0); ; {
		if backoff.Sleep(ctx, pause) != nil {
			return
		}
		begin := time.Now()
		r.readHeads(ctx)
		pause = max(lookInterval, lookShare*time.Since(begin))
	}
}

// Delivered counts changes that followers of a set have received.
func (r *Recorder) Delivered(set string, changes int) {
	r.delivered.Add(uint64(changes))
	r.mu.RLock()
	c, free := r.charts[set], len(r.charts) < maxCharts
	r.mu.RUnlock()
	if c == nil && free {
		c = r.ensureChart(set)
	}
	if c != nil {
		c.delivered.Add(uint64(changes))
	}
}

// ensureChart returns the chart of a set. If it has none, ensureChart creates one, or returns nil
// if another set would lose its chart for that.
func (r *Recorder) ensureChart(set string) *chart {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.charts[set]
	if c == nil && len(r.charts) < maxCharts {
		c = new(chart)
		r.charts[set] = c
	}
	return c
}

// countPending counts the changes of all sets since the last reading. To bound the load, it does
// nothing for a while after a count that took long.
func (r *Recorder) countPending(ctx context.Context) {
	now := r.opts.Now()
	r.mu.Lock()
	due := now.Sub(r.lastPeek) >= peekShare*r.peekTime
	if due {
		r.lastPeek = now // prevents concurrent counts
	}
	r.mu.Unlock()
	if !due {
		return
	}
	begin := time.Now()
	states, err := r.log.Sets(ctx)
	if err != nil {
		return // the next reading logs the error
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peekTime, r.pending = time.Since(begin), 0
	for _, st := range states {
		r.pending += r.pendingLocked(&st)
	}
}

// pendingLocked returns the number of changes of a set since the last reading. The caller must hold
// r.mu.
func (r *Recorder) pendingLocked(st *feed.State) uint64 {
	k := r.rates[st.Set]
	switch {
	case r.startedAt.IsZero() || k == nil && len(r.rates) >= maxRates:
		return 0
	case k == nil:
		return st.Head.Position
	case k.begin != st.Begin:
		return 0 // see addHeadLocked
	}
	last := k.heads[(k.n-1)%len(k.heads)]
	return max(st.Head.Position, last) - last
}

// readHeads reads the heads of all sets and their followers, and updates the charts.
func (r *Recorder) readHeads(ctx context.Context) {
	states, err := r.log.Sets(ctx)
	if err != nil {
		if ctx.Err() == nil {
			r.opts.Logger.Debug("reading the heads of logs failed; their activity is unknown", "err", err)
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
	r.following, r.pending = following, 0
	first := r.startedAt.IsZero()
	if first {
		r.startedAt = now
	}
	slot := now.UnixNano() / int64(Step)
	alive := make(map[string]bool, len(states))
	sum, lag := uint64(0), time.Duration(0)
	for _, st := range states {
		alive[st.Set] = true
		added := r.addHeadLocked(&st, now, first)
		sum += added
		c := r.charts[st.Set]
		if c == nil && added > 0 {
			c = r.addChartLocked(st.Set, now, added)
		}
		f := following[st.Set]
		lag = max(lag, f.Lag)
		if c != nil {
			c.add(slot, added, c.delivered.Swap(0), f.Lag)
		}
	}
	r.total.add(slot, sum, r.delivered.Swap(0), lag)
	for set := range r.rates {
		if !alive[set] {
			delete(r.rates, set)
		}
	}
	for set := range r.charts {
		if !alive[set] {
			delete(r.charts, set)
		}
	}
}

// addHeadLocked records the head of a set, and returns the number of changes since the last
// reading. Changes before the first reading are not counted, because they may be old. The caller
// must hold r.mu.
func (r *Recorder) addHeadLocked(st *feed.State, now time.Time, first bool) (added uint64) {
	k := r.rates[st.Set]
	head := st.Head.Position
	switch {
	case k == nil && len(r.rates) >= maxRates:
		return 0
	case k == nil:
		k = &headHistory{begin: st.Begin}
		r.rates[st.Set] = k
		if !first {
			added = head // the set was created since the last reading
		}
		k.addHead(head-added, now.Add(-lookInterval))
	case k.begin != st.Begin || head < k.heads[(k.n-1)%len(k.heads)]: // the set was recreated, or its log lost its tail
		*k = headHistory{begin: st.Begin}
	default:
		added = head - k.heads[(k.n-1)%len(k.heads)]
	}
	k.addHead(head, now)
	return added
}

// addHead records a head.
func (k *headHistory) addHead(head uint64, now time.Time) {
	i := k.n % len(k.heads)
	k.heads[i], k.times[i] = head, now.UnixMilli()
	k.n++
}

// rate returns the number of changes per second over about the last minute.
func (k *headHistory) rate() float64 {
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

// A Now is the current state of a set.
type Now struct {
	Following
	Rate  float64 // changes per second, over the last minute
	Known bool    // whether the rate is known
}

// Now returns the state of a set as of the last reading.
func (r *Recorder) Now(set string) Now {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n := Now{Following: r.following[set]}
	if k := r.rates[set]; k != nil {
		n.Rate, n.Known = k.rate(), true
	}
	return n
}

// A chart holds the last hour of one set or of all sets. Slot i of each array holds the newest step
// whose number modulo the size of the array is i.
type chart struct {
	delivered atomic.Uint64 // changes since the last reading
	lastRead  time.Time     // time when the chart was last viewed

	slots      [maxSteps]int64 // number of the step in each slot
	changes    [maxSteps]uint32
	deliveries [maxSteps]uint32
	lag        [maxSteps]float32 // maximum lag in the step, in seconds
}

// add adds to the step with number slot.
func (c *chart) add(slot int64, changes, delivered uint64, lag time.Duration) {
	i := slot % maxSteps
	if c.slots[i] != slot {
		c.slots[i], c.changes[i], c.deliveries[i], c.lag[i] = slot, 0, 0, 0
	}
	c.changes[i] = addClamped(c.changes[i], changes)
	c.deliveries[i] = addClamped(c.deliveries[i], delivered)
	c.lag[i] = max(c.lag[i], float32(lag.Seconds()))
}

// addClamped returns a+b, or the maximum uint32 on overflow.
func addClamped(a uint32, b uint64) uint32 { return uint32(min(uint64(a)+b, math.MaxUint32)) }

// sum returns the number of changes in the last hour. now is the number of the current step.
func (c *chart) sum(now int64) (n uint64) {
	for i, slot := range c.slots {
		if slot > now-maxSteps {
			n += uint64(c.changes[i])
		}
	}
	return n
}

// addChartLocked returns a new chart for a set. If there are maxCharts already, it drops the chart
// of the set with the fewest changes in the last hour, provided that chart was not viewed recently
// and has fewer than added changes. It returns nil if no chart can be dropped. The caller must hold
// r.mu.
func (r *Recorder) addChartLocked(set string, now time.Time, added uint64) *chart {
	if len(r.charts) >= maxCharts {
		least, quiet := "", added
		slot := now.UnixNano() / int64(Step)
		for name, c := range r.charts {
			if now.Sub(c.lastRead) < chartLease {
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

// An Hour is the last hour in steps. The newest step is last and not yet complete. All slices have
// the same length.
type Hour struct {
	From       time.Time // start of the first step
	Changes    []uint32  // changes that the change memory accepted from all hubs
	Deliveries []uint32  // changes that this hub delivered
	Lag        []float32 // maximum lag of this hub's followers, in seconds
}

// Hour returns the last hour of a set, or of all sets if set is empty. The first call for a set
// starts its chart. An Hour has no steps from before the hub or the chart started. Changes are
// counted up to the last reading.
func (r *Recorder) Hour(set string) Hour {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hourLocked(set, 0)
}

// hourLocked implements Hour, and adds pending changes to the newest step. The caller must hold
// r.mu.
func (r *Recorder) hourLocked(set string, pending uint64) Hour {
	now := r.opts.Now()
	last := now.UnixNano() / int64(Step)
	c, delivered := r.total, &r.delivered
	if set != "" {
		if c = r.charts[set]; c == nil {
			if c = r.addChartLocked(set, now, math.MaxUint64); c == nil {
				c = new(chart) // no chart can be dropped: return an empty one
			}
		}
		c.lastRead, delivered = now, &c.delivered
	}
	first := last
	if !r.startedAt.IsZero() {
		first = max(r.startedAt.UnixNano()/int64(Step), last-maxSteps+1)
	}
	h := Hour{From: time.Unix(0, first*int64(Step)).UTC()}
	for slot := first; slot <= last; slot++ {
		i := slot % maxSteps
		if c.slots[i] != slot {
			h.Changes, h.Deliveries, h.Lag = append(h.Changes, 0), append(h.Deliveries, 0), append(h.Lag, 0)
			continue
		}
		h.Changes, h.Deliveries, h.Lag = append(h.Changes, c.changes[i]), append(h.Deliveries, c.deliveries[i]), append(h.Lag, c.lag[i])
	}
	if newest := len(h.Changes) - 1; newest >= 0 { // negative if the clock was set back
		h.Changes[newest] = addClamped(h.Changes[newest], pending)
		h.Deliveries[newest] = addClamped(h.Deliveries[newest], delivered.Load())
	}
	return h
}

// hourNow is Hour with the changes up to now. st is the current state of the set, nil for all sets.
func (r *Recorder) hourNow(ctx context.Context, st *feed.State) Hour {
	if st == nil {
		r.countPending(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.hourLocked("", r.pending)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hourLocked(st.Set, r.pendingLocked(st))
}
