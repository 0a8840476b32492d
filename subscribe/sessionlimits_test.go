package subscribe_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/subscribe"
)

func TestSessionBaseline(t *testing.T) {
	s, _ := newBaselineSite(t, settings{}, 2_500)
	s.publishTo("b", 1)
	c := s.dialSession()
	c.send(`{"id":1,"follow":"a","since":"baseline"}`)
	c.expect("id 1: 0 resources of a")
	c.send(`{"follow":"b"}`)
	resources, ended := 0, false
	for !ended {
		m := c.read()
		resources += len(m.Resources)
		ended = m.ended()
	}
	if resources == 0 {
		t.Error("got no resources, want some")
	}
	end := s.publishChanges(change("last", "created", ""))
	for last := ""; last != end.String(); {
		last = c.read().Cursor
	}
}

// TestSessionBaselines checks that at most four baselines are read at a time, that a set whose baseline
// waits can be unfollowed, and that all others end.
func TestSessionBaselines(t *testing.T) {
	s, sh := newBaselineSite(t, settings{}, 10)
	c := s.dialSession()
	for i := range 20 {
		s.publishTo(fmt.Sprint("s", i), 10)
		c.send(`{"follow":"s%d","since":"baseline"}`, i)
	}
	c.send(`{"unfollow":"s19"}`)
	ends := map[string]bool{}
	for len(ends) < 19 || c.chains["unfollowed"] == nil {
		m := c.read()
		if m.ended() {
			ends[m.Set] = true
		}
		if m.Unfollowed == "s19" {
			c.chains["unfollowed"] = &chain{}
			delete(ends, "s19")
		} else if m.Set == "s19" && c.chains["unfollowed"] != nil {
			t.Errorf("got message %q after unfollow", m)
		}
	}
	if n := sh.open(); n > 4 {
		t.Errorf("got %d open snapshots, want at most 4", n)
	}
}

// TestSessionFilter checks that cursors which a filter moved are reported once a minute, in one message.
func TestSessionFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, settings{fake: true})
		s.publishTo("a", 1)
		s.publishTo("b", 1)
		c := s.dialSession()
		c.filtered = true
		c.send(`{"follow":"a","change":["created","deleted"]}`)
		c.send(`{"follow":"b","type":"text/html"}`)
		c.expect("start of a at 1")
		c.expect("start of b at 1")
		at := time.Now()
		for range 10 {
			s.publishTo("a", 1)
			s.publishTo("b", 2)
		}
		m := c.expect("cursors of 2")
		if position(m.Cursors["a"]) != 11 || position(m.Cursors["b"]) != 21 {
			t.Errorf("got cursors %v, want positions 11 and 21", m.Cursors)
		}
		s.publishTo("a", 1)
		first := time.Now()
		c.expect("cursors of 1")
		if took := time.Since(first); took < time.Minute || first.Sub(at) > 2*time.Minute {
			t.Errorf("got cursors after %v and again after %v, want once a minute", first.Sub(at), took)
		}
	})
}

// withUser passes requests to h in the name of a user with a limit of follows.
func withUser(h http.Handler, most int64) http.Handler {
	l := limit.New(limit.Options{Caller: limit.Limits{limit.Follows: {Most: most}}})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(limit.NewContext(r.Context(), l.Caller("alice", nil))))
	})
}

func TestSessionLimit(t *testing.T) {
	s := newSite(t, settings{})
	s.http.Config.Handler = withUser(s.http.Config.Handler, 3)
	for i := range 4 {
		s.publishTo(fmt.Sprint("s", i), 1)
	}
	c := s.dialSession()
	c.send(`{"follow":"*"}`)
	if m := c.expect("*: 429"); !strings.Contains(m.Error.Detail, "3 concurrent follows") {
		t.Errorf("got detail %q, want the limit", m.Error.Detail)
	}
	for i := range 3 {
		c.send(`{"follow":"s%d"}`, i)
		c.expect(fmt.Sprintf("start of s%d at 1", i))
	}
	c.send(`{"follow":"s3"}`)
	c.expect("s3: 429")
	c.send(`{"follow":"s2","since":"start"}`) // replaces
	c.expect("start of s2 at 0")
	c.expect("s2: 1 changes to 1")
	other := s.dialSession()
	other.send(`{"follow":"s3"}`)
	other.expect("s3: 429")
	c.send(`{"unfollow":"s0"}`)
	c.expect("unfollowed s0")
	other.send(`{"follow":"s3"}`)
	other.expect("start of s3 at 1")
	c.ws.Close()
	for m := (sessionMessage{}); m.Set != "s0" || m.Error != nil; m = other.read() { // until the hub has noticed
		other.send(`{"follow":"s0"}`)
	}
}

