package metered_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/changelog/metered"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil/metricstest"
	"github.com/rshub/rshub/resourcesync"
)

// calls makes one call of each kind, and names it as the metrics do.
func calls(ctx context.Context, log changelog.Log) map[string]error {
	const set = "demo"
	errs := map[string]error{}
	errs["make"] = log.Make(ctx, set, feed.Description{}, 10)
	errs["describe"] = log.Describe(ctx, set, feed.Description{Title: "A title"})
	appended, err := log.Append(ctx, set, changelog.Publish{Changes: []resourcesync.Change{{Loc: "https://example.org/a", Change: resourcesync.Updated}}})
	if err == nil && (len(appended) != 1 || appended[0].Count != 1) {
		err = fmt.Errorf("appended %+v", appended)
	}
	errs["append"] = err
	state, err := log.State(ctx, set)
	if err == nil && (state.Title != "A title" || state.Head.Position != 1) {
		err = fmt.Errorf("the state is %+v", state)
	}
	errs["state"] = err
	states, err := log.Sets(ctx, set, "other")
	if err == nil && len(states) != 1 {
		err = fmt.Errorf("the sets are %+v", states)
	}
	errs["sets"] = err
	batch, err := log.Since(ctx, set, state.Floor, 0)
	if err == nil && len(batch.Entries) != 1 {
		err = fmt.Errorf("the batch is %+v", batch)
	}
	errs["since"] = err
	at, err := log.At(ctx, set, 1)
	if err == nil && at != state.Head {
		err = fmt.Errorf("position 1 is at %v", at)
	}
	errs["at"] = err
	sought, err := log.Seek(ctx, set, state.Head.Micros)
	if err == nil && sought != state.Floor {
		err = fmt.Errorf("the entry is sought after %v", sought)
	}
	errs["seek"] = err
	_, errs["trim"] = log.Trim(ctx, set, changelog.Retention{})
	errs["check"] = log.Check(ctx)
	errs["delete"] = log.Delete(ctx, set)
	return errs
}

func TestMetered(t *testing.T) {
	disk, err := disklog.Open(t.Context(), t.TempDir(), disklog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	reg := prometheus.NewRegistry()
	log := metered.New(disk, reg)
	metricstest.Check(t, reg, nil)
	if log.ID() != disk.ID() {
		t.Error("it is another memory")
	}
	want := map[string]float64{}
	count := func(op string, n, errors float64) {
		want[fmt.Sprintf("rshub_store_calls_total{op=%q}", op)] += n
		want[fmt.Sprintf("rshub_store_call_duration_seconds{op=%q}", op)] += n
		want[fmt.Sprintf("rshub_store_errors_total{op=%q}", op)] += errors
	}
	for op, err := range calls(t.Context(), log) {
		if err != nil {
			t.Errorf("%s: %v", op, err)
		}
		count(op, 1, 0)
	}
	metricstest.Check(t, reg, want)

	// These errors are answers to the caller, and do not count as failures.
	_, noSet := log.State(t.Context(), "other")
	count("state", 1, 0)
	_, gone := log.Since(t.Context(), "other", feed.Cursor{Position: 1, Micros: 1}, 0)
	count("since", 1, 0)
	if err := log.Make(t.Context(), "demo", feed.Description{}, 10); err != nil {
		t.Fatal(err)
	}
	count("make", 1, 0)
	_, behind := log.At(t.Context(), "demo", 99)
	count("at", 1, 0)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, late := log.Sets(cancelled)
	count("sets", 1, 0)
	if !errors.Is(noSet, feed.ErrNoSet) || !errors.Is(gone, feed.ErrGone) || !errors.Is(behind, resourcesync.ErrInvalid) || !errors.Is(late, context.Canceled) {
		t.Errorf("the errors are %v, %v, %v and %v", noSet, gone, behind, late)
	}
	metricstest.Check(t, reg, want)

	// Any other error counts. Here the deadline has passed.
	expired, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for op, err := range calls(expired, log) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s without time: %v, want context.DeadlineExceeded", op, err)
		}
		count(op, 1, 1)
	}
	metricstest.Check(t, reg, want)
}
