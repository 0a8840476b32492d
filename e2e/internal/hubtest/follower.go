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

// The transports of a Follower.
const (
	ByWebSocket = "websocket"
	ByEvents    = "event stream"
	ByPolling   = "long poll"
	ByXML       = "websocket of XML"
	BySession   = "session" // WebSocket that can follow many sets
)

// AllTransports are the transports that every test of following covers.
var AllTransports = []string{ByWebSocket, ByEvents, ByPolling, BySession}

// A Message is the object that every transport sends.
type Message struct {
	Set, After, From, Until, Cursor, Next string
	Diverged                              bool
	Changes                               []json.RawMessage
}

// ErrGone reports that the cursor of a follower is gone.
var ErrGone = errors.New("gone")

// A Follower follows a set until its test ends, and reconnects at its last cursor whenever it
// loses the connection. It checks that messages are chained by their cursors and entries by
// their positions.
type Follower struct {
	Transport, Set string
	Hub            *Hub
	Headers        []string          // of every request, "Name: value"
	Query          string            // additional parameters, starting with &
	HTTP           http.RoundTripper // for an event stream or a long poll; nil means the transport of Client
	TLS            *tls.Config       // for a WebSocket; nil trusts the system roots

	Mu        sync.Mutex
	Cursor    string // cursor of the last message; initially the start
	Started   bool   // whether the hub has sent a cursor
	From      string // first cursor that the hub sent
	OnMessage func() // called by the reading goroutine after each message; may block
	Entries   []trial.Entry
	Diverged  int      // number of diverged messages
	Errs      []string // errors of the connections, without repeats
	fatal     error    // error after which Run stops, such as ErrGone
	Faults    []string
}

// Follow starts a follower from a cursor, a datetime, "start" or "now". It stops with the test,
// which fails if the follower found a fault.
func Follow(t testing.TB, h *Hub, way, set, since string, headers ...string) *Follower {
	f := &Follower{Transport: way, Set: set, Hub: h, Cursor: since, Headers: headers}
	f.Run(t)
	return f
}

// Run starts a follower, which stops with the test.
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
			t.Logf("%s of %s has %d entries up to %s; errors of its connections: %q", f.Transport, f.Set, len(f.Entries), f.Cursor, f.Errs)
		}
	})
}

// client returns the client of an event stream or a long poll. A stream does not end, so it has
// no timeout.
func (f *Follower) client(timeout time.Duration) *http.Client {
	c := &http.Client{Transport: f.HTTP, Timeout: timeout}
	if f.HTTP == nil {
		c.Transport = Client.Transport
	}
	return c
}

// Connect follows until the connection ends, and returns its error.
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

// Fault records a fault. The caller must hold Mu.
func (f *Follower) Fault(format string, args ...any) {
	if len(f.Faults) < 10 {
		f.Faults = append(f.Faults, fmt.Sprintf(format, args...))
	}
}

// protocolError records an error of the hub.
func (f *Follower) protocolError(format string, args ...any) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Fault(format, args...)
	return fmt.Errorf(format, args...)
}

// CurrentCursor returns the cursor at which the next connection starts.
func (f *Follower) CurrentCursor() string {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	return f.Cursor
}

// setStart handles the cursor that a connection starts with.
func (f *Follower) setStart(cursor string) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if f.Started && cursor != f.Cursor {
		f.Fault("connection from %s starts at %s", f.Cursor, cursor)
	}
	if !f.Started {
		f.From = cursor
	}
	f.Cursor, f.Started = cursor, true
}

