//go:build unix

package subscribe_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/zst"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/subscribe"
)

// pageBytes is the maximum size of a page: 4 MiB of changes and some other members.
const pageBytes = 4<<20 + 1000

// TestPageSizeLimit checks that pages have a maximum size, whatever their limit is. A change that is
// larger than a page is in a page of its own.
func TestPageSizeLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{})
	var changes []resourcesync.Change
	for i := range 26 {
		c := change(fmt.Sprint(i), resourcesync.Updated, "text/html")
		size := 200_000
		if i == 20 {
			size = 5 << 20
		}
		c.Attrs = []resourcesync.Attr{{Namespace: "urn:x", Name: "large", Value: strings.Repeat("x", size)}}
		changes = append(changes, c)
		s.publishChanges(c)
	}
	for accept, filter := range map[string]string{"application/json": "", "application/x-ndjson": "&type=text/html"} {
		next, pages, seen := s.url("?since=start&limit=10000"+filter), 0, 0
		for more := true; more; {
			resp, body := s.do(http.MethodGet, next, "Accept", accept)
			if resp.StatusCode != http.StatusOK {
				t.Fatal(resp.Status)
			}
			n := bytes.Count(body, []byte(`{"position":`))
			for range n {
				if !bytes.Contains(body, []byte(`"`+changes[seen].Loc+`"`)) {
					t.Fatalf("%s: page %d: got no %s, want it", accept, pages, changes[seen].Loc)
				}
				seen++
			}
			if len(body) > pageBytes && n > 1 {
				t.Errorf("%s: page %d: got %d bytes for %d changes, want at most %d", accept, pages, len(body), n, pageBytes)
			}
			if more = n > 0; more {
				pages++
			}
			next = nextURL(t, resp)
		}
		if seen != len(changes) || pages != 3 { // 20 changes, the large one, and 5
			t.Errorf("%s: got %d changes on %d pages, want %d on 3", accept, seen, pages, len(changes))
		}
	}
}

// ordinary publishes n changes of a typical size.
func (s *site) ordinary(n int) {
	s.Helper()
	for i := 0; i < n; i += 1000 {
		var changes []resourcesync.Change
		for k := range min(1000, n-i) {
			c := change(fmt.Sprintf("%060d", i+k), resourcesync.Updated, "text/html")
			c.Hash = "sha-256:" + strings.Repeat(fmt.Sprint(k%10), 64)
			c.Links = []resourcesync.Link{{Rel: "describedby", Href: "https://example.org/describedby/" + strings.Repeat("y", 40)}}
			changes = append(changes, c)
		}
		s.publishChanges(changes...)
	}
}

// A slowPage is a response that a client reads later.
type slowPage struct {
	conn net.Conn
	in   *bufio.Reader
}

// slowly requests a page over a connection with small buffers, and reads its first bytes.
func (s *site) slowly(query, accept string) *slowPage {
	s.Helper()
	conn, err := (&net.Dialer{Control: smallBuffers(0).control}).Dial("tcp", s.http.Listener.Addr().String())
	ok(s, err)
	s.Cleanup(func() { _ = conn.Close() })
	ok(s, conn.(*net.TCPConn).SetReadBuffer(smallRead))
	_, err = fmt.Fprintf(conn, "GET /sets/a/changes%s HTTP/1.1\r\nHost: x\r\nAccept: %s\r\n\r\n", query, accept)
	p := &slowPage{conn: conn, in: bufio.NewReaderSize(conn, 16)}
	if err == nil {
		_, err = p.in.Peek(16)
	}
	ok(s, err)
	return p
}

// rest reads the response.
func (p *slowPage) rest() (body []byte, err error) {
	resp, err := http.ReadResponse(p.in, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Encoding") != "zstd" {
		return io.ReadAll(resp.Body)
	}
	text, err := zst.NewReader(resp.Body)
	if err != nil {
		return nil, err
	}
	defer text.Close()
	return io.ReadAll(text)
}

// TestSlowPages checks that clients that do not read use neither memory nor the budget. When they
// read again, they get the same page.
func TestSlowPages(t *testing.T) {
	if testing.Short() {
		t.Skip("uses 40 clients with large pages")
	}
	answers := limit.NewBudget(32<<20, patience)
	s := newSite(t, settings{Options: subscribe.Options{WriteTimeout: patience, Answers: answers}, sendBuffer: smallSend, listSize: 10_000})
	s.ordinary(10_000)
	const clients = 40
	for _, accept := range []string{"application/json", "application/x-ndjson", "application/json\r\nAccept-Encoding: zstd"} {
		for _, query := range []string{"?since=start&limit=10000", "?since=start&limit=10000&prefix=https://example.org/00"} {
			accepted := accept
			accept, _, _ := strings.Cut(accept, "\r\n")
			_, want := s.get(query, "Accept", accept)
			if len(want) < 3_000_000 || bytes.Count(want, []byte(`{"position":`)) != 10_000 {
				t.Fatalf("got a page of %d bytes, want 10000 changes", len(want))
			}
			before := heap()
			var slow []*slowPage
			for range clients {
				slow = append(slow, s.slowly(query, accepted))
			}
			testutil.Until(t, "the budget is free again", func() bool { return answers.Taken() == 0 })
			testutil.Until(t, "the texts are released", func() bool { return heap() < before+clients*(256<<10) })
			if _, again := s.get(query, "Accept", accept); !bytes.Equal(again, want) {
				t.Error("other client: got another page, want the same")
			}
			for _, p := range slow[:3] {
				if got, err := p.rest(); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: got %d bytes, %v, want %d", accept, len(got), err, len(want))
				}
			}
			for _, p := range slow {
				_ = p.conn.Close()
			}
		}
	}
}

