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

// patience is the time limit for stopping a site.
const patience = time.Minute

// A site is a hub in this process, with a server in front of it that can simulate failures.
type site struct {
	URL string

	log         *disklog.Log
	inventories *inventories
	http        *httptest.Server

	mu         sync.Mutex
	hub        *hub.Hub
	follow     *subscribe.Server
	requests   []*http.Request
	intercept  func(n int, w http.ResponseWriter, r *http.Request) bool // called before request n, from 1; true if it has responded
	dropAnswer func(n int) bool                                         // whether to drop the response to request n
}

// openSite opens a site in a directory. The caller must close it.
func openSite(dir string) (*site, error) {
	log, err := disklog.Open(context.Background(), dir, disklog.Options{})
	if err != nil {
		return nil, err
	}
	s := &site{log: log, inventories: newInventories(log)}
	s.http = httptest.NewServer(s)
	s.URL = s.http.URL
	s.start()
	return s, nil
}

// start starts a new hub with the same change memory.
func (s *site) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hub = hub.New(s.log, hub.Options{})
	s.follow = subscribe.New(s.hub, s.log, subscribe.Options{Base: "https://hub.example.org", Inventories: s.inventories})
}

// stop stops the hub. The server keeps responding, like a stopping hub.
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
	// The next request must see what intercept did with this one, even if nothing was written
	// to the connection.
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
	}()
	s.mu.Lock()
	s.requests = append(s.requests, r)
	n, intercept, drop := len(s.requests), s.intercept, s.dropAnswer != nil && s.dropAnswer(len(s.requests))
	serve, serveSession, publish := s.follow.Serve, s.follow.ServeSession, s.hub.ServePublish
	s.mu.Unlock()
	if intercept != nil && intercept(n, w, r) {
		return
	}
	if drop {
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
	mux.Handle("GET /changes", adapter.Handle(func(w http.ResponseWriter, r *http.Request) error {
		return serveSession(w, r, nil)
	}))
	mux.Handle("GET /sets/{set}", adapter.Handle(func(w http.ResponseWriter, r *http.Request) error {
		st, err := s.log.State(r.Context(), r.PathValue("set"))
		if err == nil {
			fmt.Fprintf(w, `{"set":%q,"begin":%q,"floor":"%v"}`, st.Set, resourcesync.AppendTimeMicro(nil, st.Begin), st.Floor)
		}
		return err
	}))
	mux.Handle("/sets/{set}/audit", adapter.Handle(func(w http.ResponseWriter, r *http.Request) error {
		return web.New(s.inventories, "https://hub.example.org", web.Options{}).ServeAudit(w, r, r.PathValue("set"))
	}))
	mux.ServeHTTP(w, r)
}

// received returns the requests so far.
func (s *site) received() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*http.Request(nil), s.requests...)
}

// newSite returns a site that is closed at the end of the test.
func newSite(t *testing.T) *site {
	t.Helper()
	s, err := openSite(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// publish publishes an update of each loc directly to the hub.
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

// locs returns the locs urn:FROM to urn:TO.
func locs(from, to int) (all []string) {
	for i := from; i <= to; i++ {
		all = append(all, fmt.Sprint("urn:", i))
	}
	return all
}

// held returns the locs of all entries in the log.
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

// A fakeClock is advanced by sleeping, which does not block.
type fakeClock struct {
	mu    sync.Mutex
	t     time.Time
	waits []time.Duration
	notes []string
}

func newClock() *fakeClock { return &fakeClock{t: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)} }

// options returns the options of a client that uses the clock.
func (c *fakeClock) options() client.Options {
	return client.Options{Now: c.now, Sleep: c.sleep, OnRetry: func(err error, wait time.Duration) {
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

// noted returns the calls of OnRetry.
func (c *fakeClock) noted() []string {
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
