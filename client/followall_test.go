package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
)

// An allReader reads what a call of FollowAll yields, and checks its promises.
type allReader struct {
	t    *testing.T
	next func() (*feed.Batch, error, bool)
	stop func()
	last map[string]feed.Cursor
	locs map[string][]string
}

func newAllReader(t *testing.T, batches iter.Seq2[*feed.Batch, error]) *allReader {
	t.Helper()
	next, stop := iter.Pull2(batches)
	t.Cleanup(stop)
	return &allReader{t: t, next: next, stop: stop, last: map[string]feed.Cursor{}, locs: map[string][]string{}}
}

// read returns the next batch or error, and fails the test unless a batch continues its set.
func (r *allReader) read() (*feed.Batch, error) {
	r.t.Helper()
	b, err, ok := r.next()
	if !ok {
		r.t.Fatal("FollowAll ended, want another batch")
	}
	if err != nil {
		return nil, err
	}
	at, known := r.last[b.Set]
	if known && !b.Diverged && b.After != at {
		r.t.Fatalf("got a batch of set %s after %v, want after %v", b.Set, b.After, at)
	}
	if known && !b.Diverged && len(b.Entries) == 0 && b.Cursor == at {
		r.t.Errorf("got an empty batch of set %s that does not move the cursor %v", b.Set, at)
	}
	for i := range b.Entries {
		r.locs[b.Set] = append(r.locs[b.Set], b.Entries[i].Change.Loc)
	}
	r.last[b.Set] = b.Cursor
	return b, nil
}

// readBatch returns the next batch.
func (r *allReader) readBatch() *feed.Batch {
	r.t.Helper()
	b, err := r.read()
	if err != nil {
		r.t.Fatalf("FollowAll yields %v, want a batch", err)
	}
	return b
}

// readSetError returns the next error, which must be a SetError.
func (r *allReader) readSetError() *client.SetError {
	r.t.Helper()
	for {
		_, err := r.read()
		if e, ok := errors.AsType[*client.SetError](err); ok {
			return e
		}
		if err != nil {
			r.t.Fatalf("FollowAll yields %v, want a SetError", err)
		}
	}
}

// readUntil reads batches until the last loc of a set is the given one.
func (r *allReader) readUntil(set, loc string) {
	r.t.Helper()
	for len(r.locs[set]) == 0 || r.locs[set][len(r.locs[set])-1] != loc {
		r.readBatch()
	}
}

// endError returns the error that FollowAll ends with.
func (r *allReader) endError() error {
	r.t.Helper()
	b, err, ok := r.next()
	if b != nil {
		r.t.Fatalf("got another batch %+v, want the end", b)
	}
	if _, _, more := r.next(); ok && more {
		r.t.Error("FollowAll continues after an error")
	}
	return err
}

// publishTo publishes an update of each loc to a set. It may be called in any goroutine.
func (s *site) publishTo(t *testing.T, set string, locs ...string) feed.Cursor {
	t.Helper()
	s.mu.Lock()
	h := s.hub
	s.mu.Unlock()
	r, err := h.Publish(t.Context(), set, changelog.Publish{Changes: updated(locs...)})
	if err != nil {
		t.Error(err)
	}
	return r.Cursor
}

// A memoryCursors is a CursorStore in memory.
type memoryCursors struct {
	mu      sync.Mutex
	cursors map[string]feed.Cursor
	err     error // error of Save
}

func (m *memoryCursors) Load(context.Context) (map[string]feed.Cursor, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.cursors), nil
}

func (m *memoryCursors) Save(_ context.Context, set string, at feed.Cursor) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cursors == nil {
		m.cursors = map[string]feed.Cursor{}
	}
	m.cursors[set] = at
	return m.err
}

// TestFollowAll checks that named sets are followed from their positions, with their filters.
func TestFollowAll(t *testing.T) {
	s := newSite(t)
	s.publishTo(t, "a", locs(1, 3)...)
	from := s.publishTo(t, "b", "urn:1")
	s.publishTo(t, "b", "urn:x:1", "urn:2")
	s.publishTo(t, "c", "urn:old")
	r := newAllReader(t, newClient(t, s.URL, client.Options{}).FollowAll(t.Context(), client.FollowAllOptions{Sets: []client.FollowSet{
		{Set: "a", Since: "start"},
		{Set: "b", Since: from.String(), Filter: feed.Filter{Prefix: "urn:x:"}},
		{Set: "c"},
		{Set: "d"}, // does not exist yet
	}}))
	for len(r.last) < 4 {
		r.readBatch()
	}
	for _, set := range []string{"a", "b", "c", "d"} {
		s.publishTo(t, set, "urn:x:new")
		r.readUntil(set, "urn:x:new")
	}
	for set, want := range map[string][]string{
		"a": {"urn:1", "urn:2", "urn:3", "urn:x:new"}, "b": {"urn:x:1", "urn:x:new"}, "c": {"urn:x:new"}, "d": {"urn:x:new"},
	} {
		if !slices.Equal(r.locs[set], want) {
			t.Errorf("FollowAll yields %q of set %s, want %q", r.locs[set], set, want)
		}
	}
	if n := len(s.received()); n != 1 {
		t.Errorf("got %d requests, want 1", n)
	}
}

