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

// A reader takes in what a Follow yields, and holds it against the promise.
type reader struct {
	t        *testing.T
	next     func() (*feed.Batch, error, bool)
	last     *feed.Batch
	locs     []string
	diverged int
}

func read(t *testing.T, batches iter.Seq2[*feed.Batch, error]) *reader {
	t.Helper()
	next, stop := iter.Pull2(batches)
	t.Cleanup(stop)
	return &reader{t: t, next: next}
}

// batch takes in the next batch.
func (r *reader) batch() *feed.Batch {
	r.t.Helper()
	b, err, ok := r.next()
	if !ok || err != nil {
		r.t.Fatalf("there is no more batch: %v", err)
	}
	if r.last != nil && !b.Diverged && b.After != r.last.Cursor {
		r.t.Fatalf("a batch after %v follows one up to %v", b.After, r.last.Cursor)
	}
	if r.last != nil && !b.Diverged && len(b.Entries) == 0 && b.Cursor == r.last.Cursor {
		r.t.Errorf("a batch at %v says nothing", b.Cursor)
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

// upTo takes in batches until there were n entries.
func (r *reader) upTo(n int) {
	r.t.Helper()
	for len(r.locs) < n {
		r.batch()
	}
}

// end returns the error that ends it.
func (r *reader) end() error {
	r.t.Helper()
	b, err, ok := r.next()
	if b != nil || ok != (err != nil) {
		r.t.Fatalf("there is a batch more: %+v", b)
	}
	if _, _, ok := r.next(); ok {
		r.t.Error("an error is not the last")
	}
	return err
}

// What was there comes, and what is published then, and nothing twice when the
// following goes on elsewhere.
func TestFollow(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, client.Options{})
	now := read(t, c.Follow(t.Context(), "demo", "", client.FollowOptions{}))
	if b := now.batch(); len(b.Entries) > 0 || b.Set != "demo" { // the set is not made yet
		t.Errorf("the first batch is %+v", b)
	}
	s.publish(t, locs(1, 3)...)
	newest := s.publish(t, locs(4, 25)...).Time()
	now.upTo(25)
	ctx, cancel := context.WithCancel(t.Context())
	start := read(t, c.Follow(ctx, "demo", "start", client.FollowOptions{Limit: 10}))
	for _, want := range []int{10, 20, 25} {
		if start.batch(); len(start.locs) != want {
			t.Errorf("%d entries, want %d", len(start.locs), want)
		}
	}
	cancel()
	if err := start.end(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	at := start.last.Cursor.String()
	s.publish(t, locs(26, 26)...)
	for place, want := range map[string][]string{
		at:                                    nil,
		newest.Format(time.RFC3339Nano):       locs(25, 25),
		"0-0":                                 locs(1, 25),
		start.last.Entries[1].Cursor.String(): locs(23, 25),
	} {
		r := read(t, c.Follow(t.Context(), "demo", place, client.FollowOptions{}))
		want = append(slices.Clone(want), "urn:26")
		if r.upTo(len(want)); !slices.Equal(r.locs, want) {
			t.Errorf("from %s came %q, want %q", place, r.locs, want)
		}
	}
	now.upTo(26)
	if !slices.Equal(now.locs, locs(1, 26)) {
		t.Errorf("%q came", now.locs)
	}
}

// A filter leaves out, and the cursor moves over it.
func TestFollowFilter(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, client.Options{})
	s.publish(t, "urn:a", "urn:b:1", "urn:c")
	r := read(t, c.Follow(t.Context(), "demo", "start", client.FollowOptions{Filter: feed.Filter{Prefix: "urn:b"}, Wait: time.Millisecond}))
	r.upTo(1)
	end := s.publish(t, "urn:d", "urn:e")
	for r.last.Cursor != end { // there is such a batch, though it is empty
		r.batch()
	}
	s.publish(t, "urn:f", "urn:b:2")
	if r.upTo(2); !slices.Equal(r.locs, []string{"urn:b:1", "urn:b:2"}) {
		t.Errorf("%q came", r.locs)
	}
}

// What goes wrong on the way costs time, and no change.
func TestFollowThroughTrouble(t *testing.T) {
	s, clock := newSite(t), newClock()
	s.trouble = func(n int, w http.ResponseWriter, r *http.Request) bool {
		switch n {
		case 1, 6:
			trouble(503, "later", "")(w, r)
		case 2, 7:
			abort(w, r)
		case 3, 8: // half of an answer
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"set":"demo"`)
		case 9: // whatever stands in for a hub that is away
			_, _ = io.WriteString(w, "<html>be right back")
		case 10:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"ok":true}`)
		case 11:
			trouble(429, "", "100")(w, r)
		default:
			return false
		}
		return true
	}
	s.publish(t, locs(1, 5)...)
	r := read(t, newClient(t, s.URL, clock.options()).Follow(t.Context(), "demo", "start", client.FollowOptions{Limit: 2}))
	if r.upTo(5); !slices.Equal(r.locs, locs(1, 5)) {
		t.Errorf("%q came", r.locs)
	}
	// An abort may be the transport's own to ask again after.
	if n := len(clock.said()); n < 7 || n > 9 || n != len(clock.waits) || clock.waits[n-1] != 100*time.Second {
		t.Errorf("%d notes, and the waits %v: %q", n, clock.waits, clock.said())
	}
	if n := len(s.asked()); n < 12 {
		t.Errorf("there were only %d requests", n)
	}
}

