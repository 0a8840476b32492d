package hubtest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/trial"
)

// The ways to follow.
const (
	ByWebSocket = "websocket"
	ByEvents    = "event stream"
	ByPolling   = "long poll"
	ByXML       = "websocket of XML"
)

// AllTransports are the ways to follow that every test of following tries.
var AllTransports = []string{ByWebSocket, ByEvents, ByPolling}

// A Message is the object that every way of following shows.
type Message struct {
	Set, After, From, Until, Cursor, Next string
	Diverged                              bool
	Changes                               []json.RawMessage
}

// ErrGone is how following ends when the cursor is gone.
var ErrGone = errors.New("gone")

// A Follower follows a set until its test ends, and connects again from its
// last cursor whenever it loses the connection. It checks that messages are
// chained by their cursors and entries by their positions.
type Follower struct {
	Transport, Set string
	Hub      *Hub
	Headers  []string          // "Name: value", of every request
	Query    string            // further parameters, beginning with &
	HTTP     http.RoundTripper // for an event stream or a long poll; nil: the one that keeps no connections
	TLS      *tls.Config       // for a WebSocket; nil: trusts what the system trusts

	Mu       sync.Mutex
	Cursor   string // of what was seen; before that where to start
	Started    bool   // the hub has told a cursor
	From     string // the first one that it told
	OnMessage     func() // called after each message, by who reads; may wait
	Entries  []trial.Entry
	Diverged int      // times that it was told so
	Errs     []string // how connections ended
	fatal     error    // errGone, or why following makes no sense any more
	Faults   []string
}

// Follow starts a follower, from a cursor, a datetime, "start" or "now". It
// ends with the test, which fails when anything was not as it should be.
func Follow(t testing.TB, h *Hub, way, set, since string, headers ...string) *Follower {
	f := &Follower{Transport: way, Set: set, Hub: h, Cursor: since, Headers: headers}
	f.Run(t)
	return f
}

// Run starts a follower, which ends with the test.
func (f *Follower) Run(t testing.TB) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		for _, fault := range f.Faults {
			t.Errorf("%s of %s: %s", f.Transport, f.Set, fault)
		}
		if t.Failed() {
			t.Logf("%s of %s has %d entries up to %s; its connections ended so: %q", f.Transport, f.Set, len(f.Entries), f.Cursor, f.Errs)
		}
	})
}

// client returns the client of an event stream or a long poll. A stream has no end, so
// it has no timeout.
func (f *Follower) client(timeout time.Duration) *http.Client {
	c := &http.Client{Transport: f.HTTP, Timeout: timeout}
	if f.HTTP == nil {
		c.Transport = Client.Transport
	}
	return c
}

// Connect follows until the connection ends, and returns how it did.
func (f *Follower) Connect(ctx context.Context) error {
	switch f.Transport {
	case ByEvents:
		return f.eventStream(ctx)
	case ByPolling:
		return f.poll(ctx)
	}
	return f.webSocket(ctx)
}

func (f *Follower) run(ctx context.Context) {
	for {
		err := f.Connect(ctx)
		if ctx.Err() != nil {
			return
		}
		f.Mu.Lock()
		if end := err.Error(); len(f.Errs) == 0 || f.Errs[len(f.Errs)-1] != end {
			f.Errs = append(f.Errs, end)
		}
		if errors.Is(err, ErrGone) {
			f.fatal = err
		}
		over := f.fatal
		f.Mu.Unlock()
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

// Fault notes what should not be. mu is held.
func (f *Follower) Fault(format string, args ...any) {
	if len(f.Faults) < 10 {
		f.Faults = append(f.Faults, fmt.Sprintf(format, args...))
	}
}

// protocolError notes that the hub said what it should not.
func (f *Follower) protocolError(format string, args ...any) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Fault(format, args...)
	return fmt.Errorf(format, args...)
}

// CurrentCursor is where the next connection begins.
func (f *Follower) CurrentCursor() string {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	return f.Cursor
}

// setStart takes the cursor that a connection begins with.
func (f *Follower) setStart(cursor string) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if f.Started && cursor != f.Cursor {
		f.Fault("a connection from %s begins at %s", f.Cursor, cursor)
	}
	if !f.Started {
		f.From = cursor
	}
	f.Cursor, f.Started = cursor, true
}

