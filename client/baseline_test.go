package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// A baselineResult is what a baseline yielded.
type baselineResult struct {
	held     map[string]uint64
	parts    int
	restarts int
	cursors  []string
	end      *feed.BaselinePage
}

// readBaseline reads a baseline to its end. It calls step, unless that is nil, with the number of
// each part.
func readBaseline(t *testing.T, pages iter.Seq2[*feed.BaselinePage, error], step func(n int)) *baselineResult {
	t.Helper()
	c := &baselineResult{held: map[string]uint64{}}
	for p, err := range pages {
		if err != nil {
			t.Fatal(err)
		}
		if c.end != nil {
			t.Fatalf("Baseline yields %+v after the end", p)
		}
		if p.Restart {
			clear(c.held)
			c.restarts++
		}
		for _, e := range p.Entries {
			c.held[e.Change.Loc] = e.Position
		}
		c.cursors = append(c.cursors, p.Cursor())
		if p.End {
			c.end = p
		}
		if c.parts++; step != nil {
			step(c.parts)
		}
	}
	return c
}

// checkHeld fails the test unless the locs and positions in got and want are equal.
func checkHeld(t *testing.T, what string, got, want map[string]uint64) {
	t.Helper()
	for loc, position := range want {
		if got[loc] != position {
			t.Fatalf("%s: got %s at position %d, want %d", what, loc, got[loc], position)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s: got %d resources, want %d", what, len(got), len(want))
	}
}

// TestBaseline checks that a baseline of any size has all existing resources, and that its end is
// where Follow continues.
func TestBaseline(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, client.Options{})
	for _, n := range []int{0, 1, 10, 11, 25} {
		if n > 0 {
			s.publish(t, locs(1, n)...)
			s.change(t, resourcesync.Deleted, "urn:1")
			s.change(t, resourcesync.Created, "urn:x:"+fmt.Sprint(n))
		}
		for _, prefix := range []string{"", "urn:x", "urn:1", "urn:z"} {
			got := readBaseline(t, c.Baseline(t.Context(), "demo", client.BaselineOptions{Prefix: prefix, Limit: 10}), nil)
			checkHeld(t, fmt.Sprintf("%d, %s", n, prefix), got.held, within(s.resources(t), prefix))
			if !got.end.Complete && n > 0 || got.end.Count != uint64(len(got.held)) || got.restarts > 0 {
				t.Errorf("Baseline ends with %+v after %d restarts, want %d resources without restarts", got.end, got.restarts, len(got.held))
			}
			// A baseline can be continued after each part.
			for i, cursor := range got.cursors[:len(got.cursors)-1] {
				rest := readBaseline(t, c.Baseline(t.Context(), "demo", client.BaselineOptions{Prefix: prefix, Limit: 10, After: cursor}), nil)
				if rest.restarts > 0 || rest.parts != got.parts-i-1 {
					t.Errorf("Baseline after part %d of %d yields %d parts and %d restarts, want the rest", i, got.parts, rest.parts, rest.restarts)
				}
			}
			if n == 0 {
				continue
			}
			ctx, cancel := context.WithCancel(t.Context())
			r := newBatchReader(t, c.Follow(ctx, "demo", got.end.Cursor(), client.FollowOptions{}))
			if b := r.nextBatch(); len(b.Entries) > 0 || b.Diverged {
				t.Errorf("Follow from the end of the baseline yields %+v, want no entries", b)
			}
			cancel()
		}
	}
}

// TestBaselineCollection checks that a baseline of a collection has only its current members.
func TestBaselineCollection(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, client.Options{})
	s.publish(t, locs(1, 25)...)
	s.collect(t, resourcesync.Updated, "urn:x:c", "urn:2", "urn:7", "urn:9")
	s.publish(t, "urn:7")
	got := readBaseline(t, c.Baseline(t.Context(), "demo", client.BaselineOptions{Collection: "urn:x:c", Limit: 1}), nil)
	checkHeld(t, "the collection", got.held, map[string]uint64{"urn:2": 26, "urn:9": 28})
}