// A hub that stops and comes back is followed as if it had been there.
func TestFollowThroughARestart(t *testing.T) {
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
	r := read(t, newClient(t, s.URL, o).Follow(t.Context(), "demo", "start", client.FollowOptions{}))
	r.upTo(2)
	for i := range 3 {
		go func() {
			s.stop() // while a request waits, or before it comes
			<-noticed
			s.start()
			s.mu.Lock()
			defer s.mu.Unlock()
			if _, err := s.hub.Publish(t.Context(), "demo", changelog.Publish{Changes: updated(locs(3+i, 3+i)...)}); err != nil {
				t.Error(err)
			}
		}()
		if r.upTo(3 + i); !slices.Equal(r.locs, locs(1, 3+i)) {
			t.Errorf("%q came", r.locs)
		}
	}
}

// sleepShortly lets others run.
func sleepShortly(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Millisecond):
		return nil
	}
}

// pages is a hub that answers each request with the next page, and then with 410.
func pages(t *testing.T, answers ...func(q url.Values) string) (hub string, asked *[]url.Values) {
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

// page is an answer with entries from one position to another.
func page(after, to int) func(url.Values) string {
	return func(url.Values) string {
		b := feed.NewBatch("demo", cursor(after), cursor(to), updated(locs(after+1, to)...))
		return string(b.JSON())
	}
}

func cursor(position int) feed.Cursor {
	return feed.Cursor{Position: uint64(position), Micros: int64(1000 + position)}
}

// A hub that stops answers at once, and empty: it is not asked without a pause.
func TestFollowPausesWhileNothingComes(t *testing.T) {
	url, asked := pages(t, page(3, 3), page(3, 3), page(3, 3), page(3, 5))
	clock := newClock()
	r := read(t, newClient(t, url, clock.options()).Follow(t.Context(), "demo", "now", client.FollowOptions{Wait: 7 * time.Second}))
	r.batch()
	if r.upTo(2); !slices.Equal(clock.waits, []time.Duration{time.Second, time.Second}) {
		t.Errorf("the waits %v", clock.waits)
	}
	if err := r.end(); !errors.Is(err, feed.ErrGone) {
		t.Errorf("it ended with %v", err)
	}
	var got []string
	for _, q := range *asked {
		got = append(got, q.Get("since")+" "+q.Get("wait")+" "+q.Get("limit"))
	}
	at3, at5 := cursor(3).String()+" 7s 1000", cursor(5).String()+" 7s 1000"
	if want := []string{"now  1000", at3, at3, at3, at5}; !slices.Equal(got, want) {
		t.Errorf("it asks for %q, want %q", got, want)
	}
}

func TestFollowDiverged(t *testing.T) {
	url, asked := pages(t, page(3, 8), func(url.Values) string {
		b := feed.NewBatch("demo", cursor(5), cursor(6), updated("urn:6"))
		b.Diverged = true
		return string(b.JSON())
	}, page(6, 7))
	r := read(t, newClient(t, url, newClock().options()).Follow(t.Context(), "demo", "start", client.FollowOptions{}))
	r.batch()
	if b := r.batch(); !b.Diverged || b.After != cursor(5) || b.Cursor != cursor(6) {
		t.Errorf("a memory that lost its tail is %+v", b)
	}
	if r.batch(); r.diverged != 1 || (*asked)[2].Get("since") != cursor(6).String() {
		t.Errorf("it asks for %v", *asked)
	}
}

// What would skip changes, or is another set's, is not believed.
func TestFollowBelievesNoOther(t *testing.T) {
	url, asked := pages(t, page(3, 5), page(3, 5), page(6, 7), func(url.Values) string {
		return string((&feed.Batch{Set: "other", After: cursor(5), Cursor: cursor(5)}).JSON())
	}, page(5, 6))
	clock := newClock()
	r := read(t, newClient(t, url, clock.options()).Follow(t.Context(), "demo", "start", client.FollowOptions{}))
	if r.upTo(3); !slices.Equal(r.locs, locs(4, 6)) || len(*asked) != 5 {
		t.Errorf("%q came in %d requests", r.locs, len(*asked))
	}
	if notes := clock.said(); len(notes) != 3 || !strings.Contains(notes[1], "what follows 6-1006, and not 5-1005") || !strings.Contains(notes[2], "of the set other") {
		t.Errorf("it says %q", notes)
	}

	url, _ = pages(t, page(5, 7)) // the first page that somebody gets who goes on after a cursor
	r = read(t, newClient(t, url, newClock().options()).Follow(t.Context(), "demo", cursor(3).String(), client.FollowOptions{}))
	if err := r.end(); !errors.Is(err, client.ErrNoHub) || !strings.Contains(err.Error(), "what follows 5-1005, and not 3-1003") {
		t.Errorf("after %d changes it ended with %v", len(r.locs), err)
	}
	url, _ = pages(t, page(5, 7))
	read(t, newClient(t, url, newClock().options()).Follow(t.Context(), "demo", "2026-01", client.FollowOptions{})).upTo(2) // a month
}

// A Retry-After of days, as of a page for maintenance or by a wrong clock, does not hold back what
// comes when the hub is there again.
func TestFollowComesSoon(t *testing.T) {
	s, clock := newSite(t), newClock()
	s.trouble = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n < 3 {
			trouble(503, "", []string{"604800", "Fri, 31 Dec 9999 23:59:59 GMT"}[n-1])(w, r)
		}
		return n < 3
	}
	s.publish(t, "urn:1")
	read(t, newClient(t, s.URL, clock.options()).Follow(t.Context(), "demo", "start", client.FollowOptions{})).upTo(1)
	if !slices.Equal(clock.waits, []time.Duration{time.Hour, time.Hour}) {
		t.Errorf("the waits %v", clock.waits)
	}
}

