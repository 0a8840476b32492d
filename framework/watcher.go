package framework

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

const (
	lookEvery = 2 * time.Second  // a look at the sets whose framework topic has a log
	scanEvery = 10 * time.Second // a look at all sets, to find these, and for the Source Description
	lookShare = 20               // a look takes one of so many parts of the time at most
	scanShare = 200              // and a look at all sets one of so many

	// keepFor is how long the log of a topic outlives its set. No subscription has a longer
	// lease, so whoever followed is told if the set is made anew.
	keepFor = 32 * 24 * time.Hour

	listSize = 100 // entries of a closed list of the topic's log: what retention removes at once
)

// A Log is what a Watcher needs of the change memory. See changelog.Log.
type Log interface {
	State(ctx context.Context, set string) (feed.State, error)
	Sets(ctx context.Context, names ...string) ([]feed.State, error)
	Make(ctx context.Context, set string, d feed.Description, listSize int) error
	Describe(ctx context.Context, set string, d feed.Description) error
}

// A Hub appends to the log of a topic, or removes it, and wakes those who follow.
type Hub interface {
	Note(ctx context.Context, topic string, p changelog.Publish) error
	Delete(ctx context.Context, topic string) error
}

// A Source knows the documents of sets.
type Source interface {
	// Shown returns what the documents of a set are now, besides its Change Lists and the
	// Source Description. What has not changed since before may be taken from there.
	Shown(ctx context.Context, st *feed.State, before *Shown) (Shown, error)

	// ChangeList returns the URL of Change List n of a set.
	ChangeList(st *feed.State, n uint64) string

	// Description returns the version of the Source Description that names these sets.
	Description(ctx context.Context, sets []feed.State) string
}

// Options of a Watcher. Zero values are the defaults.
type Options struct {
	Mine   func(set string) bool // whether this hub looks at a set; default: it does. Two that do so at once may tell something twice
	Told   func(events int)      // is called with the number of events that were noted; default: nobody is told
	Now    func() time.Time      // default: time.Now
	Logger *slog.Logger          // default: discard
}

// A Watcher finds out what is to be told in the framework topics of sets.
type Watcher struct {
	log    Log
	hub    Hub
	source Source
	base   feed.Base
	opts   Options
	wake   chan struct{} // of capacity 1; says that a log was made

	// Only the goroutine of Run uses these.
	topics      map[string]feed.State // the logs of topics, by set
	description string                // version of the Source Description
	scanned     time.Time
	scanRest    time.Duration // between two looks at all sets
}

