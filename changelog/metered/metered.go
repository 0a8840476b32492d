// Package metered wraps a changelog.Log, and counts and times its calls for Prometheus.
//
// It is a separate package so that changelog does not link Prometheus. It changes no results.
// Package internal/server wraps the log of a hub with it.
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

// A log is a changelog.Log that counts and times its calls.
type log struct {
	changelog.Log
	append, since, state, sets, at, seek, make, describe, delete, trim, check *operation
}

// An operation has the metrics of one method.
type operation struct {
	calls, errors prometheus.Counter
	duration      prometheus.Observer
}

// New returns a Log that forwards every call to inner, and counts and times it. It registers its
// metrics with r, which can have the metrics of only one Log. The errors feed.ErrNoSet,
// feed.ErrGone, resourcesync.ErrInvalid and context.Canceled are not counted as failures, because
// they are answers to the caller.
func New(inner changelog.Log, r prometheus.Registerer) changelog.Log {
	auto := promauto.With(r)
	calls := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_store_calls_total", Help: "Calls to the change memory; one append may have several publishes.",
	}, []string{"op"})
	failed := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_store_errors_total", Help: "Failed calls to the change memory. A nonexistent set or a cursor that is gone is not a failure.",
	}, []string{"op"})
	durations := auto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "rshub_store_call_duration_seconds", Help: "Duration of calls to the change memory in seconds, including failed calls.",
		Buckets: []float64{.0001, .001, .005, .025, .1, .5, 2.5, 10},
	}, []string{"op"})
	op := func(name string) *operation {
		return &operation{calls.WithLabelValues(name), failed.WithLabelValues(name), durations.WithLabelValues(name)}
	}
	return &log{
		Log: inner, append: op("append"), since: op("since"), state: op("state"), sets: op("sets"), at: op("at"), seek: op("seek"),
		make: op("make"), describe: op("describe"), delete: op("delete"), trim: op("trim"), check: op("check"),
	}
}

// observe counts a call that started at begin and returned *err. It is deferred, so err is a
// pointer.
func (o *operation) observe(begin time.Time, err *error) {
	o.calls.Inc()
	o.duration.Observe(time.Since(begin).Seconds())
	if e := *err; e != nil && !errors.Is(e, feed.ErrNoSet) && !errors.Is(e, feed.ErrGone) && !errors.Is(e, resourcesync.ErrInvalid) && !errors.Is(e, context.Canceled) {
		o.errors.Inc()
	}
}

func (l *log) Make(ctx context.Context, set string, d feed.Description, listSize int) (err error) {
	defer l.make.observe(time.Now(), &err)
	return l.Log.Make(ctx, set, d, listSize)
}

func (l *log) Describe(ctx context.Context, set string, d feed.Description) (err error) {
	defer l.describe.observe(time.Now(), &err)
	return l.Log.Describe(ctx, set, d)
}

func (l *log) Delete(ctx context.Context, set string) (err error) {
	defer l.delete.observe(time.Now(), &err)
	return l.Log.Delete(ctx, set)
}

func (l *log) State(ctx context.Context, set string) (_ feed.State, err error) {
	defer l.state.observe(time.Now(), &err)
	return l.Log.State(ctx, set)
}

func (l *log) Sets(ctx context.Context, names ...string) (_ []feed.State, err error) {
	defer l.sets.observe(time.Now(), &err)
	return l.Log.Sets(ctx, names...)
}

func (l *log) Append(ctx context.Context, set string, publishes ...changelog.Publish) (_ []changelog.Appended, err error) {
	defer l.append.observe(time.Now(), &err)
	return l.Log.Append(ctx, set, publishes...)
}

func (l *log) Since(ctx context.Context, set string, after feed.Cursor, limit int) (_ *feed.Batch, err error) {
	defer l.since.observe(time.Now(), &err)
	return l.Log.Since(ctx, set, after, limit)
}

func (l *log) At(ctx context.Context, set string, position uint64) (_ feed.Cursor, err error) {
	defer l.at.observe(time.Now(), &err)
	return l.Log.At(ctx, set, position)
}

func (l *log) Seek(ctx context.Context, set string, micros int64) (_ feed.Cursor, err error) {
	defer l.seek.observe(time.Now(), &err)
	return l.Log.Seek(ctx, set, micros)
}

func (l *log) Trim(ctx context.Context, set string, r changelog.Retention) (removed int, err error) {
	defer l.trim.observe(time.Now(), &err)
	return l.Log.Trim(ctx, set, r)
}

func (l *log) Check(ctx context.Context) (err error) {
	defer l.check.observe(time.Now(), &err)
	return l.Log.Check(ctx)
}
