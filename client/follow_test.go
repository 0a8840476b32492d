package client_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
)

// A batchReader reads the batches of a call of Follow and checks its promises.
type batchReader struct {
	t        *testing.T
	next     func() (*feed.Batch, error, bool)
	last     *feed.Batch
	locs     []string
	diverged int
}

func newBatchReader(t *testing.T, batches iter.Seq2[*feed.Batch, error]) *batchReader {
	t.Helper()
	next, stop := iter.Pull2(batches)
	t.Cleanup(stop)
	return &batchReader{t: t, next: next}
}

// nextBatch returns the next batch, and fails the test unless it continues the previous one.
func (r *batchReader) nextBatch() *feed.Batch {
	r.t.Helper()
	b, err, ok := r.next()
	if !ok || err != nil {
		r.t.Fatalf("Follow ended, want another batch: %v", err)
	}
	if r.last != nil && !b.Diverged && b.After != r.last.Cursor {
		r.t.Fatalf("got a batch after %v, want after %v", b.After, r.last.Cursor)
	}
	if r.last != nil && !b.Diverged && len(b.Entries) == 0 && b.Cursor == r.last.Cursor {
		r.t.Errorf("got an empty batch that does not move the cursor %v", b.Cursor)
	}
	for i := range b.Entries {
		r.locs = append(r.locs, b.Entries[i].Change.Loc)
	}
	if b.Diverged {
		r.diverged++
	}
	r.last = b
	return b
}

// readEntries reads batches until it has n entries.
func (r *batchReader) readEntries(n int) {
	r.t.Helper()
	for len(r.locs) < n {
		r.nextBatch()
	}
}

// endError returns the error that Follow ends with.
func (r *batchReader) endError() error {
	r.t.Helper()
	b, err, ok := r.next()
	if b != nil || ok != (err != nil) {
		r.t.Fatalf("got another batch %+v, want the end", b)
	}
	if _, _, ok := r.next(); ok {
		r.t.Error("Follow continues after an error")
	}
	return err
}

// TestFollow checks that Follow yields existing and later changes once each, even if another Follow
// resumes from a cursor.
func TestFollow(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, client.Options{})
	now := newBatchReader(t, c.Follow(t.Context(), "demo", "", client.FollowOptions{}))
	if b := now.nextBatch(); len(b.Entries) > 0 || b.Set != "demo" { // the set does not exist yet
		t.Errorf("first batch = %+v, want no entries of set demo", b)
	}
	s.publish(t, locs(1, 3)...)
	newest := s.publish(t, locs(4, 25)...).Time()
	now.readEntries(25)
	ctx, cancel := context.WithCancel(t.Context())
	start := newBatchReader(t, c.Follow(ctx, "demo", "start", client.FollowOptions{Limit: 10}))
	for _, want := range []int{10, 20, 25} {
		if start.nextBatch(); len(start.locs) != want {
			t.Errorf("got %d entries, want %d", len(start.locs), want)
		}
	}
	cancel()
	if err := start.endError(); err != nil {
		t.Errorf("Follow ends with %v, want no error", err)
	}
	at := start.last.Cursor.String()
	s.publish(t, locs(26, 26)...)
	for since, want := range map[string][]string{
		at:                                    nil,
		newest.Format(time.RFC3339Nano):       locs(25, 25),
		"0-0":                                 locs(1, 25),
		start.last.Entries[1].Cursor.String(): locs(23, 25),
	} {
		r := newBatchReader(t, c.Follow(t.Context(), "demo", since, client.FollowOptions{}))
		want = append(slices.Clone(want), "urn:26")
		if r.readEntries(len(want)); !slices.Equal(r.locs, want) {
			t.Errorf("Follow since %s yields %q, want %q", since, r.locs, want)
		}
	}
	now.readEntries(26)
	if !slices.Equal(now.locs, locs(1, 26)) {
		t.Errorf("Follow yields %q, want urn:1 to urn:26", now.locs)
	}
}

