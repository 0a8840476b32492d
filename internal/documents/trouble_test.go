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

// A log has lost its tail and got other entries instead. Every ETag and the index
// must show that.
func TestLostTail(t *testing.T) {
	m, other := newMemory(t), newMemory(t)
	for _, m := range []*memory{m, other} {
		m.make("peps", 3)
		m.add("peps", 4)
	}
	other.advance(time.Hour)
	m.add("peps", 8)
	other.add("peps", 8)
	state := m.state("peps")
	if o := other.state("peps"); o.Begin != state.Begin || o.Head == state.Head {
		t.Fatalf("states %+v and %+v", o, state)
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
		if same := i == 4; (w.Code == 304) != same { // only the first list is still what it was
			t.Errorf("%s: %d", path, w.Code)
		}
		if w.Code == 200 && !bytes.Equal(w.Body.Bytes(), fresh.get("/sets/peps/"+path).Body.Bytes()) {
			t.Errorf("%s is not what the log has now", path)
		}
	}

	// If that happens between the look and the reading, there is no document at all.
	third := newMemory(t)
	third.make("peps", 3)
	third.add("peps", 4)
	before := func() { m.Log = third.Log }
	m.before.Store(&before)
	m.Log = other.Log
	s = newServer(m, documents.Options{})
	if w := s.get("/sets/peps/changelist.xml"); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("log lost while it is read: %d %s", w.Code, w.Body)
	}
}

// Retention removes entries while a document is made. The client gets a 410 or a
// broken connection, never a part of the document.
func TestTrimmedWhileRead(t *testing.T) {
	m := newMemory(t)
	s := newServer(m, documents.Options{})
	// prepare makes a set of which retention removes half when a number of pages
	// has been read.
	prepare := func(set string, pages int) feed.State {
		m.make(set, 12_000)
		m.add(set, 24_000)
		before := func() {
			if pages--; pages == 0 {
				m.trim(set, 12_000)
			}
		}
		m.before.Store(&before)
		return m.state(set)
	}

	// A list is made whole before it is sent.
	for _, coding := range []string{"gzip", "identity"} {
		prepare(coding, 2)
		w := s.get(m.list(coding, 1), "Accept-Encoding", coding)
		if w.Code != 410 || w.Header().Get("Content-Encoding")+w.Header().Get("Etag")+w.Header().Get("Last-Modified") != "" {
			t.Errorf("whole: %d %v", w.Code, w.Header())
		}
	}

	// A long ?from= is read once to see how far it goes. Its first pages then show that
	// it is too large to keep, and it is begun again as a stream.
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
		t.Errorf("streamed: %d, %d bytes, %v", resp.StatusCode, len(body), err)
	}
}

// A trimmed log removes all that it may, once, directly before a look at a position.
type trimmed struct {
	*memory
	once sync.Once
}

func (l *trimmed) At(ctx context.Context, set string, position uint64) (feed.Cursor, error) {
	l.once.Do(func() { l.trim(set, 1) })
	return l.memory.At(ctx, set, position)
}

// Retention removes lists while what leads to them is made. That is not gone: the client is told
// to ask again.
func TestTrimmedMeanwhile(t *testing.T) {
	for _, name := range []string{"changelist-index.xml", "activity/collection.json"} {
		m := newMemory(t)
		m.make("peps", 3)
		m.add("peps", 20)
		s := &server{documents.New(&trimmed{memory: m}, base, documents.Options{Dialects: dialects}), m}
		if w := s.get("/sets/peps/" + name); w.Code != 503 || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
		if w := s.get("/sets/peps/" + name); w.Code != 200 {
			t.Errorf("%s: then %d", name, w.Code)
		}
	}
}