// New returns a Watcher. log has the logs of topics, too. It does nothing until Run.
func New(log Log, hub Hub, source Source, base feed.Base, o Options) *Watcher {
	if o.Mine == nil {
		o.Mine = func(string) bool { return true }
	}
	if o.Told == nil {
		o.Told = func(int) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Watcher{log: log, hub: hub, source: source, base: base, opts: o, wake: make(chan struct{}, 1), topics: map[string]feed.State{}}
}

// Open makes the log of a framework topic, unless it is there. What changes from then on is
// told. It returns feed.ErrNoSet if the set does not exist.
func (w *Watcher) Open(ctx context.Context, topic string) error {
	if _, err := w.log.State(ctx, topic); !errors.Is(err, feed.ErrNoSet) {
		return err
	}
	st, err := w.log.State(ctx, feed.SetOf(topic))
	if err != nil {
		return err
	}
	now, err := w.look(ctx, &st, &Shown{}, math.MaxUint64) // what there was before is not told
	if err != nil {
		return fmt.Errorf("look at the documents of set %q: %w", st.Set, err)
	}
	d, err := describe(&now, st.WholeSeconds)
	if err == nil {
		err = w.log.Make(ctx, topic, d, listSize)
	}
	if err != nil {
		return fmt.Errorf("make the log of %q: %w", topic, err)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return nil
}

// describe returns the description of a topic's log that keeps what was told. The latest
// notification has whole seconds if the documents of the set do.
func describe(told *Shown, whole bool) (feed.Description, error) {
	text, err := json.Marshal(told)
	return feed.Description{NoInventory: true, WholeSeconds: whole, Shown: string(text)}, err
}

// Run looks at the documents of sets until ctx is done.
func (w *Watcher) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		begin := time.Now()
		w.scan(ctx)
		again := w.round(ctx)
		rest := max(lookEvery, lookShare*time.Since(begin))
		if len(w.topics) == 0 {
			rest = max(time.Until(w.scanned.Add(w.scanRest)), lookEvery)
		}
		if again {
			rest = 0
		}
		timer := time.NewTimer(rest)
		select {
		case <-timer.C:
		case <-w.wake:
			w.scanned = time.Time{}
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// scan looks for logs of topics, if it is time to.
func (w *Watcher) scan(ctx context.Context) {
	begin := time.Now()
	if !w.scanned.IsZero() && begin.Sub(w.scanned) < w.scanRest {
		return
	}
	states, err := w.log.Sets(ctx)
	if err != nil {
		w.scanned, w.scanRest = begin, scanEvery
		if ctx.Err() == nil {
			w.opts.Logger.Warn("the sets cannot be read, so framework notifications wait", "err", err)
		}
		return
	}
	topics, shown := map[string]feed.State{}, states[:0:0]
	for _, st := range states {
		if feed.IsFramework(st.Set) {
			topics[feed.SetOf(st.Set)] = st
		} else if !st.Private { // that there is a private one is told to nobody
			shown = append(shown, st)
		}
	}
	w.topics = topics
	if len(topics) > 0 {
		w.description = w.source.Description(ctx, shown)
	}
	w.scanned = time.Now()
	w.scanRest = max(scanEvery, scanShare*w.scanned.Sub(begin))
}

// round looks at each set whose topic has a log, and tells what has changed. It reports whether
// there is more to tell at once.
func (w *Watcher) round(ctx context.Context) (again bool) {
	var names []string
	for _, set := range slices.Sorted(maps.Keys(w.topics)) {
		if w.opts.Mine(set) {
			names = append(names, set, feed.FrameworkTopic(set))
		}
	}
	if len(names) == 0 {
		return false
	}
	states, err := w.log.Sets(ctx, names...)
	if err != nil {
		if ctx.Err() == nil {
			w.opts.Logger.Warn("the sets cannot be read, so framework notifications wait", "err", err)
		}
		return false
	}
	there := map[string]*feed.State{}
	for i := range states {
		there[states[i].Set] = &states[i]
	}
	for _, name := range names {
		topic := there[name]
		if topic == nil || !feed.IsFramework(name) {
			continue
		}
		more, err := w.tell(ctx, topic, there[feed.SetOf(name)])
		if err != nil && ctx.Err() == nil && !errors.Is(err, feed.ErrNoSet) {
			w.opts.Logger.Warn("framework notifications of a set wait", "set", feed.SetOf(name), "err", err)
		}
		again = again || more && err == nil
	}
	return again
}

// tell notes what has changed in the documents of a set since the last time, and then that it
// was told. st is nil if the set does not exist. It reports whether there is more to tell.
//
// If the hub ends in between, the same is told once more.
func (w *Watcher) tell(ctx context.Context, topic, st *feed.State) (more bool, err error) {
	var before Shown
	if err := json.Unmarshal([]byte(topic.Shown), &before); err != nil {
		return false, fmt.Errorf("%w: what was told of %q: %v", changelog.ErrCorrupt, topic.Set, err)
	}
	now, oldest, whole := Shown{}, uint64(0), topic.WholeSeconds
	if st != nil {
		told := before.List
		if before.Begin != st.Begin {
			told = 0
		}
		if now, err = w.look(ctx, st, &before, told); err != nil {
			return false, err
		}
		whole = st.WholeSeconds
		var open uint64
		oldest, open = st.Lists()
		more = now.Closed < open-1
	}
	if now.Description = w.description; now.Description == "" {
		now.Description = before.Description
	}
	if now == before && whole == topic.WholeSeconds {
		return false, w.expire(ctx, topic, st)
	}
	d, err := describe(&now, whole)
	if err != nil {
		return false, err
	}
	events := difference(w.base, feed.SetOf(topic.Set), &before, &now, oldest, func(n uint64) string { return w.source.ChangeList(st, n) })
	if len(events) > 0 {
		// Two hubs that look at once have the same key, because the log has the same head.
		hash := sha256.Sum256([]byte(d.Shown))
		p := changelog.Publish{Changes: events, Key: "shown " + topic.Head.String() + " " + hex.EncodeToString(hash[:]), Hash: hash}
		if err := w.hub.Note(ctx, topic.Set, p); err != nil {
			return false, err
		}
		w.opts.Told(len(events))
	}
	return more, w.log.Describe(ctx, topic.Set, d)
}

// look returns what the documents of a set are now, except for the Source Description. told is
// how many Change Lists were told of.
func (w *Watcher) look(ctx context.Context, st *feed.State, before *Shown, told uint64) (Shown, error) {
	now, err := w.source.Shown(ctx, st, before)
	if err != nil {
		return now, err
	}
	now.Begin = st.Begin
	now.lists(st, told, func(n uint64) string { return w.source.ChangeList(st, n) })
	return now, nil
}

// expire removes the log of a topic whose set was deleted so long ago that nobody has a
// subscription to it any more.
func (w *Watcher) expire(ctx context.Context, topic, st *feed.State) error {
	if st != nil || w.opts.Now().Sub(topic.Head.Time()) < keepFor {
		return nil
	}
	delete(w.topics, feed.SetOf(topic.Set))
	return w.hub.Delete(ctx, topic.Set)
}