// rights are the rights of the caller of all sessions.
type rights struct {
	mu     sync.Mutex
	hidden map[string]bool
	ends   []func(error)
	update []func()
}

func (r *rights) WhileFollowing(context.Context, string, func(error)) (release func()) {
	return func() {}
}

func (r *rights) WhileConnected(_ context.Context, changed func(func(feed.State) bool), end func(error)) (release func()) {
	update := func() {
		changed(func(st feed.State) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return !r.hidden[st.Set] && !st.Private
		})
	}
	update()
	r.ends, r.update = append(r.ends, end), append(r.update, update)
	return func() {}
}

// hide hides a set, or shows it again.
func (r *rights) hide(set string, hidden bool) {
	r.mu.Lock()
	r.hidden[set] = hidden
	r.mu.Unlock()
	for _, update := range r.update {
		update()
	}
}

// TestSessionRights checks that a set which a client may no longer follow looks deleted, and that the
// session ends with the client's token.
func TestSessionRights(t *testing.T) {
	r := &rights{hidden: map[string]bool{"b": true}}
	s := newSite(t, settings{Options: subscribe.Options{Rights: r}})
	s.publishTo("a", 1)
	s.publishTo("b", 1)
	c := s.dialSession()
	c.send(`{"follow":"b"}`)
	c.expect("b: 404")
	c.send(`{"follow":"*"}`)
	c.expect("start of a at 1")
	c.expect("followed *: 1")
	r.hide("a", true)
	c.expect("a: 404")
	s.publishTo("a", 1)
	r.hide("a", false)
	c.expect("start of a at 0 diverged")
	c.expect("a: 2 changes to 2")
	describe := func(private bool) { ok(t, s.hub.Describe(t.Context(), "a", feed.Description{Private: private})) }
	describe(true)
	c.expect("a: 404")
	describe(false)
	c.expect("start of a at 0 diverged")
	c.expect("a: 2 changes to 2")
	r.ends[0](errors.New("the token has expired"))
	if _, _, err := c.ws.ReadMessage(); !websocket.IsCloseError(err, 4401) || !strings.Contains(err.Error(), "the token has expired") {
		t.Errorf("got %v, want close code 4401 with the reason", err)
	}
}

// TestSessionFairness checks that a set that catches up delays a live set by at most a few turns.
func TestSessionFairness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, settings{fake: true, listSize: 1000})
		for range 30 {
			s.publishTo("large", 1000)
		}
		s.publishTo("live", 1)
		c := s.dialSession()
		c.send(`{"follow":"large","since":"start"}`)
		c.expect("start of large at 0")
		c.send(`{"follow":"live"}`)
		before, after := 0, 0
		for published := false; ; {
			m := c.read()
			switch {
			case m.Set == "live" && len(m.Changes) == 0:
				s.publishTo("live", 1)
				published = true
				continue
			case m.Set == "live":
				if before == 0 && after == 0 || after > 3_000 {
					t.Errorf("got %d changes of the other set before the publish and %d after it, want at most 3,000 after it", before, after)
				}
				return
			case published:
				after += len(m.Changes)
			default:
				before += len(m.Changes)
			}
		}
	})
}

// TestSessionSlow checks that a client that is too slow gets a close frame when it reads again.
func TestSessionSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = time.Second
		s := newSite(t, settings{fake: true, Options: subscribe.Options{WriteTimeout: timeout}})
		s.publishTo("a", 1)
		c := s.dialSession()
		c.send(`{"follow":"a"}`)
		c.expect("start of a at 1")
		for range 3 {
			s.publishLarge(200_000)
		}
		time.Sleep(timeout * 15 / 10)
		var err error
		for err == nil {
			_, _, err = c.ws.ReadMessage()
		}
		if !websocket.IsCloseError(err, 4408) {
			t.Errorf("got %v, want close code 4408", err)
		}
	})
}

func TestSessionShutdown(t *testing.T) {
	s := newSite(t, settings{})
	s.publishTo("a", 1)
	c := s.dialSession()
	c.send(`{"follow":"*"}`)
	c.expect("start of a at 1")
	c.expect("followed *: 1")
	go s.server.Shutdown(t.Context())
	if _, _, err := c.ws.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseGoingAway) {
		t.Errorf("got %v, want close code 1001", err)
	}
	s.shutdown()
	for _, left := range []string{"subscribe.(*session)", "subscribe.(*topics)", "subscribe.(*setWatch)"} {
		if all := stacks(); strings.Contains(all, left) {
			t.Errorf("got a goroutine in %s, want none:\n%s", left, all)
		}
	}
}