// TestFollowAllEvery checks that All follows existing and new sets, and starts over when a set is
// deleted and made again.
func TestFollowAllEvery(t *testing.T) {
	s := newSite(t)
	s.publishTo(t, "a", "urn:1")
	s.publishTo(t, "b", "urn:1")
	var r *allReader
	started := 0
	r = newAllReader(t, newClient(t, s.URL, client.Options{}).FollowAll(t.Context(), client.FollowAllOptions{
		All: true, AllFilter: feed.Filter{Prefix: "urn:"}, Sets: []client.FollowSet{{Set: "b", Since: "start"}},
		OnAllStarted: func() {
			if started++; len(r.last) != 2 {
				t.Errorf("OnAllStarted is called after the first batches of %d sets, want 2", len(r.last))
			}
		},
	}))
	for len(r.last) < 2 {
		r.readBatch()
	}
	s.publishTo(t, "a", "urn:2")
	s.publishTo(t, "new", "urn:1")
	r.readUntil("b", "urn:1")
	r.readUntil("a", "urn:2")
	r.readUntil("new", "urn:1")
	if err := s.hub.Delete(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if e := r.readSetError(); e.Set != "b" || !errors.Is(e, feed.ErrNoSet) || !strings.Contains(e.Error(), `follow set "b": hub refused the request: 404`) {
		t.Errorf("got error %v, want %v of set b", e, feed.ErrNoSet)
	}
	s.publishTo(t, "b", "urn:3")
	if b := r.readBatch(); b.Set != "b" || !b.Diverged || b.Cursor.Position != 0 || len(b.Entries) > 0 {
		t.Errorf("got batch %+v, want an empty and diverged one of set b", b)
	}
	r.readUntil("b", "urn:3")
	if want := []string{"urn:2"}; !slices.Equal(r.locs["a"], want) { // since now
		t.Errorf("FollowAll yields %q of set a, want %q", r.locs["a"], want)
	}
	if started != 1 {
		t.Errorf("OnAllStarted is called %d times, want once", started)
	}
}

// TestFollowAllSetErrors checks that errors of sets leave others alone, and that FollowAll ends when
// no set is left.
func TestFollowAllSetErrors(t *testing.T) {
	s := newSite(t)
	s.publishTo(t, "a", "urn:1")
	r := newAllReader(t, newClient(t, s.URL, client.Options{}).FollowAll(t.Context(), client.FollowAllOptions{Sets: []client.FollowSet{
		{Set: "a", Since: "start"}, {Set: "gone", Since: "7-7"}, {Set: "invalid", Since: "yesterday"}, {Set: "b", Since: "start"},
	}}))
	s.publishTo(t, "gone", "urn:1")
	status := map[string]int{}
	for range 2 {
		e := r.readSetError()
		refused, ok := errors.AsType[*client.RefusedError](e)
		if !ok {
			t.Fatalf("got error %v, want a RefusedError", e)
		}
		status[e.Set] = refused.Status
	}
	if status["invalid"] != 400 || status["gone"] != 404 && status["gone"] != 410 {
		t.Errorf("got statuses %v, want 400 of invalid, and 404 or 410 of gone", status)
	}
	s.publishTo(t, "a", "urn:2")
	r.readUntil("a", "urn:2")
	for _, set := range []string{"a", "b"} {
		if set == "b" {
			s.publishTo(t, set, "urn:1")
			r.readUntil(set, "urn:1")
		}
		if err := s.hub.Delete(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		if e := r.readSetError(); e.Set != set || !errors.Is(e, feed.ErrNoSet) {
			t.Errorf("got error %v, want %v of set %s", e, feed.ErrNoSet, set)
		}
	}
	if err := r.endError(); err != nil {
		t.Errorf("FollowAll ends with %v, want no error", err)
	}
}

// TestFollowAllOtherLog checks that the error of a cursor of a deleted set has the oldest cursor of the
// set that was created in its place.
func TestFollowAllOtherLog(t *testing.T) {
	s := newSite(t)
	s.publishTo(t, "a", "urn:1")
	st, err := s.log.State(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	r := newAllReader(t, newClient(t, s.URL, client.Options{}).FollowAll(t.Context(), client.FollowAllOptions{Sets: []client.FollowSet{{Set: "a", Since: "7-7"}}}))
	if e := r.readSetError(); e.Set != "a" || !errors.Is(e, feed.ErrNoSet) || e.Cursor != st.Floor {
		t.Errorf("got error %v with cursor %v, want %v with %v", e, e.Cursor, feed.ErrNoSet, st.Floor)
	}
	if err := r.endError(); err != nil {
		t.Errorf("FollowAll ends with %v, want no error", err)
	}
}

// TestFollowAllCursors checks that a cursor is saved when the caller asks for the next batch, and
// that the next FollowAll resumes from it.
func TestFollowAllCursors(t *testing.T) {
	s, store := newSite(t), &memoryCursors{}
	s.publishTo(t, "a", "urn:1")
	c := newClient(t, s.URL, client.Options{})
	options := client.FollowAllOptions{All: true, Cursors: store}
	r := newAllReader(t, c.FollowAll(t.Context(), options))
	start := r.readBatch()
	s.publishTo(t, "a", "urn:2")
	r.readUntil("a", "urn:2")
	if at := store.cursors["a"]; at != start.Cursor {
		t.Errorf("got cursor %v before the next batch is requested, want %v", at, start.Cursor)
	}
	s.publishTo(t, "a", "urn:3")
	r.readUntil("a", "urn:3")
	r.stop() // as if the caller crashed while it processed urn:3
	if at := store.cursors["a"]; at.Position != 2 {
		t.Errorf("got cursor %v, want position 2", at)
	}
	s.publishTo(t, "b", "urn:1")
	r = newAllReader(t, c.FollowAll(t.Context(), options))
	r.readUntil("b", "urn:1")
	r.readUntil("a", "urn:3")
	if want := []string{"urn:3"}; !slices.Equal(r.locs["a"], want) {
		t.Errorf("FollowAll yields %q of set a, want %q", r.locs["a"], want)
	}
	store.mu.Lock()
	store.err = errors.New("disk full")
	store.mu.Unlock()
	if err := r.endError(); !errors.Is(err, store.err) {
		t.Errorf("FollowAll ends with %v, want %v", err, store.err)
	}
}

// TestFollowAllRestart checks that FollowAll continues after restarts of the hub, and finds sets that
// were created in the meantime.
func TestFollowAllRestart(t *testing.T) {
	s := newSite(t)
	o := newClock().options()
	stopped := make(chan struct{}, 1)
	o.Sleep = func(ctx context.Context, _ time.Duration) error {
		select {
		case stopped <- struct{}{}:
		default:
		}
		return sleepShortly(ctx)
	}
	s.publishTo(t, "a", "urn:0")
	r := newAllReader(t, newClient(t, s.URL, o).FollowAll(t.Context(), client.FollowAllOptions{All: true, AllSince: "start"}))
	r.readUntil("a", "urn:0")
	for i := range 3 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.stop()
			<-stopped
			s.start()
		}()
		go func() {
			<-done
			s.publishTo(t, "a", fmt.Sprint("urn:", i+1))
			s.publishTo(t, fmt.Sprint("new", i), "urn:1")
		}()
		r.readUntil("a", fmt.Sprint("urn:", i+1))
		r.readUntil(fmt.Sprint("new", i), "urn:1")
	}
	if !slices.Equal(r.locs["a"], locs(0, 3)) {
		t.Errorf("FollowAll yields %q of set a, want urn:0 to urn:3", r.locs["a"])
	}
}

func TestFollowAllOptions(t *testing.T) {
	c := newClient(t, "https://hub.example.org", newClock().options())
	for _, tt := range []struct {
		name    string
		options client.FollowAllOptions
		want    string
	}{
		{"nothing", client.FollowAllOptions{}, "name sets, or set All"},
		{"invalid set name", client.FollowAllOptions{Sets: []client.FollowSet{{Set: "a/b"}}}, "invalid set name"},
		{"same set twice", client.FollowAllOptions{Sets: []client.FollowSet{{Set: "a"}, {Set: "a"}}}, `set "a": named twice`},
		{"baseline", client.FollowAllOptions{Sets: []client.FollowSet{{Set: "a", Since: "baseline"}}}, `set "a": cannot start with a baseline; use Client.Baseline, or a Replica with ApplyBatch`},
		{"baseline of all", client.FollowAllOptions{All: true, AllSince: "baseline"}, "AllSince: cannot start with a baseline"},
		{"cursor of all", client.FollowAllOptions{All: true, AllSince: "7-7"}, `AllSince: got "7-7", want now, start or a datetime`},
		{"long filter", client.FollowAllOptions{All: true, AllFilter: feed.Filter{Prefix: strings.Repeat("x", 16<<10)}}, "the filter is too long"},
		{"invalid name in the store", client.FollowAllOptions{All: true, Cursors: &memoryCursors{cursors: map[string]feed.Cursor{"a/b": {}}}}, "load cursors: invalid set name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := newAllReader(t, c.FollowAll(t.Context(), tt.options)).endError(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("FollowAll ends with %v, want %q", err, tt.want)
			}
		})
	}
}

