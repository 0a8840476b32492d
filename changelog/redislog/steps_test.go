package redislog

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/resourcesync"
)

// connect opens a connection that is closed at the end of the test.
func connect(t testing.TB, url string, o redisconn.Options) *redisconn.Conn {
	t.Helper()
	conn, err := redisconn.Open(url, o)
	ok(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// openAt opens a log on its own connection, which is closed at the end of the test.
func openAt(t testing.TB, url string, o Options) (*Log, error) {
	t.Helper()
	return Open(t.Context(), connect(t, url, redisconn.Options{}), o)
}

// start is like openAt, but fails the test on an error.
func start(t testing.TB, url string, o Options) *Log {
	t.Helper()
	return startOn(t, connect(t, url, redisconn.Options{}), o)
}

// startOn opens a log on a connection.
func startOn(t testing.TB, conn *redisconn.Conn, o Options) *Log {
	t.Helper()
	if o.Prefix == "" {
		o.Prefix = prefix()
	}
	l, err := Open(t.Context(), conn, o)
	ok(t, err)
	return l
}

// startSet opens a log on a server, and creates the set in it.
func startSet(t testing.TB, s *server, listSize int, o Options) *Log {
	t.Helper()
	l := start(t, s.url(), o)
	makeSet(t, l, listSize)
	return l
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, want, err error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error = %v, want %v", err, want)
	}
}

func makeSet(t testing.TB, l *Log, listSize int) {
	t.Helper()
	ok(t, l.Make(t.Context(), "set", feed.Description{}, listSize))
}

// changes returns n changes named after what.
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

func pack(t *testing.T, l *Log) {
	t.Helper()
	_, err := l.Pack(t.Context(), "set")
	ok(t, err)
}

// trim applies retention with a count; 0 retains all entries.
func trim(t *testing.T, l *Log, keep uint64) {
	t.Helper()
	_, err := l.Trim(t.Context(), "set", changelog.Retention{Count: keep})
	ok(t, err)
}

// send sends the request of an append once, and returns the answer.
func send(t testing.TB, l *Log, a *appendOp) (reply redisconn.Answer) {
	t.Helper()
	ok(t, l.conn.WriteCall().Once(t.Context(), func(try *redisconn.Try) (err error) {
		reply, err = l.runWaitArgs(try, l.scripts.append, l.keys("set"), a.args(l.conn.Waits()))
		return err
	}))
	return reply
}

func state(t testing.TB, l *Log) feed.State {
	t.Helper()
	s, err := l.State(t.Context(), "set")
	ok(t, err)
	return s
}

// all reads all entries after a cursor.
func all(t testing.TB, l *Log, c feed.Cursor) []feed.Entry {
	t.Helper()
	var entries []feed.Entry
	for {
		b, err := l.Since(t.Context(), "set", c, 0)
		ok(t, err)
		if b.Diverged || b.After != c {
			t.Fatalf("After = %v, Diverged = %t, want %v, false", b.After, b.Diverged, c)
		}
		if len(b.Entries) == 0 {
			return entries
		}
		entries = append(entries, b.Entries...)
		c = b.Cursor
	}
}
