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

// What is taken is never more than there is, and everybody gets a share in the end.
func TestBound(t *testing.T) {
	b := limit.NewBudget(100, limit.Patience)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			s, err := b.Take(t.Context(), int64(1+i%60))
			if err != nil {
				t.Error(err)
				return
			}
			if n := b.Taken(); n > 100 {
				t.Errorf("%d bytes of 100 are taken", n)
			}
			s.Keep(int64(i % 3))
			s.Keep(1000) // more than there is: it keeps what it has
			s.Release()
			s.Release()
		})
	}
	all.Wait()
	if n := b.Taken(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

func TestLargerThanTheBudget(t *testing.T) {
	b := limit.NewBudget(100, limit.Patience)
	s, err := b.Take(t.Context(), 1000)
	if err != nil || b.Taken() != 100 {
		t.Fatalf("%d bytes are taken, %v", b.Taken(), err)
	}
	s.Release()
}

// Whoever waits too long is told to come again, and delays nobody behind.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := limit.NewBudget(100, limit.Patience)
		first, err := b.Take(t.Context(), 60)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		large := make(chan error)
		go func() {
			_, err := b.Take(t.Context(), 100)
			large <- err
		}()
		synctest.Wait()
		small := make(chan *limit.Share)
		go func() {
			s, err := b.Wait(t.Context(), 40) // behind the large one, although there is room
			if err != nil {
				t.Error(err)
			}
			small <- s
		}()
		if err := <-large; !errors.Is(err, feed.ErrOverloaded) || time.Since(begin) != limit.Patience {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		s := <-small
		if n := b.Taken(); n != 100 {
			t.Errorf("%d bytes are taken", n)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("gone"))
		if _, err := b.Wait(ctx, 1); err == nil || err.Error() != "gone" {
			t.Errorf("when ctx is done: %v", err)
		}
		first.Release()
		s.Release()
		if n := b.Taken(); n != 0 {
			t.Errorf("%d bytes are left", n)
		}
	})
}

// One User gets half, all Users get seven eighths, and the hub itself gets the rest without
// waiting behind them.
func TestDivide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b := limit.NewBudget(800, time.Second)
		take := func(ctx context.Context, bytes int64) *limit.Share {
			t.Helper()
			s, err := b.Take(ctx, bytes)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		users := limit.New(limit.Options{})
		ann, bob := limit.NewContext(ctx, users.Caller("ann", nil)), limit.NewContext(ctx, users.Caller("bob", nil))
		if b.Most(ann) != 400 || b.Most(ctx) != 800 {
			t.Errorf("a share has at most %d, %d", b.Most(ann), b.Most(ctx))
		}
		first := take(ann, 300)
		begun := time.Now()
		if _, err := b.Take(ann, 101); !errors.Is(err, feed.ErrOverloaded) || time.Since(begun) > 0 {
			t.Errorf("more than half: %v after %v", err, time.Since(begun))
		}
		if err := first.Grow(400); err != nil {
			t.Error(err)
		}
		if err := first.Grow(401); !errors.Is(err, feed.ErrOverloaded) {
			t.Errorf("Grow beyond half: %v", err)
		}
		second := take(bob, 300)
		var waits sync.WaitGroup
		waits.Go(func() {
			if _, err := b.Take(bob, 100); !errors.Is(err, feed.ErrOverloaded) {
				t.Errorf("what is kept back: %v", err)
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
			t.Errorf("%d are taken", b.Taken())
		}
	})
}
