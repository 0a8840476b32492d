package subscribe_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/subscribe"
)

// TestSessionRandom runs random commands on sessions while sets are published to, deleted, made again,
// and made private and public at random. Each set must start with a cursor, its messages must be
// consecutive, and none may come after the answer to an unfollow. In the end the client must have the
// newest cursor of every set that it follows.
func TestSessionRandom(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, settings{})
			var wg sync.WaitGroup
			stop := make(chan struct{})
			for i := range 2 {
				wg.Go(func() { s.changeSets(rand.New(rand.NewPCG(seed, uint64(i))), stop) })
			}
			var clients sync.WaitGroup
			for i := range 3 {
				r := &randomClient{sessionClient: s.dialSession(), random: rand.New(rand.NewPCG(seed, uint64(10+i))), last: map[string]feed.Cursor{}, ids: map[string]string{}}
				clients.Go(func() { r.run(s, stop) })
			}
			clients.Go(func() {
				defer close(stop)
				c := s.dialSession() // measures the time of the test in changes of a set
				c.send(`{"follow":"s0"}`)
				for n := 0; n < 40 && !t.Failed(); n++ {
					if m := c.read(); m.Error != nil {
						c.send(`{"follow":"s0","since":"start"}`)
					}
				}
			})
			clients.Wait()
			wg.Wait()
		})
	}
}

const randomSets = 12

// changeSets changes sets at random until stop is closed.
func (s *site) changeSets(r *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		set := fmt.Sprint("s", r.IntN(randomSets))
		switch n := r.IntN(40); {
		case n == 0:
			_ = s.hub.Delete(s.Context(), set) // or it does not exist
		case n < 3:
			_ = s.hub.Describe(s.Context(), set, feed.Description{Private: n == 1})
		default:
			_, err := s.hub.Publish(s.Context(), set, changelog.Publish{Changes: slices.Repeat([]resourcesync.Change{change(set, resourcesync.Updated, "")}, 1+r.IntN(3))})
			if err != nil && !errors.Is(err, feed.ErrNoSet) { // the other goroutine may have deleted it
				s.Error("publish:", err)
				return
			}
		}
	}
}

// A randomClient sends random commands, and checks the messages.
type randomClient struct {
	*sessionClient
	random *rand.Rand
	last   map[string]feed.Cursor // newest cursor of each followed set
	ids    map[string]string      // command without an answer, by id
	sent   int
}

func (c *randomClient) run(s *site, stop <-chan struct{}) {
	for stopped := false; !stopped; {
		select {
		case <-stop:
			stopped = true
		default:
			if len(c.ids) == 0 || c.random.IntN(3) == 0 { // fewer than messages, so that they do not pile up
				c.command()
			}
			c.check(c.read())
		}
	}
	// The last command restores what the client follows; from then on, every set reaches its head.
	c.send(`{"id":"end","unfollow":"*"}`)
	for m := (sessionMessage{}); m.ID != "end"; c.check(m) {
		m = c.read()
	}
	for set := range c.last {
		c.send(`{"id":%q,"follow":%q,"since":"start"}`, "restart "+set, set)
	}
	for len(c.ids) > 0 {
		c.check(c.read())
	}
	for set := range c.last {
		st, err := s.log.State(s.Context(), set)
		for err == nil && c.last[set] != st.Head && c.chains[set] != nil && !s.Failed() {
			c.check(c.read())
			st, err = s.log.State(s.Context(), set)
		}
	}
}

// command sends a random command.
func (c *randomClient) command() {
	c.sent++
	id, set := fmt.Sprint(c.sent), fmt.Sprint("s", c.random.IntN(randomSets))
	m := map[string]string{"id": id}
	switch c.random.IntN(12) {
	case 0:
		m["follow"], m["since"] = "*", []string{"now", "start"}[c.random.IntN(2)]
	case 1:
		m["unfollow"] = "*"
	case 2, 3:
		m["unfollow"] = set
	case 4:
		m["follow"], m["since"] = set, "1-1"
	default:
		m["follow"], m["since"] = set, []string{"", "start", "baseline"}[c.random.IntN(3)]
		if at, ok := c.last[set]; ok && c.random.IntN(2) == 0 {
			m["since"] = at.String()
		}
	}
	text, err := json.Marshal(m)
	ok(c, err)
	c.ids[id] = string(text)
	c.send("%s", text)
}

// check checks a message, whose chain has been checked.
func (c *randomClient) check(m sessionMessage) {
	if id, ok := m.ID.(string); ok {
		delete(c.ids, id)
	}
	switch {
	case m.Error != nil:
		delete(c.last, m.Set)
		if m.Error.Status == 400 || m.Error.Status >= 500 {
			c.Errorf("got %q: %s", m, m.Error.Detail)
		}
	case m.Unfollowed != "":
		delete(c.last, m.Unfollowed)
	case m.Cursor != "":
		at, err := feed.ParseCursor(m.Cursor)
		if err != nil {
			return // of a baseline
		}
		c.last[m.Set] = at
	}
}

// A session whose commands come faster than it executes them answers all of them in order.
func TestSessionOrder(t *testing.T) {
	s := newSite(t, settings{Options: subscribe.Options{}})
	s.publishTo("a", 1)
	c := s.dialSession()
	const n = 5_000
	go func() {
		for i := range n {
			c.send(`{"id":%d,"unfollow":"a"}`, i)
		}
	}()
	for i := range n {
		if m := c.read(); m.ID != float64(i) {
			t.Fatalf("got answer %v, want %d", m.ID, i)
		}
	}
}
