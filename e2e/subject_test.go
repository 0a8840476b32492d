package e2e

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A subject is the hub that is checked, seen from outside.
type subject struct {
	hubURL string // where subscriptions are asked for
	rshub  *hub   // nil when it is another hub
	origin *origin
	client *http.Client
	calls  func(http.Handler) http.Handler // what is between the hub and callbacks, nil: nothing
}

// otherHub names the variable that has the URL of a hub to check in place of the
// built rshub. It has to reach 127.0.0.1, fetches topics when it is told by
// hub.mode=publish, and has a minute for what rshub does in half of that.
const otherHub = "RSHUB_E2E_HUB"

// startSubject starts rshub for checks, or takes the other hub.
func startSubject(t testing.TB) *subject {
	t.Helper()
	s := &subject{client: client}
	if u := os.Getenv(otherHub); u != "" {
		s.hubURL, s.origin = u, &origin{hub: u, contents: map[string]string{}}
		s.origin.url = serveOrigin(t, s.origin)
		return s
	}
	s.rshub = startWebSub(t)
	s.hubURL = s.rshub.url + "/hub"
	return s
}

// Variables with which a hub calls this machine, and grants short leases.
var callable = []string{"RSHUB_CALLBACK_ALLOW=127.0.0.0/8,::1/128", "RSHUB_LEASE_MIN=1s"}

// startWebSub starts a hub for callbacks, or skips the test.
func startWebSub(t testing.TB, env ...string) *hub {
	t.Helper()
	h := startHub(t, append(callable[:len(callable):len(callable)], env...)...)
	return h
}

const asForm = "Content-Type: application/x-www-form-urlencoded"

// An origin serves the topics of another hub than rshub.
type origin struct {
	url, hub string

	mu       sync.Mutex
	contents map[string]string
}

func serveOrigin(t testing.TB, o *origin) string {
	t.Helper()
	return serveHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		text, ok := o.contents[r.URL.Path]
		o.mu.Unlock()
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/xml")
		w.Header().Set("Link", fmt.Sprintf(`<%s>; rel="hub", <%s%s>; rel="self"`, o.hub, o.url, r.URL.Path))
		_, _ = w.Write([]byte(text))
	}))
}

// serveHandler serves on loopback until the end of the test, and returns the URL.
func serveHandler(t testing.TB, h http.Handler) string {
	t.Helper()
	return serveCallbacks(t, "127.0.0.1:0", func(http.Handler) http.Handler { return h }).url
}

// A topic is what a trial subscribes to. Each change of it has a mark, which the
// delivery contains.
type topic struct {
	url, set string
	marks    int
	made     map[string]time.Time // when a change was published
}

// A check is one thing that a hub has to do. Its name begins with the section
// that says so.
type check struct {
	name string
	run  func(t *trial)
}

// A trial is one run of a check. It notes what fails, in place of the test, so
// that a check can be shown to fail.
type trial struct {
	testing.TB // for logs and directories
	*subject
	name     string
	patience time.Duration
	server   *callbackServer // of its own: what callbacks of one host do may hold up others there
	direct   bool            // the test itself fails

	mu        sync.Mutex
	failures  []string
	skipped   string
	cleanups  []func()
	callbacks []*callback
}

// try runs a check to its end.
func (s *subject) try(t testing.TB, c check, patience time.Duration) *trial {
	tr := &trial{TB: t, subject: s, name: c.name, patience: patience}
	done := make(chan struct{})
	go func() { // a trial that gives up ends its goroutine
		defer close(done)
		tr.server = tr.elsewhere()
		c.run(tr)
	}()
	<-done
	for _, c := range tr.callbacks {
		c.end()
	}
	for i := len(tr.cleanups) - 1; i >= 0; i-- {
		tr.cleanups[i]()
	}
	return tr
}

// runChecks runs checks as subtests.
func runChecks(t *testing.T, s *subject, checks []check) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tr := s.try(t, c, patience)
			for _, f := range tr.failures {
				t.Error(f)
			}
			if len(tr.failures) > 0 {
				for _, c := range tr.callbacks {
					t.Logf("%s:\n%s", c.url, c.describe())
				}
			} else if tr.skipped != "" {
				t.Skip(tr.skipped)
			}
		})
	}
}