// TestSessionHandshake checks requests that do not become sessions.
func TestSessionHandshake(t *testing.T) {
	s := newSite(t, settings{})
	url := s.http.URL + "/changes"
	s.refused(url, http.StatusUpgradeRequired, "Upgrade")
	handshake := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-Websocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-Websocket-Version", "13"}
	s.refused(url, http.StatusBadRequest, "rs.json+zstd", append(handshake, "Sec-Websocket-Protocol", "rs.xml")...)
	resp, body := s.do(http.MethodPost, url)
	if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST = %d %s, want 405", resp.StatusCode, body)
	}
}

// TestSessionFrames checks the close codes for frames that a client must not send, and that fragments
// of a message, with a ping between them, are one message.
func TestSessionFrames(t *testing.T) {
	s := newSite(t, settings{})
	s.publishTo("a", 1)
	for _, tt := range []struct {
		name string
		send func(ws *websocket.Conn)
		code int
	}{
		{"large message", func(ws *websocket.Conn) {
			_ = ws.WriteMessage(websocket.TextMessage, bytes.Repeat([]byte("x"), 16<<10+1))
		}, websocket.CloseMessageTooBig},
		{"large fragments", func(ws *websocket.Conn) {
			w, err := ws.NextWriter(websocket.TextMessage)
			ok(t, err)
			for range 40 {
				_, _ = io.WriteString(w, strings.Repeat("x", 1000))
			}
			_ = w.Close()
		}, websocket.CloseMessageTooBig},
		{"continuation of nothing", func(ws *websocket.Conn) { _, _ = ws.NetConn().Write([]byte("\x80\x80mask")) }, websocket.CloseProtocolError},
		{"message within another", func(ws *websocket.Conn) { _, _ = ws.NetConn().Write([]byte("\x01\x80mask\x81\x80mask")) }, websocket.CloseProtocolError},
		{"no mask", func(ws *websocket.Conn) { _, _ = ws.NetConn().Write([]byte("\x81\x04mask")) }, websocket.CloseProtocolError},
		{"length of 63 bits", func(ws *websocket.Conn) {
			_, _ = ws.NetConn().Write([]byte("\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xffmask"))
		}, websocket.CloseMessageTooBig},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := s.in(t).dialSession()
			tt.send(c.ws)
			if _, _, err := c.ws.ReadMessage(); !websocket.IsCloseError(err, tt.code) {
				t.Errorf("got %v, want close code %d", err, tt.code)
			}
		})
	}
	c := s.dialSession()
	_, err := c.ws.NetConn().Write([]byte("\x01\x84\x00\x00\x00\x00{\"fo" + "\x89\x80mask" + "\x00\x83\x00\x00\x00\x00llo" + "\x80\x87\x00\x00\x00\x00w\":\"a\"}"))
	ok(t, err)
	c.expect("start of a at 1")
}

// TestSessionMemory checks the memory of a follow of a set to which nothing happens.
func TestSessionMemory(t *testing.T) {
	const sets, sessions, most = 1_000, 4, 1_000
	s := newSite(t, settings{})
	var names strings.Builder
	for i := range sets {
		s.publishTo(fmt.Sprint("s", i), 1)
		fmt.Fprint(&names, i)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	follow := func() {
		c := s.dialSession()
		c.send(`{"follow":"*"}`)
		for range sets {
			c.read()
		}
		c.expect(fmt.Sprintf("followed *: %d", sets))
		clear(c.chains)
	}
	follow() // makes the tails of the hub
	before := heap()
	for range sessions {
		follow()
	}
	if each := int64(heap()-before) / (sets * sessions); each > most {
		t.Errorf("got %d bytes for a follow, want at most %d", each, most)
	} else {
		t.Logf("%d bytes for a follow", each)
	}
}

// TestSessionOutage checks that a session waits for the memory.
func TestSessionOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := &awaySets{}
		s := newSite(t, settings{
			fake: true, Options: subscribe.Options{Heartbeat: time.Hour}, // no pings, because the client does not read
			memory: func(m subscribe.Memory) subscribe.Memory { away.Memory = m; return away },
		})
		s.publishTo("a", 1)
		c := s.dialSession()
		away.setAway(true)
		c.send(`{"follow":"*"}`)
		c.send(`{"follow":"a","since":"start"}`)
		time.Sleep(20 * time.Second)
		away.setAway(false)
		c.expect("start of a at 1")
		c.expect("followed *: 1")
		c.expect("start of a at 0")
	})
}

