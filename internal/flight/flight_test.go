package flight

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

func TestDoBuildsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[string, int]
		made, proceed := 0, make(chan struct{})
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				v, err := g.Do(t.Context(), "key", func() (int, error) {
					made++
					<-proceed
					return 7, nil
				})
				if v != 7 || err != nil {
					t.Errorf("Do() = %d, %v", v, err)
				}
			})
		}
		synctest.Wait()
		if v, err := g.Do(t.Context(), "another key", func() (int, error) { return 8, nil }); v != 8 || err != nil {
			t.Errorf("Do() with another key = %d, %v", v, err)
		}
		close(proceed)
		all.Wait()
		if made != 1 {
			t.Errorf("build was called %d times, want 1", made)
		}
	})
}

// The caller that computes a value may be canceled. The others must still get a value.
func TestDoAfterBuilderIsCanceled(t *testing.T) {
	for name, leave := range map[string]func(cancel context.CancelFunc) error{
		"cancelled":                     func(cancel context.CancelFunc) error { cancel(); return context.Canceled },
		"cancelled, with another error": func(cancel context.CancelFunc) error { cancel(); return errors.New("in a test") },
		"panic":                         func(context.CancelFunc) error { panic("in a test") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g Group[string, int]
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began, proceed := make(chan struct{}), make(chan struct{})
				var all sync.WaitGroup
				all.Go(func() {
					defer func() { _ = recover() }()
					_, err := g.Do(ctx, "key", func() (int, error) {
						close(began)
						<-proceed
						return 0, leave(cancel)
					})
					if err == nil {
						t.Error("canceled caller got the value of another")
					}
				})
				<-began
				made := 0
				for range 3 {
					all.Go(func() {
						v, err := g.Do(t.Context(), "key", func() (int, error) { made++; return 7, nil })
						if v != 7 || err != nil {
							t.Errorf("Do() = %d, %v", v, err)
						}
					})
				}
				synctest.Wait()
				if made != 0 {
					t.Error("build was called while another call was in progress")
				}
				close(proceed)
				all.Wait()
				if made == 0 || len(g.flights) != 0 {
					t.Errorf("build was called %d times, %d flights remain", made, len(g.flights))
				}
			})
		})
	}
}

// If the computing caller is canceled but build succeeds, all callers get the value.
func TestCanceledBuilderSharesValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[string, int]
		ctx, cancel := context.WithCancel(t.Context())
		proceed := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			_, _ = g.Do(ctx, "key", func() (int, error) { <-proceed; return 7, nil })
		})
		synctest.Wait()
		all.Go(func() {
			v, err := g.Do(t.Context(), "key", func() (int, error) { return 8, nil })
			if v != 7 || err != nil {
				t.Errorf("Do() = %d, %v", v, err)
			}
		})
		synctest.Wait()
		cancel()
		close(proceed)
		all.Wait()
	})
}

func TestWaiterIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[string, int]
		proceed := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			_, _ = g.Do(t.Context(), "key", func() (int, error) { <-proceed; return 7, nil })
		})
		synctest.Wait()
		why := errors.New("the reason")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if _, err := g.Do(ctx, "key", nil); !errors.Is(err, why) {
			t.Errorf("Do() error = %v", err)
		}
		close(proceed)
		all.Wait()
	})
}

// An error is returned to all waiting callers, but not to later ones.
func TestErrorIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[string, int]
		failed := errors.New("failed")
		proceed := make(chan struct{})
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if _, err := g.Do(t.Context(), "key", func() (int, error) { <-proceed; return 0, failed }); err != failed {
					t.Errorf("Do() error = %v", err)
				}
			})
		}
		synctest.Wait()
		close(proceed)
		all.Wait()
		if v, err := g.Do(t.Context(), "key", func() (int, error) { return 7, nil }); v != 7 || err != nil {
			t.Errorf("Do() = %d, %v", v, err)
		}
	})
}
