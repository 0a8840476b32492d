package soak

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// byCallback is the way in which a reader is called.
const byCallback = "callback"

// A called is a reader that the hubs call, by WebSub. It fails, stalls, refuses what is
// large, and ends its subscription at random, and then subscribes again. Its deliveries
// have to be signed, and each has to begin where the one before ended, or to say what
// is lost. So it has the same entries as all other readers at a checkpoint.
type called struct {
	*reader
	soak   *soak
	ctx    context.Context // of its requests
	url    string
	secret string

	// Mu guards these.
	row    int  // how often in a row it has not taken what came
	most   int  // how often it does so at most, so that the hub's wait stays short
	anew   bool // it subscribes from the start, because its cursor is gone
	counts calls
}

// calls counts what befell deliveries.
type calls struct{ failed, stalled, refused, ended, repeated, gaps int }

func (c calls) String() string {
	return fmt.Sprintf("%d failed, %d stalled, %d answered 413, %d answered 410, %d repeated, %d with RS-Gap",
		c.failed, c.stalled, c.refused, c.ended, c.repeated, c.gaps)
}

// call adds callbacks of sets.
func (s *soak) call() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	mux := http.NewServeMux()
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }() // until it is closed
	s.Cleanup(func() { _ = server.Close() })
	for _, set := range []string{"steady", "trimmed"} {
		for _, change := range []string{"", "", "updated"} {
			n := len(s.readers)
			f := &hubtest.Follower{Way: byCallback, Set: set, Cursor: "start"}
			ctx, cancel := context.WithCancel(context.Background())
			c := &called{
				reader: &reader{Follower: f, change: change, manner: "failing", rand: rand.New(rand.NewPCG(s.seed, uint64(3000+n))), cancel: cancel, done: make(chan struct{})},
				soak:   s, ctx: ctx, url: fmt.Sprintf("http://%s/%d", l.Addr(), n), secret: fmt.Sprintf("secret-%d", n), most: 3,
			}
			if s.most == moment {
				c.most = 1
			}
			mux.Handle(fmt.Sprintf("/%d", n), c)
			s.readers, s.called = append(s.readers, c.reader), append(s.called, c)
			go func() {
				defer close(c.done)
				c.subscribe("start")
				<-ctx.Done()
			}()
		}
	}
}

// subscribe asks a random hub for the subscription, until one accepts the request.
func (c *called) subscribe(since string) {
	for c.ctx.Err() == nil {
		c.Mu.Lock()
		h := c.soak.c.Hubs[c.rand.IntN(3)]
		c.Mu.Unlock()
		form := trial.Form("subscribe", c.url, c.soak.c.Hubs[0].Topic(c.Set), "hub.secret", c.secret, "rs.since", since)
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
		rest(c.ctx, 100*time.Millisecond)
	}
}

func (c *called) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		q := r.URL.Query()
		if q.Get("hub.mode") == "denied" {
			c.Mu.Lock()
			c.Fault("it is denied: %s", q.Get("hub.reason"))
			c.Mu.Unlock()
		}
		_, _ = io.WriteString(w, q.Get("hub.challenge")) // the hub may be gone
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the hub went away
	}
	mac := hmac.New(sha256.New, []byte(c.secret))
	mac.Write(body)
	list, err := trial.ReadList(body)
	var floor uint64
	if r.Header.Get("RS-Gap") != "" || c.begins() {
		floor = c.soak.floor(c.ctx, c.Set)
	}
	c.Mu.Lock()
	defer c.Mu.Unlock()
	switch want := "sha256=" + hex.EncodeToString(mac.Sum(nil)); {
	case r.Header.Get("X-Hub-Signature") != want:
		c.Fault("the signature is %q, not %q", r.Header.Get("X-Hub-Signature"), want)
	case err != nil:
		c.Fault("a delivery cannot be read: %v: %.200q", err, body)
	case c.row < c.most && c.fails(w, len(list.Entries)):
		c.row++
	default:
		c.row = 0
		c.take(r.Header, list, floor)
	}
}

func (c *called) begins() bool {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.anew
}

// fails does not take a delivery, at random. Mu is held.
func (c *called) fails(w http.ResponseWriter, changes int) bool {
	switch n := c.rand.IntN(100); {
	case n < 8:
		c.counts.failed++
		w.WriteHeader([]int{500, 502, 503, 429, 404, 302}[n%6])
	case n < 12:
		c.counts.stalled++
		d := time.Duration(c.rand.IntN(4000)) * time.Millisecond
		c.Mu.Unlock()
		rest(c.ctx, d)
		c.Mu.Lock()
		panic(http.ErrAbortHandler)
	case n < 18 && changes > 1:
		c.counts.refused++
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	case n < 20:
		c.counts.ended++
		since := c.Cursor
		w.WriteHeader(http.StatusGone)
		go c.subscribe(since)
	default:
		return false
	}
	return true
}

// take takes a delivery, which the hub is told with 200. Mu is held.
func (c *called) take(h http.Header, list *trial.List, floor uint64) {
	previous, err1 := strconv.ParseUint(h.Get("RS-Previous"), 10, 64)
	position, err2 := strconv.ParseUint(h.Get("RS-Position"), 10, 64)
	after, _, err3 := hubtest.SplitCursor(list.After)
	cursor, _, err4 := hubtest.SplitCursor(list.Cursor)
	at, _, _ := hubtest.SplitCursor(c.Cursor) // 0 at the start
	what := fmt.Sprintf("a delivery with RS-Previous %q, RS-Position %q and RS-Gap %q, from %s to %s, for a callback at %s",
		h.Get("RS-Previous"), h.Get("RS-Position"), h.Get("RS-Gap"), list.After, list.Cursor, c.Cursor)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || previous != after || position != cursor || previous > position || list.Diverged || h.Get("RS-Diverged") != "" {
		c.Fault("%s", what)
		return
	}
	if previous > at {
		var first, last uint64
		n, _ := fmt.Sscanf(h.Get("RS-Gap"), "%d-%d", &first, &last)
		told := n == 2 && first <= at+1 && last == previous
		if !told && !c.anew || previous > floor {
			c.Fault("%s: something is left out, and the floor is %d", what, floor)
			return
		}
		c.counts.gaps++
		c.gones, c.overran = c.gones+1, c.overran+1
		c.skips, c.From = append(c.skips, [2]uint64{at, previous}), list.After
		at = previous
	} else if previous < at {
		c.counts.repeated++
	}
	c.Begun, c.anew = true, false
	next := previous
	for _, e := range list.Entries {
		if e.Position <= next || e.Position > position || c.change == "" && e.Position != next+1 {
			c.Fault("%s has entry %d after %d", what, e.Position, next)
			return
		}
		if next = e.Position; e.Position > at {
			c.Entries = append(c.Entries, e)
		}
	}
	if c.change == "" && next != position {
		c.Fault("%s ends with entry %d", what, next)
	}
	if position >= at {
		c.Cursor = list.Cursor
	}
}
