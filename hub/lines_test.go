package hub

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// numbered returns n lines.
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"loc":"https://example.org/%d","change":"updated"}`+"\n", i+1)
	}
	return b.String()
}

func TestLines(t *testing.T) {
	for _, test := range []struct {
		name  string
		body  string
		calls []int // number of changes in each append
		line  int   // the last one
	}{
		{"one", numbered(1), []int{1}, 1},
		{"no newline at the end", strings.TrimSuffix(numbered(2), "\n"), []int{2}, 2},
		{"CRLF", strings.ReplaceAll(numbered(2), "\n", "\r\n"), []int{2}, 2},
		{"blank lines", "\n" + strings.ReplaceAll(numbered(2), "\n", "\n \t\r\n") + "\n\n", []int{2}, 4},
		{"a whole batch", numbered(1000), []int{1000}, 1000},
		{"a batch and a line", numbered(1001), []int{1000, 1}, 1001},
		{"2,500 lines", numbered(2500), []int{1000, 1000, 500}, 2500},
		// The cut depends on line numbers alone.
		{"blank lines count", strings.Repeat("\n", 999) + numbered(2), []int{1, 1}, 1001},
		{"a batch of blank lines", numbered(1) + strings.Repeat("\n", 2500) + numbered(1), []int{1, 1}, 2502},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, log := newHub(t, Options{})
			var calls []int
			log.onAppend = func(_ context.Context, publishes []changelog.Publish) error {
				if _, err := log.State(t.Context(), "demo"); err == nil { // without the set, the first append is tried again
					calls = append(calls, len(publishes[0].Changes))
				}
				return nil
			}
			r := receiptOf(t, post(h, test.body, "Content-Type", "application/x-ndjson"))
			if fmt.Sprint(calls) != fmt.Sprint(test.calls) {
				t.Errorf("appends have %v changes, want %v", calls, test.calls)
			}
			if r.Line != test.line || r.Count != len(locs(t, log, "demo")) || !strings.HasPrefix(r.First, "1-") {
				t.Errorf("receipt = %+v", r)
			}
		})
	}
}

// Resending a whole stream with its key adds only what is missing.
func TestLinesResume(t *testing.T) {
	h, log := newHub(t, Options{})
	calls := 0
	log.onAppend = func(context.Context, []changelog.Publish) error {
		if calls++; calls == 4 { // the first finds no set; this is the third batch
			return feed.ErrUnknown
		}
		return nil
	}
	send := func() *httptest.ResponseRecorder {
		return post(h, numbered(2500), "Content-Type", "application/x-ndjson", "Idempotency-Key", "load")
	}
	w := send()
	p := problemOf(t, w.Code, w.Header(), w.Body.Bytes())
	if want := (feed.Progress{Count: 2000, Line: 2000, Cursor: mustState(t, log, "demo").Head.String()}); p.Status != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || p.Accepted == nil || *p.Accepted != want {
		t.Errorf("problem = %+v, accepted %+v, want %+v", p, p.Accepted, want)
	}
	r := receiptOf(t, send())
	if r.Replayed || r.Count != 2500 || r.Line != 2500 {
		t.Errorf("second receipt = %+v", r)
	}
	again := receiptOf(t, send())
	if r.Replayed = true; again != r {
		t.Errorf("third receipt = %+v, want %+v", again, r)
	}
	got := locs(t, log, "demo")
	if len(got) != 2500 || got[2499] != "https://example.org/2500" {
		t.Errorf("the log has %d entries", len(got))
	}
}

// A key reused with other lines is refused at the first batch that differs. The problem
// reports what the memory already had.
func TestLinesKeyReused(t *testing.T) {
	h, log := newHub(t, Options{})
	send := func(body string) *httptest.ResponseRecorder {
		return post(h, body, "Content-Type", "application/x-ndjson", "Idempotency-Key", "load")
	}
	receiptOf(t, send(numbered(1500)))
	w := send(strings.Replace(numbered(1500), "/1200", "/other", 1))
	p := problemOf(t, w.Code, w.Header(), w.Body.Bytes())
	if p.Status != http.StatusUnprocessableEntity || p.Accepted == nil || p.Accepted.Line != 1000 {
		t.Errorf("problem = %+v, accepted %+v", p, p.Accepted)
	}
	// A missing newline at the end makes no difference.
	if r := receiptOf(t, send(strings.TrimSuffix(numbered(1500), "\n"))); !r.Replayed {
		t.Errorf("receipt = %+v", r)
	}
	if n := len(locs(t, log, "demo")); n != 1500 {
		t.Errorf("the log has %d entries", n)
	}
}

// An error in a later batch leaves the earlier batches in the memory, and reports them.
func TestLinesAccepted(t *testing.T) {
	for _, test := range []struct {
		name, body           string
		accepted, entry, num int
	}{
		{"in the first batch", numbered(500) + "{}\n" + numbered(1), 0, 501, 501},
		{"in the second batch", numbered(1500) + "{}\n", 1000, 1501, 1501},
		{"first line of the second batch", numbered(1000) + "{}\n", 1000, 1001, 1001},
		// The batch before is complete although its last line is blank.
		{"behind a blank end", numbered(999) + "\n{}\n", 999, 1000, 1001},
		{"a line of no sense behind two batches", numbered(2000) + "\n\nhello\n", 2000, 2001, 2003},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, log := newHub(t, Options{})
			w := post(h, test.body, "Content-Type", "application/x-ndjson")
			p := problemOf(t, w.Code, w.Header(), w.Body.Bytes())
			if p.Status != http.StatusBadRequest || p.Entry != test.entry || p.Line != test.num || p.Accepted == nil || p.Accepted.Count != test.accepted {
				t.Errorf("problem = %+v, accepted %+v", p, p.Accepted)
			}
			if n := len(locs(t, log, "demo")); n != test.accepted {
				t.Errorf("the log has %d entries, want %d", n, test.accepted)
			}
		})
	}
}

// A batch is appended as soon as it is complete, without waiting for the next line.
func TestLinesDoNotWait(t *testing.T) {
	h, log := newHub(t, Options{})
	body, send := io.Pipe()
	r := httptest.NewRequest(http.MethodPost, base+"/sets/demo/changes", body)
	r.Header.Set("Content-Type", "application/x-ndjson")
	w := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer close(done)
		servePublish(h, w, r)
	}()
	follower := startFollower(t, h, "demo", feed.Cursor{})
	if _, err := io.WriteString(send, numbered(1000)); err != nil {
		t.Fatal(err)
	}
	got := 0
	for got < 1000 {
		for _, b := range <-follower.yields {
			got += len(b.Entries)
		}
	}
	if err := send.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
	if r := receiptOf(t, w); r.Count != 1000 || len(locs(t, log, "demo")) != 1000 {
		t.Errorf("receipt = %+v", r)
	}
	closeReaders(t, follower)
}

// Any input is divided into consecutive batches of at most 1,000 lines, without a panic.
func FuzzLines(f *testing.F) {
	for _, s := range []string{"", "\n", numbered(3), "{}\n", strings.Repeat("\n", 1001) + numbered(1), "\r\n\x00{", `{"loc":"` + strings.Repeat("a", 3000)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		from := &intake{source: &deadlineReader{}, reserved: 1 << 40}
		in := lineReader{in: from, lines: resourcesync.NewNDJSONReader(bytes.NewReader(body), resourcesync.Limits{Bytes: maxLineBytes}), maxBytes: 1 << 20}
		lines := bytes.Count(body, []byte("\n")) + 1
		changes := 0
		for i := 1; in.err != io.EOF; i++ {
			p, err := in.readBatch(i * linesPerBatch)
			if err != nil {
				return
			}
			if changes += len(p.Changes); len(p.Changes) > linesPerBatch || in.line > i*linesPerBatch || changes > lines {
				t.Fatalf("batch %d has %d changes and ends at line %d of %d", i, len(p.Changes), in.line, lines)
			}
		}
	})
}

