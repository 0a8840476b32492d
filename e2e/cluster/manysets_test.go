package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

const (
	manySets       = 2_000
	manyChanges    = 6_000 // publishes while hubs and connections are killed
	manyPublishers = 6
)

// TestManySets follows 2,000 sets on single connections to two hubs, while the sets are published to,
// deleted, created again, and made private and public, and while hubs and connections are killed. Each
// follower must get every change of every set that it may follow, in order.
func TestManySets(t *testing.T) {
	t.Parallel()
	random := hubtest.Random(t)
	file := filepath.Join(t.TempDir(), "tokens")
	owner := hubtest.NewToken(t, file, "owner", "publish:*,follow:*,operate")
	withdrawn := hubtest.NewToken(t, file, "withdrawn", "follow:*")
	some := hubtest.NewToken(t, file, "some", "follow:s1*")
	hubtest.AllowAnyone(t, file, "follow:*")
	c := hubtest.StartCluster(t, 2, "RSHUB_TOKENS_FILE="+file, "RSHUB_LIMITS_ADDRESS=follows:5000,connections:5000")
	w := &manyWorld{t: t, hubs: c.Hubs, owner: "Authorization: Bearer " + owner}
	var creators sync.WaitGroup
	for i := range 8 {
		creators.Go(func() {
			for n := i; n < manySets; n += 8 {
				w.publish(w.hubs[n%2], fmt.Sprint("s", n), 1)
			}
		})
	}
	creators.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var followers []*manyFollower
	var running sync.WaitGroup
	for i, token := range []string{owner, owner, withdrawn, some, ""} {
		f := &manyFollower{world: w, token: token, random: rand.New(rand.NewPCG(random.Uint64(), 1)), cursors: map[string]string{}}
		f.since = []string{"start", "now"}[i%2]
		followers = append(followers, f)
		running.Go(func() { f.run(ctx) })
	}
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	hubtest.Until(t, "all sets are followed", func() error {
		if n := followers[0].count(); n < manySets {
			return fmt.Errorf("got %d sets, want %d", n, manySets)
		}
		return nil
	})

	var work sync.WaitGroup
	for range manyPublishers {
		r := rand.New(rand.NewPCG(random.Uint64(), 2))
		work.Go(func() {
			for range manyChanges / manyPublishers {
				w.act(r)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		work.Wait()
	}()
	for i := 0; ; i++ {
		select {
		case <-done:
		case <-time.After(time.Second): // between two kills
			w.kill(i % 2)
			if i == 1 {
				hubtest.RemoveToken(t, file, "withdrawn")
			}
			continue
		}
		break
	}
	hubtest.Until(t, "the follower whose token was withdrawn is refused", func() error {
		if !followers[2].hasEnded() {
			return errors.New("it is still connected")
		}
		return nil
	})
	heads, private := w.states()
	for i, f := range followers {
		if i == 2 {
			continue
		}
		hubtest.Until(t, fmt.Sprintf("follower %d has everything", i), func() error { return f.compare(heads, private) })
	}
	for i, f := range followers {
		f.mu.Lock()
		for _, fault := range f.faults {
			t.Errorf("follower %d: %s", i, fault)
		}
		t.Logf("follower %d: %d connections, %d changes, %d errors of sets", i, f.connections, f.changes, f.errors)
		f.mu.Unlock()
	}
}

// A manyWorld is the cluster of TestManySets.
type manyWorld struct {
	t     *testing.T
	owner string       // header of the owner
	mu    sync.RWMutex // held for writing while a hub is restarted
	hubs  []*hubtest.Hub
}

// request sends a request of the owner until a hub accepts it.
func (w *manyWorld) request(h *hubtest.Hub, method, path, body string, headers ...string) {
	for {
		a, err := hubtest.Request(method, h.URL+path, strings.NewReader(body), append(headers, w.owner)...)
		if err == nil && (a.Status < 300 || a.Status == http.StatusNotFound) {
			return
		}
		if err == nil && a.Status < 500 {
			w.t.Errorf("%s %s = %d %s", method, path, a.Status, a.Body)
			return
		}
		time.Sleep(20 * time.Millisecond) // the hub is restarted
	}
}

func (w *manyWorld) publish(h *hubtest.Hub, set string, n int) {
	w.request(h, http.MethodPost, "/sets/"+set+"/changes", string(hubtest.Changes(set, n)), "Content-Type: application/x-ndjson")
}

// act does one thing to a random set.
func (w *manyWorld) act(r *rand.Rand) {
	h, set := w.hubs[r.IntN(2)], fmt.Sprint("s", r.IntN(manySets))
	switch n := r.IntN(50); n {
	case 0:
		w.request(h, http.MethodDelete, "/sets/"+set, "")
		w.publish(h, set, 1)
	case 1, 2:
		w.request(h, http.MethodPut, "/sets/"+set, fmt.Sprintf(`{"private":%t}`, n == 1), "Content-Type: application/json")
	default:
		w.publish(h, set, 1+r.IntN(3))
	}
}

// kill kills a hub and starts it again.
func (w *manyWorld) kill(i int) {
	w.hubs[i].Kill()
	w.hubs[i].Start(w.t)
}

// states returns the heads of all sets, and which of them are private.
func (w *manyWorld) states() (heads map[string]string, private map[string]bool) {
	heads, private = map[string]string{}, map[string]bool{}
	for after := ""; ; {
		v := hubtest.Get[struct {
			Sets []struct {
				Set, Head string
				Private   bool
			}
			Next string
		}](w.t, w.hubs[0].URL+"/sets?limit=1000&after="+after, w.owner)
		for _, s := range v.Sets {
			heads[s.Set], private[s.Set] = s.Head, s.Private
			after = s.Set
		}
		if v.Next == "" {
			return heads, private
		}
	}
}

// A manyFollower follows every set that its token allows, and names each with its cursor when it
// connects again.
type manyFollower struct {
	world  *manyWorld
	token  string
	since  string
	random *rand.Rand

	mu                           sync.Mutex
	cursors                      map[string]string // by set
	faults                       []string
	connections, changes, errors int
	ended                        bool // whether the hub refused the token
}

func (f *manyFollower) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.cursors)
}

func (f *manyFollower) hasEnded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

// compare returns nil if the follower has the heads of all sets that it may follow.
func (f *manyFollower) compare(heads map[string]string, private map[string]bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for set, head := range heads {
		if private[set] && (f.token == "" || !f.seesPrivate(set)) {
			if f.cursors[set] != "" {
				return fmt.Errorf("%s is private, and still followed", set)
			}
		} else if f.cursors[set] != head {
			return fmt.Errorf("%s is at %s, want %s", set, f.cursors[set], head)
		}
	}
	return nil
}

// seesPrivate reports whether the token of f allows to follow a private set.
func (f *manyFollower) seesPrivate(set string) bool {
	return "Authorization: Bearer "+f.token == f.world.owner || strings.HasPrefix(set, "s1")
}

func (f *manyFollower) run(ctx context.Context) {
	for i := 0; ctx.Err() == nil && !f.hasEnded(); i++ {
		f.connect(ctx, f.world.hubs[(i+f.random.IntN(2))%2])
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// connect follows until the connection ends. Some connections end by themselves.
func (f *manyFollower) connect(ctx context.Context, h *hubtest.Hub) {
	header := http.Header{}
	if f.token != "" {
		header.Set("Authorization", "Bearer "+f.token)
	}
	ws, resp, err := websocket.DefaultDialer.DialContext(ctx, "ws"+strings.TrimPrefix(h.URL, "http")+"/changes", header)
	if resp != nil && resp.StatusCode == http.StatusUnauthorized {
		f.mu.Lock()
		f.ended = true
		f.mu.Unlock()
	}
	if err != nil {
		return
	}
	defer ws.Close()
	defer context.AfterFunc(ctx, func() { ws.Close() })()
	if f.random.IntN(2) == 0 {
		cut := time.AfterFunc(time.Duration(f.random.IntN(3000))*time.Millisecond, func() { ws.NetConn().Close() })
		defer cut.Stop()
	}
	f.mu.Lock()
	f.connections++
	cursors, since := maps.Clone(f.cursors), f.since
	f.mu.Unlock()
	if len(cursors) > 0 {
		since = "start"
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for _, set := range slices.Sorted(maps.Keys(cursors)) {
			_ = ws.WriteJSON(map[string]string{"follow": set, "since": cursors[set]}) // or the reader notices
		}
		_ = ws.WriteJSON(map[string]string{"follow": "*", "since": since})
	}()
	var again []string
	for err == nil {
		var text []byte
		if _, text, err = ws.ReadMessage(); err == nil {
			if set := f.handle(text); set != "" {
				again = append(again, set)
			}
		}
		select {
		case <-sent: // only one goroutine may write
			for _, set := range again {
				_ = ws.WriteJSON(map[string]string{"follow": set, "since": "start"})
			}
			again = nil
		default:
		}
	}
	_ = ws.NetConn().Close()
	<-sent
}

// handle handles a message. It returns the set that must be followed from its start, because it was
// deleted and created again while there was no connection.
func (f *manyFollower) handle(text []byte) (gone string) {
	var m struct {
		Set, After, Cursor string
		Diverged           bool
		Changes            []struct{ Position uint64 }
		Error              *struct{ Status int }
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fault := func(format string, args ...any) {
		if len(f.faults) < 10 {
			f.faults = append(f.faults, fmt.Sprintf(format, args...))
		}
	}
	if err := json.Unmarshal(text, &m); err != nil {
		fault("%s: %v", text, err)
		return ""
	}
	at := f.cursors[m.Set]
	switch {
	case m.Set == "":
	case m.Error != nil:
		f.errors++
		delete(f.cursors, m.Set)
		if m.Error.Status == http.StatusGone {
			return m.Set
		}
		if m.Error.Status != http.StatusNotFound {
			fault("%s", text)
		}
	case len(m.Changes) == 0 && m.After == m.Cursor:
		if at != "" && at != m.Cursor && !m.Diverged {
			fault("%s starts at %s, want %s", m.Set, m.Cursor, at)
		}
		f.cursors[m.Set] = m.Cursor
	default:
		if at != m.After && !m.Diverged {
			fault("%s continues after %s, want %s", m.Set, m.After, at)
		}
		last, _, _ := hubtest.SplitCursor(m.After)
		for _, e := range m.Changes {
			if last++; e.Position != last {
				fault("%s: got position %d, want %d", m.Set, e.Position, last)
			}
		}
		f.changes += len(m.Changes)
		f.cursors[m.Set] = m.Cursor
	}
	return ""
}