// trialOf is a trial that is the whole test.
func trialOf(t testing.TB, h *hub) *trial {
	tr := &trial{TB: t, subject: &subject{hubURL: h.url + "/hub", rshub: h, client: client}, name: t.Name(), patience: patience, direct: true}
	tr.server = tr.elsewhere()
	t.Cleanup(func() {
		for _, c := range tr.callbacks {
			if c.end(); t.Failed() {
				t.Logf("%s:\n%s", c.url, c.describe())
			}
		}
	})
	return tr
}

// note notes a failure.
func (t *trial) note(text string) {
	if t.direct {
		t.TB.Error(text)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, text)
}

// giveUp ends the check.
func (t *trial) giveUp() {
	if t.direct {
		t.TB.FailNow()
	}
	runtime.Goexit()
}

func (t *trial) Failed() bool {
	if t.direct {
		return t.TB.Failed()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) > 0
}

func (t *trial) Cleanup(f func()) {
	if t.direct {
		t.TB.Cleanup(f)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

func (t *trial) Error(args ...any)                 { t.note(fmt.Sprint(args...)) }
func (t *trial) Errorf(format string, args ...any) { t.note(fmt.Sprintf(format, args...)) }
func (t *trial) Fatal(args ...any)                 { t.note(fmt.Sprint(args...)); t.giveUp() }
func (t *trial) Fatalf(format string, args ...any) { t.Errorf(format, args...); t.giveUp() }
func (t *trial) Skip(args ...any)                  { t.skipped = fmt.Sprint(args...); runtime.Goexit() }

// wait waits until cond returns nil, and gives up with its last error.
func (t *trial) wait(what string, cond func() error) {
	if err := soon(t.patience, cond); err != nil {
		t.Fatalf("waited %v in vain until %s: %v", t.patience, what, err)
	}
}

// soon waits until cond returns nil, at most so long, and returns its last error.
func soon(patience time.Duration, cond func() error) error {
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

// elsewhere starts another server for callbacks.
func (t *trial) elsewhere() *callbackServer { return serveCallbacks(t, "127.0.0.1:0", t.calls) }

// callback makes a callback, with more behind its path.
func (t *trial) callback(rest string) *callback { return t.callbackAt(t.server, rest) }

// tlsCallback makes a callback with a certificate that the hub cannot trust.
func (t *trial) tlsCallback() *callback {
	s := &callbackServer{callbacks: map[string]*callback{}}
	server := httptest.NewUnstartedServer(s)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes fail
	server.StartTLS()
	t.Cleanup(server.Close)
	s.url = server.URL
	return t.callbackAt(s, "")
}

func (t *trial) callbackAt(s *callbackServer, rest string) *callback {
	c := s.add(rest)
	t.callbacks = append(t.callbacks, c)
	return c
}

// topic makes a topic that has one change.
func (t *trial) topic() *topic {
	name := "topic-" + strconv.FormatInt(names.Add(1), 10)
	tp := &topic{set: name, made: map[string]time.Time{}}
	if t.rshub != nil {
		tp.url = t.rshub.topic(name)
		t.publish(tp)
		return tp
	}
	tp.url = t.origin.url + "/" + name
	t.origin.put(tp)
	return tp
}

// put puts a topic's newest mark into its contents.
func (o *origin) put(tp *topic) string {
	tp.marks++
	mark := fmt.Sprintf("https://example.org/%s/%d", tp.set, tp.marks)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.contents["/"+tp.set] = xmlOf(strings.ReplaceAll(goodURL, "https://example.org/1", mark))
	return "<loc>" + mark + "</loc>"
}

// publish changes a topic, and returns the mark of the change.
func (t *trial) publish(tp *topic) (mark string) {
	now := time.Now()
	if t.rshub != nil {
		tp.marks++
		loc := fmt.Sprintf("https://example.org/%s/%d", tp.set, tp.marks)
		must(t, http.StatusOK, http.MethodPost, tp.url, []byte(`{"changes":[{"loc":"`+loc+`","change":"created"}]}`), asJSON)
		mark = "<loc>" + loc + "</loc>"
	} else {
		mark = t.origin.put(tp)
		form := url.Values{"hub.mode": {"publish"}, "hub.topic": {tp.url}, "hub.url": {tp.url}}
		if a := t.post(form.Encode()); a.status/100 != 2 {
			t.Fatalf("the hub answers %d to hub.mode=publish: %s", a.status, a.body)
		}
	}
	tp.made[mark] = now
	return mark
}

// post sends a form to the hub.
func (t *trial) post(body string, headers ...string) *answer {
	return t.postTo(t.hubURL, body, headers...)
}

// postTo sends a form to a URL.
func (t *trial) postTo(u, body string, headers ...string) *answer {
	req, err := http.NewRequest(http.MethodPost, u, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range append([]string{asForm}, headers...) {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := t.client.Do(req)
	if err != nil {
		t.Fatalf("POST %s: %v", u, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("POST %s: %v", u, err)
	}
	return &answer{resp.StatusCode, resp.Header, b}
}

// form is a request of a subscriber. Parameters come in pairs; one that is there
// already is replaced, and with the value - left out.
func form(mode, callback, topic string, params ...string) url.Values {
	f := url.Values{"hub.mode": {mode}, "hub.callback": {callback}, "hub.topic": {topic}}
	for i := 0; i < len(params); i += 2 {
		if f.Set(params[i], params[i+1]); params[i+1] == "-" {
			f.Del(params[i])
		}
	}
	return f
}

// request asks for a subscription, or for its end.
func (t *trial) request(mode string, c *callback, tp *topic, params ...string) *answer {
	return t.post(form(mode, c.url, tp.url, params...).Encode())
}

// accepted makes a request that has to be accepted.
func (t *trial) accepted(mode string, c *callback, tp *topic, params ...string) {
	if a := t.request(mode, c, tp, params...); a.status != http.StatusAccepted {
		t.Fatalf("%s %q is answered %d, not 202: %s", mode, params, a.status, tail(string(a.body)))
	}
}

// verified makes a request that has to be accepted and verified, and returns the
// verification.
func (t *trial) verified(mode string, c *callback, tp *topic, params ...string) arrival {
	n := len(c.got(verification))
	t.accepted(mode, c, tp, params...)
	return t.arrives(c, verification, n+1)[n]
}

// subscribed makes a subscription that is active.
func (t *trial) subscribed(c *callback, tp *topic, params ...string) arrival {
	v := t.verified("subscribe", c, tp, params...)
	t.wait("the subscription is active", func() error {
		// rshub delivers what was published since the request was accepted. Others
		// may begin a little after the verification.
		if t.rshub != nil {
			return nil
		}
		mark := t.publish(tp)
		return soon(300*time.Millisecond, func() error {
			if c.times(mark) == 0 {
				return errors.New("a change is not delivered")
			}
			return nil
		})
	})
	return v
}

// arrives waits until so many requests of a kind have arrived.
func (t *trial) arrives(c *callback, kind string, n int) (all []arrival) {
	t.wait(fmt.Sprintf("%d of kind %s arrive", n, kind), func() error {
		if all = c.got(kind); len(all) < n {
			return fmt.Errorf("there are %d", len(all))
		}
		return nil
	})
	return all
}

// delivered waits until a change was delivered, and returns the delivery that
// was answered with 2xx.
func (t *trial) delivered(c *callback, mark string) (d arrival) {
	t.wait("the change is delivered", func() error {
		for _, d = range c.got(delivery) {
			if d.has(mark) && d.status/100 == 2 {
				return nil
			}
		}
		return fmt.Errorf("%d deliveries do not have %s, or failed", len(c.got(delivery)), mark)
	})
	return d
}

func (a arrival) has(mark string) bool { return strings.Contains(string(a.body), mark) }

// times counts the deliveries that have a mark.
func (c *callback) times(mark string) (n int) {
	for _, d := range c.got(delivery) {
		if d.has(mark) {
			n++
		}
	}
	return n
}

// rounds publishes changes, and waits until another subscriber has each. A
// subscriber of the same topic had time to get them too.
func (t *trial) rounds(tp *topic, witness *callback, n int) (marks []string) {
	for range n {
		mark := t.publish(tp)
		t.delivered(witness, mark)
		marks = append(marks, mark)
	}
	return marks
}

// nothing checks that a callback gets no changes any more, soon or at once.
func (t *trial) nothing(c *callback, tp *topic, witness *callback) {
	t.wait("nothing is delivered any more", func() error {
		for _, mark := range t.rounds(tp, witness, 8) {
			if c.times(mark) > 0 {
				return errors.New("changes are delivered")
			}
		}
		return nil
	})
}

// never checks that a callback never got anything delivered, while another did.
func (t *trial) never(c *callback, tp *topic) {
	witness := t.callback("")
	t.subscribed(witness, tp)
	t.rounds(tp, witness, 3)
	if all := c.got(delivery); len(all) > 0 {
		t.Fatalf("%d deliveries arrived, the first: %s", len(all), tail(string(all[0].body)))
	}
}
