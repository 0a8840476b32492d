package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The ways to follow.
const (
	byWebSocket = "websocket"
	byEvents    = "event stream"
	byPolling   = "long poll"
	byXML       = "websocket of XML"
)

var allWays = []string{byWebSocket, byEvents, byPolling}

// A message is the object that every way of following shows.
type message struct {
	Set, After, From, Until, Cursor, Next string
	Diverged                              bool
	Changes                               []json.RawMessage
}

// errGone is how following ends when the cursor is gone.
var errGone = errors.New("gone")

// A follower follows a set until its test ends, and connects again from its
// last cursor whenever it loses the connection. It checks that messages are
// chained by their cursors and entries by their positions.
type follower struct {
	way, set string
	hub      *hub
	headers  []string // "Name: value", of every request
	query    string   // further parameters, beginning with &

	mu       sync.Mutex
	cursor   string // of what was seen; before that where to start
	begun    bool   // the hub has told a cursor
	from     string // the first one that it told
	pace     func() // called after each message, by who reads; may wait
	entries  []entry
	diverged int      // times that it was told so
	ends     []string // how connections ended
	over     error    // errGone, or why following makes no sense any more
	faults   []string
}

// follow starts a follower, from a cursor, a datetime, "start" or "now". It
// ends with the test, which fails when anything was not as it should be.
func follow(t testing.TB, h *hub, way, set, since string, headers ...string) *follower {
	f := &follower{way: way, set: set, hub: h, cursor: since, headers: headers}
	f.run(t)
	return f
}

func (f *follower) run(t testing.TB) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.keepFollowing(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		for _, fault := range f.faults {
			t.Errorf("%s of %s: %s", f.way, f.set, fault)
		}
		if t.Failed() {
			t.Logf("%s of %s has %d entries up to %s; its connections ended so: %q", f.way, f.set, len(f.entries), f.cursor, f.ends)
		}
	})
}

// connect follows until the connection ends, and returns how it did.
func (f *follower) connect(ctx context.Context) error {
	switch f.way {
	case byEvents:
		return f.eventStream(ctx)
	case byPolling:
		return f.poll(ctx)
	}
	return f.webSocket(ctx)
}

func (f *follower) keepFollowing(ctx context.Context) {
	for {
		err := f.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		f.mu.Lock()
		if end := err.Error(); len(f.ends) == 0 || f.ends[len(f.ends)-1] != end {
			f.ends = append(f.ends, end)
		}
		if errors.Is(err, errGone) {
			f.over = err
		}
		over := f.over
		f.mu.Unlock()
		if over != nil {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

// fault notes what should not be. mu is held.
func (f *follower) fault(format string, args ...any) {
	if len(f.faults) < 10 {
		f.faults = append(f.faults, fmt.Sprintf(format, args...))
	}
}

// wrong notes that the hub said what it should not.
func (f *follower) wrong(format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault(format, args...)
	return fmt.Errorf(format, args...)
}

// at is where the next connection begins.
func (f *follower) at() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cursor
}

// starts takes the cursor that a connection begins with.
func (f *follower) starts(cursor string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.begun && cursor != f.cursor {
		f.fault("a connection from %s begins at %s", f.cursor, cursor)
	}
	if !f.begun {
		f.from = cursor
	}
	f.cursor, f.begun = cursor, true
}

// take takes a message. id is what the transport says is its cursor.
func (f *follower) take(m *message, id string) {
	if f.pace != nil {
		defer f.pace()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.Set != f.set || m.Cursor != id {
		f.fault("a message of %q with cursor %s and id %s", m.Set, m.Cursor, id)
	}
	if m.Diverged {
		f.diverged++
		f.cursor = m.After
		if p, _, err := splitCursor(m.After); err == nil {
			for len(f.entries) > 0 && f.entries[len(f.entries)-1].position > p {
				f.entries = f.entries[:len(f.entries)-1]
			}
		}
	}
	if f.begun && m.After != f.cursor {
		f.fault("a message after %s follows %s", m.After, f.cursor)
	}
	position, _, err := splitCursor(m.After)
	if err != nil {
		f.fault("after: %v", err)
		return
	}
	for _, raw := range m.Changes {
		e, err := parseEntry(raw)
		if err != nil {
			f.fault("%s: %v", raw, err)
			return
		}
		if position++; e.position != position && f.query == "" {
			f.fault("position %d where %d is due", e.position, position)
		}
		position = e.position
		if n := len(f.entries); n > 0 && e.datetime <= f.entries[n-1].datetime {
			f.fault("datetime %s follows %s", e.datetime, f.entries[n-1].datetime)
		}
		f.entries = append(f.entries, e)
	}
	if len(m.Changes) > 0 && f.query == "" {
		last := f.entries[len(f.entries)-1]
		if p, datetime, err := splitCursor(m.Cursor); err != nil || p != last.position || datetime != last.datetime {
			f.fault("cursor %s does not say position %d and datetime %s: %v", m.Cursor, last.position, last.datetime, err)
		}
		if m.Until != last.datetime || m.From > m.Until {
			f.fault("from %s until %s, and the last datetime is %s", m.From, m.Until, last.datetime)
		}
	}
	if !f.begun {
		f.from = m.After
	}
	f.cursor, f.begun = m.Cursor, true
}

// splitCursor reads a cursor. Clients should not; a test may.
func splitCursor(s string) (position uint64, datetime string, err error) {
	p, m, _ := strings.Cut(s, "-")
	position, perr := strconv.ParseUint(p, 10, 64)
	micros, merr := strconv.ParseInt(m, 10, 64)
	if perr != nil || merr != nil {
		return 0, "", fmt.Errorf("cursor %q", s)
	}
	return position, time.UnixMicro(micros).UTC().Format("2006-01-02T15:04:05.000000Z"), nil
}

func (f *follower) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.entries)
}

// seen returns what it has so far.
func (f *follower) seen() []entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.entries[:len(f.entries):len(f.entries)]
}

// has waits until it has n entries, or something is wrong.
func (f *follower) has(t testing.TB, n int) []entry {
	t.Helper()
	until(t, fmt.Sprintf("the %s of %s has %d entries", f.way, f.set, n), func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		switch {
		case len(f.faults) > 0:
			t.Fatalf("the %s of %s: %q", f.way, f.set, f.faults)
		case len(f.entries) < n:
			return fmt.Errorf("it has %d; ends: %q", len(f.entries), f.ends)
		}
		return nil
	})
	return f.seen()
}

// begins waits until the hub has told it a cursor, and returns that.
func (f *follower) begins(t testing.TB) string {
	t.Helper()
	until(t, fmt.Sprintf("the %s of %s begins", f.way, f.set), func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.begun {
			return fmt.Errorf("it does not; ends: %q", f.ends)
		}
		return nil
	})
	return f.at()
}

// ended waits until a connection has ended, and returns how the last one did.
func (f *follower) ended(t testing.TB, contains string) string {
	t.Helper()
	var how string
	until(t, fmt.Sprintf("a connection of the %s of %s ends with %q", f.way, f.set, contains), func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, how = range f.ends {
			if strings.Contains(how, contains) {
				return nil
			}
		}
		return fmt.Errorf("they ended so: %q", f.ends)
	})
	return how
}

// cursorOf is the cursor of an entry.
func (h *hub) cursorOf(e entry) (string, error) {
	t, err := time.Parse(time.RFC3339Nano, e.datetime)
	return fmt.Sprintf("%d-%d", e.position, t.UnixMicro()), err
}
