//go:build linux

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// small is a bench that takes no time.
func small(t *testing.T) *bench {
	return &bench{ctx: t.Context(), work: t.TempDir(), rounds: 1, content: synthetic()[:2000], sizes: sizes{
		publishing: 20 * time.Millisecond, flatLength: time.Millisecond, behind: 2000, changes: 2000, sets: 3,
	}}
}

// The parts that need no program to be built, on a real Redis.
func TestRedisParts(t *testing.T) {
	b := small(t)
	for _, part := range []struct {
		run  func(*table) error
		rows int
	}{
		{b.redis, 8 * 3}, {b.redisMemory, 4}, {b.redisCatchup, 3 * 3}, {b.diskFlat, 3 * 5},
	} {
		var tab table
		if err := part.run(&tab); err != nil {
			t.Error(err)
		}
		if len(tab.rows) != part.rows {
			t.Errorf("%d rows, want %d", len(tab.rows), part.rows)
		}
		for _, r := range tab.rows {
			if cpu := strings.Contains(r.Figure, "CPU"); !cpu && !(r.Floor[0] > 0 && r.Rshub[0] > 0) {
				t.Errorf("%s, %s: %v and %v", r.Case, r.Figure, r.Floor, r.Rshub)
			}
		}
	}
}

func TestFlatOnRedis(t *testing.T) {
	b := small(t)
	nats, err := b.natsServer()
	if err != nil {
		t.Fatal(err)
	}
	defer nats.stop()
	m, err := b.flatOnRedis(nats)
	if err != nil {
		t.Fatal(err)
	}
	if m.publisher == m.follower {
		t.Error("one hub only")
	}
	if err := b.fill(m.log, benchSet, b.changes, 100, 10_000); err != nil {
		t.Fatal(err)
	}
	f, err := b.flatMeasure(m)
	if err != nil {
		t.Error(err)
	}
	if min(f.rate, f.append, f.near, f.random, f.receive) <= 0 {
		t.Errorf("%+v", f)
	}
	if err := m.close(); err != nil {
		t.Error(err)
	}
}

// What the floor has to read must be there.
func TestBehind(t *testing.T) {
	b := small(t)
	s, err := b.redisServer()
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	if err := b.fillBare(s, 100); err != nil {
		t.Fatal(err)
	}
	if err := b.readBare(s, 100); err != nil {
		t.Error(err)
	}
	b.behind++
	if b.readBare(s, 100) == nil {
		t.Error("missing blocks were not noticed")
	}
}

func TestSkipped(t *testing.T) {
	t.Setenv("PATH", "")
	b := small(t)
	var out strings.Builder
	b.out = &out
	if err := b.runPart(part{"redis", "title", (*bench).redis}, nil); err != nil || !strings.Contains(out.String(), "SKIPPED: it needs redis-server") {
		t.Errorf("%v, %q", err, out.String())
	}
	failing := func(*bench, *table) error { return context.Canceled }
	if err := b.runPart(part{"x", "title", failing}, &out); !errors.Is(err, context.Canceled) {
		t.Errorf("a failure is not one: %v", err)
	}
}
