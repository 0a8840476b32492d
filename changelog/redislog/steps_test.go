package redislog

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/resourcesync"
)

// start opens a log that is closed with the test.
func start(t testing.TB, url string, o Options) *Log {
	t.Helper()
	if o.Prefix == "" {
		o.Prefix = prefix()
	}
	l, err := Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t testing.TB, want, err error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}

// waitFor waits until something is so.
func waitFor(t testing.TB, so func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for !so() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("it does not come to be so")
		}
	}
}

func makeSet(t testing.TB, l *Log, listSize int) {
	t.Helper()
	ok(t, l.Make(t.Context(), "set", changelog.Description{}, listSize))
}

// changes are n changes that are named after what.
func changes(what string, n int) []resourcesync.Change {
	c := make([]resourcesync.Change, n)
	for i := range c {
		c[i] = resourcesync.Change{Loc: fmt.Sprintf("https://example.org/%s/%d", what, i), Change: resourcesync.Updated}
	}
	return c
}

func add(t testing.TB, l *Log, what string, n int) changelog.Appended {
	t.Helper()
	a, err := l.Append(t.Context(), "set", changelog.Publish{Changes: changes(what, n)})
	ok(t, err)
	return a[0]
}

func state(t testing.TB, l *Log) changelog.State {
	t.Helper()
	s, err := l.State(t.Context(), "set")
	ok(t, err)
	return s
}

// all reads everything behind a cursor.
func all(t testing.TB, l *Log, c changelog.Cursor) []changelog.Entry {
	t.Helper()
	var entries []changelog.Entry
	for {
		b, err := l.Since(t.Context(), "set", c, 0)
		ok(t, err)
		if b.Diverged || b.After != c {
			t.Fatalf("batch after %v, diverged %t, want after %v", b.After, b.Diverged, c)
		}
		if len(b.Entries) == 0 {
			return entries
		}
		entries = append(entries, b.Entries...)
		c = b.Cursor
	}
}
