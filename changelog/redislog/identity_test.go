package redislog

import (
	"bytes"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// TestReplacedMemory empties Redis, and a new hub creates a new memory before the other hubs
// notice. Whatever the others do next, they continue in the new memory.
func TestReplacedMemory(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for name, next := range map[string]func(*testing.T, *Log, feed.Cursor){
		"append": func(t *testing.T, l *Log, _ feed.Cursor) { add(t, l, "next", 2) },
		"since": func(t *testing.T, l *Log, c feed.Cursor) {
			_, err := l.Since(t.Context(), "set", c, 0)
			wantErr(t, feed.ErrGone, err)
		},
		"state": func(t *testing.T, l *Log, c feed.Cursor) {
			if s := state(t, l); s.Head.Position != 4 {
				t.Errorf("state = %v, want the head at position 4", s)
			}
		},
		"sets":  func(t *testing.T, l *Log, _ feed.Cursor) { _, err := l.Sets(t.Context()); ok(t, err) },
		"check": func(t *testing.T, l *Log, _ feed.Cursor) { ok(t, l.Check(t.Context())) },
		"make":  func(t *testing.T, l *Log, _ feed.Cursor) { makeSet(t, l, 10) },
		"trim":  func(t *testing.T, l *Log, _ feed.Cursor) { trim(t, l, 0) },
		"describe": func(t *testing.T, l *Log, _ feed.Cursor) {
			ok(t, l.Describe(t.Context(), "set", feed.Description{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			var logged bytes.Buffer
			o := Options{Prefix: prefix()}
			idle := start(t, s.url(), o)
			o.Logger = slog.New(slog.NewTextHandler(&logged, nil))
			l := startSet(t, s, 10, o)
			c := add(t, l, "lost", 7).Cursor
			was := l.ID()
			ok(t, s.admin(t).FlushAll(ctx).Err())
			third := startSet(t, s, 5, Options{Prefix: o.Prefix})
			add(t, third, "new", 4)
			next(t, l, c)
			if l.ID() != third.ID() || l.ID() == was {
				t.Errorf("ID() = %s, previously %s, want %s", l.ID(), was, third.ID())
			}
			if text := logged.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, "replaced") {
				t.Errorf("log output = %q, want one error about the replaced memory", text)
			}
			_, err := l.Since(ctx, "set", c, 0)
			wantErr(t, feed.ErrGone, err)
			for _, log := range []*Log{l, idle} {
				head := state(t, third).Head
				if a := add(t, log, "more", 13); a.After != head {
					t.Errorf("After = %v, want the head %v", a.After, head)
				}
				if a, b := all(t, log, feed.Cursor{}), all(t, third, feed.Cursor{}); !slices.EqualFunc(a, b, same) {
					t.Errorf("got %d entries, the other hub %d", len(a), len(b))
				}
			}
		})
	}
}

// TestReplacedDuringMake empties Redis and creates another memory between two steps of Make.
func TestReplacedDuringMake(t *testing.T) {
	t.Parallel()
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
			t.Errorf("emptied at call %d: ID() = %s, previously %s, want %s", n, l.ID(), was, third.ID())
		}
		add(t, l, "a", 3)
		if n := len(all(t, third, feed.Cursor{})); n != 3 {
			t.Errorf("got %d entries", n)
		}
	}
}

// TestForeignSet checks that no hub writes to a set with another identity than the memory.
func TestForeignSet(t *testing.T) {
	l := startSet(t, shared, 10, Options{})
	c := add(t, l, "a", 3).Cursor
	ctx := t.Context()
	ok(t, shared.admin(t).HSet(ctx, l.memoryKey(), "id", "another").Err())
	_, err := l.Append(ctx, "set", changelog.Publish{Changes: changes("b", 1)})
	if err != nil {
		t.Fatal(err) // the identity of the memory is not read while the set is unchanged
	}
	ok(t, l.Check(ctx))
	_, err = l.Since(ctx, "set", c, 0)
	for _, err := range []error{err, l.Make(ctx, "set", feed.Description{}, 10), l.Delete(ctx, "set"), l.Describe(ctx, "set", feed.Description{})} {
		wantErr(t, feed.ErrUnavailable, err)
		if !strings.Contains(err.Error(), "another memory") || !strings.Contains(err.Error(), `"set"`) {
			t.Errorf("error = %v, want it to name the other memory and the set", err)
		}
	}
}

// TestSecret checks that all hubs of a memory have the same secret, even if the memory was created
// before secrets existed. After a restart of Redis it is different, even if Redis is full.
func TestSecret(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--appendfsync", "always")
	ctx := t.Context()
	o := Options{Prefix: prefix()}
	a, b := start(t, s.url(), o), start(t, s.url(), o)
	agree := func(what, not string) string {
		t.Helper()
		for _, l := range []*Log{a, b} {
			_, err := l.Sets(ctx)
			ok(t, err)
		}
		if a.Secret() != b.Secret() || a.Secret() == not || len(a.Secret()) < 26 {
			t.Errorf("%s: Secret() = %q and %q, previously %q, want one new secret of at least 26 characters", what, a.Secret(), b.Secret(), not)
		}
		return a.Secret()
	}
	first := agree("at first", "")
	if agree("later", ""); a.Secret() != first {
		t.Error("secret changed")
	}
	ok(t, s.admin(t).HDel(ctx, a.memoryKey(), "secret", "server").Err())
	older := agree("in an older memory", first)
	s.kill()
	ok(t, s.start())
	again := agree("after a restart", older)
	s.kill()
	ok(t, s.start())
	ok(t, s.admin(t).ConfigSet(ctx, "maxmemory", "1").Err())
	agree("when it is full", again)
}

// TestSecretOfClone checks that a clone of Redis has the identity of the original, but another
// secret, so that the hubs of the clone and of the original do not trust each other.
func TestSecretOfClone(t *testing.T) {
	t.Parallel()
	original, clone := newServer(t), newServer(t)
	ctx := t.Context()
	o := Options{Prefix: prefix()}
	l := start(t, original.url(), o)
	makeSet(t, l, 10)
	add(t, l, "a", 3)
	host, port, _ := net.SplitHostPort(clone.addr)
	keys, err := original.admin(t).Keys(ctx, "*").Result()
	ok(t, err)
	migrate := []any{"MIGRATE", host, port, "", 0, 5000, "COPY", "KEYS"}
	for _, key := range keys {
		migrate = append(migrate, key)
	}
	ok(t, original.admin(t).Do(ctx, migrate...).Err())
	c := start(t, clone.url(), o)
	if c.ID() != l.ID() || state(t, c).Head != state(t, l).Head {
		t.Fatal("got another memory, want a clone")
	}
	if _, err := l.Sets(ctx); err != nil || c.Secret() == l.Secret() || c.Secret() == "" {
		t.Errorf("Secret() = %q and %q: %v, want different secrets", c.Secret(), l.Secret(), err)
	}
}
