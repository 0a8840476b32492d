package limit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/limit"
)

// The budget is never exceeded, and every request gets a share eventually.
func TestBudgetIsNeverExceeded(t *testing.T) {
	b := limit.NewBudget(100, limit.MemoryTimeout)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			s, err := b.Acquire(t.Context(), int64(1+i%60))
			if err != nil {
				t.Error(err)
				return
			}
			if n := b.Taken(); n > 100 {
				t.Errorf("Taken() = %d, want at most 100", n)
			}
			s.Shrink(int64(i % 3))
			s.Shrink(1000) // no effect, because the share is smaller
			s.Release()
			s.Release()
		})
	}
	all.Wait()
	if n := b.Taken(); n != 0 {
		t.Errorf("Taken() after the last Release = %d, want 0", n)
	}
}

func TestShareLargerThanBudget(t *testing.T) {
	b := limit.NewBudget(100, limit.MemoryTimeout)
	s, err := b.Acquire(t.Context(), 1000)
	if err != nil || b.Taken() != 100 {
		t.Fatalf("Take(1000): got %d bytes, %v, want 100, nil", b.Taken(), err)
	}
	s.Release()
}

// A request that waits too long is refused, and no longer delays those behind it.
func TestBudgetTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := limit.NewBudget(100, limit.MemoryTimeout)
		first, err := b.Acquire(t.Context(), 60)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		large := make(chan error)
		go func() {
			_, err := b.Acquire(t.Context(), 100)
			large <- err
		}()
		synctest.Wait()
		small := make(chan *limit.Share)
		go func() {
			s, err := b.Wait(t.Context(), 40) // behind the large one, although there is memory
			if err != nil {
				t.Error(err)
			}
			small <- s
		}()
		if err := <-large; !errors.Is(err, feed.ErrOverloaded) || time.Since(start) != limit.MemoryTimeout {
			t.Errorf("large share after %v: got %v, want ErrOverloaded after 10s", time.Since(start), err)
		}
		s := <-small
		if n := b.Taken(); n != 100 {
			t.Errorf("Taken() = %d, want 100", n)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("gone"))
		if _, err := b.Wait(ctx, 1); err == nil || err.Error() != "gone" {
			t.Errorf("Wait() with a canceled context = %v, want its cause", err)
		}
		first.Release()
		s.Release()
		if n := b.Taken(); n != 0 {
			t.Errorf("Taken() after the last Release = %d, want 0", n)
		}
	})
}

// One User gets half, all Users get seven eighths, and the hub itself gets the rest without waiting behind
// them.
func TestBudgetSharesOfUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b := limit.NewBudget(800, time.Second)
		take := func(ctx context.Context, bytes int64) *limit.Share {
			t.Helper()
			s, err := b.Acquire(ctx, bytes)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		users := limit.New(limit.Options{})
		ann, bob := limit.NewContext(ctx, users.Caller("ann", nil)), limit.NewContext(ctx, users.Caller("bob", nil))
		if b.MaxShare(ann) != 400 || b.MaxShare(ctx) != 800 {
			t.Errorf("Most() = %d, %d, want 400, 800", b.MaxShare(ann), b.MaxShare(ctx))
		}
		first := take(ann, 300)
		start := time.Now()
		if _, err := b.Acquire(ann, 101); !errors.Is(err, feed.ErrOverloaded) || time.Since(start) > 0 {
			t.Errorf("Take() of more than half = %v after %v, want ErrOverloaded immediately", err, time.Since(start))
		}
		if err := first.Grow(400); err != nil {
			t.Error(err)
		}
		if err := first.Grow(401); !errors.Is(err, feed.ErrOverloaded) {
			t.Errorf("Grow() beyond half = %v, want ErrOverloaded", err)
		}
		second := take(bob, 300)
		var waits sync.WaitGroup
		waits.Go(func() {
			if _, err := b.Acquire(bob, 100); !errors.Is(err, feed.ErrOverloaded) {
				t.Errorf("Take() of the reserve = %v, want ErrOverloaded", err)
			}
		})
		synctest.Wait()
		operator := take(ctx, 100) // although bob waits
		waits.Wait()
		operator.Release()
		waits.Go(func() {
			s := take(bob, 100)
			s.Release()
		})
		synctest.Wait()
		first.Release()
		waits.Wait()
		second.Release()
		if b.Taken() != 0 {
			t.Errorf("Taken() at the end = %d, want 0", b.Taken())
		}
	})
}
