package subscribe_test

import (
	"bytes"
	"context"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/metricstest"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/subscribe"
)

func TestEvents(t *testing.T) {
	s := newSite(t, settings{})
	s.publish(2)
	begin := s.publish(3)
	ws := s.follow("", dialer{})
	events := s.stream("")
	e, first := events.next()
	if e.id != begin.String() || first.Set != "a" || first.After != begin.String() || len(first.Changes) > 0 {
		t.Errorf("first event = %+v, want one at %v without changes", e, begin)
	}
	for name, want := range map[string]string{"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no", "Incremental": "?1", "Vary": "Accept"} {
		if got := events.resp.Header.Get(name); got != want {
			t.Errorf("header %s = %q, want %q", name, got, want)
		}
	}
	for range 5 {
		end := s.publish(3)
		e, m := events.nextChanges()
		if m.Cursor != end.String() || len(m.Changes) != 3 {
			t.Errorf("event = %+v, want three changes up to %v", e, end)
		}
		// A WebSocket message has the same bytes.
		_, b, err := ws.ws.ReadMessage()
		if err != nil || string(b) != e.data {
			t.Errorf("message = %s, %v, want the data of the event, %s", b, err, e.data)
		}
	}

	// A browser reconnects with its first URL.
	again := s.stream("?since=start", "Last-Event-ID", begin.String())
	if e, _ := again.next(); e.id != begin.String() {
		t.Errorf("stream after Last-Event-ID %v starts at %s", begin, e.id)
	}
	for again.cursor != events.cursor {
		again.next()
	}
	if again.entries != 15 {
		t.Errorf("got %d entries after Last-Event-ID, want 15", again.entries)
	}
	s.refused(s.url(""), 400, "want a cursor (position-microseconds)", "Accept", "text/event-stream", "Last-Event-ID", "nonsense")
}

func TestEventResume(t *testing.T) {
	s := newSite(t, settings{})
	oldest := s.publish(1).String()
	older := s.publish(1).String()
	newer := s.publish(1).String()
	for _, tt := range []struct {
		name, query string
		header      []string
		want        string // id of the first event
	}{
		{"polyfill", "?lastEventId=" + newer, nil, newer},
		{"Mercure", "?lastEventID=" + newer, nil, newer},
		{"older Mercure", "?Last-Event-ID=" + newer, nil, newer},
		{"parameter and since", "?since=start&lastEventId=" + newer, nil, newer},
		{"parameter and since=baseline", "?since=baseline&lastEventId=" + newer, nil, newer},
		{"parameter and invalid since", "?since=nonsense&lastEventId=" + newer, nil, newer},
		{"header and parameter", "?since=start&lastEventId=" + older, []string{"Last-Event-ID", newer}, newer},
		{"header and invalid parameter", "?lastEventId=nonsense", []string{"Last-Event-ID", newer}, newer},
		{"polyfill and Mercure", "?lastEventID=" + older + "&Last-Event-ID=" + oldest + "&lastEventId=" + newer, nil, newer},
		{"both of Mercure", "?Last-Event-ID=" + older + "&lastEventID=" + newer, nil, newer},
		{"empty parameter", "?lastEventId=&since=" + older, nil, older},
		{"empty header", "?lastEventId=" + older, []string{"Last-Event-ID", ""}, older},
		{"with a filter", "?change=updated&lastEventId=" + older, nil, older},
	} {
		t.Run(tt.name, func(t *testing.T) {
			events := s.stream(tt.query, tt.header...)
			defer events.cancel()
			if e, _ := events.next(); e.id != tt.want {
				t.Errorf("stream(%q, %q) starts at %q, want %q", tt.query, tt.header, e.id, tt.want)
			}
		})
	}
}

func TestEventResumeRefused(t *testing.T) {
	s := newSite(t, settings{})
	cursor := s.publish(1).String()
	stream, page := []string{"Accept", "text/event-stream"}, []string{"Accept", "application/json"}
	for _, tt := range []struct {
		name, query string
		header      []string
		want        string
	}{
		{"malformed header", "", append(stream, "Last-Event-ID", "nonsense"), "want a cursor (position-microseconds)"},
		{"malformed header, valid parameter", "?lastEventId=" + cursor, append(stream, "Last-Event-ID", "nonsense"), "want a cursor (position-microseconds)"},
		{"malformed polyfill", "?lastEventId=nonsense", stream, "want a cursor (position-microseconds)"},
		{"malformed Mercure", "?lastEventID=nonsense", stream, "want a cursor (position-microseconds)"},
		{"malformed older Mercure", "?Last-Event-ID=nonsense", stream, "want a cursor (position-microseconds)"},
		{"twice", "?lastEventId=" + cursor + "&lastEventId=" + cursor, stream, "lastEventId: got 2 values"},
		{"page", "?since=start&lastEventId=" + cursor, page, `lastEventId is for event streams`},
		{"WebSocket", "?lastEventID=" + cursor, []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version", "13"}, `lastEventID is for event streams`},
		{"no Accept", "?Last-Event-ID=" + cursor, nil, `Last-Event-ID is for event streams`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // a stream does not end otherwise
			defer cancel()
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/sets/a/changes"+tt.query, nil)
			for i := 0; i < len(tt.header); i += 2 {
				r.Header.Set(tt.header[i], tt.header[i+1])
			}
			serve(s.server, w, r, "a")
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), tt.want) {
				t.Errorf("GET %s with %q = %d %s, want 400 with %q", tt.query, tt.header, w.Code, w.Body, tt.want)
			}
		})
	}
}

