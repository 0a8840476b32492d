// Package metered counts and times the calls to a change memory, for Prometheus.
package metered

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A log is a changelog.Log whose calls are counted and timed.
type log struct {
	changelog.Log
	append, since, state, sets, at, seek, make, describe, delete, trim, epoch, check *operation
}

// An operation is one kind of call.
type operation struct {
	calls, errors prometheus.Counter
	duration      prometheus.Observer
}

// New returns a Log that passes every call on to inner, and counts and times it. It
// registers its metrics with r, which can take the metrics of one Log only. The metrics
// do not count these errors as failures: feed.ErrNoSet, feed.ErrGone,
// resourcesync.ErrInvalid and context.Canceled. They are answers to the caller, not
// failures of the memory.
func New(inner changelog.Log, r prometheus.Registerer) changelog.Log {
	auto := promauto.With(r)
	calls := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_store_calls_total", Help: "Calls to the change memory; one append of several publishes together is one call.",
	}, []string{"op"})
	failed := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_store_errors_total", Help: "Calls to the change memory that failed. An answer that a set does not exist, or that a cursor is gone, is not a failure.",
	}, []string{"op"})
	durations := auto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "rshub_store_call_duration_seconds", Help: "Time that calls to the change memory took, including failed calls.",
		Buckets: []float64{.0001, .001, .005, .025, .1, .5, 2.5, 10},
	}, []string{"op"})
	op := func(name string) *operation {
		return &operation{calls.WithLabelValues(name), failed.WithLabelValues(name), durations.WithLabelValues(name)}
	}
	return &log{
		Log: inner, append: op("append"), since: op("since"), state: op("state"), sets: op("sets"), at: op("at"), seek: op("seek"),
		make: op("make"), describe: op("describe"), delete: op("delete"), trim: op("trim"), epoch: op("epoch"), check: op("check"),
	}
}

// done counts a call that began at begin and ended now with err.
func (o *operation) done(begin time.Time, err error) {
	o.calls.Inc()
	o.duration.Observe(time.Since(begin).Seconds())
	if err != nil && !errors.Is(err, feed.ErrNoSet) && !errors.Is(err, feed.ErrGone) && !errors.Is(err, resourcesync.ErrInvalid) && !errors.Is(err, context.Canceled) {
		o.errors.Inc()
	}
}

func (l *log) Make(ctx context.Context, set string, d feed.Description, listSize int) error {
	begin := time.Now()
	err := l.Log.Make(ctx, set, d, listSize)
	l.make.done(begin, err)
	return err
}

func (l *log) Describe(ctx context.Context, set string, d feed.Description) error {
	begin := time.Now()
	err := l.Log.Describe(ctx, set, d)
	l.describe.done(begin, err)
	return err
}

func (l *log) Delete(ctx context.Context, set string) error {
	begin := time.Now()
	err := l.Log.Delete(ctx, set)
	l.delete.done(begin, err)
	return err
}

func (l *log) State(ctx context.Context, set string) (feed.State, error) {
	begin := time.Now()
	s, err := l.Log.State(ctx, set)
	l.state.done(begin, err)
	return s, err
}

func (l *log) Sets(ctx context.Context, names ...string) ([]feed.State, error) {
	begin := time.Now()
	states, err := l.Log.Sets(ctx, names...)
	l.sets.done(begin, err)
	return states, err
}

func (l *log) Append(ctx context.Context, set string, publishes ...changelog.Publish) ([]changelog.Appended, error) {
	begin := time.Now()
	a, err := l.Log.Append(ctx, set, publishes...)
	l.append.done(begin, err)
	return a, err
}

func (l *log) Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error) {
	begin := time.Now()
	b, err := l.Log.Since(ctx, set, after, limit)
	l.since.done(begin, err)
	return b, err
}

func (l *log) At(ctx context.Context, set string, position uint64) (feed.Cursor, error) {
	begin := time.Now()
	c, err := l.Log.At(ctx, set, position)
	l.at.done(begin, err)
	return c, err
}

func (l *log) Seek(ctx context.Context, set string, micros int64) (feed.Cursor, error) {
	begin := time.Now()
	c, err := l.Log.Seek(ctx, set, micros)
	l.seek.done(begin, err)
	return c, err
}

func (l *log) Trim(ctx context.Context, set string, r changelog.Retention) (int, error) {
	begin := time.Now()
	removed, err := l.Log.Trim(ctx, set, r)
	l.trim.done(begin, err)
	return removed, err
}

func (l *log) BeginEpoch(ctx context.Context, set string, after uint64) error {
	begin := time.Now()
	err := l.Log.BeginEpoch(ctx, set, after)
	l.epoch.done(begin, err)
	return err
}

func (l *log) Check(ctx context.Context) error {
	begin := time.Now()
	err := l.Log.Check(ctx)
	l.check.done(begin, err)
	return err
}
