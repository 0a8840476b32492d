package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// A reader is a follower that goes to a random hub with its cursor each time, and begins
// anew when it is told that its cursor is gone.
type reader struct {
	*hubtest.Follower
	soak   *soak
	change string // the only kind of change that it follows; empty: all
	manner string // "", slow, restless, sleeping, or called
	r      *rand.Rand

	skips   [][2]uint64  // what it was told is gone: behind the first, up to the second; guarded by Mu
	gones   atomic.Int64 // times that it was told so
	overran atomic.Int64 // how many of them because retention had passed its cursor
}

func (r *reader) name() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s of %s %s", r.manner, r.Transport, r.Set, r.change))
}

// newReader returns a reader that does nothing yet.
func (s *soak) newReader(way, set, change, manner string) *reader {
	r := &reader{Follower: &hubtest.Follower{Transport: way, Set: set, Cursor: "start"}, soak: s, change: change, manner: manner, r: s.of(2000 + len(s.readers))}
	if change != "" {
		r.Query = "&change=" + change
	}
	s.readers = append(s.readers, r)
	return r
}

// read starts a reader that connects.
func (s *soak) read(way, set, change, manner string) {
	r := s.newReader(way, set, change, manner)
	s.work.Go(func() {
		for s.ctx.Err() == nil {
			r.Hub = s.hub(r.r)
			ctx, stop := context.WithCancel(s.ctx)
			r.OnMessage = func() {
				r.report()
				switch {
				case manner == "sleeping":
					stop()
				case manner == "slow" && r.r.IntN(100) == 0:
					rest(ctx, min(s.most, upTo(r.r, 8*time.Second)))
				case manner == "slow":
					rest(ctx, 5*time.Millisecond)
				}
			}
			switch manner {
			case "restless":
				time.AfterFunc(100*time.Millisecond+upTo(r.r, 3*time.Second), stop)
			case "sleeping":
				r.sleep()
			}
			err := r.Connect(ctx)
			stop()
			r.over(err)
			rest(s.ctx, 20*time.Millisecond)
		}
	})
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// position is that of its cursor.
func (r *reader) position() uint64 {
	p, _, _ := hubtest.SplitCursor(r.CurrentCursor()) // 0 at the start
	return p
}

// report fails the test for what it has found wrong.
func (r *reader) report() {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if len(r.Faults) > 0 {
		r.soak.Errorf("%s: %q", r.name(), r.Faults)
	}
	r.Faults = nil
}

// sleep returns when retention has passed its cursor, so that the hub has to tell it so.
func (r *reader) sleep() {
	for at := r.position(); at > 0 && r.soak.ctx.Err() == nil && r.soak.floor(r.Set) <= at; {
		rest(r.soak.ctx, 300*time.Millisecond)
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Entries = nil // nobody compares them: it sleeps through checkpoints
}

// over notes how a connection ended. Gone is right where retention has passed the cursor,
// or where the set is being deleted.
func (r *reader) over(err error) {
	defer r.report()
	gone, deleted := errors.Is(err, hubtest.ErrGone), r.soak.ledgers[r.Set].deleted.Load()
	at, floor := r.position(), uint64(0)
	if gone && !deleted {
		floor = r.soak.floor(r.Set)
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Errs = append(r.Errs, err.Error())
	r.Errs = r.Errs[max(0, len(r.Errs)-3):]
	switch {
	case r.soak.ctx.Err() != nil:
	case r.Diverged > 0:
		r.Fault("it was told that the memory diverged")
	case !gone:
	case !deleted && floor <= at:
		r.Fault("its cursor %s is gone, and the floor is %d: %v", r.Cursor, floor, err)
	default:
		if r.skips = append(r.skips, [2]uint64{at, floor}); deleted {
			r.skips = nil
		} else {
			r.overran.Add(1)
		}
		r.gones.Add(1)
		r.soak.Add("readers told gone", 1)
		r.Cursor, r.Started = "start", false
	}
}

// floor is the position of a set's floor, as the first hub says it that can.
func (s *soak) floor(set string) (floor uint64) {
	for i := 0; s.ctx.Err() == nil; i++ {
		if v, err := state(s.Hubs[i%len(s.Hubs)], set); err == nil {
			floor, _, _ = hubtest.SplitCursor(v.Floor)
			break
		}
		rest(s.ctx, 100*time.Millisecond)
	}
	return floor
}

// state is what a hub says of a set.
func state(h *hubtest.Hub, set string) (v struct{ Floor, Head string }, err error) {
	b, err := get(h.URL + "/sets/" + set)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	return v, err
}

// A called is a reader that the hubs call, by WebSub. It fails, stalls, refuses what is
// large, and ends its subscription at random, and then subscribes again. Its deliveries
// have to be signed, and each has to begin where the one before ended, or to say what
// is lost. So it has the same entries as all other readers at a checkpoint.
type called struct {
	*reader
	url, secret string
	row         int // how often in a row it has not taken what came; guarded by Mu
}

// call adds callbacks of sets to a server.
func (s *soak) call(server string, mux *http.ServeMux) {
	for _, set := range []string{"steady", "trimmed"} {
		for _, change := range []string{"", "", "updated"} {
			c := &called{reader: s.newReader("callback", set, change, "called")}
			number := len(s.readers)
			path := fmt.Sprint("/", number)
			c.url, c.secret = server+path, "secret of "+path
			mux.Handle(path, c)
			s.work.Go(func() { c.subscribe("start", number) })
		}
	}
}

// subscribe asks one hub after another for the subscription, until one accepts the request.
func (c *called) subscribe(since string, hub int) {
	for ; c.soak.ctx.Err() == nil; hub++ {
		form := trial.Form("subscribe", c.url, c.soak.topic(c.Set), "hub.secret", c.secret, "rs.since", since)
		if c.change != "" {
			form.Set("rs.change", c.change)
		}
		a, err := hubtest.Request(http.MethodPost, c.soak.Hubs[hub%len(c.soak.Hubs)].URL+"/hub", strings.NewReader(form.Encode()), trial.AsForm)
		switch {
		case err != nil:
		case a.Status == http.StatusAccepted:
			return
		case a.Status == http.StatusGone:
			since = "start"
			c.over(hubtest.ErrGone)
		case a.Status < 500 && a.Status != http.StatusNotFound && a.Status != http.StatusTooManyRequests:
			c.soak.Errorf("%s: a subscription from %s is answered %d: %s", c.name(), since, a.Status, a.Body)
			return
		}
		rest(c.soak.ctx, 100*time.Millisecond)
	}
}

func (c *called) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil: // the hub went away
		return
	case q.Get("hub.mode") == "denied":
		c.soak.Errorf("%s is denied: %s", c.name(), r.URL.RawQuery)
		return
	case r.Method != http.MethodPost:
		_, _ = io.WriteString(w, q.Get("hub.challenge")) // the hub may be gone
		return
	}
	list, err := trial.ReadList(body)
	if err == nil {
		err = trial.CheckSignature(&trial.CallbackRequest{Header: r.Header, Body: body}, c.secret)
	}
	c.Mu.Lock()
	defer c.Mu.Unlock()
	if err == nil {
		if c.row < 2 && c.fails(w, len(list.Entries)) {
			c.row++
			return
		}
		c.row = 0
		err = c.take(r.Header, list)
	}
	if err != nil && c.soak.ctx.Err() == nil {
		c.soak.Errorf("%s, which is at %s: %v, in a delivery with %v: %.300q", c.name(), c.Cursor, err, r.Header, body)
	}
}

// fails does not take a delivery, at random. Mu is held.
func (c *called) fails(w http.ResponseWriter, changes int) bool {
	status := 0
	switch n := c.r.IntN(100); {
	case n < 8:
		status = []int{500, 502, 503, 429, 404, 302}[n%6]
	case n < 12:
		d := upTo(c.r, 4*time.Second)
		c.Mu.Unlock()
		rest(c.soak.ctx, d)
		c.Mu.Lock()
		panic(http.ErrAbortHandler)
	case n < 18 && changes > 1:
		status = http.StatusRequestEntityTooLarge
	case n < 20:
		status = http.StatusGone
		since, hub := c.Cursor, c.r.IntN(len(c.soak.Hubs))
		c.soak.work.Go(func() { c.subscribe(since, hub) })
	default:
		return false
	}
	w.WriteHeader(status)
	c.soak.Add(fmt.Sprint("deliveries answered ", status), 1)
	return true
}

// take takes a delivery, which the hub is told with 200. Mu is held.
func (c *called) take(h http.Header, list *trial.List) error {
	previous, err1 := strconv.ParseUint(h.Get("RS-Previous"), 10, 64)
	position, err2 := strconv.ParseUint(h.Get("RS-Position"), 10, 64)
	after, _, err3 := hubtest.SplitCursor(list.After)
	cursor, _, err4 := hubtest.SplitCursor(list.Cursor)
	at, _, _ := hubtest.SplitCursor(c.Cursor) // 0 at the start
	err := errors.Join(err1, err2, err3, err4)
	if err != nil || previous != after || position != cursor || previous > position || list.Diverged || h.Get("RS-Diverged") != "" {
		return fmt.Errorf("header and body say different things (%v)", err)
	}
	if previous > at {
		var first, last uint64
		n, _ := fmt.Sscanf(h.Get("RS-Gap"), "%d-%d", &first, &last)
		told := n == 2 && first <= at+1 && last == previous
		if floor := c.soak.floor(c.Set); !told && c.Started || previous > floor {
			return fmt.Errorf("something is left out, and the floor is %d", floor)
		}
		if c.Started {
			c.soak.Add("deliveries with a gap that is said", 1)
			c.skips = append(c.skips, [2]uint64{at, previous})
		}
		c.From, at = list.After, previous
	}
	c.Started = true
	next := previous
	for _, e := range list.Entries {
		if e.Position <= next || e.Position > position || c.change == "" && e.Position != next+1 {
			return fmt.Errorf("it has entry %d after %d", e.Position, next)
		}
		if next = e.Position; e.Position > at {
			c.Entries = append(c.Entries, e)
		}
	}
	if c.change == "" && next != position {
		return fmt.Errorf("it ends with entry %d", next)
	}
	if position >= at {
		c.Cursor = list.Cursor
	}
	return nil
}