// TestEventRetry checks that clients which lost their connections together do not reconnect together.
func TestEventRetry(t *testing.T) {
	s := newSite(t, settings{})
	s.publish(1)
	const streams = 20
	waits := map[string]int{}
	for range streams {
		events := s.stream("")
		events.next()
		waits[events.retry]++
		if n, err := strconv.Atoi(events.retry); err != nil || n < 1000 || n > 5000 {
			t.Errorf("retry = %q, want 1000 to 5000", events.retry)
		}
		events.cancel()
	}
	if len(waits) < streams/2 {
		t.Errorf("got %d different retries of %d streams, want one per stream: %v", len(waits), streams, waits)
	}
}

// TestEventHeartbeats checks that a heartbeat is a comment or, if the filter omitted changes, an
// event with the cursor and without changes.
func TestEventHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, settings{fake: true, Options: subscribe.Options{Heartbeat: 30 * time.Second}})
		begin := s.publish(1)
		events := s.followEvents("?prefix=https://example.org/b")
		if e, _ := events.next(); !e.comment || e.id != "" || e.data != "" {
			t.Errorf("heartbeat = %+v, want a comment", e)
		}
		end := s.publishChanges(change("a", resourcesync.Created, ""))
		var m message
		for events.cursor == begin.String() {
			_, m = events.next()
		}
		if m.Set != "a" || m.After != begin.String() || m.Cursor != end.String() || len(m.Changes) > 0 {
			t.Errorf("heartbeat = %+v, want one from %v to %v", m, begin, end)
		}
		s.publishChanges(change("a", resourcesync.Updated, ""))
		end = s.publishChanges(change("a", resourcesync.Deleted, ""), change("b", resourcesync.Created, ""))
		for events.entries == 0 {
			events.next()
		}
		if events.cursor != end.String() {
			t.Errorf("got cursor %s, want %v", events.cursor, end)
		}
	})
}

// TestEventConnections checks streams over each kind of connection. Data that the client sends after
// the request is ignored. A stream ends when the client leaves, and cleanly when the hub stops.
func TestEventConnections(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"HTTP/1.0", "HTTP/1.1", "HTTP/1.1 over TLS", "HTTP/2"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			reg := prometheus.NewRegistry()
			s := newSite(t, settings{Options: subscribe.Options{Heartbeat: 100 * time.Millisecond, Metrics: reg}})
			secure := httptest.NewUnstartedServer(s.http.Config.Handler)
			secure.EnableHTTP2 = kind == "HTTP/2"
			secure.StartTLS()
			defer secure.Close()
			follow := func() *stream {
				if kind == "HTTP/1.0" || kind == "HTTP/1.1" {
					events, nc := s.streamOver(kind, "", dialer{})
					_, err := nc.Write(bytes.Repeat([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 1000))
					ok(t, err)
					return events
				}
				ctx, leave := context.WithCancel(t.Context())
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, secure.URL+"/sets/a/changes", nil)
				ok(t, err)
				r.Header.Set("Accept", "text/event-stream")
				resp, err := secure.Client().Transport.RoundTrip(r)
				ok(t, err)
				events := s.newStream("", resp, leave)
				events.next()
				return events
			}
			s.publish(1)
			events, leaver := follow(), follow()
			if proto := events.resp.Proto; !strings.HasPrefix(kind, strings.TrimSuffix(proto, ".0")) || events.resp.Close != (events.resp.ProtoMajor == 1) {
				t.Errorf("got %s with close %v, want %s", proto, events.resp.Close, kind)
			}
			if e, _ := events.next(); !e.comment {
				t.Errorf("heartbeat = %+v, want a comment", e)
			}
			for _, size := range []int{1, 300_000, 1, 1} {
				events.readTo(s.publishLarge(size))
			}
			leaver.cancel()
			testutil.Until(t, "one follower is left", func() bool { return metricstest.Values(t, reg)[by("followers", "eventstream")] == 1 })
			ended := make(chan error, 1)
			go func() { ended <- s.server.Shutdown(t.Context()) }()
			if err := readAll(events); err != io.EOF {
				t.Errorf("stream ends with %v, want EOF", err)
			}
			if err := <-ended; err != nil {
				t.Error("Shutdown:", err)
			}
		})
	}
}

// A script is a follower and a memory with scripted batches.
type script struct {
	subscribe.Follower // other methods

	head feed.Cursor
	next chan []*feed.Batch
}

