package subscribe_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/testutil/pipetest"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/subscribe"
)

// patience is the maximum time that a test waits for a condition.
const patience = time.Minute

// A site is a hub with an HTTP server.
type site struct {
	testing.TB
	log    changelog.Log
	hub    *hub.Hub
	server *subscribe.Server
	http   *httptest.Server
	dials  func(ctx context.Context, network, address string) (net.Conn, error) // nil for TCP
}

// A settings configures a site.
type settings struct {
	subscribe.Options
	sets       []string // configured sets; if empty, a publish creates sets
	listSize   int
	sendBuffer int  // send buffer of the hub's sockets; zero means the default
	fake       bool // whether the network is in memory, for fake time
	follower   func(subscribe.Follower) subscribe.Follower
	memory     func(subscribe.Memory) subscribe.Memory
}

func newSite(t testing.TB, o settings) *site {
	t.Helper()
	log, err := disklog.Open(t.Context(), t.TempDir(), disklog.Options{})
	ok(t, err)
	s := &site{TB: t, log: log, hub: hub.New(log, hub.Options{Sets: o.sets, ListSize: max(o.listSize, 10)})}
	for _, set := range o.sets {
		ok(t, log.Make(t.Context(), set, feed.Description{}, max(o.listSize, 10)))
	}
	if o.fake {
		var network pipetest.Network
		s.http = &httptest.Server{Listener: network.Listen("127.0.0.1:0"), Config: &http.Server{}}
		s.dials = network.Dial
	} else {
		s.http = httptest.NewUnstartedServer(nil)
	}
	if o.sendBuffer > 0 && !o.fake {
		s.http.Listener = bufferedListener{Listener: s.http.Listener, size: o.sendBuffer}
	}
	o.Base = feed.Base("http://" + s.http.Listener.Addr().String())
	var follower subscribe.Follower = s.hub
	if o.follower != nil {
		follower = o.follower(follower)
	}
	var memory subscribe.Memory = log
	if o.memory != nil {
		memory = o.memory(memory)
	}
	s.server = subscribe.New(follower, memory, o.Options)
	mux := http.NewServeMux()
	mux.HandleFunc("/sets/{set}/changes", func(w http.ResponseWriter, r *http.Request) {
		serve(s.server, w, r, r.PathValue("set"))
	})
	mux.HandleFunc("/changes", func(w http.ResponseWriter, r *http.Request) {
		a := problem.Adapter{Logger: slog.New(slog.DiscardHandler)}
		a.Handle(func(w http.ResponseWriter, r *http.Request) error { return s.server.ServeSession(w, r, nil) })(w, r)
	})
	s.http.Config.Handler = mux
	s.http.Start()
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { defer close(ran); s.server.Run(ctx) }()
	t.Cleanup(func() {
		s.shutdown()
		stop()
		<-ran
		s.http.CloseClientConnections()
		s.http.Close()
		s.hub.Close()
		if err := log.Close(); err != nil {
			t.Error("close the log:", err)
		}
	})
	return s
}

// transport returns a new transport to the site.
func (s *site) transport() *http.Transport { return &http.Transport{DialContext: s.dials} }

// in returns the site for a subtest.
func (s *site) in(t testing.TB) *site {
	sub := *s
	sub.TB = t
	return &sub
}

// shutdown stops the server, after 5 s without waiting for clients.
func (s *site) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = s.server.Shutdown(ctx)
}

// A bufferedListener accepts connections with a given send buffer.
type bufferedListener struct {
	net.Listener
	size int
}

func (l bufferedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(l.size)
	}
	return c, err
}

func (s *site) url(query string) string { return s.http.URL + "/sets/a/changes" + query }

// publish publishes n changes to the set a, and returns the cursor of the last one.
func (s *site) publish(n int) feed.Cursor {
	s.Helper()
	changes := make([]resourcesync.Change, n)
	for i := range changes {
		changes[i] = resourcesync.Change{Loc: fmt.Sprintf("https://example.org/%d", i), Change: resourcesync.Updated}
	}
	return s.publishChanges(changes...)
}

// publishLarge publishes a change of about size bytes.
func (s *site) publishLarge(size int) feed.Cursor {
	s.Helper()
	c := resourcesync.Change{Loc: "https://example.org/large", Change: resourcesync.Updated}
	for n := 0; n < size; n += 1000 {
		c.Links = append(c.Links, resourcesync.Link{Rel: "duplicate", Href: "https://example.org/" + strings.Repeat("x", 1000)})
	}
	return s.publishChanges(c)
}

func (s *site) publishChanges(changes ...resourcesync.Change) feed.Cursor {
	s.Helper()
	a, err := s.hub.Publish(s.Context(), "a", changelog.Publish{Changes: changes})
	if err != nil {
		s.Fatal("publish:", err)
	}
	return a.Cursor
}

// publishRepeatedly publishes repeatedly until stop is called. stop waits for the end.
func (s *site) publishRepeatedly(publish func()) (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			publish()
		}
	}()
	return func() { cancel(); <-ended }
}

func change(loc string, c resourcesync.ChangeType, mediaType string) resourcesync.Change {
	return resourcesync.Change{Loc: "https://example.org/" + loc, Change: c, Type: mediaType}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stacks returns the stacks of all goroutines.
func stacks() string {
	buf := make([]byte, 4<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// get requests the topic of the set a.
func (s *site) get(query string, header ...string) (*http.Response, []byte) {
	s.Helper()
	return s.do(http.MethodGet, s.url(query), header...)
}

func (s *site) do(method, url string, header ...string) (*http.Response, []byte) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, url, nil)
	ok(s, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	client := http.DefaultClient
	if s.dials != nil {
		client = &http.Client{Transport: s.transport()}
		defer client.CloseIdleConnections()
	}
	resp, err := client.Do(r)
	ok(s, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	ok(s, err)
	return resp, b
}

// refused checks that a request is answered with a problem document that contains want.
func (s *site) refused(url string, status int, want string, header ...string) http.Header {
	s.Helper()
	resp, body := s.do(http.MethodGet, url, header...)
	if resp.StatusCode != status || resp.Header.Get("Content-Type") != "application/problem+json" || !bytes.Contains(body, []byte(want)) {
		s.Errorf("%s: got %d %s %s, want %d with %q", url, resp.StatusCode, resp.Header.Get("Content-Type"), body, status, want)
	}
	return resp.Header
}

// serve serves a request, and answers errors like a hub.
func serve(s *subscribe.Server, w http.ResponseWriter, r *http.Request, set string) {
	a := problem.Adapter{Logger: slog.New(slog.DiscardHandler)}
	a.Handle(func(w http.ResponseWriter, r *http.Request) error { return s.Serve(w, r, set) })(w, r)
}