// A slow is the body of an answer, of which only so many bytes come before the client gives up.
type slow struct {
	io.Reader
	ctx context.Context
}

func (s slow) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err == io.EOF {
		<-s.ctx.Done()
		err = s.ctx.Err()
	}
	return n, err
}

func (slow) Close() error { return nil }

// Over a slow connection smaller pages come, and larger ones as soon as it is fast.
func TestFollowSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limits []int
		after := 0
		transport := roundTripper(func(r *http.Request) (*http.Response, error) {
			limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
			limits = append(limits, limit)
			w := httptest.NewRecorder()
			w.Header().Set("Content-Type", "application/json")
			text := page(after, after+limit)(nil)
			if len(limits) < 5 && limit > 300 {
				resp := w.Result()
				resp.Body = slow{strings.NewReader(text[:len(text)/2]), r.Context()}
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
			t.Errorf("it asks for %v, want %v", limits, want)
		}
	})
}

// A page that is too large comes in parts.
func TestFollowTooLarge(t *testing.T) {
	answer := func(q url.Values) string {
		limit, _ := strconv.Atoi(q.Get("limit"))
		if limit > 250 {
			return page(0, 50_001)(q)
		}
		return page(0, limit)(q)
	}
	url, asked := pages(t, answer, answer, answer)
	r := read(t, newClient(t, url, newClock().options()).Follow(t.Context(), "demo", "start", client.FollowOptions{}))
	if b := r.batch(); len(b.Entries) != 250 || len(*asked) != 3 {
		t.Errorf("%d entries in %d requests", len(b.Entries), len(*asked))
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
	for _, test := range []struct {
		name, url, set, place string
		options               client.FollowOptions
		is                    error
		says                  string
	}{
		{"a place that was never there", s.URL, "demo", "7-7", client.FollowOptions{}, feed.ErrGone, "410"},
		{"no place", s.URL, "demo", "yesterday", client.FollowOptions{}, nil, "400"},
		{"a limit that the hub does not take", s.URL, "demo", "now", client.FollowOptions{Limit: 99_999}, nil, "400"},
		{"no name of a set", s.URL, "a/b", "now", client.FollowOptions{}, nil, "cannot name a set"},
		{"another server", other.URL, "demo", "now", client.FollowOptions{}, client.ErrNoHub, "not as a hub does"},
		{"another server's JSON", other.URL + "/json", "demo", "now", client.FollowOptions{}, client.ErrNoHub, `"changes" is missing`},
		{"another scheme", strings.Replace(s.URL, "http", "https", 1), "demo", "now", client.FollowOptions{}, nil, "HTTP response to HTTPS client"},
	} {
		t.Run(test.name, func(t *testing.T) {
			clock := newClock()
			err := read(t, newClient(t, test.url, clock.options()).Follow(t.Context(), test.set, test.place, test.options)).end()
			if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("it ended with %v", err)
			}
			if _, ok := errors.AsType[*client.Refused](err); ok != strings.HasPrefix(test.says, "4") {
				t.Errorf("it is %T", err)
			}
			if len(clock.waits) > 0 {
				t.Errorf("the waits %v", clock.waits)
			}
		})
	}
}

