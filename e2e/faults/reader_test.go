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

// A reader is a follower that connects to a random hub with its cursor each time, and restarts
// when its cursor is gone.
type reader struct {
	*hubtest.Follower
	soak     *soak
	change   string // type of the followed changes; empty means all
	behavior string // "", slow, reconnecting, sleeping, or callback
	r        *rand.Rand

	skips        [][2]uint64  // lost entries: after the first position, up to the second; guarded by Mu
	goneCount    atomic.Int64 // number of gone cursors
	overrunCount atomic.Int64 // number of them after retention had passed the cursor
}

func (r *reader) name() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s of %s %s", r.behavior, r.Transport, r.Set, r.change))
}

// newReader adds a reader that is not started.
func (s *soak) newReader(way, set, change, behavior string) *reader {
	r := &reader{Follower: &hubtest.Follower{Transport: way, Set: set, Cursor: "start"}, soak: s, change: change, behavior: behavior, r: s.rng(2000 + len(s.readers))}
	if change != "" {
		r.Query = "&change=" + change
	}
	s.readers = append(s.readers, r)
	return r
}

// read starts a reader that connects to a hub.
func (s *soak) read(way, set, change, behavior string) {
	r := s.newReader(way, set, change, behavior)
	s.work.Go(func() {
		for s.ctx.Err() == nil {
			r.Hub = s.hub(r.r)
			ctx, stop := context.WithCancel(s.ctx)
			r.OnMessage = func() {
				r.report()
				switch {
				case behavior == "sleeping":
					stop()
				case behavior == "slow" && r.r.IntN(100) == 0:
					sleepCtx(ctx, min(s.maxDuration, upTo(r.r, 8*time.Second)))
				case behavior == "slow":
					sleepCtx(ctx, 5*time.Millisecond)
				}
			}
			switch behavior {
			case "reconnecting":
				time.AfterFunc(100*time.Millisecond+upTo(r.r, 3*time.Second), stop)
			case "sleeping":
				r.waitForRetention()
			}
			err := r.Connect(ctx)
			stop()
			r.handleEnd(err)
			sleepCtx(s.ctx, 20*time.Millisecond)
		}
	})
}

func sleepCtx(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// position returns the position of the cursor.
func (r *reader) position() uint64 {
	p, _, _ := hubtest.SplitCursor(r.CurrentCursor()) // 0 at the start
	return p
}

// report fails the test for the faults that the reader has found.
func (r *reader) report() {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if len(r.Faults) > 0 {
		r.soak.Errorf("%s: %q", r.name(), r.Faults)
	}
	r.Faults = nil
}

// waitForRetention returns when retention has passed the cursor, so that the hub must report it as gone.
func (r *reader) waitForRetention() {
	for at := r.position(); at > 0 && r.soak.ctx.Err() == nil && r.soak.floor(r.Set) <= at; {
		sleepCtx(r.soak.ctx, 300*time.Millisecond)
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Entries = nil // not compared, because it sleeps during checkpoints
}

// handleEnd handles the end of a connection. Gone is correct if retention has passed the cursor, or
// if the set is being deleted.
func (r *reader) handleEnd(err error) {
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
		r.Fault("got a message that the memory diverged")
	case !gone:
	case !deleted && floor <= at:
		r.Fault("cursor %s is gone, floor %d: %v", r.Cursor, floor, err)
	default:
		if r.skips = append(r.skips, [2]uint64{at, floor}); deleted {
			r.skips = nil
		} else {
			r.overrunCount.Add(1)
		}
		r.goneCount.Add(1)
		r.soak.Add("readers told gone", 1)
		r.Cursor, r.Started = "start", false
	}
}

// floor returns the position of the floor of a set, from the first hub that responds.
func (s *soak) floor(set string) (floor uint64) {
	for i := 0; s.ctx.Err() == nil; i++ {
		if v, err := state(s.Hubs[i%len(s.Hubs)], set); err == nil {
			floor, _, _ = hubtest.SplitCursor(v.Floor)
			break
		}
		sleepCtx(s.ctx, 100*time.Millisecond)
	}
	return floor
}

// state returns the state of a set at a hub.
func state(h *hubtest.Hub, set string) (v struct{ Floor, Head string }, err error) {
	b, err := get(h.URL + "/sets/" + set)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	return v, err
}

// A callbackReader is a reader with a WebSub callback. At random it fails, stalls, rejects large
// deliveries, and ends its subscription and then subscribes again. Its deliveries must be
// signed, and each must start where the previous one ended, or name the gap. So at a checkpoint
// it has the same entries as all other readers.
type callbackReader struct {
	*reader
	url, secret string
	rejected    int // consecutive rejected deliveries; guarded by Mu
}

// addCallbacks adds callbacks of sets to a server.
func (s *soak) addCallbacks(server string, mux *http.ServeMux) {
	for _, set := range []string{"steady", "trimmed"} {
		for _, change := range []string{"", "", "updated"} {
			c := &callbackReader{reader: s.newReader("websub", set, change, "callback")}
			number := len(s.readers)
			path := fmt.Sprint("/", number)
			c.url, c.secret = server+path, "secret of "+path
			mux.Handle(path, c)
			s.work.Go(func() { c.subscribe("start", number) })
		}
	}
}

// subscribe requests the subscription at one hub after another, until one accepts.
func (c *callbackReader) subscribe(since string, hub int) {
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
			c.handleEnd(hubtest.ErrGone)
		case a.Status < 500 && a.Status != http.StatusNotFound && a.Status != http.StatusTooManyRequests:
			c.soak.Errorf("%s: subscription from %s = %d: %s", c.name(), since, a.Status, a.Body)
			return
		}
		sleepCtx(c.soak.ctx, 100*time.Millisecond)
	}
}