// TestFollowFilter checks that a filter omits changes, and that the cursor advances past them.
func TestFollowFilter(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, client.Options{})
	s.publish(t, "urn:a", "urn:b:1", "urn:c")
	r := newBatchReader(t, c.Follow(t.Context(), "demo", "start", client.FollowOptions{Filter: feed.Filter{Prefix: "urn:b"}, Wait: time.Millisecond}))
	r.readEntries(1)
	end := s.publish(t, "urn:d", "urn:e")
	for r.last.Cursor != end { // such a batch comes, although it is empty
		r.nextBatch()
	}
	s.publish(t, "urn:f", "urn:b:2")
	if r.readEntries(2); !slices.Equal(r.locs, []string{"urn:b:1", "urn:b:2"}) {
		t.Errorf("Follow yields %q, want urn:b:1 and urn:b:2", r.locs)
	}
}

// TestFollowRetries checks that failures delay changes, but lose none.
func TestFollowRetries(t *testing.T) {
	s, clock := newSite(t), newClock()
	s.intercept = func(n int, w http.ResponseWriter, r *http.Request) bool {
		switch n {
		case 1, 6:
			problemHandler(503, "later", "")(w, r)
		case 2, 7:
			abortHandler(w, r)
		case 3, 8: // half of a response
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"set":"demo"`)
		case 9: // another server in place of the hub
			_, _ = io.WriteString(w, "<html>maintenance")
		case 10:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"ok":true}`)
		case 11:
			problemHandler(429, "", "100")(w, r)
		default:
			return false
		}
		return true
	}
	s.publish(t, locs(1, 5)...)
	r := newBatchReader(t, newClient(t, s.URL, clock.options()).Follow(t.Context(), "demo", "start", client.FollowOptions{Limit: 2}))
	if r.readEntries(5); !slices.Equal(r.locs, locs(1, 5)) {
		t.Errorf("Follow yields %q, want urn:1 to urn:5", r.locs)
	}
	// The transport may retry by itself after an abort.
	if n := len(clock.noted()); n < 7 || n > 9 || n != len(clock.waits) || clock.waits[n-1] != 100*time.Second {
		t.Errorf("got %d retries after %v: %q, want 7 to 9, the last after 100 s", n, clock.waits, clock.noted())
	}
	if n := len(s.received()); n < 12 {
		t.Errorf("got %d requests, want at least 12", n)
	}
}

// TestFollowRestart checks that Follow continues after restarts of the hub.
func TestFollowRestart(t *testing.T) {
	s, clock := newSite(t), newClock()
	noticed := make(chan struct{}, 1)
	o := clock.options()
	o.Sleep = func(ctx context.Context, d time.Duration) error {
		select {
		case noticed <- struct{}{}:
		default:
		}
		return sleepShortly(ctx)
	}
	s.publish(t, locs(1, 2)...)
	r := newBatchReader(t, newClient(t, s.URL, o).Follow(t.Context(), "demo", "start", client.FollowOptions{}))
	r.readEntries(2)
	for i := range 3 {
		go func() {
			s.stop() // while a request waits, or before it arrives
			<-noticed
			s.start()
			s.mu.Lock()
			defer s.mu.Unlock()
			if _, err := s.hub.Publish(t.Context(), "demo", changelog.Publish{Changes: updated(locs(3+i, 3+i)...)}); err != nil {
				t.Error(err)
			}
		}()
		if r.readEntries(3 + i); !slices.Equal(r.locs, locs(1, 3+i)) {
			t.Errorf("Follow yields %q, want urn:1 to urn:%d", r.locs, 3+i)
		}
	}
}

// sleepShortly yields to other goroutines.
func sleepShortly(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Millisecond):
		return nil
	}
}

