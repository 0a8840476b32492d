package backoff

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			begin := time.Now()
			if !Wait(t.Context(), time.Second) {
				t.Fatal("it did not wait")
			}
			if d := time.Since(begin); d < time.Second/2 || d > time.Second {
				t.Errorf("it waited %v", d)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if Wait(ctx, time.Hour) || time.Since(begin) != time.Second {
			t.Errorf("it waited %v, although ctx was done", time.Since(begin))
		}
	})
}

func TestJitter(t *testing.T) {
	for range 1000 {
		if d := Jitter(time.Second); d < 800*time.Millisecond || d > 1200*time.Millisecond {
			t.Fatalf("it is %v", d)
		}
	}
	if Jitter(0) != 0 {
		t.Error("nothing is not nothing any more")
	}
}

func TestDoubled(t *testing.T) {
	for times, want := range map[int]time.Duration{-1: 3, 0: 3, 1: 6, 2: 12, 3: 20, 1 << 40: 20} {
		if d := Exponential(3, 20, times); d != want {
			t.Errorf("after %d times: %d, want %d", times, d, want)
		}
	}
	if d := Exponential(30, 20, 0); d != 20 {
		t.Errorf("more than the most: %d", d)
	}
}