// handleMessage takes a message. id is what the transport says is its cursor.
func (f *Follower) handleMessage(m *Message, id string) {
	if f.OnMessage != nil {
		defer f.OnMessage()
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if m.Set != f.Set || m.Cursor != id {
		f.Fault("a message of %q with cursor %s and id %s", m.Set, m.Cursor, id)
	}
	if m.Diverged {
		f.Diverged++
		f.Cursor = m.After
		if p, _, err := SplitCursor(m.After); err == nil {
			for len(f.Entries) > 0 && f.Entries[len(f.Entries)-1].Position > p {
				f.Entries = f.Entries[:len(f.Entries)-1]
			}
		}
	}
	if f.Started && m.After != f.Cursor {
		f.Fault("a message after %s follows %s", m.After, f.Cursor)
	}
	position, _, err := SplitCursor(m.After)
	if err != nil {
		f.Fault("after: %v", err)
		return
	}
	for _, raw := range m.Changes {
		e, err := trial.ParseEntry(raw)
		if err != nil {
			f.Fault("%s: %v", raw, err)
			return
		}
		if position++; e.Position != position && f.Query == "" {
			f.Fault("position %d where %d is due", e.Position, position)
		}
		position = e.Position
		if n := len(f.Entries); n > 0 && e.Datetime <= f.Entries[n-1].Datetime {
			f.Fault("datetime %s follows %s", e.Datetime, f.Entries[n-1].Datetime)
		}
		f.Entries = append(f.Entries, e)
	}
	if len(m.Changes) > 0 && f.Query == "" {
		last := f.Entries[len(f.Entries)-1]
		if p, datetime, err := SplitCursor(m.Cursor); err != nil || p != last.Position || datetime != last.Datetime {
			f.Fault("cursor %s does not say position %d and datetime %s: %v", m.Cursor, last.Position, last.Datetime, err)
		}
		if m.Until != last.Datetime || m.From > m.Until {
			f.Fault("from %s until %s, and the last datetime is %s", m.From, m.Until, last.Datetime)
		}
	}
	if !f.Started {
		f.From = m.After
	}
	f.Cursor, f.Started = m.Cursor, true
}

// SplitCursor reads a cursor. Clients should not; a test may.
func SplitCursor(s string) (position uint64, datetime string, err error) {
	p, m, _ := strings.Cut(s, "-")
	position, perr := strconv.ParseUint(p, 10, 64)
	micros, merr := strconv.ParseInt(m, 10, 64)
	if perr != nil || merr != nil {
		return 0, "", fmt.Errorf("cursor %q", s)
	}
	return position, time.UnixMicro(micros).UTC().Format("2006-01-02T15:04:05.000000Z"), nil
}

// Count is how many entries it has.
func (f *Follower) Count() int {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	return len(f.Entries)
}

// Snapshot returns what it has so far.
func (f *Follower) Snapshot() []trial.Entry {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	return f.Entries[:len(f.Entries):len(f.Entries)]
}

// WaitEntries waits until it has n entries, or something is wrong.
func (f *Follower) WaitEntries(t testing.TB, n int) []trial.Entry {
	t.Helper()
	Until(t, fmt.Sprintf("the %s of %s has %d entries", f.Transport, f.Set, n), func() error {
		f.Mu.Lock()
		defer f.Mu.Unlock()
		switch {
		case len(f.Faults) > 0:
			t.Fatalf("the %s of %s: %q", f.Transport, f.Set, f.Faults)
		case len(f.Entries) < n:
			return fmt.Errorf("it has %d; ends: %q", len(f.Entries), f.Errs)
		}
		return nil
	})
	return f.Snapshot()
}

// WaitStart waits until the hub has told it a cursor, and returns that.
func (f *Follower) WaitStart(t testing.TB) string {
	t.Helper()
	Until(t, fmt.Sprintf("the %s of %s begins", f.Transport, f.Set), func() error {
		f.Mu.Lock()
		defer f.Mu.Unlock()
		if !f.Started {
			return fmt.Errorf("it does not; ends: %q", f.Errs)
		}
		return nil
	})
	return f.CurrentCursor()
}

// WaitEnd waits until a connection has ended, and returns how the last one did.
func (f *Follower) WaitEnd(t testing.TB, contains string) string {
	t.Helper()
	var how string
	Until(t, fmt.Sprintf("a connection of the %s of %s ends with %q", f.Transport, f.Set, contains), func() error {
		f.Mu.Lock()
		defer f.Mu.Unlock()
		for _, how = range f.Errs {
			if strings.Contains(how, contains) {
				return nil
			}
		}
		return fmt.Errorf("they ended so: %q", f.Errs)
	})
	return how
}

// CursorOf is the cursor of an entry.
func (h *Hub) CursorOf(e trial.Entry) (string, error) {
	t, err := time.Parse(time.RFC3339Nano, e.Datetime)
	return fmt.Sprintf("%d-%d", e.Position, t.UnixMicro()), err
}
