package documents_test

import (
	"bytes"
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
	"github.com/rshub/rshub/internal/documents"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/resourcesync"
)

// An interrupted is a response during which something happens, once.
type interrupted struct {
	*httptest.ResponseRecorder
	happens func()
}

func (i *interrupted) Write(p []byte) (int, error) {
	n, err := i.ResponseRecorder.Write(p)
	if i.happens != nil {
		i.happens()
		i.happens = nil
	}
	return n, err
}

// A client that takes a list slowly gets the same bytes when the cache has dropped the
// list meanwhile, and a broken connection when the memory has dropped it too.
func TestDroppedWhileSent(t *testing.T) {
	for _, coding := range []string{"gzip", "identity"} {
		t.Run(coding, func(t *testing.T) {
			m := newMemory(t)
			m.make("peps", 2_000)
			for range 5 {
				m.add("peps", 2_000)
			}
			s := newServer(m, documents.Options{CacheBytes: 2 << 20})
			want := s.get(m.list("peps", 1), "Accept-Encoding", coding)
			slowly := func(happens func()) (w *interrupted, broken any) {
				r := httptest.NewRequestWithContext(t.Context(), "GET", m.list("peps", 1), nil)
				r.Header.Set("Accept-Encoding", coding)
				w = &interrupted{httptest.NewRecorder(), happens}
				defer func() { broken = recover() }()
				s.ServeHTTP(w, r)
				return w, nil
			}
			evict := func() {
				for n := 2; n <= 5; n++ {
					for _, c := range []string{"gzip", "identity"} {
						s.get(m.list("peps", n), "Accept-Encoding", c)
					}
				}
			}
			reads := m.reads.Load()
			w, broken := slowly(nil)
			if broken != nil || !bytes.Equal(w.Body.Bytes(), want.Body.Bytes()) || m.reads.Load() != reads {
				t.Errorf("out of the cache: %d bytes, %v, %d reads", w.Body.Len(), broken, m.reads.Load()-reads)
			}
			w, broken = slowly(evict)
			if broken != nil || !bytes.Equal(w.Body.Bytes(), want.Body.Bytes()) || w.Header().Get("Content-Length") != fmt.Sprint(want.Body.Len()) {
				t.Errorf("dropped by the cache: %d bytes of %d, %v, Content-Length %s", w.Body.Len(), want.Body.Len(), broken, w.Header().Get("Content-Length"))
			}
			w, broken = slowly(func() { evict(); m.trim("peps", 4_000) })
			if broken != http.ErrAbortHandler || w.Body.Len() >= want.Body.Len() {
				t.Errorf("dropped by the memory: %d bytes of %d, %v", w.Body.Len(), want.Body.Len(), broken)
			}
		})
	}
}

// A client that has no room left for its own slow reading writes nothing into the log: it can
// do that as often as it likes.
func TestBrokenOffByItself(t *testing.T) {
	m := newMemory(t)
	m.make("peps", 4_000)
	for range 5 {
		m.add("peps", 4_000)
	}
	log := &testutil.Log{}
	streams := limit.NewBudget(4<<20, time.Millisecond)
	s := newServer(m, documents.Options{CacheBytes: 4 << 20, Streams: streams, Logger: log.Logger(slog.LevelInfo)})
	user := limit.NewContext(t.Context(), limit.New(limit.Options{}).Caller("one", nil))
	w := &interrupted{httptest.NewRecorder(), func() {
		for n := 2; n <= 5; n++ {
			s.get(m.list("peps", n))
		}
		if _, err := streams.Take(user, 2<<20); err != nil {
			t.Error(err)
		}
	}}
	func() {
		defer func() {
			if broken := recover(); broken != http.ErrAbortHandler {
				t.Errorf("it ends with %v", broken)
			}
		}()
		s.ServeHTTP(w, httptest.NewRequestWithContext(user, "GET", m.list("peps", 1), nil))
	}()
	if text := log.String(); text != "" {
		t.Errorf("the log has %s", text)
	}
}

// What clients have not taken costs no memory besides the cache.
func TestSlowClientsHoldNothing(t *testing.T) {
	m := newMemory(t)
	const lists, size, cache = 30, 2_000, 4 << 20
	m.make("peps", size)
	for range lists {
		m.add("peps", size)
	}
	s := newServer(m, documents.Options{CacheBytes: cache})
	web := httptest.NewUnstartedServer(s)
	web.Listener = shortListener{web.Listener}
	web.Start()
	defer web.Close()
	defer web.CloseClientConnections()
	before := heap()
	for n := 1; n <= lists; n++ {
		conn, err := net.Dial("tcp", web.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if err := conn.(*net.TCPConn).SetReadBuffer(16 << 10); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", m.list("peps", n)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 16)); err != nil {
			t.Fatal(err)
		}
	}
	const all = lists * size * 400 // bytes of the lists, more or less
	most := before + cache + lists*(300<<10)
	if most > before+all*2/3 {
		t.Fatal("the lists are too small for this test")
	}
	testutil.Until(t, "the bodies are let go", func() bool { return heap() < most })
}

// A shortListener gives its connections little room for what is not read.
type shortListener struct{ net.Listener }

func (l shortListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(16 << 10)
	}
	return c, err
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// While others hold all the room, the client is told to come again. Nothing is left
// taken by answers that are over.
func TestNoRoom(t *testing.T) {
	m := newMemory(t)
	m.make("peps", 1_000)
	m.add("peps", 3_000)
	answers, streams := limit.NewBudget(10<<20, time.Millisecond), limit.NewBudget(10<<20, time.Millisecond)
	kept, streamed := "/sets/peps/changelist-index.xml", "/sets/peps/changelist.xml"
	for _, test := range []struct {
		path  string
		taken *limit.Budget
	}{{kept, answers}, {streamed, answers}, {streamed, streams}, {"/.well-known/resourcesync", answers}} {
		s := newServer(m, documents.Options{CacheBytes: 256 << 10, Answers: answers, Streams: streams})
		share, err := test.taken.Take(t.Context(), 10<<20)
		if err != nil {
			t.Fatal(err)
		}
		w := s.get(test.path, "Accept-Encoding", "identity")
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "problems/overloaded") {
			t.Errorf("%s: %d %v %.200s", test.path, w.Code, w.Header(), w.Body)
		}
		share.Release()
		if w := s.get(test.path, "Accept-Encoding", "identity"); w.Code != 200 {
			t.Errorf("%s, with room again: %d %.200s", test.path, w.Code, w.Body)
		}
	}
	if answers.Taken()+streams.Taken() != 0 {
		t.Errorf("%d and %d bytes are left taken", answers.Taken(), streams.Taken())
	}
}

// A ?from= ends before it has more bytes than the standard allows, and the next goes
// on from there.
func TestFromIsCutByBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 50 MB again and again")
	}
	m, s := filled(t, 1_000, 0, documents.Options{})
	const total = 70
	for n := range uint64(total) {
		c := change(n + 1)
		size := 1 << 20
		if n == 40 {
			size = 60 << 20 // larger than a document may be
		}
		c.Attrs = []resourcesync.Attr{{Namespace: "urn:x", Name: "large", Value: strings.Repeat("x", size)}}
		m.advance(time.Second)
		if _, err := m.Append(t.Context(), "peps", changelog.Publish{Changes: []resourcesync.Change{c}}); err != nil {
			t.Fatal(err)
		}
	}
	if lengths := s.walk(total); len(lengths) < 3 {
		t.Errorf("documents of %v entries", lengths)
	}
}