func (c *callbackReader) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil: // the hub closed the connection
		return
	case q.Get("hub.mode") == "denied":
		c.soak.Errorf("%s was denied: %s", c.name(), r.URL.RawQuery)
		return
	case r.Method != http.MethodPost:
		_, _ = io.WriteString(w, q.Get("hub.challenge")) // the hub may have been killed
		return
	}
	list, err := trial.ReadList(body)
	if err == nil {
		err = trial.CheckSignature(&trial.CallbackRequest{Header: r.Header, Body: body}, c.secret)
	}
	c.Mu.Lock()
	defer c.Mu.Unlock()
	if err == nil {
		if c.rejected < 2 && c.rejectRandomly(w, len(list.Entries)) {
			c.rejected++
			return
		}
		c.rejected = 0
		err = c.handleDelivery(r.Header, list)
	}
	if err != nil && c.soak.ctx.Err() == nil {
		c.soak.Errorf("%s at %s: %v, delivery with %v: %.300q", c.name(), c.Cursor, err, r.Header, body)
	}
}

// rejectRandomly rejects a delivery at random. The caller must hold Mu.
func (c *callbackReader) rejectRandomly(w http.ResponseWriter, changes int) bool {
	status := 0
	switch n := c.r.IntN(100); {
	case n < 8:
		status = []int{500, 502, 503, 429, 404, 302}[n%6]
	case n < 12:
		d := upTo(c.r, 4*time.Second)
		c.Mu.Unlock()
		sleepCtx(c.soak.ctx, d)
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

// handleDelivery handles a delivery, to which the server responds with 200. The caller must hold Mu.
func (c *callbackReader) handleDelivery(h http.Header, list *trial.List) error {
	previous, err1 := strconv.ParseUint(h.Get("RS-Previous"), 10, 64)
	position, err2 := strconv.ParseUint(h.Get("RS-Position"), 10, 64)
	after, _, err3 := hubtest.SplitCursor(list.After)
	cursor, _, err4 := hubtest.SplitCursor(list.Cursor)
	at, _, _ := hubtest.SplitCursor(c.Cursor) // 0 at the start
	err := errors.Join(err1, err2, err3, err4)
	if err != nil || previous != after || position != cursor || previous > position || list.Diverged || h.Get("RS-Diverged") != "" {
		return fmt.Errorf("header and body do not match (%v)", err)
	}
	if previous > at {
		var first, last uint64
		n, _ := fmt.Sscanf(h.Get("RS-Gap"), "%d-%d", &first, &last)
		told := n == 2 && first <= at+1 && last == previous
		if floor := c.soak.floor(c.Set); !told && c.Started || previous > floor {
			return fmt.Errorf("entries are missing without a gap, floor %d", floor)
		}
		if c.Started {
			c.soak.Add("deliveries with a gap", 1)
			c.skips = append(c.skips, [2]uint64{at, previous})
		}
		c.From, at = list.After, previous
	}
	c.Started = true
	next := previous
	for _, e := range list.Entries {
		if e.Position <= next || e.Position > position || c.change == "" && e.Position != next+1 {
			return fmt.Errorf("got entry %d after %d", e.Position, next)
		}
		if next = e.Position; e.Position > at {
			c.Entries = append(c.Entries, e)
		}
	}
	if c.change == "" && next != position {
		return fmt.Errorf("got last entry %d, want the position of the delivery", next)
	}
	if position >= at {
		c.Cursor = list.Cursor
	}
	return nil
}