// When ctx is done it ends in silence, wherever it is.
func TestFollowCanceled(t *testing.T) {
	for _, when := range []string{"before", "in a request", "in a pause", "between"} {
		t.Run(when, func(t *testing.T) {
			s := newSite(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s.trouble = func(n int, w http.ResponseWriter, r *http.Request) bool {
				switch when {
				case "in a request":
					cancel()
					<-r.Context().Done()
					return true
				case "in a pause":
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
				if err != nil || when != "between" {
					t.Errorf("%+v came, and %v", b, err)
				}
				cancel()
			}
			if n := len(s.asked()); n > 1 || n == 0 && when != "before" {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// What only reads may be redirected; the token stays with the host it is for.
func TestFollowRedirect(t *testing.T) {
	s := newSite(t)
	s.publish(t, "urn:a")
	for _, other := range []string{"localhost", "127.0.0.1"} { // at another port, in any case
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			target := strings.Replace(s.URL, "127.0.0.1", other, 1) + r.URL.String()
			http.Redirect(w, r, target, http.StatusPermanentRedirect)
		}))
		defer front.Close()
		r := read(t, newClient(t, front.URL, client.Options{Token: "t0ken"}).Follow(t.Context(), "demo", "start", client.FollowOptions{}))
		r.upTo(1)
	}
	for _, request := range s.asked() {
		if request.Header.Get("Authorization") != "" {
			t.Error("the token came to another host")
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
		t.Error("a loop of redirects has an answer")
	}
	if notes := clock.said(); len(notes) != 1 || !strings.Contains(notes[0], "stopped after 10 redirects") {
		t.Errorf("it says %q", notes)
	}
}
