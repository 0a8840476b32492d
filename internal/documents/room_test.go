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

// A hookWriter calls hook once, after the first write.
type hookWriter struct {
	*httptest.ResponseRecorder
	hook func()
}

func (i *hookWriter) Write(p []byte) (int, error) {
	n, err := i.ResponseRecorder.Write(p)
	if i.hook != nil {
		i.hook()
		i.hook = nil
	}
	return n, err
}

// A slow client of a list gets the same bytes if the cache evicts the list during the response, and an
// aborted connection if retention removes it, too.
func TestEvictedWhileSent(t *testing.T) {
	for _, coding := range []string{"gzip", "identity"} {
		t.Run(coding, func(t *testing.T) {
			m := newMemory(t)
			m.create("peps", 2_000)
			for range 5 {
				m.add("peps", 2_000)
			}
			s := newServer(m, documents.Options{CacheBytes: 2 << 20})
			want := s.get(m.list("peps", 1), "Accept-Encoding", coding)
			slowly := func(hook func()) (w *hookWriter, aborted any) {
				r := httptest.NewRequestWithContext(t.Context(), "GET", m.list("peps", 1), nil)
				r.Header.Set("Accept-Encoding", coding)
				w = &hookWriter{httptest.NewRecorder(), hook}
				defer func() { aborted = recover() }()
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
			w, aborted := slowly(nil)
			if aborted != nil || !bytes.Equal(w.Body.Bytes(), want.Body.Bytes()) || m.reads.Load() != reads {
				t.Errorf("cached: got %d bytes, %v, %d reads, want all without reads", w.Body.Len(), aborted, m.reads.Load()-reads)
			}
			w, aborted = slowly(evict)
			if aborted != nil || !bytes.Equal(w.Body.Bytes(), want.Body.Bytes()) || w.Header().Get("Content-Length") != fmt.Sprint(want.Body.Len()) {
				t.Errorf("evicted: got %d bytes of %d, %v, Content-Length %s, want all", w.Body.Len(), want.Body.Len(), aborted, w.Header().Get("Content-Length"))
			}
			w, aborted = slowly(func() { evict(); m.trim("peps", 4_000) })
			if aborted != http.ErrAbortHandler || w.Body.Len() >= want.Body.Len() {
				t.Errorf("removed: got %d bytes of %d, %v, want an aborted connection", w.Body.Len(), want.Body.Len(), aborted)
			}
		})
	}
}

// A response that is aborted because its client used up its own share of memory is not logged, because
// clients could cause any number of such lines.
func TestAbortByClientIsNotLogged(t *testing.T) {
	m := newMemory(t)
	m.create("peps", 4_000)
	for range 5 {
		m.add("peps", 4_000)
	}
	log := &testutil.Log{}
	streams := limit.NewBudget(4<<20, time.Millisecond)
	s := newServer(m, documents.Options{CacheBytes: 4 << 20, Streams: streams, Logger: log.Logger(slog.LevelInfo)})
	user := limit.NewContext(t.Context(), limit.New(limit.Options{}).Caller("one", nil))
	w := &hookWriter{httptest.NewRecorder(), func() {
		for n := 2; n <= 5; n++ {
			s.get(m.list("peps", n))
		}
		if _, err := streams.Acquire(user, 2<<20); err != nil {
			t.Error(err)
		}
	}}
	func() {
		defer func() {
			if aborted := recover(); aborted != http.ErrAbortHandler {
				t.Errorf("got the panic %v, want %v", aborted, http.ErrAbortHandler)
			}
		}()
		s.ServeHTTP(w, httptest.NewRequestWithContext(user, "GET", m.list("peps", 1), nil))
	}()
	if text := log.String(); text != "" {
		t.Errorf("got the log %s, want none", text)
	}
}

// Unread data of slow clients needs no memory besides the cache.
func TestSlowClientsUseNoMemory(t *testing.T) {
	m := newMemory(t)
	const lists, size, cache = 30, 2_000, 4 << 20
	m.create("peps", size)
	for range lists {
		m.add("peps", size)
	}
	s := newServer(m, documents.Options{CacheBytes: cache})
	web := httptest.NewUnstartedServer(s)
	web.Listener = smallBufferListener{web.Listener}
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
	const all = lists * size * 400 // approximate size of the lists
	maxHeap := before + cache + lists*(300<<10)
	if maxHeap > before+all*2/3 {
		t.Fatalf("lists of %d bytes are too small for this test", all)
	}
	testutil.Until(t, "the bodies are released", func() bool { return heap() < maxHeap })
}

// A smallBufferListener sets small write buffers.
type smallBufferListener struct{ net.Listener }

func (l smallBufferListener) Accept() (net.Conn, error) {
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

// If others hold the whole budget, the response is a 503. Completed responses release their share.
func TestNoMemory(t *testing.T) {
	m := newMemory(t)
	m.create("peps", 1_000)
	m.add("peps", 3_000)
	answers, streams := limit.NewBudget(10<<20, time.Millisecond), limit.NewBudget(10<<20, time.Millisecond)
	cached, streamed := "/sets/peps/changelist-index.xml", "/sets/peps/changelist.xml"
	for _, test := range []struct {
		path  string
		taken *limit.Budget
	}{{cached, answers}, {streamed, answers}, {streamed, streams}, {"/.well-known/resourcesync", answers}} {
		s := newServer(m, documents.Options{CacheBytes: 256 << 10, Answers: answers, Streams: streams})
		share, err := test.taken.Acquire(t.Context(), 10<<20)
		if err != nil {
			t.Fatal(err)
		}
		w := s.get(test.path, "Accept-Encoding", "identity")
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "problems/overloaded") {
			t.Errorf("GET %s: got %d %v %.200s, want 503 overloaded", test.path, w.Code, w.Header(), w.Body)
		}
		share.Release()
		if w := s.get(test.path, "Accept-Encoding", "identity"); w.Code != 200 {
			t.Errorf("GET %s with free memory: got %d %.200s, want 200", test.path, w.Code, w.Body)
		}
	}
	if answers.Taken()+streams.Taken() != 0 {
		t.Errorf("got %d and %d bytes still taken, want 0", answers.Taken(), streams.Taken())
	}
}

// A document of ?from= ends before it exceeds the maximum size, and the next one continues there.
func TestFromIsSplitByBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 50 MB several times")
	}
	m, s := newFilled(t, 1_000, 0, documents.Options{})
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
		t.Errorf("got documents of %v entries, want at least three", lengths)
	}
}
