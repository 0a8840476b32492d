package hub

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/problem"
)

// postAs publishes to the set demo as a user.
func postAs(h *Hub, u *limit.User, body string, headers ...string) *httptest.ResponseRecorder {
	return postIn(limit.NewContext(context.Background(), u), h, body, headers...)
}

func limiter(t *testing.T, text string) *limit.Limiter {
	t.Helper()
	l, err := limit.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return limit.New(limit.Options{Caller: l})
}

// A heapGauge compares the heap that concurrent bodies use with the memory that they reserved.
// Only the body that holds slot runs, from one read to the next. So nothing grows during a
// measurement, and garbage is not counted.
type heapGauge struct {
	t      *testing.T
	budget *limit.Budget
	slot   chan struct{} // semaphore: one element while a body is being decoded; waiters get it in order
	before uint64        // bytes in memory before the first bomb

	// Guarded by turn.
	maxHeap, maxReserved, maxExcess int64 // maxima in bytes: heap in use, reserved memory, and excess of heap over reservation
}

// newHeapGauge returns a heapGauge for bodies that are read from now on.
func newHeapGauge(t *testing.T, b *limit.Budget) *heapGauge {
	return &heapGauge{t: t, budget: b, slot: make(chan struct{}, 1), before: heapInUse()}
}

// heapInUse returns the bytes of live heap objects.
func heapInUse() uint64 {
	var now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&now)
	return now.HeapAlloc
}

// measure compares heap and reservations. The caller must hold slot.
func (f *heapGauge) measure() error {
	n, taken := int64(heapInUse())-int64(f.before), f.budget.Taken()
	f.maxHeap, f.maxReserved, f.maxExcess = max(f.maxHeap, n), max(f.maxReserved, taken), max(f.maxExcess, n-taken)
	if n > taken+bombSlack {
		return fmt.Errorf("%d bytes are in memory, but only %d are reserved in the budget", n, taken)
	}
	return nil
}

// A bombBody is the body of a request, delivered in small pieces.
type bombBody struct {
	*heapGauge
	io.Reader
}

// bombSlack is heap memory that is not counted against a body: the buffers of its readers.
const bombSlack = 1 << 20

func (b *bombBody) Read(p []byte) (int, error) {
	if err := b.measure(); err != nil {
		b.t.Error(err)
		return 0, err
	}
	<-b.slot
	b.slot <- struct{}{}
	return b.Reader.Read(p[:min(len(p), bombPiece)])
}

const bombPiece = 512

// Gzipped bodies of some KB that decompress to some MB, and to ten times as much in memory,
// are refused before they use that memory, even if many arrive at once. None of them is
// published.
func TestBombs(t *testing.T) {
	links := `,{"loc":"a:b","change":"updated","ln":[` + strings.Repeat(`{"rel":"a","href":"b:c"},`, 99) + `{"rel":"a","href":"b:c"}]}`
	xmlLinks := `<url><loc>a:b</loc><rs:md change="updated"/>` + strings.Repeat(`<rs:ln rel="a" href="b:c"/>`, 100) + `</url>`
	const xmlHead = `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">`
	for _, test := range []struct{ name, mediaType, body string }{
		{"JSON", jsonType, `{"changes":[{"loc":"a:b","change":"updated"}` + strings.Repeat(links, 1_000) + "]}"},
		{"NDJSON", ndjsonType, strings.Repeat(links[1:]+"\n", 1_000)},
		{"XML", xmlType, xmlHead + strings.Repeat(xmlLinks, 1_000) + "</urlset>"},
		{"XML, one element", xmlType, xmlHead + "<url" + strings.Repeat(` a=""`, 600_000)},
		{"JSON, one text", jsonType, `{"changes":[{"loc":"` + strings.Repeat("a", 3_000_000)},
	} {
		t.Run(test.name, func(t *testing.T) {
			body := gzipped(test.body)
			const room, many = 8 << 20, 4
			h, log := newHub(t, Options{Intake: limit.NewBudget(room, time.Millisecond)})
			f := newHeapGauge(t, h.opts.Intake)
			var bombs sync.WaitGroup
			for range many {
				bombs.Go(func() {
					f.slot <- struct{}{}
					defer func() { <-f.slot }()
					r := httptest.NewRequestWithContext(callerContext(""), http.MethodPost, base+"/sets/demo/changes", &bombBody{f, strings.NewReader(body)})
					r.Header.Set("Content-Type", test.mediaType)
					r.Header.Set("Content-Encoding", "gzip")
					w := httptest.NewRecorder()
					servePublish(h, w, r)
					switch p := problemOf(t, w.Code, w.Header(), w.Body.Bytes()); {
					case w.Code == http.StatusRequestEntityTooLarge:
					case w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") != "":
					case test.mediaType == ndjsonType && p.Accepted != nil: // what fitted was taken, and the answer says so
					default:
						t.Errorf("got status %d, body %s", w.Code, w.Body)
					}
				})
			}
			bombs.Wait()
			t.Logf("%d bombs of %d bytes, %d unpacked, took %d bytes of the budget and %d of memory, up to %d more", many, len(body), len(test.body), f.maxReserved, f.maxHeap, f.maxExcess)
			if got := locs(t, log, "demo"); len(got) > 0 && test.mediaType != ndjsonType {
				t.Errorf("the log has %d entries", len(got))
			}
			if n := h.opts.Intake.Taken(); n != 0 {
				t.Errorf("%d bytes are still reserved", n)
			}
		})
	}
}

