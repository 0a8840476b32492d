package redislog

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
)

// Redis is emptied, and a hub that starts begins a new memory before the others
// notice. Whatever they do next, they go on in it.
func TestReplaced(t *testing.T) {
	s := newServer(t)
	for name, next := range map[string]func(*testing.T, *Log, changelog.Cursor){
		"append": func(t *testing.T, l *Log, _ changelog.Cursor) { add(t, l, "next", 2) },
		"since": func(t *testing.T, l *Log, c changelog.Cursor) {
			_, err := l.Since(t.Context(), "set", c, 0)
			wants(t, changelog.ErrGone, err)
		},
		"state": func(t *testing.T, l *Log, c changelog.Cursor) {
			if s := state(t, l); s.Head.Position != 4 {
				t.Errorf("state is %v", s)
			}
		},
		"sets":  func(t *testing.T, l *Log, _ changelog.Cursor) { _, err := l.Sets(t.Context()); ok(t, err) },
		"check": func(t *testing.T, l *Log, _ changelog.Cursor) { ok(t, l.Check(t.Context())) },
		"make":  func(t *testing.T, l *Log, _ changelog.Cursor) { makeSet(t, l, 10) },
		"trim": func(t *testing.T, l *Log, _ changelog.Cursor) {
			_, err := l.Trim(t.Context(), "set", changelog.Retention{})
			ok(t, err)
		},
		"describe": func(t *testing.T, l *Log, _ changelog.Cursor) {
			ok(t, l.Describe(t.Context(), "set", changelog.Description{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			var logged bytes.Buffer
			o := Options{Prefix: prefix()}
			idle := start(t, s.url(), o)
			o.Logger = slog.New(slog.NewTextHandler(&logged, nil))
			l := start(t, s.url(), o)
			makeSet(t, l, 10)
			c := add(t, l, "lost", 7).Cursor
			was := l.ID()
			ok(t, s.admin(t).FlushAll(ctx).Err())
			third := start(t, s.url(), Options{Prefix: o.Prefix})
			makeSet(t, third, 5)
			add(t, third, "new", 4)
			next(t, l, c)
			if l.ID() != third.ID() || l.ID() == was {
				t.Errorf("the identity is %s, was %s, and is %s", l.ID(), was, third.ID())
			}
			if text := logged.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, "replaced") {
				t.Errorf("logged is %q", text)
			}
			_, err := l.Since(ctx, "set", c, 0)
			wants(t, changelog.ErrGone, err)
			for _, log := range []*Log{l, idle} {
				head := state(t, third).Head
				if a := add(t, log, "more", 13); a.After != head {
					t.Errorf("added after %v, the head was %v", a.After, head)
				}
				if a, b := all(t, log, changelog.Cursor{}), all(t, third, changelog.Cursor{}); !slices.EqualFunc(a, b, same) {
					t.Errorf("%d entries here, %d there", len(a), len(b))
				}
			}
		})
	}
}

// Redis is emptied, and another memory begun, between the steps of Make.
func TestReplacedWhileMaking(t *testing.T) {
	s := newServer(t)
	var calls atomic.Int64
	var third *Log
	o := Options{Prefix: prefix()}
	l := start(t, s.url(), Options{Prefix: o.Prefix, Now: func() time.Time {
		if calls.Add(-1) == 0 {
			ok(t, s.admin(t).FlushAll(t.Context()).Err())
			third = start(t, s.url(), o)
		}
		return time.Now()
	}})
	for n := int64(1); n <= 4; n++ {
		third = nil
		was := l.ID()
		calls.Store(n)
		makeSet(t, l, 10)
		for ; third == nil; calls.Store(1) {
			ok(t, l.Check(t.Context()))
		}
		calls.Store(0)
		makeSet(t, l, 10)
		if l.ID() == was || l.ID() != third.ID() {
			t.Errorf("emptied at call %d: the identity is %s, was %s, and is %s", n, l.ID(), was, third.ID())
		}
		add(t, l, "a", 3)
		if n := len(all(t, third, changelog.Cursor{})); n != 3 {
			t.Errorf("%d entries", n)
		}
	}
}

// A set whose identity is not the memory's is nobody's to write to.
func TestForeignSet(t *testing.T) {
	l := start(t, shared.url(), Options{})
	makeSet(t, l, 10)
	c := add(t, l, "a", 3).Cursor
	ctx := t.Context()
	ok(t, shared.admin(t).HSet(ctx, l.memoryKey(), "id", "another").Err())
	_, err := l.Append(ctx, "set", changelog.Publish{Changes: changes("b", 1)})
	if err != nil {
		t.Fatal(err) // the memory is not asked for as long as the set is as it was
	}
	ok(t, l.Check(ctx))
	_, err = l.Since(ctx, "set", c, 0)
	for _, err := range []error{err, l.Make(ctx, "set", changelog.Description{}, 10), l.Delete(ctx, "set"), l.Describe(ctx, "set", changelog.Description{})} {
		wants(t, changelog.ErrUnavailable, err)
		if !strings.Contains(err.Error(), "another memory") || !strings.Contains(err.Error(), `"set"`) {
			t.Errorf("error is %v", err)
		}
	}
}