func newScript(t *testing.T, f *script) *site {
	return newSite(t, settings{
		follower: func(h subscribe.Follower) subscribe.Follower { f.Follower = h; return f },
		memory:   func(subscribe.Memory) subscribe.Memory { return f },
	})
}

func (f *script) Sets(context.Context, ...string) ([]feed.State, error) { return nil, nil }

func (f *script) Follow(ctx context.Context, _ string, _ feed.Cursor) iter.Seq2[[]*feed.Batch, error] {
	return func(yield func([]*feed.Batch, error) bool) {
		for {
			select {
			case b := <-f.next:
				if !yield(b, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

func (f *script) State(_ context.Context, set string) (feed.State, error) {
	return feed.State{Set: set, Head: f.head}, nil
}

func (f *script) Since(_ context.Context, set string, after feed.Cursor, _ int) (*feed.Batch, error) {
	return &feed.Batch{Set: set, After: after, Cursor: after}, nil
}

func (f *script) Seek(context.Context, string, int64) (feed.Cursor, error) { return f.head, nil }

// run returns a batch of entries between two positions of a history, which determines their
// datetimes.
func run(history int64, from, to uint64) *feed.Batch {
	b := &feed.Batch{Set: "a", After: feed.Cursor{Position: from, Micros: history + int64(from)}}
	for p := from + 1; p <= to; p++ {
		b.Entries = append(b.Entries, feed.Entry{
			Cursor: feed.Cursor{Position: p, Micros: history + int64(p)},
			Change: change("x", resourcesync.Updated, ""),
		})
	}
	b.Cursor = feed.Cursor{Position: to, Micros: history + int64(to)}
	return b
}

// TestDivergedWhileFollowing checks that followers are notified of a lost tail, and continue.
func TestDivergedWhileFollowing(t *testing.T) {
	const old, young = 1_000_000, 2_000_000
	diverged := run(young, 5, 9)
	diverged.Diverged = true
	for _, query := range []string{"", "?prefix=https:", "?prefix=nothing"} {
		f := &script{head: run(old, 0, 7).Cursor, next: make(chan []*feed.Batch)}
		s := newScript(t, f)
		c := s.follow(query, dialer{})
		testutil.Until(t, "the connection is in a group", func() bool { return !strings.Contains(stacks(), "subscribe.(*conn).follow") })
		f.next <- []*feed.Batch{run(old, 7, 10), run(old, 10, 12)}
		f.next <- []*feed.Batch{diverged}
		f.next <- []*feed.Batch{run(young, 9, 10)}
		for !c.next().Diverged {
		}
		if query != "?prefix=nothing" {
			c.readTo(run(young, 9, 10).Cursor)
		}
		if c.cursor[:1] == "7" || c.cursor[:1] == "1" && !strings.HasPrefix(c.cursor, "10-2") {
			t.Errorf("%q: got cursor %s, want one of the new history", query, c.cursor)
		}
	}
	f := &script{head: run(old, 0, 7).Cursor, next: make(chan []*feed.Batch, 3)}
	s := newScript(t, f)
	f.next <- []*feed.Batch{run(old, 7, 8)}
	f.next <- []*feed.Batch{diverged}
	f.next <- []*feed.Batch{run(young, 9, 10)}
	events := s.stream("")
	events.readTo(run(young, 9, 10).Cursor)
	if events.entries != 6 {
		t.Errorf("got %d entries, want 6", events.entries)
	}
}

var streamStart = regexp.MustCompile(`^retry: [1-5][0-9]{3}\nid: `)

func FuzzSince(f *testing.F) {
	s := newSite(f, settings{})
	s.publish(3)
	for _, since := range []string{"", "now", "start", "0-0", "3-1", "2026-01", "2026", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123456789 02:00",
		"9007199254740991-9007199254740991", "-", "1-", "0001-01-01", "9999-12-31T23:59:59Z", "\x00", "%s%d", strings.Repeat("9", 400) + "-1"} {
		f.Add(since)
	}
	f.Fuzz(func(t *testing.T, since string) {
		for _, accept := range []string{"application/json", "text/event-stream"} {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, "/sets/a/changes", nil)
			r.Header.Set("Accept", accept)
			q := r.URL.Query()
			q.Set("since", since)
			r.URL.RawQuery = q.Encode()
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if accept == "application/json" {
				ctx = t.Context()
			}
			serve(s.server, w, r.WithContext(ctx), "a")
			body := w.Body.Bytes()
			switch {
			case w.Code == 400 || w.Code == 410 || w.Code == 503 && ctx.Err() != nil:
			case w.Code != 200:
				t.Fatalf("since=%q: %d %s", since, w.Code, body)
			case accept == "application/json":
				m, err := parseJSON(body)
				if err != nil {
					t.Fatalf("since=%q: %v: %s", since, err, body)
				}
				mustCursor(t, m.Cursor)
			case len(body) > 0 && !streamStart.Match(body):
				t.Fatalf("since=%q: %s", since, body)
			}
		}
	})
}