// TestSessionWakeBeforeStart checks that a change that arrives after the state of a set was read, and
// before the session starts to follow the set, is delivered.
func TestSessionWakeBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *site
		hook := &hookedSets{after: func(names []string) {
			if slices.Contains(names, "a") {
				s.publishTo("a", 1)
			} else if len(names) > 0 {
				time.Sleep(time.Second) // so that all other messages arrive
			}
		}}
		s = newSite(t, settings{fake: true, memory: func(m subscribe.Memory) subscribe.Memory { hook.Memory = m; return hook }})
		s.publishTo("a", 1)
		c := s.dialSession()
		for i := range 900 { // more answers than are written at a time
			c.send(`{"id":"%0100d","follow":"other%d"}`, i, i)
		}
		c.send(`{"follow":"a"}`)
		for m := (sessionMessage{}); m.Set != "a" || len(m.Changes) == 0; {
			m = c.read()
		}
	})
}

// A hookedSets calls after with the names of each call of Sets for some sets.
type hookedSets struct {
	subscribe.Memory
	after func(names []string)
}

func (m *hookedSets) Sets(ctx context.Context, names ...string) ([]feed.State, error) {
	states, err := m.Memory.Sets(ctx, names...)
	m.after(names)
	return states, err
}

// An awaySets is a memory whose Sets is unavailable at times.
type awaySets struct {
	subscribe.Memory
	mu   sync.Mutex
	away bool
}

func (m *awaySets) setAway(away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = away
}

func (m *awaySets) Sets(ctx context.Context, names ...string) ([]feed.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return nil, feed.ErrUnavailable
	}
	return m.Memory.Sets(ctx, names...)
}

// TestSessionReappears checks that a session which follows every set notices a set that disappeared and
// reappeared between two comparisons of all sets.
func TestSessionReappears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rights{hidden: map[string]bool{}}
		s := newSite(t, settings{fake: true, Options: subscribe.Options{Rights: r}})
		s.publishTo("a", 1)
		c := s.dialSession()
		c.send(`{"follow":"*"}`)
		c.expect("start of a at 1")
		c.expect("followed *: 1")
		time.Sleep(10 * time.Second) // the comparisons have found the set
		// As another hub would do it, so that this one does not notice.
		describe := func(private bool) { ok(t, s.log.Describe(t.Context(), "a", feed.Description{Private: private})) }
		describe(true)
		c.send(`{"follow":"a"}`)
		c.expect("a: 404")
		describe(false)
		c.expect("start of a at 0 diverged")
		c.expect("a: 1 changes to 1")
	})
}

// TestSessionPrivateBeforeStart checks that a session does not start to follow a set that became private
// after its state was read.
func TestSessionPrivateBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *site
		hook := &hookedSets{}
		s = newSite(t, settings{
			fake: true, Options: subscribe.Options{Rights: &rights{}},
			memory: func(m subscribe.Memory) subscribe.Memory { hook.Memory = m; return hook },
		})
		s.publishTo("a", 1)
		hook.after = func(names []string) {
			if slices.Contains(names, "a") {
				ok(t, s.log.Describe(t.Context(), "a", feed.Description{Private: true}))
			} else if len(names) > 0 {
				time.Sleep(time.Second) // so that all other messages arrive
			}
		}
		c := s.dialSession()
		for i := range 900 { // more answers than are written at a time
			c.send(`{"id":"%0100d","follow":"other%d"}`, i, i)
		}
		c.send(`{"follow":"a"}`)
		m := c.read()
		time.Sleep(10 * time.Second) // the session waits for its client, and sets are compared
		for ; m.Set != "a"; m = c.read() {
		}
		if m.String() != "a: 404" {
			t.Errorf("got message %q, want 404", m)
		}
	})
}

// TestSessionStalled checks that a client that does not read delays no other, and gets everything when it
// reads again, whichever goroutine wrote the frames.
func TestSessionStalled(t *testing.T) {
	s := newSite(t, settings{Options: subscribe.Options{WriteTimeout: patience}, sendBuffer: smallSend})
	s.publish(1)
	stalled, other := s.dialSession(), s.dialSession()
	for _, c := range []*sessionClient{stalled, other} {
		c.send(`{"follow":"a"}`)
		c.expect("start of a at 1")
	}
	var end feed.Cursor
	for range 10 {
		end = s.publishLarge(200_000)
		other.readTo(end)
	}
	stalled.readTo(end)
	end = s.publish(3)
	stalled.readTo(end)
	other.readTo(end)
}

// readTo reads until the cursor of the set a is end.
func (c *sessionClient) readTo(end feed.Cursor) {
	c.Helper()
	for c.chains["a"].cursor != end.String() {
		c.read()
	}
}
