package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/sourcetest"
	"github.com/rshub/rshub/resourcesync"
)

// A source publishes, and records the position of each change, from which the state of the set
// follows.
type source struct {
	set string

	mu     sync.Mutex
	log    map[uint64]resourcesync.Change
	head   feed.Cursor    // cursor of the newest change
	held   sourcetest.Set // state after the changes up to folded
	folded uint64
}

func newSource(set string) *source {
	return &source{set: set, log: map[uint64]resourcesync.Change{}, held: sourcetest.Set{}}
}

// newClient returns a client with short waiting times, because the hubs of tests restart soon.
func newClient(t testing.TB, h *hubtest.Hub) *client.Client {
	t.Helper()
	c, err := client.New(h.URL, client.Options{Sleep: shortSleep, HTTP: hubtest.Client, RetryTimeout: hubtest.Timeout})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func shortSleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(min(d, 50*time.Millisecond)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// publish publishes changes.
func (s *source) publish(t testing.TB, h *hubtest.Hub, changes []resourcesync.Change) {
	t.Helper()
	for batch := range slices.Chunk(changes, 5_000) {
		if err := s.send(newClient(t, h), batch); err != nil {
			t.Fatal(err)
		}
	}
}

// send publishes changes as one batch. It may be called in any goroutine. The client retries
// until the hub has the batch, because the hub may be killed in the meantime.
func (s *source) send(c *client.Client, changes []resourcesync.Change) error {
	r, err := c.Publish(context.Background(), s.set, "", changes)
	if err != nil {
		return err
	}
	head, err := feed.ParseCursor(r.Cursor)
	if err != nil || r.Count != len(changes) {
		return fmt.Errorf("got receipt %+v for %d changes: %v", r, len(changes), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, change := range changes {
		s.log[head.Position-uint64(len(changes)-1-i)] = change
	}
	if head.Position > s.head.Position {
		s.head = head
	}
	return nil
}

func (s *source) newest() feed.Cursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head
}

// waitPublished waits until more changes have been published.
func (s *source) waitPublished(t testing.TB, more uint64) {
	t.Helper()
	from := s.newest().Position
	hubtest.Until(t, "more changes are published", func() error {
		if s.newest().Position < from+more {
			return trial.ErrNotYet
		}
		return nil
	})
}

// at returns the state of the set at a position. It waits for the receipts of all changes up to
// there.
func (s *source) at(t testing.TB, position uint64) (held sourcetest.Set) {
	t.Helper()
	hubtest.Until(t, fmt.Sprint("the source has the receipts up to ", position), func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if position < s.folded {
			s.held, s.folded = sourcetest.Set{}, 0
		}
		for ; s.folded < position; s.folded++ {
			change, ok := s.log[s.folded+1]
			if !ok {
				return fmt.Errorf("position %d of %s was not published", s.folded+1, s.set)
			}
			s.held.Add(feed.Entry{Cursor: feed.Cursor{Position: s.folded + 1, Micros: 1}, Change: change})
		}
		held = maps.Clone(s.held)
		return nil
	})
	return held
}

// complete creates the set if it does not exist, and declares that the hub knows all resources.
func (s *source) complete(t testing.TB, h *hubtest.Hub) {
	t.Helper()
	if err := newClient(t, h).Describe(t.Context(), s.set, feed.Description{Title: s.set}); err != nil {
		t.Fatal(err)
	}
	if err := newClient(t, h).SetComplete(t.Context(), s.set, true); err != nil {
		t.Fatal(err)
	}
}

// A summary is the audit summary of a hub.
type summary struct {
	Cursor            string
	Complete          bool
	Count             uint64
	Position, Content string // digests by position and content
}

// checkSummary waits until the audit summary of a hub covers the newest change, and checks that it
// matches the state after all changes up to there.
func (s *source) checkSummary(t testing.TB, h *hubtest.Hub) (l summary) {
	t.Helper()
	from := s.newest()
	hubtest.Until(t, fmt.Sprint("the summary covers ", from), func() error {
		a, err := hubtest.Request(http.MethodGet, h.URL+"/sets/"+s.set+"/audit?from="+from.String(), nil)
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("got status %d: %s", a.Status, a.Body)
		}
		if err != nil {
			return err
		}
		l = summary{}
		return json.Unmarshal(a.Body, &l)
	})
	at, err := feed.ParseCursor(l.Cursor)
	if err != nil || at.Position < from.Position {
		t.Fatalf("got summary at %s, %v, want at least %s", l.Cursor, err, from)
	}
	var all digest.Tally
	for _, e := range s.at(t, at.Position) {
		one := digest.TallyOf(&e)
		all.Add(&one)
	}
	want := summary{l.Cursor, l.Complete, all.Count, all.Digest(digest.ByPosition).String(), all.Digest(digest.ByContent).String()}
	if l != want {
		t.Fatalf("got summary %+v, want %+v", l, want)
	}
	return l
}

// checkComplete is checkSummary for a hub that knows all resources.
func (s *source) checkComplete(t testing.TB, h *hubtest.Hub) {
	t.Helper()
	if l := s.checkSummary(t, h); !l.Complete {
		t.Fatalf("inventory of %s is incomplete, want complete", s.set)
	}
}

// checkBaseline checks that a baseline has the state of the set.
func (s *source) checkBaseline(t testing.TB, h *hubtest.Hub) {
	t.Helper()
	got, position := sourcetest.Set{}, uint64(0)
	for p, err := range newClient(t, h).Baseline(t.Context(), s.set, client.BaselineOptions{Limit: 2_000}) {
		if err != nil {
			t.Fatalf("read baseline of %s: %v", s.set, err)
		}
		if p.Restart {
			clear(got)
		}
		for _, e := range p.Entries {
			got.Add(e)
		}
		position = p.Next.Cursor.Position
	}
	want := s.at(t, position)
	for loc, e := range want {
		if g := got[loc]; g.Position != e.Position || g.Change.Hash != e.Change.Hash {
			t.Fatalf("baseline of %d resources: got %s at position %d, want %d", len(got), loc, g.Position, e.Position)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("baseline: got %d resources, want %d", len(got), len(want))
	}
}

// resource returns a change with a unique hash.
func resource(loc string, nonce uint64) resourcesync.Change {
	length := int64(nonce % 100_000)
	return resourcesync.Change{Loc: loc, Change: resourcesync.Updated, Hash: fmt.Sprintf("md5:%032x sha-256:%064x", nonce, nonce), Length: &length, Type: "text/plain"}
}

func deleted(loc string) resourcesync.Change {
	return resourcesync.Change{Loc: loc, Change: resourcesync.Deleted}
}

// resources returns the first changes of n resources.
func resources(name string, n int) (all []resourcesync.Change) {
	for i := range n {
		all = append(all, resource(locOf(name, i), uint64(i)))
	}
	return all
}

func locOf(name string, i int) string { return fmt.Sprintf("https://example.org/%s/%06d", name, i+1) }