func TestPublishLimits(t *testing.T) {
	h, _ := newHub(t, Options{})
	l := limiter(t, "publishes:3/h")
	ann := l.Caller("ann", nil)
	for range 3 {
		receiptOf(t, postAs(h, ann, jsonDoc, "Content-Type", jsonType))
	}
	w := postAs(h, ann, jsonDoc, "Content-Type", jsonType)
	p := problemOf(t, w.Code, w.Header(), w.Body.Bytes())
	if p.Status != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1200" || !strings.Contains(p.Detail, "caller ann") ||
		w.Header().Get("RateLimit-Policy") != `"publishes";q=3;w=3600` || w.Header().Get("RateLimit") != `"publishes";r=0;t=1200` {
		t.Errorf("%+v %v", p, w.Header())
	}
	for kind, body := range map[string]string{"changes": "changes:2/h", "bytes": "bytes:50/h"} {
		own, err := limit.Parse(body)
		if err != nil {
			t.Fatal(err)
		}
		bob := l.Caller("bob with "+kind, &own)
		receiptOf(t, postAs(h, bob, gzipped(jsonDoc), "Content-Type", jsonType, "Content-Encoding", "gzip"))
		w := postAs(h, bob, jsonDoc, "Content-Type", jsonType)
		if p := problemOf(t, w.Code, w.Header(), w.Body.Bytes()); p.Status != http.StatusTooManyRequests || !strings.Contains(p.Detail, kind) {
			t.Errorf("%s: %+v", kind, p)
		}
	}
}

// The number of sets that one caller creates is limited. It may use existing sets.
func TestSetLimit(t *testing.T) {
	h, _ := newHub(t, Options{})
	ann := limiter(t, "sets:1/h").Caller("ann", nil)
	for range 2 {
		receiptOf(t, postAs(h, ann, jsonDoc, "Content-Type", jsonType))
	}
	ctx := limit.NewContext(t.Context(), ann)
	if err := h.Delete(ctx, "demo"); err != nil {
		t.Fatal(err)
	}
	w := postAs(h, ann, jsonDoc, "Content-Type", jsonType)
	if p := problemOf(t, w.Code, w.Header(), w.Body.Bytes()); p.Status != http.StatusTooManyRequests || !strings.Contains(p.Detail, "1 sets in an hour") {
		t.Errorf("%+v", p)
	}
	if w := post(h, jsonDoc, "Content-Type", jsonType); w.Code != http.StatusOK {
		t.Errorf("without limits: got status %d", w.Code)
	}
}

// A stream that is faster than its limit is slowed down, and gets all of it.
func TestStreamIsThrottled(t *testing.T) {
	h, log := newHub(t, Options{})
	ann := limiter(t, "changes:2000/s").Caller("ann", nil)
	begun := time.Now()
	receiptOf(t, postAs(h, ann, numbered(5000), "Content-Type", ndjsonType))
	if got := locs(t, log, "demo"); len(got) != 5000 {
		t.Errorf("%d entries", len(got))
	}
	if took := time.Since(begun); took < 900*time.Millisecond {
		t.Errorf("5,000 changes took %v at 2,000 per second with a burst of 2,000", took)
	}
}

// A demoIsFull is a Quota that notes what grew.
type demoFullQuota struct{ grew []string }

func (q *demoFullQuota) Full(set string) (int64, bool) { return 12345, set == "demo" }
func (q *demoFullQuota) RecordGrowth(set string)       { q.grew = append(q.grew, set) }

