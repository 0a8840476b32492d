package changelog

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rshub/rshub/resourcesync"
)

// A measured is a Log whose calls are counted and timed.
type measured struct {
	Log
	append, since, state, sets, at, seek, make, describe, delete, trim, check *operation
}

// An operation is one kind of call.
type operation struct {
	calls, errors prometheus.Counter
	duration      prometheus.Observer
}

// Measure returns log with its calls counted and timed on a registry, which can
// take one Log. What the caller is told on purpose is no error: ErrNoSet, ErrGone,
// resourcesync.ErrInvalid, and that it has cancelled the call.
func Measure(log Log, r prometheus.Registerer) Log {
	auto := promauto.With(r)
	calls := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_store_calls_total", Help: "Calls to the change memory; a gathered append of several publishes is one.",
	}, []string{"op"})
	failed := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_store_errors_total", Help: "Calls to the change memory that failed. That there is no such set or that a cursor is gone is no failure.",
	}, []string{"op"})
	durations := auto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "rshub_store_call_duration_seconds", Help: "Time that calls to the change memory took, failed ones too.",
		Buckets: []float64{.0001, .001, .005, .025, .1, .5, 2.5, 10},
	}, []string{"op"})
	op := func(name string) *operation {
		return &operation{calls.WithLabelValues(name), failed.WithLabelValues(name), durations.WithLabelValues(name)}
	}
	return &measured{
		Log: log, append: op("append"), since: op("since"), state: op("state"), sets: op("sets"), at: op("at"), seek: op("seek"),
		make: op("make"), describe: op("describe"), delete: op("delete"), trim: op("trim"), check: op("check"),
	}
}

// done counts a call that began at a time.
func (o *operation) done(begin time.Time, err error) {
	o.calls.Inc()
	o.duration.Observe(time.Since(begin).Seconds())
	if err != nil && !errors.Is(err, ErrNoSet) && !errors.Is(err, ErrGone) && !errors.Is(err, resourcesync.ErrInvalid) && !errors.Is(err, context.Canceled) {
		o.errors.Inc()
	}
}

func (m *measured) Make(ctx context.Context, set string, d Description, listSize int) error {
	begin := time.Now()
	err := m.Log.Make(ctx, set, d, listSize)
	m.make.done(begin, err)
	return err
}

func (m *measured) Describe(ctx context.Context, set string, d Description) error {
	begin := time.Now()
	err := m.Log.Describe(ctx, set, d)
	m.describe.done(begin, err)
	return err
}

func (m *measured) Delete(ctx context.Context, set string) error {
	begin := time.Now()
	err := m.Log.Delete(ctx, set)
	m.delete.done(begin, err)
	return err
}

func (m *measured) State(ctx context.Context, set string) (State, error) {
	begin := time.Now()
	s, err := m.Log.State(ctx, set)
	m.state.done(begin, err)
	return s, err
}

func (m *measured) Sets(ctx context.Context, names ...string) ([]State, error) {
	begin := time.Now()
	states, err := m.Log.Sets(ctx, names...)
	m.sets.done(begin, err)
	return states, err
}

func (m *measured) Append(ctx context.Context, set string, publishes ...Publish) ([]Appended, error) {
	begin := time.Now()
	a, err := m.Log.Append(ctx, set, publishes...)
	m.append.done(begin, err)
	return a, err
}

func (m *measured) Since(ctx context.Context, set string, after Cursor, limit int) (*Batch, error) {
	begin := time.Now()
	b, err := m.Log.Since(ctx, set, after, limit)
	m.since.done(begin, err)
	return b, err
}

func (m *measured) At(ctx context.Context, set string, position uint64) (Cursor, error) {
	begin := time.Now()
	c, err := m.Log.At(ctx, set, position)
	m.at.done(begin, err)
	return c, err
}

func (m *measured) Seek(ctx context.Context, set string, micros int64) (Cursor, error) {
	begin := time.Now()
	c, err := m.Log.Seek(ctx, set, micros)
	m.seek.done(begin, err)
	return c, err
}

func (m *measured) Trim(ctx context.Context, set string, r Retention) (int, error) {
	begin := time.Now()
	removed, err := m.Log.Trim(ctx, set, r)
	m.trim.done(begin, err)
	return removed, err
}

func (m *measured) Check(ctx context.Context) error {
	begin := time.Now()
	err := m.Log.Check(ctx)
	m.check.done(begin, err)
	return err
}
