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

// A collected baseline is what its parts said until the end.
type collected struct {
	held     map[string]uint64
	parts    int
	restarts int
	cursors  []string
	end      *feed.BaselinePage
}

// collect reads a baseline to its end. step is called after each part, with its number.
func collect(t *testing.T, pages iter.Seq2[*feed.BaselinePage, error], step func(n int)) *collected {
	t.Helper()
	c := &collected{held: map[string]uint64{}}
	for p, err := range pages {
		if err != nil {
			t.Fatal(err)
		}
		if c.end != nil {
			t.Fatalf("%+v follows the end", p)
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

func same(t *testing.T, what string, got, want map[string]uint64) {
	t.Helper()
	for loc, position := range want {
		if got[loc] != position {
			t.Fatalf("%s: %s is at %d, want %d", what, loc, got[loc], position)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s: there are %d resources, want %d", what, len(got), len(want))
	}
}

// A baseline has all that exists, whatever its size, and ends where Follow goes on.
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
			got := collect(t, c.Baseline(t.Context(), "demo", client.BaselineOptions{Prefix: prefix, Limit: 10}), nil)
			same(t, fmt.Sprintf("%d, %s", n, prefix), got.held, within(s.truth(t), prefix))
			if !got.end.Complete && n > 0 || got.end.Count != uint64(len(got.held)) || got.restarts > 0 {
				t.Errorf("it ends with %+v after %d restarts", got.end, got.restarts)
			}
			// Every part is a place to go on from.
			for i, cursor := range got.cursors[:len(got.cursors)-1] {
				rest := collect(t, c.Baseline(t.Context(), "demo", client.BaselineOptions{Prefix: prefix, Limit: 10, After: cursor}), nil)
				if rest.restarts > 0 || rest.parts != got.parts-i-1 {
					t.Errorf("behind part %d of %d come %d parts and %d restarts", i, got.parts, rest.parts, rest.restarts)
				}
			}
			if n == 0 {
				continue
			}
			ctx, cancel := context.WithCancel(t.Context())
			r := read(t, c.Follow(ctx, "demo", got.end.Cursor(), client.FollowOptions{}))
			if b := r.batch(); len(b.Entries) > 0 || b.Diverged {
				t.Errorf("behind the baseline comes %+v", b)
			}
			cancel()
		}
	}
}

// A baseline of a collection has what is in it now.
func TestBaselineOfACollection(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, client.Options{})
	s.publish(t, locs(1, 25)...)
	s.collect(t, resourcesync.Updated, "urn:x:c", "urn:2", "urn:7", "urn:9")
	s.publish(t, "urn:7")
	got := collect(t, c.Baseline(t.Context(), "demo", client.BaselineOptions{Collection: "urn:x:c", Limit: 1}), nil)
	same(t, "the collection", got.held, map[string]uint64{"urn:2": 26, "urn:9": 28})
}

// A hub that is away for a while costs time. A hub that does not have the resources any
// more costs a new beginning, and never a mixture.
func TestBaselineThroughTrouble(t *testing.T) {
	s, clock := newSite(t), newClock()
	c := newClient(t, s.URL, clock.options())
	s.publish(t, locs(1, 45)...)
	s.trouble = func(n int, w http.ResponseWriter, r *http.Request) bool {
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
	got := collect(t, c.Baseline(t.Context(), "demo", client.BaselineOptions{Limit: 10}), func(n int) {
		switch n {
		case 2: // the next part is still of the old root
			s.change(t, resourcesync.Deleted, "urn:1")
			s.publish(t, "urn:new")
		case 3:
			s.shelf.forget()
		}
	})
	same(t, "all", got.held, s.truth(t))
	if got.restarts != 1 || got.parts != 3+5+1 || len(clock.said()) != 4 {
		t.Errorf("there were %d restarts, %d parts, and %q", got.restarts, got.parts, clock.said())
	}
}

// Who comes back too late begins anew.
func TestBaselineTooLate(t *testing.T) {
	s := newSite(t)
	c := newClient(t, s.URL, newClock().options())
	s.publish(t, locs(1, 25)...)
	first := collect(t, c.Baseline(t.Context(), "demo", client.BaselineOptions{Limit: 10}), nil)
	s.shelf.forget()
	s.publish(t, "urn:0")
	got := collect(t, c.Baseline(t.Context(), "demo", client.BaselineOptions{Limit: 10, After: first.cursors[0]}), nil)
	same(t, "all", got.held, s.truth(t))
	if got.restarts != 1 {
		t.Errorf("there were %d restarts", got.restarts)
	}
}

// What is not the answer is not taken for it.
func TestBaselineRefused(t *testing.T) {
	page := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, text)
		}
	}
	part := `{"set":"demo","baseline":true,"complete":true,"count":1,"after":"5-5~0","cursor":"5-5~1","resources":[{"position":1,"datetime":"1970-01-01T00:00:00.000001Z","loc":"urn:a","change":"created"}]}`
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
		o      client.BaselineOptions
		want   error
		text   string
	}{
		{"no hub", page("welcome"), client.BaselineOptions{}, client.ErrNoHub, ""},
		{"another set", page(strings.Replace(part, "demo", "other", 1)), client.BaselineOptions{}, client.ErrNoHub, "the set other"},
		{"another prefix", page(part), client.BaselineOptions{Prefix: "urn:b"}, client.ErrNoHub, "not with what was asked for: prefix=urn%3Ab"},
		{"another collection", page(part), client.BaselineOptions{Collection: "urn:x:c"}, client.ErrNoHub, "not with what was asked for: collection=urn"},
		{"another place", page(part), client.BaselineOptions{After: "5-5~1"}, client.ErrNoHub, "and not 5-5~1"},
		{"another cursor", page(part), client.BaselineOptions{After: "6-6~0"}, client.ErrNoHub, "and not 6-6~0"},
		{"a later place", page(`{"set":"demo","baseline":true,"after":"5-5~1","cursor":"5-5~9","resources":[]}`), client.BaselineOptions{Collection: "urn:x:c"}, client.ErrNoHub, "and not the beginning"},
		{"an end of more", page(`{"set":"demo","baseline":false,"count":1,"after":"5-5~0","cursor":"5-5","changes":[]}`), client.BaselineOptions{}, client.ErrNoHub, "has named 0 resources of a baseline of 1"},
		{"changes", page(string(feed.NewBatch("demo", feed.Cursor{}, feed.Cursor{}, nil).JSON())), client.BaselineOptions{}, client.ErrNoHub, `"baseline" is missing`},
		{"no inventory", func(w http.ResponseWriter, r *http.Request) { problem.Write(w, r, feed.ErrNoInventory) }, client.BaselineOptions{}, feed.ErrNoInventory, "404"},
		{"no place", nil, client.BaselineOptions{After: "5-5"}, resourcesync.ErrInvalid, "is no place"},
	} {
		t.Run(test.name, func(t *testing.T) {
			hub := httptest.NewServer(test.answer)
			defer hub.Close()
			n := 0
			for p, err := range newClient(t, hub.URL, newClock().options()).Baseline(t.Context(), "demo", test.o) {
				if n++; p != nil || !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
					t.Errorf("it yields %+v, %v", p, err)
				}
			}
			if n != 1 {
				t.Errorf("it yields %d times", n)
			}
		})
	}
}
