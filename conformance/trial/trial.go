// Package trial is what it takes to try a hub: a source that publishes, callbacks
// that answer well or badly and remember what arrived, and what a hub has to make
// of both. It knows no testing.T, so that a program can try hubs too.
package trial

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// AsForm is the header of a subscriber's request.
const AsForm = "Content-Type: application/x-www-form-urlencoded"

// A T is told how a trial goes, as a *testing.T is. Fatal, Fatalf and Skip
// end the goroutine that calls them.
type T interface {
	Helper()
	Cleanup(end func())
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Skip(args ...any)
	Failed() bool
}

// A Trial is a source and any number of subscribers, who try a hub together. It
// lasts as long as its test.
type Trial struct {
	T
	Hub       *Hub
	Server    *Server // of its own: what callbacks of one host do may hold up others there
	callbacks []*Callback
	topics    int
}

// New starts a trial. Everything that it starts ends with the test.
func New(t T, h *Hub) *Trial {
	tr := &Trial{T: t, Hub: h}
	if tr.Server = h.shared; tr.Server == nil {
		tr.Server = tr.Elsewhere()
	}
	t.Cleanup(func() {
		for _, c := range tr.callbacks {
			c.end()
		}
	})
	return tr
}

// Describe shows what arrived at the callbacks, for who wonders why it failed.
func (t *Trial) Describe() string {
	var b strings.Builder
	for _, c := range t.callbacks {
		fmt.Fprintf(&b, "%s:\n%s", c.URL, c.describe())
	}
	return b.String()
}

// Wait waits until cond returns nil, and gives up with its last error.
func (t *Trial) Wait(what string, cond func() error) {
	t.Helper()
	if err := Soon(t.Hub.Patience, cond); err != nil {
		t.Fatalf("waited %v in vain until %s: %v", t.Hub.Patience, what, err)
	}
}

// Soon waits until cond returns nil, at most so long, and returns its last error.
func Soon(patience time.Duration, cond func() error) error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := cond()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return err
		}
	}
}

// Elsewhere starts another server for callbacks. Where there is one URL for all
// callbacks the check is skipped.
func (t *Trial) Elsewhere() *Server {
	t.Helper()
	if t.Hub.shared != nil {
		t.Skip("it needs callbacks at several addresses")
	}
	return Serve(t, t.Hub.address(), t.Hub.Before)
}

// Callback makes a callback, with more behind its path.
func (t *Trial) Callback(rest string) *Callback { return t.CallbackAt(t.Server, rest) }

// TLSCallback makes a callback with a certificate that the hub cannot trust.
func (t *Trial) TLSCallback() *Callback {
	if t.Hub.shared != nil {
		t.Skip("it needs callbacks at several addresses")
	}
	s := newServer()
	server := httptest.NewUnstartedServer(s)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes fail
	server.StartTLS()
	t.Cleanup(server.Close)
	s.URL = server.URL
	return t.CallbackAt(s, "")
}

// CallbackAt makes a callback at another server.
func (t *Trial) CallbackAt(s *Server, rest string) *Callback {
	c := s.Add(rest)
	t.callbacks = append(t.callbacks, c)
	return c
}

// Form is a request of a subscriber. Parameters come in pairs; one that is there
// already is replaced, and with the value - left out.
func Form(mode, callback, topic string, params ...string) url.Values {
	f := url.Values{"hub.mode": {mode}, "hub.callback": {callback}, "hub.topic": {topic}}
	for i := 0; i < len(params); i += 2 {
		if f.Set(params[i], params[i+1]); params[i+1] == "-" {
			f.Del(params[i])
		}
	}
	return f
}

// Request asks for a subscription, or for its end.
func (t *Trial) Request(mode string, c *Callback, tp *Topic, params ...string) *Answer {
	return t.Post(Form(mode, c.URL, tp.URL, params...).Encode())
}

// Accepted makes a request that has to be accepted.
func (t *Trial) Accepted(mode string, c *Callback, tp *Topic, params ...string) {
	if a := t.Request(mode, c, tp, params...); a.Status != http.StatusAccepted {
		t.Fatalf("%s %q is answered %d, not 202: %s", mode, params, a.Status, Tail(string(a.Body)))
	}
}

// Verified makes a request that has to be accepted and verified, and returns the
// verification.
func (t *Trial) Verified(mode string, c *Callback, tp *Topic, params ...string) Arrival {
	n := len(c.Got(Verification))
	t.Accepted(mode, c, tp, params...)
	return t.Arrives(c, Verification, n+1)[n]
}