// A key identifies one publish, whatever the format of the changes.
func TestKeyReusedAcrossFormats(t *testing.T) {
	document := `{"changes":[{"loc":"https://example.org/1","change":"updated"}]}`
	xml := `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="change-notification"/>` +
		`<url><loc>https://example.org/1</loc><rs:md change="updated"/></url></urlset>`
	forms := []struct{ mediaType, body string }{
		{"application/json", document}, {"application/xml", xml},
		{"application/x-ndjson", numbered(1)}, {"application/x-ndjson", numbered(2500)},
	}
	for i, first := range forms {
		for j, second := range forms {
			t.Run(fmt.Sprint(i, j), func(t *testing.T) {
				h, log := newHub(t, Options{})
				send := func(form struct{ mediaType, body string }) *httptest.ResponseRecorder {
					return post(h, form.body, "Content-Type", form.mediaType, "Idempotency-Key", "key")
				}
				n := receiptOf(t, send(first)).Count
				w := send(second)
				if i == j {
					if r := receiptOf(t, w); !r.Replayed {
						t.Errorf("receipt = %+v", r)
					}
				} else if p := problemOf(t, w.Code, w.Header(), w.Body.Bytes()); p.Status != http.StatusUnprocessableEntity {
					t.Errorf("problem = %+v", p)
				}
				if r := receiptOf(t, send(first)); !r.Replayed || len(locs(t, log, "demo")) != n {
					t.Errorf("receipt = %+v; the log has %d entries", r, len(locs(t, log, "demo")))
				}
			})
		}
	}
}

// A key that the memory would not store is refused.
func TestKeyWithBlankFirstBatch(t *testing.T) {
	h, log := newHub(t, Options{})
	body := strings.Repeat("\n", 1000) + numbered(1)
	w := post(h, body, "Content-Type", "application/x-ndjson", "Idempotency-Key", "key")
	if p := problemOf(t, w.Code, w.Header(), w.Body.Bytes()); p.Status != http.StatusBadRequest || !strings.Contains(p.Detail, "the first 1000 lines") {
		t.Errorf("problem = %+v", p)
	}
	if _, err := log.State(t.Context(), "demo"); err == nil {
		t.Error("the set was created")
	}
	receiptOf(t, post(h, body, "Content-Type", "application/x-ndjson"))
}

// An error names a change that the set does not accept by its place in the stream, not in its
// batch.
func TestLinesRequireCapability(t *testing.T) {
	h, _ := newHub(t, Options{})
	fits := strings.ReplaceAll(numbered(1200), `"change"`, `"capability":"resourcelist","change"`)
	r := httptest.NewRequestWithContext(callerContext(""), http.MethodPost, base, strings.NewReader("\n"+fits+numbered(1)))
	r.Header.Set("Content-Type", "application/x-ndjson")
	p := problem.From(h.ServePublish(httptest.NewRecorder(), r, "demo.framework"))
	if p.Entry != 1201 || p.Line != 1202 || p.Accepted.Count != 999 || !strings.Contains(p.Detail, "capability is missing") {
		t.Errorf("entry %d, line %d: %s; accepted is %+v", p.Entry, p.Line, p.Detail, p.Accepted)
	}
}
