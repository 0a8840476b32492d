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
				t.Fatal("Wait() = false, want true")
			}
			if d := time.Since(begin); d < time.Second/2 || d > time.Second {
				t.Errorf("Wait() took %v", d)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if Wait(ctx, time.Hour) || time.Since(begin) != time.Second {
			t.Errorf("Wait() took %v with a canceled context", time.Since(begin))
		}
	})
}

func TestJitter(t *testing.T) {
	for range 1000 {
		if d := Jitter(time.Second); d < 800*time.Millisecond || d > 1200*time.Millisecond {
			t.Fatalf("Jitter() = %v", d)
		}
	}
	if Jitter(0) != 0 {
		t.Error("Jitter(0) != 0")
	}
}

func TestExponential(t *testing.T) {
	for times, want := range map[int]time.Duration{-1: 3, 0: 3, 1: 6, 2: 12, 3: 20, 1 << 40: 20} {
		if d := Exponential(3, 20, times); d != want {
			t.Errorf("Exponential() after %d failures = %d, want %d", times, d, want)
		}
	}
	if d := Exponential(30, 20, 0); d != 20 {
		t.Errorf("Exponential() with first above most = %d", d)
	}
}
