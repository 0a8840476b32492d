package redislog

import (
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/testutil/redistest"
)

// TestDelayedRequests disconnects a hub from Redis in the middle of a call, so that its request is
// delayed. The hub gives up. Other hubs continue, and their calls are acknowledged. Then the
// request arrives, and must change nothing of that.
func TestDelayedRequests(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	anew := func(t *testing.T, l *Log) {
		remove(t, l)
		ok(t, l.Make(ctx, "set", feed.Description{Title: "anew"}, 10))
		for range 3 {
			add(t, l, "accepted", 15)
		}
	}
	for name, test := range map[string]struct {
		before    func(*testing.T, *Log)
		late      func(*Log) error
		after     int // number of requests of late that pass
		meanwhile func(*testing.T, *Log)
	}{
		"delete": {
			before: single, after: 1,
			late:      func(l *Log) error { return l.Delete(ctx, "set") },
			meanwhile: anew,
		},
		"append": {
			before:    single,
			late:      func(l *Log) error { _, err := l.Append(ctx, "set", tornAppend.publishes...); return err },
			meanwhile: anew,
		},
		"append to an empty set": {
			before: func(t *testing.T, l *Log) {
				makeSet(t, l, 10)
				_, err := l.Append(ctx, "set") // makes the hub know the set
				ok(t, err)
			},
			late:      func(l *Log) error { _, err := l.Append(ctx, "set", tornAppend.publishes...); return err },
			meanwhile: func(t *testing.T, l *Log) { remove(t, l); makeSet(t, l, 10) },
		},
		"describe": {
			before: single, after: 1,
			late:      func(l *Log) error { return l.Describe(ctx, "set", feed.Description{Title: "late"}) },
			meanwhile: anew,
		},
		"describe what was described since": {
			before: single, after: 1,
			late: func(l *Log) error { return l.Describe(ctx, "set", feed.Description{Title: "late"}) },
			meanwhile: func(t *testing.T, l *Log) {
				ok(t, l.Describe(ctx, "set", feed.Description{Title: "accepted"}))
			},
		},
		"make": {
			before: func(*testing.T, *Log) {}, after: 3,
			late:      func(l *Log) error { return l.Make(ctx, "set", feed.Description{Title: "late"}, 10) },
			meanwhile: func(t *testing.T, l *Log) { makeSet(t, l, 10); add(t, l, "a", 1); remove(t, l) },
		},
		"make again": {
			before: func(t *testing.T, l *Log) { single(t, l); remove(t, l) }, after: 3,
			late:      func(l *Log) error { return l.Make(ctx, "set", feed.Description{Title: "late"}, 10) },
			meanwhile: func(t *testing.T, l *Log) { makeSet(t, l, 10); remove(t, l) },
		},
		"trim": {
			before:    single,
			late:      func(l *Log) error { _, err := l.Trim(ctx, "set", changelog.Retention{Count: 1}); return err },
			meanwhile: anew,
		},
		"pack": {
			before: func(t *testing.T, l *Log) { makeSet(t, l, 10); singles(t, l, "a", 30) }, after: 1,
			late:      func(l *Log) error { _, err := l.Pack(ctx, "set"); return err },
			meanwhile: func(t *testing.T, l *Log) { remove(t, l); makeSet(t, l, 10); singles(t, l, "b", 30) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Options{Prefix: prefix()}
			other := start(t, shared.url(), o)
			everyScript(t, start(t, shared.url(), Options{Prefix: prefix()}))
			p := redistest.NewProxy(t, shared.addr)
			l := startOn(t, connect(t, "redis://"+p.Addr(), redisconn.Options{Timeout: time.Second}), o)
			test.before(t, l)

			var requests atomic.Int64
			p.Decide(func(request bool) redistest.Fate {
				if request && requests.Add(1) > int64(test.after) {
					return redistest.Late
				}
				return redistest.Passed
			})
			wantErr(t, feed.ErrUnknown, test.late(l))
			test.meanwhile(t, other)
			want := look(t, other)
			p.Decide(nil)
			p.Release()
			if got := look(t, other); !reflect.DeepEqual(got, want) {
				t.Errorf("after the request, got\n\t%v, want unchanged\n\t%v", got, want)
			}
			checkUsable(t, l)
		})
	}
}

// everyScript runs every script once, so that Redis knows it: a late request names the script by
// its hash.
func everyScript(t *testing.T, l *Log) {
	t.Helper()
	makeSet(t, l, 20)
	history(t, l)
	ok(t, l.Describe(t.Context(), "set", feed.Description{}))
	remove(t, l)
}

// single creates a set with entries that were published one at a time.
func single(t *testing.T, l *Log) {
	t.Helper()
	makeSet(t, l, 10)
	singles(t, l, "a", 45)
}

// TestRecreatedElsewhere checks a hub that does not notice that a set was created again. Its next
// call applies to the new set, and exactly once.
func TestRecreatedElsewhere(t *testing.T) {
	ctx := t.Context()
	o := Options{Prefix: prefix()}
	l, other := start(t, shared.url(), o), start(t, shared.url(), o)
	makeSet(t, l, 10)
	for size := range 3 {
		add(t, l, "old", 25)
		remove(t, other)
		makeSet(t, other, 3+size)
		begin := state(t, other).Head
		if a := add(t, l, "new", 25); a.After != begin || a.Cursor != state(t, other).Head {
			t.Errorf("added after %v up to %v, set = %+v, want entries from the new begin to the head", a.After, a.Cursor, state(t, other))
		}
		if n := len(all(t, other, feed.Cursor{})); n != 25 {
			t.Errorf("got %d entries", n)
		}
		remove(t, other)
		makeSet(t, other, 10)
		ok(t, l.Describe(ctx, "set", feed.Description{Title: "described"}))
		if s := state(t, other); s.Title != "described" {
			t.Errorf("set = %+v, want the title \"described\"", s)
		}
		trim(t, l, 1)
	}
}

// TestRecreatedBetweenAttempts loses the answer to an append, and then creates the set again. The
// append must not be retried on the new set, because its result is unknown.
func TestRecreatedBetweenAttempts(t *testing.T) {
	o := Options{Prefix: prefix()}
	p := redistest.NewProxy(t, shared.addr)
	l, other := start(t, "redis://"+p.Addr(), o), start(t, shared.url(), o)
	makeSet(t, l, 10)
	add(t, l, "old", 1)
	lost := false
	p.Lose(func() bool {
		if lost {
			return false
		}
		lost = true
		remove(t, other)
		makeSet(t, other, 10)
		return true
	})
	_, err := l.Append(t.Context(), "set", changelog.Publish{Changes: changes("a", 1)})
	wantErr(t, feed.ErrUnknown, err)
	if n := len(all(t, other, feed.Cursor{})); n != 0 {
		t.Errorf("got %d entries", n)
	}
	add(t, l, "new", 2)
}