// TestFollowAllRefused checks which responses to the handshake end FollowAll.
func TestFollowAllRefused(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		want    error
		text    string
	}{
		{"unauthorized", problemHandler(401, "token expired", ""), nil, "401 Unauthorized: token expired"},
		{"no such URL", problemHandler(404, "", ""), nil, "404 Not Found"},
		{"no upgrade", problemHandler(426, "a proxy removed the header Upgrade", ""), nil, "426 Upgrade Required: a proxy"},
		{"another server", func(http.ResponseWriter, *http.Request) {}, client.ErrNotHub, "response is not from a hub"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(tt.handler)
			defer server.Close()
			clock := newClock()
			err := newAllReader(t, newClient(t, server.URL, clock.options()).FollowAll(t.Context(), client.FollowAllOptions{All: true})).endError()
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) || len(clock.waits) > 0 {
				t.Errorf("FollowAll ends with %v after %d retries, want %q after 0", err, len(clock.waits), tt.text)
			}
			if _, ok := errors.AsType[*client.RefusedError](err); ok != (tt.want == nil) {
				t.Errorf("FollowAll ends with a %T, want a RefusedError only for 4xx", err)
			}
		})
	}
}

// TestFollowAllRetries checks that failed handshakes delay changes, as long as the hub asks.
func TestFollowAllRetries(t *testing.T) {
	s, clock := newSite(t), newClock()
	s.publishTo(t, "a", "urn:1")
	s.intercept = func(n int, w http.ResponseWriter, r *http.Request) bool {
		switch n {
		case 1:
			problemHandler(503, "later", "100")(w, r)
		case 2:
			problemHandler(429, "", "")(w, r)
		default:
			return false
		}
		return true
	}
	r := newAllReader(t, newClient(t, s.URL, clock.options()).FollowAll(t.Context(), client.FollowAllOptions{All: true, AllSince: "start"}))
	r.readUntil("a", "urn:1")
	if len(clock.waits) != 2 || clock.waits[0].Seconds() != 100 {
		t.Errorf("got waits %v, want 2, the first of 100 s", clock.waits)
	}
}