func TestFullSet(t *testing.T) {
	q := &demoFullQuota{}
	h, _ := newHub(t, Options{Quota: q})
	w := post(h, jsonDoc, "Content-Type", jsonType)
	if p := problemOf(t, w.Code, w.Header(), w.Body.Bytes()); p.Status != http.StatusInsufficientStorage || !strings.Contains(p.Detail, "12345") || !strings.Contains(p.Detail, "set demo") {
		t.Errorf("%+v", p)
	}
	// What comes over no network, such as what was fetched from a source, does not fit either.
	if _, err := h.Publish(t.Context(), "demo", changelog.Publish{Changes: changes("a", 1)}); problem.From(err).Status != http.StatusInsufficientStorage {
		t.Errorf("Publish without a caller: %v", err)
	}
	mustPublish(t, h, "other", changes("a", 1))
	if !slices.Equal(q.grew, []string{"other"}) {
		t.Errorf("RecordGrowth was called for %q", q.grew)
	}
}

// A publishOnce is a Quota that is full after the first publish.
type fullAfterFirst bool

func (q *fullAfterFirst) Full(string) (int64, bool) { return 1000, bool(*q) }
func (q *fullAfterFirst) RecordGrowth(string)       { *q = true }

// A retry of a publish that the memory has is answered as a repeat, even if the set takes no
// more changes. Anything else is refused.
func TestRetryToARefusingSet(t *testing.T) {
	refusals := map[string]func() (*Hub, *testLog, int){
		"the set is full": func() (*Hub, *testLog, int) {
			h, log := newHub(t, Options{Quota: new(fullAfterFirst)})
			return h, log, http.StatusInsufficientStorage
		},
		"the set is no longer listed": func() (*Hub, *testLog, int) {
			h, log := newHub(t, Options{})
			return h, log, http.StatusNotFound
		},
	}
	interval := xmlOf(`<rs:md capability="changelist" from="2026-01-01T00:00:00Z" until="2026-01-02T00:00:00Z"/>`)
	for name, refusal := range refusals {
		for _, tt := range []struct {
			name, body string
			headers    []string
		}{
			{"JSON", jsonDoc, []string{"Content-Type", jsonType, "Idempotency-Key", "k"}},
			{"NDJSON", linesDoc, []string{"Content-Type", ndjsonType, "Idempotency-Key", "k"}},
			{"XML with an interval", interval, []string{"Content-Type", "application/xml"}},
		} {
			t.Run(name+"/"+tt.name, func(t *testing.T) {
				h, log, status := refusal()
				first := receiptOf(t, post(h, tt.body, tt.headers...))
				if status == http.StatusNotFound {
					h.opts.Sets = []string{"other"}
				}
				again := receiptOf(t, post(h, tt.body, tt.headers...))
				if first.Replayed = true; again != first {
					t.Errorf("retry = %+v, want %+v", again, first)
				}
				for _, headers := range [][]string{{"Content-Type", jsonType}, {"Content-Type", jsonType, "Idempotency-Key", "other"}} {
					if w := post(h, jsonDoc, headers...); w.Code != status {
						t.Errorf("new publish: got %d, want %d", w.Code, status)
					}
				}
				if n := len(locs(t, log, "demo")); n != first.Count {
					t.Errorf("the log has %d entries, want %d", n, first.Count)
				}
			})
		}
	}
}

// A publisher that sends a byte now and then is cut, although it is never silent for long.
func TestDrippingPublisher(t *testing.T) {
	for _, mediaType := range []string{jsonType, ndjsonType} {
		h, log := newHub(t, Options{ReadTimeout: 200 * time.Millisecond})
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { servePublish(h, w, r) }))
		defer srv.Close()
		drip, pipe := io.Pipe()
		go func() {
			body := jsonDoc
			if mediaType == ndjsonType {
				body = linesDoc
			}
			for i := range body {
				if _, err := pipe.Write([]byte(body[i : i+1])); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond) // a slow client
			}
			_ = pipe.Close()
		}()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, drip)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", mediaType)
		resp, err := srv.Client().Do(r)
		_ = drip.CloseWithError(fmt.Errorf("the test is over"))
		if err == nil {
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusRequestTimeout {
				t.Errorf("%s: %d", mediaType, resp.StatusCode)
			}
		}
		if got := locs(t, log, "demo"); len(got) > 0 {
			t.Errorf("%s: %d entries", mediaType, len(got))
		}
	}
}
