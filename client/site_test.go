package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/inventory/web"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/subscribe"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

// A site is a hub in this process, and whatever stands in front of it.
type site struct {
	URL string

	log   *disklog.Log
	shelf *shelf
	http  *httptest.Server

	mu       sync.Mutex
	hub      *hub.Hub
	follow   *subscribe.Server
	requests []*http.Request
	trouble  func(n int, w http.ResponseWriter, r *http.Request) bool // before request n, from 1; true: it has answered
	lost     func(n int) bool                                         // whether the answer to request n gets lost
}

// open opens a site in a directory. The caller closes it.
func open(dir string) (*site, error) {
	log, err := disklog.Open(context.Background(), dir, disklog.Options{})
	if err != nil {
		return nil, err
	}
	s := &site{log: log, shelf: newShelf(log)}
	s.http = httptest.NewServer(s)
	s.URL = s.http.URL
	s.start()
	return s, nil
}

// start makes a new hub on the memory.
func (s *site) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hub = hub.New(s.log, hub.Options{})
	s.follow = subscribe.New(s.hub, s.log, subscribe.Options{Base: "https://hub.example.org", Inventories: s.shelf})
}

// stop stops the hub. Its address goes on to answer, as a stopping hub does.
func (s *site) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = s.follow.Shutdown(ctx)
	s.hub.Close()
}

func (s *site) Close() {
	s.stop()
	s.http.CloseClientConnections()
	s.http.Close()
	_ = s.log.Close()
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The next request comes after what trouble did with this one, even if nothing was
	// written to the connection.
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
	}()
	s.mu.Lock()
	s.requests = append(s.requests, r)
	n, trouble, lost := len(s.requests), s.trouble, s.lost != nil && s.lost(len(s.requests))
	serve, publish := s.follow.Serve, s.hub.ServePublish
	s.mu.Unlock()
	if trouble != nil && trouble(n, w, r) {
		return
	}
	if lost {
		w = httptest.NewRecorder()
		defer panic(http.ErrAbortHandler)
	}
	adapter := problem.Adapter{Logger: slog.New(slog.DiscardHandler)}
	mux := http.NewServeMux()
	mux.Handle("POST /sets/{set}/changes", adapter.Handle(func(w http.ResponseWriter, r *http.Request) error {
		return publish(w, r, r.PathValue("set"))
	}))
	mux.Handle("GET /sets/{set}/changes", adapter.Handle(func(w http.ResponseWriter, r *http.Request) error {
		return serve(w, r, r.PathValue("set"))
	}))
	mux.Handle("GET /sets/{set}", adapter.Handle(func(w http.ResponseWriter, r *http.Request) error {
		st, err := s.log.State(r.Context(), r.PathValue("set"))
		if err == nil {
			fmt.Fprintf(w, `{"set":%q,"begin":%q,"floor":"%v"}`, st.Set, resourcesync.AppendTimeMicro(nil, st.Begin), st.Floor)
		}
		return err
	}))
	mux.Handle("/sets/{set}/audit", adapter.Handle(func(w http.ResponseWriter, r *http.Request) error {
		return web.New(s.shelf, "https://hub.example.org", web.Options{}).ServeAudit(w, r, r.PathValue("set"))
	}))
	mux.ServeHTTP(w, r)
}

// asked returns the requests until now.
func (s *site) asked() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*http.Request(nil), s.requests...)
}

// newSite returns a site that lasts as long as a test.
func newSite(t *testing.T) *site {
	t.Helper()
	s, err := open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// publish publishes a change of each loc, past whatever stands in front.
func (s *site) publish(t *testing.T, locs ...string) feed.Cursor {
	t.Helper()
	return s.change(t, resourcesync.Updated, locs...)
}

// updated returns an update of each loc.
func updated(locs ...string) (changes []resourcesync.Change) {
	for _, loc := range locs {
		changes = append(changes, resourcesync.Change{Loc: loc, Change: resourcesync.Updated})
	}
	return changes
}

// locs returns urn:FROM to urn:TO.
func locs(from, to int) (all []string) {
	for i := from; i <= to; i++ {
		all = append(all, fmt.Sprint("urn:", i))
	}
	return all
}

// held returns the locs that the memory holds.
func (s *site) held(t *testing.T) (all []string) {
	t.Helper()
	b, err := s.log.Since(t.Context(), "demo", feed.Cursor{}, 10_000)
	if err != nil && !errors.Is(err, feed.ErrNoSet) {
		t.Fatal(err)
	}
	if err == nil {
		for i := range b.Entries {
			all = append(all, b.Entries[i].Change.Loc)
		}
	}
	return all
}

// A fakeClock moves when somebody waits, and never waits.
type fakeClock struct {
	mu    sync.Mutex
	t     time.Time
	waits []time.Duration
	notes []string
}

func newClock() *fakeClock { return &fakeClock{t: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)} }

// options has a client wait by the clock.
func (c *fakeClock) options() client.Options {
	return client.Options{Now: c.now, Sleep: c.sleep, Note: func(err error, wait time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.notes = append(c.notes, fmt.Sprintf("%v; in %v", err, wait))
	}}
}

func (c *fakeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *fakeClock) sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
	c.waits = append(c.waits, d)
	return ctx.Err()
}

// said returns what the client noted.
func (c *fakeClock) said() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.notes...)
}

func newClient(t *testing.T, url string, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(url, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