// Subscribed makes a subscription that is active.
func (t *Trial) Subscribed(c *Callback, tp *Topic, params ...string) Arrival {
	t.Helper()
	v := t.Verified("subscribe", c, tp, params...)
	if t.Hub.IsRshub {
		return v
	}
	t.Wait("the subscription is active", func() error {
		mark := t.Publish(tp)
		return Soon(min(t.Hub.Patience/10, time.Second), func() error {
			if c.Times(mark) == 0 {
				return errors.New("a change is not delivered")
			}
			return nil
		})
	})
	return v
}

// Arrives waits until so many requests of a kind have arrived.
func (t *Trial) Arrives(c *Callback, kind string, n int) (all []Arrival) {
	t.Wait(fmt.Sprintf("%d of kind %s arrive", n, kind), func() error {
		if all = c.Got(kind); len(all) < n {
			return fmt.Errorf("there are %d", len(all))
		}
		return nil
	})
	return all
}

// Delivered waits until a change was delivered, and returns the delivery that
// was answered with 2xx.
func (t *Trial) Delivered(c *Callback, mark string) (d Arrival) {
	t.Wait("the change is delivered", func() error {
		for _, d = range c.Got(Delivery) {
			if d.Has(mark) && d.Status/100 == 2 {
				return nil
			}
		}
		return fmt.Errorf("%d deliveries do not have %s, or failed", len(c.Got(Delivery)), mark)
	})
	return d
}

// Times counts the deliveries that have a mark.
func (c *Callback) Times(mark string) (n int) {
	for _, d := range c.Got(Delivery) {
		if d.Has(mark) {
			n++
		}
	}
	return n
}

// Rounds publishes changes, and waits until another subscriber has each. A
// subscriber of the same topic had time to get them too.
func (t *Trial) Rounds(tp *Topic, witness *Callback, n int) (marks []string) {
	for range n {
		mark := t.Publish(tp)
		t.Delivered(witness, mark)
		marks = append(marks, mark)
	}
	return marks
}

// Nothing checks that a callback gets no changes any more, soon or at once.
func (t *Trial) Nothing(c *Callback, tp *Topic, witness *Callback) {
	t.Wait("nothing is delivered any more", func() error {
		for _, mark := range t.Rounds(tp, witness, 8) {
			if c.Times(mark) > 0 {
				return errors.New("changes are delivered")
			}
		}
		return nil
	})
}

// Never checks that a callback never got anything delivered, while another did.
func (t *Trial) Never(c *Callback, tp *Topic) {
	witness := t.Callback("")
	t.Subscribed(witness, tp)
	t.Rounds(tp, witness, 3)
	if all := c.Got(Delivery); len(all) > 0 {
		t.Fatalf("%d deliveries arrived, the first: %s", len(all), Tail(string(all[0].Body)))
	}
}

// PublishLocs publishes that these resources were created, and returns the mark
// of the last.
func (t *Trial) PublishLocs(tp *Topic, locs ...string) (mark string) {
	t.Helper()
	t.PublishAll(tp, Created(locs...))
	return MarkOf(locs[len(locs)-1])
}

// Notification reads a delivery.
func (t *Trial) Notification(d Arrival) *List {
	t.Helper()
	l, err := ReadList(d.Body)
	if err != nil {
		t.Fatalf("%v: %s", err, Tail(string(d.Body)))
	}
	return l
}

// Taken are the changes that a callback has taken, in their order, of resources
// whose loc begins so.
func (t *Trial) Taken(c *Callback, prefix string) (all []resourcesync.Change) {
	t.Helper()
	for _, d := range c.Got(Delivery) {
		if d.Status/100 == 2 {
			for _, it := range t.Notification(d).Items {
				if strings.HasPrefix(it.Loc, prefix) {
					all = append(all, it.Change)
				}
			}
		}
	}
	return all
}

// ErrNotYet is what who waits for a condition says of one that is not true yet.
var ErrNotYet = errors.New("not yet")

// Answered says whether so many arrivals of a kind were answered.
func Answered(c *Callback, kind string, n int) error {
	for _, a := range c.Got(kind) {
		if a.Status != 0 {
			n--
		}
	}
	if n > 0 {
		return fmt.Errorf("%d are not answered", n)
	}
	return nil
}

// OneDelivered publishes a change and says whether it arrives soon.
func OneDelivered(t *Trial, c *Callback, tp *Topic) error {
	mark := t.Publish(tp)
	return Soon(t.Hub.Patience/10, func() error {
		if c.Times(mark) == 0 {
			return ErrNotYet
		}
		return nil
	})
}
