package budget_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/budget"
)

// What is taken is never more than there is, and everybody gets a share in the end.
func TestBound(t *testing.T) {
	b := budget.New(100, budget.Patience)
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
	b := budget.New(100, budget.Patience)
	s, err := b.Take(t.Context(), 1000)
	if err != nil || b.Taken() != 100 {
		t.Fatalf("%d bytes are taken, %v", b.Taken(), err)
	}
	s.Release()
}

// Whoever waits too long is told to come again, and delays nobody behind.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(100, budget.Patience)
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
		small := make(chan *budget.Share)
		go func() {
			s, err := b.Wait(t.Context(), 40) // behind the large one, although there is room
			if err != nil {
				t.Error(err)
			}
			small <- s
		}()
		if err := <-large; !errors.Is(err, feed.ErrOverloaded) || time.Since(begin) != budget.Patience {
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