// newPageServer starts a hub that responds to each request with the next of the given pages, and
// then with 410.
func newPageServer(t *testing.T, answers ...func(q url.Values) string) (hub string, asked *[]url.Values) {
	asked = new([]url.Values)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := len(*asked)
		*asked = append(*asked, r.URL.Query())
		if n >= len(answers) {
			problem.Write(w, r, feed.ErrGone)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answers[n](r.URL.Query()))
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

// pageAnswer returns a page with the entries from position after+1 to position to.
func pageAnswer(after, to int) func(url.Values) string {
	return func(url.Values) string {
		b := feed.NewBatch("demo", cursor(after), cursor(to), updated(locs(after+1, to)...))
		return string(b.JSON())
	}
}

// cursor returns the cursor of a position.
func cursor(position int) feed.Cursor {
	return feed.Cursor{Position: uint64(position), Micros: int64(1000 + position)}
}

// TestFollowIdleDelay checks that Follow waits before it repeats a request to a hub that returns
// empty pages immediately, as a stopping hub does.
func TestFollowIdleDelay(t *testing.T) {
	url, asked := newPageServer(t, pageAnswer(3, 3), pageAnswer(3, 3), pageAnswer(3, 3), pageAnswer(3, 5))
	clock := newClock()
	r := newBatchReader(t, newClient(t, url, clock.options()).Follow(t.Context(), "demo", "now", client.FollowOptions{Wait: 7 * time.Second}))
	r.nextBatch()
	if r.readEntries(2); !slices.Equal(clock.waits, []time.Duration{time.Second, time.Second}) {
		t.Errorf("got waits %v, want 1s twice", clock.waits)
	}
	if err := r.endError(); !errors.Is(err, feed.ErrGone) {
		t.Errorf("Follow ends with %v, want %v", err, feed.ErrGone)
	}
	var got []string
	for _, q := range *asked {
		got = append(got, q.Get("since")+" "+q.Get("wait")+" "+q.Get("limit"))
	}
	at3, at5 := cursor(3).String()+" 7s 1000", cursor(5).String()+" 7s 1000"
	if want := []string{"now  1000", at3, at3, at3, at5}; !slices.Equal(got, want) {
		t.Errorf("got requests %q, want %q", got, want)
	}
}

func TestFollowDiverged(t *testing.T) {
	url, asked := newPageServer(t, pageAnswer(3, 8), func(url.Values) string {
		b := feed.NewBatch("demo", cursor(5), cursor(6), updated("urn:6"))
		b.Diverged = true
		return string(b.JSON())
	}, pageAnswer(6, 7))
	r := newBatchReader(t, newClient(t, url, newClock().options()).Follow(t.Context(), "demo", "start", client.FollowOptions{}))
	r.nextBatch()
	if b := r.nextBatch(); !b.Diverged || b.After != cursor(5) || b.Cursor != cursor(6) {
		t.Errorf("got batch %+v, want diverged after %v up to %v", b, cursor(5), cursor(6))
	}
	if r.nextBatch(); r.diverged != 1 || (*asked)[2].Get("since") != cursor(6).String() {
		t.Errorf("got requests %v and %d diverged batches, want since %v and 1", *asked, r.diverged, cursor(6))
	}
}

// TestFollowRejectsOtherPages checks that Follow ignores pages that would skip changes or belong to
// another set.
func TestFollowRejectsOtherPages(t *testing.T) {
	url, asked := newPageServer(t, pageAnswer(3, 5), pageAnswer(3, 5), pageAnswer(6, 7), func(url.Values) string {
		return string((&feed.Batch{Set: "other", After: cursor(5), Cursor: cursor(5)}).JSON())
	}, pageAnswer(5, 6))
	clock := newClock()
	r := newBatchReader(t, newClient(t, url, clock.options()).Follow(t.Context(), "demo", "start", client.FollowOptions{}))
	if r.readEntries(3); !slices.Equal(r.locs, locs(4, 6)) || len(*asked) != 5 {
		t.Errorf("Follow yields %q after %d requests, want urn:4 to urn:6 after 5", r.locs, len(*asked))
	}
	if notes := clock.noted(); len(notes) != 3 || !strings.Contains(notes[1], "got changes after 6-1006, want after 5-1005") || !strings.Contains(notes[2], `another set, "other"`) {
		t.Errorf("got retries %q, want three because of other pages", notes)
	}

	url, _ = newPageServer(t, pageAnswer(5, 7)) // first page after a cursor
	r = newBatchReader(t, newClient(t, url, newClock().options()).Follow(t.Context(), "demo", cursor(3).String(), client.FollowOptions{}))
	if err := r.endError(); !errors.Is(err, client.ErrNotHub) || !strings.Contains(err.Error(), "got changes after 5-1005, want after 3-1003") {
		t.Errorf("Follow ends with %[2]v after %[1]d changes, want %[3]v", len(r.locs), err, client.ErrNotHub)
	}
	url, _ = newPageServer(t, pageAnswer(5, 7))
	newBatchReader(t, newClient(t, url, newClock().options()).Follow(t.Context(), "demo", "2026-01", client.FollowOptions{})).readEntries(2) // a month
}

// TestFollowRetryAfterLimit checks that a Retry-After of days, as on a maintenance page or because
// of a skewed clock, does not delay changes after the hub has recovered.
func TestFollowRetryAfterLimit(t *testing.T) {
	s, clock := newSite(t), newClock()
	s.intercept = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n < 3 {
			problemHandler(503, "", []string{"604800", "Fri, 31 Dec 9999 23:59:59 GMT"}[n-1])(w, r)
		}
		return n < 3
	}
	s.publish(t, "urn:1")
	newBatchReader(t, newClient(t, s.URL, clock.options()).Follow(t.Context(), "demo", "start", client.FollowOptions{})).readEntries(1)
	if !slices.Equal(clock.waits, []time.Duration{time.Hour, time.Hour}) {
		t.Errorf("got waits %v, want 1h twice", clock.waits)
	}
}