// handleMessage handles a message. id is the cursor that the transport states.
func (f *Follower) handleMessage(m *Message, id string) {
	if f.OnMessage != nil {
		defer f.OnMessage()
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if m.Set != f.Set || m.Cursor != id {
		f.Fault("got message of set %q with cursor %s and ID %s, want set %q and equal cursors", m.Set, m.Cursor, id, f.Set)
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
		f.Fault("got message after %s, want after %s", m.After, f.Cursor)
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
			f.Fault("got position %d, want %d", e.Position, position)
		}
		position = e.Position
		if n := len(f.Entries); n > 0 && e.Datetime <= f.Entries[n-1].Datetime {
			f.Fault("got datetime %s, want one after %s", e.Datetime, f.Entries[n-1].Datetime)
		}
		f.Entries = append(f.Entries, e)
	}
	if len(m.Changes) > 0 && f.Query == "" {
		last := f.Entries[len(f.Entries)-1]
		if p, datetime, err := SplitCursor(m.Cursor); err != nil || p != last.Position || datetime != last.Datetime {
			f.Fault("got cursor %s, want position %d and datetime %s: %v", m.Cursor, last.Position, last.Datetime, err)
		}
		if m.Until != last.Datetime || m.From > m.Until {
			f.Fault("got from %s until %s, want until %s", m.From, m.Until, last.Datetime)
		}
	}
	if !f.Started {
		f.From = m.After
	}
	f.Cursor, f.Started = m.Cursor, true
}

// SplitCursor parses a cursor. Clients must not; a test may.
func SplitCursor(s string) (position uint64, datetime string, err error) {
	p, m, _ := strings.Cut(s, "-")
	position, perr := strconv.ParseUint(p, 10, 64)
	micros, merr := strconv.ParseInt(m, 10, 64)
	if perr != nil || merr != nil {
		return 0, "", fmt.Errorf("invalid cursor %q", s)
	}
	return position, time.UnixMicro(micros).UTC().Format("2006-01-02T15:04:05.000000Z"), nil
}

// Count returns the number of entries.
func (f *Follower) Count() int {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	return len(f.Entries)
}

// Snapshot returns the entries received so far.
func (f *Follower) Snapshot() []trial.Entry {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	return f.Entries[:len(f.Entries):len(f.Entries)]
}

// WaitEntries waits for n entries, and fails the test after a fault.
func (f *Follower) WaitEntries(t testing.TB, n int) []trial.Entry {
	t.Helper()
	Until(t, fmt.Sprintf("the %s of %s has %d entries", f.Transport, f.Set, n), func() error {
		f.Mu.Lock()
		defer f.Mu.Unlock()
		switch {
		case len(f.Faults) > 0:
			t.Fatalf("the %s of %s: %q", f.Transport, f.Set, f.Faults)
		case len(f.Entries) < n:
			return fmt.Errorf("got %d; errors: %q", len(f.Entries), f.Errs)
		}
		return nil
	})
	return f.Snapshot()
}

// WaitStart waits until the hub has sent a cursor, and returns the current one.
func (f *Follower) WaitStart(t testing.TB) string {
	t.Helper()
	Until(t, fmt.Sprintf("the %s of %s has started", f.Transport, f.Set), func() error {
		f.Mu.Lock()
		defer f.Mu.Unlock()
		if !f.Started {
			return fmt.Errorf("got no cursor; errors: %q", f.Errs)
		}
		return nil
	})
	return f.CurrentCursor()
}

// WaitEnd waits until a connection has failed with an error that contains a text, and returns
// the error.
func (f *Follower) WaitEnd(t testing.TB, contains string) string {
	t.Helper()
	var end string
	Until(t, fmt.Sprintf("a connection of the %s of %s ends with %q", f.Transport, f.Set, contains), func() error {
		f.Mu.Lock()
		defer f.Mu.Unlock()
		for _, end = range f.Errs {
			if strings.Contains(end, contains) {
				return nil
			}
		}
		return fmt.Errorf("errors: %q", f.Errs)
	})
	return end
}

// CursorOf returns the cursor of an entry.
func (h *Hub) CursorOf(e trial.Entry) (string, error) {
	t, err := time.Parse(time.RFC3339Nano, e.Datetime)
	return fmt.Sprintf("%d-%d", e.Position, t.UnixMicro()), err
}