// TestBaselineRetries checks that a baseline survives outages of the hub, and starts over if the
// hub no longer has the resources, without mixing states.
func TestBaselineRetries(t *testing.T) {
	s, clock := newSite(t), newClock()
	c := newClient(t, s.URL, clock.options())
	s.publish(t, locs(1, 45)...)
	s.intercept = func(n int, w http.ResponseWriter, r *http.Request) bool {
		switch n {
		case 1, 3, 4:
			problem.Write(w, r, feed.ErrUnavailable)
		case 6:
			fmt.Fprintln(w, "welcome")
		default:
			return false
		}
		return true
	}
	got := readBaseline(t, c.Baseline(t.Context(), "demo", client.BaselineOptions{Limit: 10}), func(n int) {
		switch n {
		case 2: // the next part is from the old root
			s.change(t, resourcesync.Deleted, "urn:1")
			s.publish(t, "urn:new")
		case 3:
			s.inventories.dropRoots()
		}
	})
	checkHeld(t, "all", got.held, s.resources(t))
	if got.restarts != 1 || got.parts != 3+5+1 || len(clock.noted()) != 4 {
		t.Errorf("got %d restarts, %d parts, and the retries %q, want 1, 9 and 4 retries", got.restarts, got.parts, clock.noted())
	}
}

// TestBaselineTooLate checks that a baseline that cannot be continued starts over.
func TestBaselineTooLate(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	s.publish(t, locs(1, 25)...)
	first := readBaseline(t, c.Baseline(t.Context(), "demo", client.BaselineOptions{Limit: 10}), nil)
	s.inventories.dropRoots()
	s.publish(t, "urn:0")
	got := readBaseline(t, c.Baseline(t.Context(), "demo", client.BaselineOptions{Limit: 10, After: first.cursors[0]}), nil)
	checkHeld(t, "all", got.held, s.resources(t))
	if got.restarts != 1 {
		t.Errorf("got %d restarts, want 1", got.restarts)
	}
}

// TestBaselineRefused checks that responses to other requests are rejected.
func TestBaselineRefused(t *testing.T) {
	page := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, text)
		}
	}
	part := `{"set":"demo","baseline":true,"complete":true,"count":1,"after":"5-5~0","cursor":"5-5~1","resources":[{"position":1,"datetime":"1970-01-01T00:00:00.000001Z","loc":"urn:a","change":"created"}]}`
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		o      client.BaselineOptions
		want   error
		text   string
	}{
		{"not a hub", page("welcome"), client.BaselineOptions{}, client.ErrNotHub, ""},
		{"another set", page(strings.Replace(part, "demo", "other", 1)), client.BaselineOptions{}, client.ErrNotHub, `another set, "other"`},
		{"another prefix", page(part), client.BaselineOptions{Prefix: "urn:b"}, client.ErrNotHub, "does not match prefix=urn%3Ab"},
		{"another collection", page(part), client.BaselineOptions{Collection: "urn:x:c"}, client.ErrNotHub, "does not match collection=urn"},
		{"another rank", page(part), client.BaselineOptions{After: "5-5~1"}, client.ErrNotHub, "want after 5-5~1"},
		{"another cursor", page(part), client.BaselineOptions{After: "6-6~0"}, client.ErrNotHub, "want after 6-6~0"},
		{"not the start", page(`{"set":"demo","baseline":true,"after":"5-5~1","cursor":"5-5~9","resources":[]}`), client.BaselineOptions{Collection: "urn:x:c"}, client.ErrNotHub, "want the start"},
		{"another count", page(`{"set":"demo","baseline":false,"count":1,"after":"5-5~0","cursor":"5-5","changes":[]}`), client.BaselineOptions{}, client.ErrNotHub, "got a baseline of 0 resources, want 1"},
		{"changes", page(string(feed.NewBatch("demo", feed.Cursor{}, feed.Cursor{}, nil).JSON())), client.BaselineOptions{}, client.ErrNotHub, `"baseline" is missing`},
		{"no inventory", func(w http.ResponseWriter, r *http.Request) { problem.Write(w, r, feed.ErrNoInventory) }, client.BaselineOptions{}, feed.ErrNoInventory, "404"},
		{"invalid After", nil, client.BaselineOptions{After: "5-5"}, resourcesync.ErrInvalid, "invalid baseline cursor"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hub := httptest.NewServer(tt.answer)
			defer hub.Close()
			n := 0
			for p, err := range newClient(t, hub.URL, newClock().options()).Baseline(t.Context(), "demo", tt.o) {
				if n++; p != nil || !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("Baseline yields %+v, %v, want only the error %v with %q", p, err, tt.want, tt.text)
				}
			}
			if n != 1 {
				t.Errorf("Baseline yields %d times, want once", n)
			}
		})
	}
}