// TestFollowAllRedirect checks that a handshake follows redirects, and that the token is not sent to
// another host.
func TestFollowAllRedirect(t *testing.T) {
	s := newSite(t)
	s.publishTo(t, "a", "urn:1")
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer t0ken" || r.Header.Get("User-Agent") != "rshub-client" {
			t.Errorf("got header %v, want the token and the user agent", r.Header)
		}
		http.Redirect(w, r, s.URL+r.URL.String(), http.StatusPermanentRedirect)
	}))
	defer front.Close()
	c := newClient(t, front.URL, client.Options{Token: "t0ken", HTTP: &http.Client{Timeout: patience}})
	newAllReader(t, c.FollowAll(t.Context(), client.FollowAllOptions{All: true, AllSince: "start"})).readUntil("a", "urn:1")
	if got := s.received()[0].Header.Get("Authorization"); got != "" {
		t.Errorf("got Authorization %q at another host, want none", got)
	}
}

// TestFollowAllCanceled checks that FollowAll ends without an error when ctx is canceled.
func TestFollowAllCanceled(t *testing.T) {
	s := newSite(t)
	s.publishTo(t, "a", "urn:1")
	for _, when := range []string{"before", "while it waits", "between batches"} {
		t.Run(when, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if when == "before" {
				cancel()
			}
			for b, err := range newClient(t, s.URL, client.Options{}).FollowAll(ctx, client.FollowAllOptions{All: true}) {
				if err != nil || when == "before" {
					t.Errorf("FollowAll yields %+v, %v, want nothing", b, err)
				}
				if when == "between batches" {
					cancel()
				} else {
					go cancel()
				}
			}
		})
	}
}