// A slowBody is the body of a response that stalls at its end until the client gives up.
type slowBody struct {
	io.Reader
	ctx context.Context
}

func (s slowBody) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err == io.EOF {
		<-s.ctx.Done()
		err = s.ctx.Err()
	}
	return n, err
}

func (slowBody) Close() error { return nil }

// TestFollowSlow checks that Follow requests smaller pages over a slow connection, and larger ones
// when it is fast again.
func TestFollowSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limits []int
		after := 0
		transport := roundTripper(func(r *http.Request) (*http.Response, error) {
			limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
			limits = append(limits, limit)
			w := httptest.NewRecorder()
			w.Header().Set("Content-Type", "application/json")
			text := pageAnswer(after, after+limit)(nil)
			if len(limits) < 5 && limit > 300 {
				resp := w.Result()
				resp.Body = slowBody{strings.NewReader(text[:len(text)/2]), r.Context()}
				return resp, nil
			}
			after += limit
			_, _ = io.WriteString(w, text)
			return w.Result(), nil
		})
		c := newClient(t, "http://hub.example.org", client.Options{HTTP: &http.Client{Transport: transport}})
		n := 0
		for b, err := range c.Follow(t.Context(), "demo", "start", client.FollowOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			if n += len(b.Entries); n >= 3000 || len(limits) > 20 {
				break
			}
		}
		if want := []int{1000, 500, 250, 500, 250, 500, 1000, 1000}; !slices.Equal(limits, want) {
			t.Errorf("got requests with the limits %v, want %v", limits, want)
		}
	})
}

// TestFollowTooLarge checks that Follow requests smaller pages if a page is too large.
func TestFollowTooLarge(t *testing.T) {
	answer := func(q url.Values) string {
		limit, _ := strconv.Atoi(q.Get("limit"))
		if limit > 250 {
			return pageAnswer(0, 50_001)(q)
		}
		return pageAnswer(0, limit)(q)
	}
	url, asked := newPageServer(t, answer, answer, answer)
	r := newBatchReader(t, newClient(t, url, newClock().options()).Follow(t.Context(), "demo", "start", client.FollowOptions{}))
	if b := r.nextBatch(); len(b.Entries) != 250 || len(*asked) != 3 {
		t.Errorf("got %d entries after %d requests, want 250 after 3", len(b.Entries), len(*asked))
	}
}

