package documents_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/documents"
	"github.com/rshub/rshub/resourcesync"
)

// If the log loses its tail and gets other entries instead, all ETags and the index change.
func TestLostTail(t *testing.T) {
	m, other := newMemory(t), newMemory(t)
	for _, m := range []*memory{m, other} {
		m.create("peps", 3)
		m.add("peps", 4)
	}
	other.advance(time.Hour)
	m.add("peps", 8)
	other.add("peps", 8)
	state := m.state("peps")
	if o := other.state("peps"); o.Begin != state.Begin || o.Head == state.Head {
		t.Fatalf("got the states %+v and %+v, want the same begin and different heads", o, state)
	}
	s := newServer(m, documents.Options{})
	paths := []string{"changelist.xml", "changelist-index.xml", "changes", "changelist.xml?from=2026-01-02T03:04:06Z",
		m.list("peps", 1)[len("/sets/peps/"):]}
	tags := make(map[string]string)
	for _, path := range paths {
		w := s.get("/sets/peps/" + path)
		tags[path] = w.Header().Get("Etag")
	}
	m.Log = other.Log
	fresh := newServer(other, documents.Options{})
	for i, path := range paths {
		w := s.get("/sets/peps/"+path, "If-None-Match", tags[path])
		if same := i == 4; (w.Code == 304) != same { // only the first list is unchanged
			t.Errorf("GET %s: got %d, want a 304: %t", path, w.Code, same)
		}
		if w.Code == 200 && !bytes.Equal(w.Body.Bytes(), fresh.get("/sets/peps/"+path).Body.Bytes()) {
			t.Errorf("GET %s: got other bytes than in the log", path)
		}
	}

	// If that happens between planning and reading, there is no document.
	third := newMemory(t)
	third.create("peps", 3)
	third.add("peps", 4)
	before := func() { m.Log = third.Log }
	m.before.Store(&before)
	m.Log = other.Log
	s = newServer(m, documents.Options{})
	if w := s.get("/sets/peps/changelist.xml"); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("tail lost while it is read: got %d %s, want 503 with Retry-After", w.Code, w.Body)
	}
}

// If retention removes entries while a document is written, the client gets a 410 or an aborted
// connection, never part of the document.
func TestTrimmedWhileRead(t *testing.T) {
	m := newMemory(t)
	s := newServer(m, documents.Options{})
	// prepare creates a set. Retention removes half of it after a number of pages has been read.
	prepare := func(set string, pages int) feed.State {
		m.create(set, 12_000)
		m.add(set, 24_000)
		before := func() {
			if pages--; pages == 0 {
				m.trim(set, 12_000)
			}
		}
		m.before.Store(&before)
		return m.state(set)
	}

	// A list is encoded before it is sent.
	for _, coding := range []string{"gzip", "identity"} {
		prepare(coding, 2)
		w := s.get(m.list(coding, 1), "Accept-Encoding", coding)
		if w.Code != 410 || w.Header().Get("Content-Encoding")+w.Header().Get("Etag")+w.Header().Get("Last-Modified") != "" {
			t.Errorf("list: got %d %v, want 410", w.Code, w.Header())
		}
	}

	// A long ?from= is read once to find its end. Then its first pages show that it is too large for the
	// cache, and it is restarted as a stream.
	begin := resourcesync.AppendTimeMicro(nil, prepare("streamed", 24+1+4).Begin)
	web := httptest.NewServer(s)
	defer web.Close()
	r, err := http.NewRequestWithContext(t.Context(), "GET", web.URL+"/sets/streamed/changelist.xml?from="+string(begin), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "identity")
	resp, err := web.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || err == nil {
		t.Errorf("stream: got %d, %d bytes, %v, want an aborted connection", resp.StatusCode, len(body), err)
	}
}

// A trimmingLog trims the set once, before the first At.
type trimmingLog struct {
	*memory
	once sync.Once
}

func (l *trimmingLog) At(ctx context.Context, set string, position uint64) (feed.Cursor, error) {
	l.once.Do(func() { l.trim(set, 1) })
	return l.memory.At(ctx, set, position)
}

// If retention removes lists while a document that links to them is planned, the response is a 503, not a
// 410.
func TestTrimmedWhilePlanned(t *testing.T) {
	for _, name := range []string{"changelist-index.xml", "activity/collection.json"} {
		m := newMemory(t)
		m.create("peps", 3)
		m.add("peps", 20)
		s := &server{documents.New(&trimmingLog{memory: m}, base, documents.Options{Dialects: dialects}), m}
		if w := s.get("/sets/peps/" + name); w.Code != 503 || w.Header().Get("Retry-After") == "" {
			t.Errorf("GET %s: got %d %v, want 503 with Retry-After", name, w.Code, w.Header())
		}
		if w := s.get("/sets/peps/" + name); w.Code != 200 {
			t.Errorf("second GET %s: got %d, want 200", name, w.Code)
		}
	}
}
