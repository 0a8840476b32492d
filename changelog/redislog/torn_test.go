package redislog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// TestTorn tears every step at each of its commands. If Redis is killed while it appends the writes
// of a script to its append-only file, part of them stays in the file: MULTI and some commands, the
// last is torn. At the next start, Redis removes only the torn command, and does not apply
// the others. But at the start after that, it applies them, before the writes that came later.
//
// After the first start the test executes another step. After the second start, everything must be
// as it was before that start.
func TestTorn(t *testing.T) {
	if testing.Short() {
		t.Skip("restarts Redis hundreds of times")
	}
	for _, step := range tornSteps {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, "--appendfsync", "always")
			frozen := time.Now()
			for c, clock := range []func() time.Time{func() time.Time { return frozen }, time.Now} {
				// If the clock stands still, later entries get the same cursors.
				opts := Options{Prefix: prefix(), Now: clock, edit: storeClock}
				l := startSet(t, s, 20, opts)
				ok(t, l.Make(t.Context(), "other", feed.Description{}, 20))
				step.before(t, l)
				before := readAOF(t, s)
				step.do(t, l)
				after := look(t, l)
				written := readAOF(t, s)[len(before):]
				starts := commandStarts(t, written)
				for i, at := range starts {
					for j, later := range laterSteps {
						if i < len(starts)-2 && (i+j)%len(laterSteps) != c {
							continue // all later steps if nearly all is written, else one
						}
						t.Run(fmt.Sprintf("%d of %d then %s", i, len(starts), later.name), func(t *testing.T) {
							s.kill()
							ok(t, os.WriteFile(aof(s), append(bytes.Clone(before), written[:at+3]...), 0o600))
							ok(t, s.start())
							l := start(t, s.url(), opts)
							later.do(t, l)
							want := look(t, l)
							s.kill()
							ok(t, s.start())
							got := look(t, l)
							if later.name == "elsewhere" && reflect.DeepEqual(got, after) {
								return // the step took effect late, and no later step depended on it
							}
							if !reflect.DeepEqual(got, want) {
								t.Fatalf("after the second start, got\n\t%v, want\n\t%v", got, want)
							}
							checkUsable(t, l)
						})
					}
				}
			}
		})
	}
}

var tornAppend = appendOp{id: "the call that is torn", publishes: []changelog.Publish{
	{Changes: changes("torn-a", 2), Key: "a", Hash: [32]byte{1}}, {Changes: changes("torn-b", 45), Key: "b"}, {Changes: changes("torn-c", 1)},
}}

// tornSteps are the steps to tear, each with its preparation.
var tornSteps = []struct {
	name       string
	before, do func(*testing.T, *Log)
}{
	{"append one", history, func(t *testing.T, l *Log) { add(t, l, "torn", 1) }},
	{"append first", func(*testing.T, *Log) {}, repeatAppend},
	{"append several", history, repeatAppend},
	{"pack", history, func(t *testing.T, l *Log) {
		n, err := l.Pack(t.Context(), "set")
		if err != nil || n == 0 {
			t.Fatalf("Pack() = %d, %v, want a positive number", n, err)
		}
	}},
	{"trim", history, func(t *testing.T, l *Log) {
		n, err := l.Trim(t.Context(), "set", changelog.Retention{Count: 45})
		if err != nil || n == 0 {
			t.Fatalf("Trim() = %d, %v, want a positive number", n, err)
		}
	}},
	{"delete", history, remove},
	{"make again", func(t *testing.T, l *Log) { history(t, l); remove(t, l) }, func(t *testing.T, l *Log) { makeSet(t, l, 30) }},
}

// history creates a log with a floor, packed blocks, live blocks and keys.
func history(t *testing.T, l *Log) {
	t.Helper()
	singles(t, l, "packed", 100)
	pack(t, l)
	trim(t, l, 60)
	singles(t, l, "live", 50)
	_, err := l.Append(t.Context(), "set", changelog.Publish{Changes: changes("kept", 7), Key: "kept"})
	ok(t, err)
}

func remove(t *testing.T, l *Log) {
	t.Helper()
	ok(t, l.Delete(t.Context(), "set"))
}

// repeatAppend sends the torn append, possibly again.
func repeatAppend(t *testing.T, l *Log) {
	t.Helper()
	s := state(t, l)
	a := tornAppend
	a.common, a.doubtArgs = l.commonArgs(), l.doubtArgs()
	a.cutBlocks(tail{s.ListSize, s.Head.Position, s.Begin})
	reply := send(t, l, &a)
	if reply.Word() != "ok" {
		t.Fatal(reply)
	}
	appended, _, err := a.decodeAnswer(reply.Text(1))
	ok(t, err)
	for i, p := range a.publishes {
		b, err := l.Since(t.Context(), "set", appended[i].After, 1)
		ok(t, err)
		if b.Diverged || b.Entries[0].Change.Loc != p.Changes[0].Loc {
			t.Errorf("publish %d: Appended = %v, but Since() = %v", i, appended[i], b)
		}
	}
}

