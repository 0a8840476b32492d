package reader

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/testutil/metricstest"
)

func TestTooMany(t *testing.T) {
	user := func(name string) func(context.Context) context.Context {
		u := limit.New(limit.Options{}).Caller(name, nil)
		return func(ctx context.Context) context.Context { return limit.NewContext(ctx, u) }
	}
	ann, bob := user("ann"), user("bob")
	hub := func(ctx context.Context) context.Context { return ctx }
	for _, tt := range []struct {
		name   string
		before []func(context.Context) context.Context // readers in progress
		next   func(context.Context) context.Context
		want   error
	}{
		{"below the maximum", []func(context.Context) context.Context{hub, hub}, hub, nil},
		{"maximum", []func(context.Context) context.Context{hub, hub, hub}, hub, ErrTooMany},
		{"half, rounded up", []func(context.Context) context.Context{ann}, ann, nil},
		{"more than half", []func(context.Context) context.Context{ann, ann}, ann, ErrTooMany},
		{"another user", []func(context.Context) context.Context{ann, ann}, bob, nil},
		{"hub after users", []func(context.Context) context.Context{ann, ann}, hub, nil},
	} {
		for _, kind := range []string{"state", "baseline"} {
			run(t, tt.name+"/"+kind, 10, func(t *testing.T, w *world) {
				metrics := prometheus.NewRegistry()
				r := w.reader(Options{States: 3, Baselines: 3, Metrics: metrics})
				w.commit()
				read := func(ctx context.Context) (*inventory.Pinned, error) {
					if kind == "baseline" {
						return r.Baseline(ctx, "a")
					}
					return r.State(ctx, "a", feed.Cursor{}, 0)
				}
				var readers []*inventory.Pinned
				for _, as := range tt.before {
					p, err := read(as(t.Context()))
					w.OK(err)
					readers = append(readers, p)
				}
				p, err := read(tt.next(t.Context()))
				if !errors.Is(err, tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				begun, refused := float64(len(readers)), float64(1)
				if err == nil {
					readers = append(readers, p)
					begun, refused = begun+1, 0
				}
				values := metricstest.Values(t, metrics)
				for name, want := range map[string]float64{
					`readers{reader=%q}`: begun, `reads_total{outcome="begun",reader=%q}`: begun, `reads_total{outcome="refused",reader=%q}`: refused,
				} {
					if got := values[fmt.Sprintf("rshub_inventory_"+name, kind)]; got != want {
						t.Errorf("%s of %s is %v, want %v", name, kind, got, want)
					}
				}
				if got := values["rshub_inventory_snapshots"]; got != 1 {
					t.Errorf("snapshots = %v, want 1", got)
				}
				for _, p := range readers {
					p.Release()
				}
				if n, users := r.states.n+r.baselines.n, len(r.states.byUser)+len(r.baselines.byUser); n != 0 || users != 0 {
					t.Errorf("after all releases: got %d in progress of %d users, want none", n, users)
				}
			})
		}
	}
}

// TestTooManyAfterErrors checks that failed queries do not count.
func TestTooManyAfterErrors(t *testing.T) {
	inWorld(t, 10, func(t *testing.T, w *world) {
		r := w.reader(Options{States: 1, Baselines: 1})
		w.commit()
		for range 3 {
			w.fails("At()", feed.ErrGone)(r.At(t.Context(), "a", feed.Cursor{Position: 7}))
			w.fails("BaselineAt()", feed.ErrGone)(r.BaselineAt(t.Context(), "a", feed.Cursor{Position: 7}))
		}
		w.check(w.head(r))
		w.check(r.Baseline(t.Context(), "a"))
	})
}