func TestFollowEnds(t *testing.T) {
	s := newSite(t)
	s.publish(t, "urn:a")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/json/sets/demo/changes" {
			w.Header().Set("Content-Type", "application/json")
		}
		_, _ = io.WriteString(w, `{"welcome":true}`)
	}))
	defer other.Close()
	for _, tt := range []struct {
		name, url, set, since string
		options               client.FollowOptions
		want                  error
		text                  string
	}{
		{"unknown cursor", s.URL, "demo", "7-7", client.FollowOptions{}, feed.ErrGone, "410"},
		{"invalid since", s.URL, "demo", "yesterday", client.FollowOptions{}, nil, "400"},
		{"limit too large", s.URL, "demo", "now", client.FollowOptions{Limit: 99_999}, nil, "400"},
		{"invalid set name", s.URL, "a/b", "now", client.FollowOptions{}, nil, "invalid set name"},
		{"another server", other.URL, "demo", "now", client.FollowOptions{}, client.ErrNotHub, "response is not from a hub"},
		{"JSON of another server", other.URL + "/json", "demo", "now", client.FollowOptions{}, client.ErrNotHub, `"changes" is missing`},
		{"another scheme", strings.Replace(s.URL, "http", "https", 1), "demo", "now", client.FollowOptions{}, nil, "HTTP response to HTTPS client"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clock := newClock()
			err := newBatchReader(t, newClient(t, tt.url, clock.options()).Follow(t.Context(), tt.set, tt.since, tt.options)).endError()
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("Follow ends with %v, want %v with %q", err, tt.want, tt.text)
			}
			if _, ok := errors.AsType[*client.RefusedError](err); ok != strings.HasPrefix(tt.text, "4") {
				t.Errorf("Follow ends with a %T, want a RefusedError only for 4xx", err)
			}
			if len(clock.waits) > 0 {
				t.Errorf("got waits %v, want none", clock.waits)
			}
		})
	}
}

// TestFollowCanceled checks that Follow ends without an error when ctx is canceled, whatever it is
// doing.
func TestFollowCanceled(t *testing.T) {
	for _, when := range []string{"before", "during a request", "during a wait", "between batches"} {
		t.Run(when, func(t *testing.T) {
			s := newSite(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s.intercept = func(n int, w http.ResponseWriter, r *http.Request) bool {
				switch when {
				case "during a request":
					cancel()
					<-r.Context().Done()
					return true
				case "during a wait":
					w.WriteHeader(503)
					return true
				}
				return false
			}
			if when == "before" {
				cancel()
			}
			o := client.Options{Sleep: func(ctx context.Context, _ time.Duration) error {
				cancel()
				return ctx.Err()
			}}
			for b, err := range newClient(t, s.URL, o).Follow(ctx, "demo", "now", client.FollowOptions{}) {
				if err != nil || when != "between batches" {
					t.Errorf("Follow yields %+v, %v, want nothing", b, err)
				}
				cancel()
			}
			if n := len(s.received()); n > 1 || n == 0 && when != "before" {
				t.Errorf("got %d requests, want at most 1", n)
			}
		})
	}
}

// TestFollowRedirect checks that a GET follows redirects, and that the token is not sent to another
// host.
func TestFollowRedirect(t *testing.T) {
	s := newSite(t)
	s.publish(t, "urn:a")
	for _, other := range []string{"localhost", "127.0.0.1"} { // both have another port
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			target := strings.Replace(s.URL, "127.0.0.1", other, 1) + r.URL.String()
			http.Redirect(w, r, target, http.StatusPermanentRedirect)
		}))
		defer front.Close()
		r := newBatchReader(t, newClient(t, front.URL, client.Options{Token: "t0ken"}).Follow(t.Context(), "demo", "start", client.FollowOptions{}))
		r.readEntries(1)
	}
	for _, request := range s.received() {
		if request.Header.Get("Authorization") != "" {
			t.Error("the token was sent to another host")
		}
	}
	loop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.String(), http.StatusPermanentRedirect)
	}))
	defer loop.Close()
	clock := newClock()
	ctx, cancel := context.WithCancel(t.Context())
	o := clock.options()
	o.Sleep = func(context.Context, time.Duration) error { cancel(); return ctx.Err() }
	for range newClient(t, loop.URL, o).Follow(ctx, "demo", "now", client.FollowOptions{}) {
		t.Error("Follow yields a batch after a redirect loop")
	}
	if notes := clock.noted(); len(notes) != 1 || !strings.Contains(notes[0], "stopped after 10 redirects") {
		t.Errorf("got retries %q, want one after 10 redirects", notes)
	}
}