// laterSteps are the steps between the two starts.
var laterSteps = []struct {
	name string
	do   func(*testing.T, *Log)
}{
	{"append", func(t *testing.T, l *Log) {
		l.makeIf(t)
		add(t, l, "later", 1)
	}},
	{"append keyed", func(t *testing.T, l *Log) {
		l.makeIf(t)
		_, err := l.Append(t.Context(), "set", changelog.Publish{Changes: changes("x", 30), Key: "x"}, changelog.Publish{Changes: changes("torn-b", 45), Key: "b"})
		ok(t, err)
	}},
	{"append again", func(t *testing.T, l *Log) {
		l.makeIf(t)
		repeatAppend(t, l)
	}},
	{"pack", func(t *testing.T, l *Log) {
		l.makeIf(t)
		singles(t, l, "later", 13)
		pack(t, l)
	}},
	{"trim all", func(t *testing.T, l *Log) {
		l.makeIf(t)
		trim(t, l, 1)
	}},
	{"describe", func(t *testing.T, l *Log) {
		l.makeIf(t)
		ok(t, l.Describe(t.Context(), "set", feed.Description{Title: "later"}))
	}},
	{"delete", func(t *testing.T, l *Log) {
		l.makeIf(t)
		remove(t, l)
	}},
	{"make again", func(t *testing.T, l *Log) {
		l.makeIf(t)
		remove(t, l)
		makeSet(t, l, 7)
		add(t, l, "later", 20)
	}},
	{"elsewhere", func(t *testing.T, l *Log) {
		_, err := l.Append(t.Context(), "other", changelog.Publish{Changes: changes("later", 1)})
		ok(t, err)
	}},
}

func (l *Log) makeIf(t *testing.T) {
	t.Helper()
	if _, err := l.State(t.Context(), "set"); errors.Is(err, feed.ErrNoSet) {
		makeSet(t, l, 10)
	}
}

// look returns all visible state of the set, or nil if the set does not exist.
func look(t *testing.T, l *Log) []any {
	t.Helper()
	s, err := l.State(t.Context(), "set")
	if errors.Is(err, feed.ErrNoSet) {
		return nil
	}
	ok(t, err)
	entries := all(t, l, s.Floor)
	seen := []any{s}
	for _, e := range entries {
		seen = append(seen, e.Cursor, e.Change.Loc)
	}
	if n := s.Head.Position - s.Floor.Position; n != uint64(len(entries)) {
		t.Errorf("got %d entries from %v to %v", len(entries), s.Floor, s.Head)
	}
	return seen
}

// checkUsable checks that all operations succeed.
func checkUsable(t *testing.T, l *Log) {
	t.Helper()
	ctx := t.Context()
	l.makeIf(t)
	s := state(t, l)
	entries := all(t, l, s.Floor)
	for _, e := range entries {
		at, err := l.At(ctx, "set", e.Position)
		ok(t, err)
		seek, err := l.Seek(ctx, "set", e.Micros)
		ok(t, err)
		if at != e.Cursor || seek.Position != e.Position-1 {
			t.Fatalf("At(%v) = %v, Seek() of its datetime = %v, want the cursor and the previous position", e.Cursor, at, seek)
		}
	}
	repeatAppend(t, l) // its keys or id may have been seen
	repeatAppend(t, l)
	add(t, l, "new", 3)
	singles(t, l, "new", 10)
	pack(t, l)
	removed, err := l.Trim(ctx, "set", changelog.Retention{Count: 30})
	ok(t, err)
	now := all(t, l, state(t, l).Floor)
	n := max(len(entries)-removed, 0)
	if n > 0 && !reflect.DeepEqual(now[:n], entries[removed:]) {
		t.Errorf("entries =\n\t%v, want\n\t%v", now[:n], entries[removed:])
	}
	seen := make(map[string]bool)
	for _, e := range now[n:] {
		if seen[e.Change.Loc] {
			t.Errorf("%s was stored twice", e.Change.Loc)
		}
		seen[e.Change.Loc] = true
	}
}

// aof returns the name of the append-only file.
func aof(s *server) string {
	return filepath.Join(s.dir, "appendonlydir", "appendonly.aof.1.incr.aof")
}

func readAOF(t *testing.T, s *server) []byte {
	t.Helper()
	b, err := os.ReadFile(aof(s))
	ok(t, err)
	return b
}

// commandStarts returns the offsets of the commands in a part of the file.
func commandStarts(t *testing.T, b []byte) (starts []int) {
	t.Helper()
	at := 0
	number := func(mark byte) int {
		n := bytes.IndexByte(b[at:], '\n')
		if b[at] != mark || n < 0 {
			t.Fatalf("got %.20q, want a command", b[at:])
		}
		v, err := strconv.Atoi(string(b[at+1 : at+n-1]))
		ok(t, err)
		at += n + 1
		return v
	}
	for at < len(b) {
		starts = append(starts, at)
		for range number('*') {
			at += number('$') + 2
		}
	}
	return starts
}