// TestPageCompression checks that zstd reduces a page to less than a quarter.
func TestPageCompression(t *testing.T) {
	s := newSite(t, settings{})
	s.ordinary(300)
	const query = "?since=start&limit=200"
	for _, accept := range []string{"application/json", "application/x-ndjson"} {
		plain, want := s.get(query, "Accept", accept)
		resp, b := s.get(query, "Accept", accept, "Accept-Encoding", "zstd, gzip")
		got, err := zst.Decode(b)
		if err != nil || got != string(want) || len(b) > len(want)/4 {
			t.Errorf("%s: got %d bytes for %d, %v, want %d, and a quarter compressed", accept, len(b), len(got), err, len(want))
		}
		for _, r := range []*http.Response{plain, resp} {
			if !slices.Contains(r.Header.Values("Vary"), "Accept-Encoding") {
				t.Errorf("Vary = %q, want Accept-Encoding", r.Header.Values("Vary"))
			}
		}
		if plain.Header.Get("Content-Encoding") != "" || resp.Header.Get("Content-Encoding") != "zstd" {
			t.Errorf("Content-Encoding = %q and %q, want none and zstd", plain.Header.Get("Content-Encoding"), resp.Header.Get("Content-Encoding"))
		}
	}
	if resp, _ := s.get("?since=start&limit=1", "Accept", "application/json", "Accept-Encoding", "zstd"); resp.Header.Get("Content-Encoding") != "" {
		t.Error("small page: got zstd, want no compression")
	}
}

// heap returns the size of the heap.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A lossyMemory is a memory whose reads can be changed.
type lossyMemory struct {
	subscribe.Memory
	since atomic.Pointer[func(b *feed.Batch) (*feed.Batch, error)]
}

func (r *lossyMemory) Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error) {
	b, err := r.Memory.Since(ctx, set, after, limit)
	if change := r.since.Load(); change != nil && err == nil {
		return (*change)(b)
	}
	return b, err
}

// TestSlowPageAfterLoss checks that the connection of a slow client is broken off if the memory has
// lost changes of the page, so that a part does not look like the page.
func TestSlowPageAfterLoss(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*feed.Batch) (*feed.Batch, error){
		"gone": func(*feed.Batch) (*feed.Batch, error) { return nil, feed.ErrGone },
		"diverged": func(b *feed.Batch) (*feed.Batch, error) {
			return &feed.Batch{Set: b.Set, Diverged: true, Cursor: b.Cursor, Entries: b.Entries}, nil
		},
		"lost tail": func(b *feed.Batch) (*feed.Batch, error) {
			return &feed.Batch{Set: b.Set, After: b.After, Cursor: b.After}, nil
		},
		"other tail": func(b *feed.Batch) (*feed.Batch, error) {
			if last := &b.Entries[len(b.Entries)-1]; last.Position == 2_000 {
				last.Micros++
			}
			return b, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			memory := &lossyMemory{}
			answers := limit.NewBudget(32<<20, patience)
			s := newSite(t, settings{Options: subscribe.Options{WriteTimeout: patience, Answers: answers}, sendBuffer: smallSend, listSize: 10_000,
				memory: func(m subscribe.Memory) subscribe.Memory { memory.Memory = m; return memory }})
			s.ordinary(2_000)
			for _, accept := range []string{"application/json", "application/x-ndjson"} {
				memory.since.Store(nil)
				p := s.slowly("?since=start&limit=10000", accept)
				testutil.Until(t, "the text is released", func() bool { return answers.Taken() == 0 })
				memory.since.Store(&change)
				if got, err := p.rest(); err == nil {
					t.Errorf("%s: got a page of %d bytes, want a broken connection", accept, len(got))
				}
			}
		})
	}
}

// TestPageWithoutMemory checks that a page is refused with Retry-After while the budget is in use.
func TestPageWithoutMemory(t *testing.T) {
	answers := limit.NewBudget(32<<20, time.Millisecond)
	s := newSite(t, settings{Options: subscribe.Options{Answers: answers}})
	s.publish(1)
	share, err := answers.Acquire(t.Context(), 32<<20)
	ok(t, err)
	if s.refused(s.url("?since=start"), http.StatusServiceUnavailable, "problems/overloaded").Get("Retry-After") == "" {
		t.Error("got no Retry-After, want one")
	}
	share.Release()
	if resp, body := s.get("?since=start"); resp.StatusCode != http.StatusOK {
		t.Errorf("with a free budget: got %s %s, want 200", resp.Status, body)
	}
}

// TestLongPollUsesNoMemory checks that a waiting long poll does not use the budget.
func TestLongPollUsesNoMemory(t *testing.T) {
	answers := limit.NewBudget(10<<20, patience) // for one page at a time
	s := newSite(t, settings{Options: subscribe.Options{Answers: answers}})
	start := s.publish(1)
	got := make(chan string)
	const clients = 20
	for range clients {
		go func() {
			resp, err := http.Get(s.url("?wait=60s&since=" + start.String()))
			if err != nil {
				got <- err.Error()
				return
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			got <- string(body)
		}()
	}
	testutil.Until(t, "all long polls wait", func() bool {
		return strings.Count(stacks(), "subscribe.(*Server).collect") >= clients && answers.Taken() == 0
	})
	end := s.publish(1)
	for range clients {
		if body := <-got; !strings.Contains(body, `"cursor":"`+end.String()) {
			t.Errorf("got %s, want the cursor %v", body, end)
		}
	}
	testutil.Until(t, "the budget is free", func() bool { return answers.Taken() == 0 })
}
