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

// A source publishes, and remembers which change is at which position: that is all it
// takes to know what the set holds.
type source struct {
	set string

	mu     sync.Mutex
	log    map[uint64]resourcesync.Change
	head   feed.Cursor    // of the newest change
	held   sourcetest.Set // after the changes up to folded
	folded uint64
}

func newSource(set string) *source {
	return &source{set: set, log: map[uint64]resourcesync.Change{}, held: sourcetest.Set{}}
}

// newClient returns a client that does not wait for long: hubs of tests are back soon.
func newClient(t testing.TB, h *hubtest.Hub) *client.Client {
	t.Helper()
	c, err := client.New(h.URL, client.Options{Sleep: soon, HTTP: hubtest.Client, RetryTimeout: hubtest.Timeout})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func soon(ctx context.Context, d time.Duration) error {
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

// send publishes changes as one batch, for who is not the goroutine of a test. The client
// tries again until the hub has it, because the hub may be killed meanwhile.
func (s *source) send(c *client.Client, changes []resourcesync.Change) error {
	r, err := c.Publish(context.Background(), s.set, "", changes)
	if err != nil {
		return err
	}
	head, err := feed.ParseCursor(r.Cursor)
	if err != nil || r.Count != len(changes) {
		return fmt.Errorf("the receipt %+v for %d changes: %v", r, len(changes), err)
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

// goesOn waits until so many more changes are published.
func (s *source) goesOn(t testing.TB, more uint64) {
	t.Helper()
	from := s.newest().Position
	hubtest.Until(t, "more is published", func() error {
		if s.newest().Position < from+more {
			return trial.ErrNotYet
		}
		return nil
	})
}

// at returns what the set held at a position. It waits until the receipts of all changes
// up to there have come.
func (s *source) at(t testing.TB, position uint64) (held sourcetest.Set) {
	t.Helper()
	hubtest.Until(t, fmt.Sprint("the source knows what it published up to ", position), func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if position < s.folded {
			s.held, s.folded = sourcetest.Set{}, 0
		}
		for ; s.folded < position; s.folded++ {
			change, ok := s.log[s.folded+1]
			if !ok {
				return fmt.Errorf("nobody published what is at position %d of %s", s.folded+1, s.set)
			}
			s.held.Add(feed.Entry{Cursor: feed.Cursor{Position: s.folded + 1, Micros: 1}, Change: change})
		}
		held = maps.Clone(s.held)
		return nil
	})
	return held
}

// complete makes the set if there is none, and says that the hub knows all resources.
func (s *source) complete(t testing.TB, h *hubtest.Hub) {
	t.Helper()
	if err := newClient(t, h).Describe(t.Context(), s.set, feed.Description{Title: s.set}); err != nil {
		t.Fatal(err)
	}
	if err := newClient(t, h).SetComplete(t.Context(), s.set, true); err != nil {
		t.Fatal(err)
	}
}

// A look is what a hub says of all its resources.
type look struct {
	Cursor            string
	Complete          bool
	Count             uint64
	Position, Content string // digests
}

// proved waits until the hub looks at the newest change or a later one, and checks that
// what it sees is what all changes up to there leave.
func (s *source) proved(t testing.TB, h *hubtest.Hub) (l look) {
	t.Helper()
	from := s.newest()
	hubtest.Until(t, fmt.Sprint("the hub looks at ", from), func() error {
		a, err := hubtest.Request(http.MethodGet, h.URL+"/sets/"+s.set+"/audit?from="+from.String(), nil)
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("it answers %d: %s", a.Status, a.Body)
		}
		if err != nil {
			return err
		}
		l = look{}
		return json.Unmarshal(a.Body, &l)
	})
	at, err := feed.ParseCursor(l.Cursor)
	if err != nil || at.Position < from.Position {
		t.Fatalf("the hub looks at %s, and was asked for %s: %v", l.Cursor, from, err)
	}
	var all digest.Tally
	for _, e := range s.at(t, at.Position) {
		one := digest.TallyOf(&e)
		all.Add(&one)
	}
	want := look{l.Cursor, l.Complete, all.Count, all.Digest(digest.ByPosition).String(), all.Digest(digest.ByContent).String()}
	if l != want {
		t.Fatalf("the hub sees %+v, and what the changes leave is %+v", l, want)
	}
	return l
}

// completely is proved, of a hub that knows all resources.
func (s *source) completely(t testing.TB, h *hubtest.Hub) {
	t.Helper()
	if l := s.proved(t, h); !l.Complete {
		t.Fatalf("the inventory of %s is not complete any more", s.set)
	}
}

// reads checks that a baseline has what the set holds.
func (s *source) reads(t testing.TB, h *hubtest.Hub) {
	t.Helper()
	got, position := sourcetest.Set{}, uint64(0)
	for p, err := range newClient(t, h).Baseline(t.Context(), s.set, client.BaselineOptions{Limit: 2_000}) {
		if err != nil {
			t.Fatalf("a baseline of %s: %v", s.set, err)
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
			t.Fatalf("the baseline of %d resources has %s at %d, not at %d", len(got), loc, g.Position, e.Position)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("the baseline has %d resources, not %d", len(got), len(want))
	}
}

// resource is the change of a resource with a hash that no other change has.
func resource(loc string, nonce uint64) resourcesync.Change {
	length := int64(nonce % 100_000)
	return resourcesync.Change{Loc: loc, Change: resourcesync.Updated, Hash: fmt.Sprintf("md5:%032x sha-256:%064x", nonce, nonce), Length: &length, Type: "text/plain"}
}

func deleted(loc string) resourcesync.Change {
	return resourcesync.Change{Loc: loc, Change: resourcesync.Deleted}
}

// resources are the first changes of n resources.
func resources(name string, n int) (all []resourcesync.Change) {
	for i := range n {
		all = append(all, resource(locOf(name, i), uint64(i)))
	}
	return all
}

func locOf(name string, i int) string { return fmt.Sprintf("https://example.org/%s/%06d", name, i+1) }
