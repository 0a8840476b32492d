package faults

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// A called is a reader that the hubs call, by WebSub. It fails, stalls, refuses what is
// large, and ends its subscription at random, and then subscribes again. Its deliveries
// have to be signed, and each has to begin where the one before ended, or to say what
// is lost. So it has the same entries as all other readers at a checkpoint.
type called struct {
	*reader
	url, secret string

	// Mu guards these.
	row  int  // how often in a row it has not taken what came
	anew bool // it subscribes from the start, because its cursor is gone
}

// call adds callbacks of sets to a server.
func (s *soak) call(server string, mux *http.ServeMux) {
	for _, set := range []string{"steady", "trimmed"} {
		for _, change := range []string{"", "", "updated"} {
			c := &called{reader: s.newReader("callback", set, change, "called")}
			path := fmt.Sprintf("/%d", len(s.readers))
			c.url, c.secret = server+path, "secret of "+path
			mux.Handle(path, c)
			s.work.Go(func() { c.subscribe("start") })
		}
	}
}

// subscribe asks a random hub for the subscription, until one accepts the request.
func (c *called) subscribe(since string) {
	for c.soak.ctx.Err() == nil {
		c.Mu.Lock()
		h := c.soak.hub(c.r)
		c.Mu.Unlock()
		form := trial.Form("subscribe", c.url, c.soak.topic(c.Set), "hub.secret", c.secret, "rs.since", since)
		if c.change != "" {
			form.Set("rs.change", c.change)
		}
		a, err := hubtest.Request(http.MethodPost, h.URL+"/hub", strings.NewReader(form.Encode()), trial.AsForm)
		switch {
		case err != nil:
		case a.Status == http.StatusAccepted:
			return
		case a.Status == http.StatusGone:
			since = "start"
			c.Mu.Lock()
			c.anew = true
			c.Mu.Unlock()
		case a.Status < 500 && a.Status != http.StatusNotFound && a.Status != http.StatusTooManyRequests:
			c.Mu.Lock()
			c.Fault("a subscription from %s is answered %d: %s", since, a.Status, a.Body)
			c.Mu.Unlock()
			return
		}
		rest(c.soak.ctx, 100*time.Millisecond)
	}
}

func (c *called) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		if q := r.URL.Query(); q.Get("hub.mode") != "denied" {
			_, _ = io.WriteString(w, q.Get("hub.challenge")) // the hub may be gone
			return
		}
		c.Mu.Lock()
		defer c.Mu.Unlock()
		c.Fault("it is denied: %s", r.URL.RawQuery)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the hub went away
	}
	mac := hmac.New(sha256.New, []byte(c.secret))
	mac.Write(body)
	list, err := trial.ReadList(body)
	c.Mu.Lock()
	anew := c.anew
	c.Mu.Unlock()
	var floor uint64
	if anew || r.Header.Get("RS-Gap") != "" {
		floor = c.soak.floor(c.Set)
	}
	c.Mu.Lock()
	defer c.Mu.Unlock()
	switch want := "sha256=" + hex.EncodeToString(mac.Sum(nil)); {
	case r.Header.Get("X-Hub-Signature") != want:
		c.Fault("the signature is %q, not %q", r.Header.Get("X-Hub-Signature"), want)
	case err != nil:
		c.Fault("a delivery cannot be read: %v: %.200q", err, body)
	case c.row < c.soak.row && c.fails(w, len(list.Entries)):
		c.row++
	default:
		c.row = 0
		if err := c.take(r.Header, list, floor); err != nil {
			h := r.Header
			c.Fault("a delivery with RS-Previous %q, RS-Position %q and RS-Gap %q, from %s to %s, for a callback at %s; the floor is %d: %v",
				h.Get("RS-Previous"), h.Get("RS-Position"), h.Get("RS-Gap"), list.After, list.Cursor, c.Cursor, floor, err)
		}
	}
}

// fails does not take a delivery, at random. Mu is held.
func (c *called) fails(w http.ResponseWriter, changes int) bool {
	what := ""
	switch n := c.r.IntN(100); {
	case n < 8:
		w.WriteHeader([]int{500, 502, 503, 429, 404, 302}[n%6])
		what = "failed"
	case n < 12:
		d := upTo(c.r, 4*time.Second)
		c.soak.add("deliveries stalled", 1)
		c.Mu.Unlock()
		rest(c.soak.ctx, d)
		c.Mu.Lock()
		panic(http.ErrAbortHandler)
	case n < 18 && changes > 1:
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		what = "answered 413"
	case n < 20:
		since := c.Cursor
		w.WriteHeader(http.StatusGone)
		c.soak.work.Go(func() { c.subscribe(since) })
		what = "answered 410"
	default:
		return false
	}
	c.soak.add("deliveries "+what, 1)
	return true
}

// take takes a delivery, which the hub is told with 200. Mu is held.
func (c *called) take(h http.Header, list *trial.List, floor uint64) error {
	previous, err1 := strconv.ParseUint(h.Get("RS-Previous"), 10, 64)
	position, err2 := strconv.ParseUint(h.Get("RS-Position"), 10, 64)
	after, _, err3 := hubtest.SplitCursor(list.After)
	cursor, _, err4 := hubtest.SplitCursor(list.Cursor)
	at, _, _ := hubtest.SplitCursor(c.Cursor) // 0 at the start
	err := errors.Join(err1, err2, err3, err4)
	if err != nil || previous != after || position != cursor || previous > position || list.Diverged || h.Get("RS-Diverged") != "" {
		return fmt.Errorf("header and body say different things (%v)", err)
	}
	switch {
	case previous > at:
		var first, last uint64
		n, _ := fmt.Sscanf(h.Get("RS-Gap"), "%d-%d", &first, &last)
		told := n == 2 && first <= at+1 && last == previous
		if !told && !c.anew || previous > floor {
			return errors.New("something is left out")
		}
		c.soak.add("deliveries with a gap that is said", 1)
		c.gones, c.overran = c.gones+1, c.overran+1
		c.skips, c.From = append(c.skips, [2]uint64{at, previous}), list.After
		at = previous
	case previous < at:
		c.soak.add("deliveries repeated", 1)
	}
	c.Begun, c.anew = true, false
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
