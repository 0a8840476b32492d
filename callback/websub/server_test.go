package websub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/testutil/memorytest"
)

// Parameters in the URL are ignored.
func TestParametersInURL(t *testing.T) {
	f, _ := newFront(t, Options{})
	f.call(t, alice, http.MethodPost, "/hub?"+formWith(), http.NoBody, 400, "hub.mode is missing")
	query := formWith("hub.callback", "https://other.example/", "rs.since", "x")
	f.call(t, alice, http.MethodPost, "/hub?"+query, strings.NewReader(formWith()), 202, "")
	if r := f.newest(t); r.Callback != "https://callback.example/cb" {
		t.Errorf("sent %+v, want the callback of the body", r)
	}
}

// A body that cannot be read is the client's fault: strangers must not fill the log with errors.
func TestUnreadableBody(t *testing.T) {
	f, _ := newFront(t, Options{})
	r := record(1, feed.Cursor{})
	f.put(t, r)
	for _, tt := range []struct {
		name   string
		err    error
		status int
		want   string
	}{
		{"truncated", io.ErrUnexpectedEOF, 400, "the body ends early"},
		{"stalled", os.ErrDeadlineExceeded, 408, "timeout while reading the body"},
		{"reset", syscall.ECONNRESET, 400, "read body: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for path, method := range map[string]string{"/hub": "POST", "/sets/demo/subscriptions/" + r.ID().String() + "/cursor": "PUT"} {
				body := io.MultiReader(strings.NewReader("hub.mode=sub"), iotest.ErrReader(tt.err))
				f.call(t, alice, method, path, body, tt.status, tt.want)
			}
		})
	}
	if log := f.logged.String(); strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("got an error in the log: %s", log)
	}
}

// The draft of 2012 had no topics: its requests need a hub with one set, or name a topic.
func TestDraftOf2012(t *testing.T) {
	const draft = "callbackURI=https://callback.example/cb"
	f, _ := newFront(t, Options{}, 1)
	accepted := func(form string, mode subscription.Mode, set, callback string) {
		t.Helper()
		f.post(t, form, 202, "")
		if r := f.newest(t); r.Mode != mode || r.Set != set || r.Callback != callback || r.Form != "" {
			t.Errorf("%s: sent %+v, want %s of %s to %s", form, r, mode, callback, set)
		}
	}
	for _, form := range []string{draft, draft + "&hub.mode=subscribe", draft + "&hub.topic=" + topic} {
		accepted(form, subscription.Subscribe, "demo", "https://callback.example/cb")
	}
	accepted(draft+"&hub.mode=unsubscribe", subscription.Unsubscribe, "demo", "https://callback.example/cb")
	accepted(draft+"&hub.callback=https://standard.example/", subscription.Subscribe, "demo", "https://standard.example/")
	memorytest.Fill(t, f.log, "second")
	f.post(t, draft, 400, "topic (or hub.topic) is missing, and you may follow 2 sets")
	for _, name := range []string{"hub.topic", "topic"} {
		accepted(draft+"&"+name+"="+base+"/sets/second/changes", subscription.Subscribe, "second", "https://callback.example/cb")
	}
	f.post(t, draft+"&topic=second", 404, "topic: got")
}

// Documents in other formats are topics, too, with subscriptions of their own. The draft of 2012 delivers changesets.
func TestTopicsOfForms(t *testing.T) {
	f, _ := newFront(t, Options{Formats: map[string]*outlet.Format{"atom.xml": {}, "changeset.xml": {}}}, 1)
	ids := map[subscription.ID]bool{}
	for form, want := range map[string]string{
		formWith("hub.topic", base+"/sets/demo/atom.xml"): "atom.xml",
		formWith(): "",
		"callbackURI=https://callback.example/cb": "changeset.xml",
	} {
		f.post(t, form, 202, "")
		r := f.newest(t)
		if r.Set != "demo" || r.Form != want || ids[r.ID()] {
			t.Errorf("%s: sent %+v, want a new ID and form %q", form, r, want)
		}
		ids[r.ID()] = true
	}
	for _, path := range []string{"/sets/demo/feed.xml", "/sets/demo/changelist.xml", "/sets/demo", "/sets/DEMO/atom.xml"} {
		f.post(t, formWith("hub.topic", base+path), 404, "")
	}
}

// A caller without the right to follow or publish learns nothing, and its request is not stored.
func TestRights(t *testing.T) {
	sources := &fakeSources{}
	f, _ := newFront(t, Options{Sources: sources})
	publisher, follower := rights(t, "publish:*"), rights(t, "follow:*")
	unsubscribe, ping := formWith("hub.mode", "unsubscribe"), "hub.mode=publish&hub.topic="+topic
	for _, tt := range []struct {
		name   string
		caller access.Caller
		form   string
		status int
	}{
		{"publisher subscribes", publisher, formWith(), 403},
		{"follower subscribes", follower, formWith(), 202},
		{"publisher unsubscribes", publisher, unsubscribe, 403},
		{"follower unsubscribes", follower, unsubscribe, 202},
		{"follower pings", follower, ping, 403},
		{"publisher pings", publisher, ping, 204},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, want := len(f.pending(t)), ""
			if tt.status == 403 {
				want = ":demo"
			}
			f.postAs(t, tt.caller, tt.form, tt.status, want)
			if sent := len(f.pending(t)) - before; (sent == 1) != (tt.status == 202) {
				t.Errorf("sent %d requests", sent)
			}
		})
	}
	if !slices.Equal(sources.pinged, []string{"demo"}) {
		t.Errorf("pinged %q, want demo", sources.pinged)
	}
	// Without a topic, only the sets that the caller may follow count.
	memorytest.Fill(t, f.log, "other")
	draft := "callbackURI=https://callback.example/cb"
	if w := f.postAs(t, publisher, draft, 400, "0 sets"); strings.Contains(w.Body.String(), "demo") {
		t.Errorf("got %q, want no set", w.Body)
	}
	if f.postAs(t, rights(t, "follow:other"), draft, 202, ""); f.newest(t).Set != "other" {
		t.Errorf("sent %+v, want set other", f.newest(t))
	}
}

// A fakeHub may make the set later, and keeps inventories if it is true.
type fakeHub bool

func (*fakeHub) Waits(set string) bool                { return set == "later" }
func (h *fakeHub) Keeps(context.Context, string) bool { return bool(*h) }

// rs.since is a cursor, a datetime, start or now.
func TestSince(t *testing.T) {
	hub := new(fakeHub)
	f, b := newFront(t, Options{Sets: hub, Inventories: hub}, 150, 150, 50)
	if n, err := f.log.Trim(t.Context(), "demo", changelog.Retention{Count: 250}); err != nil || n != 100 {
		t.Fatalf("Trim() = %d, %v, want 100", n, err)
	}
	state, err := f.log.State(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	f.server.opts.Now = time.Now
	datetime := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	middle := b[1].Entries[10].Cursor
	for _, tt := range []struct {
		name, since string
		status      int
		want        feed.Cursor
	}{
		{"start", "start", 202, state.Floor},
		{"now", "now", 202, state.Head},
		{"cursor", middle.String(), 202, middle},
		{"head", state.Head.String(), 202, state.Head},
		{"floor", state.Floor.String(), 202, state.Floor},
		{"datetime", middle.Time().Format("2006-01-02T15:04:05.000000Z"), 202, b[1].Entries[9].Cursor},
		{"datetime after the head", datetime(time.Now().Add(30 * time.Second)), 202, state.Head},
		{"datetime in the future", datetime(time.Now().Add(5 * time.Minute)), 400, feed.Cursor{}},
		{"datetime before the floor", datetime(time.Now().AddDate(-1, 0, 0)), 410, feed.Cursor{}},
		{"deleted cursor", b[0].Entries[10].String(), 410, feed.Cursor{}},
		{"cursor of another log", "999999-1", 410, feed.Cursor{}},
		{"lost tail", feed.Cursor{Position: 999, Micros: state.Head.Micros + 1}.String(), 202, state.Floor},
		{"word", "begin", 400, feed.Cursor{}},
		{"position", "12", 400, feed.Cursor{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.post(t, formWith("rs.since", tt.since), tt.status, map[int]string{400: "rs.since", 410: "rs.since=start"}[tt.status])
			if tt.status != 202 {
				return
			}
			if r := f.newest(t); r.Start != tt.want || !r.Move || r.Diverged != (tt.name == "lost tail") {
				t.Errorf("sent %+v, want start %v", r, tt.want)
			}
		})
	}
	t.Run("inventory", func(t *testing.T) {
		*hub = true
		w := f.postAs(t, alice, formWith("rs.since", "999999-1"), 410, topic+"?since=baseline")
		if links := feed.ParseLinks(w.Header().Values("Link")); len(links) == 0 || !links[0].HasRel(feed.RelBaseline) {
			t.Errorf("got links %v, want a baseline", links)
		}
	})
	for _, since := range []string{"-", "start", "now", "0-0", "2020-01-01"} {
		t.Run("future set, "+since, func(t *testing.T) {
			f.post(t, formWith("hub.topic", base+"/sets/later/changes", "rs.since", since), 202, "")
			if r := f.newest(t); r.Set != "later" || !r.Start.IsZero() {
				t.Errorf("sent %+v, want the zero start", r)
			}
		})
	}
}

// A request to unsubscribe is accepted if the subscription exists, or a request for it is pending. Other parameters are
// ignored.
func TestUnsubscribeKnown(t *testing.T) {
	f, _ := newFront(t, Options{})
	end := formWith("hub.mode", "unsubscribe", "hub.lease_seconds", "invalid")
	f.post(t, end, 404, "")
	f.post(t, formWith(), 202, "")
	f.post(t, end, 202, "")
	r := record(1, feed.Cursor{})
	f.put(t, r)
	f.post(t, formWith("hub.mode", "unsubscribe", "hub.callback", r.Callback, "hub.verify_token", "v"), 202, "")
	if q := f.newest(t); q.Mode != subscription.Unsubscribe || q.ID() != r.ID() || q.Lease != 0 || q.VerifyToken != "v" {
		t.Errorf("sent %+v", q)
	}
}

// Requests about callbacks at one host are limited per minute, and one caller gets half. An existing subscription has
// limits of its own.
func TestRates(t *testing.T) {
	f, _ := newFront(t, Options{MaxRequests: 3})
	at := now.Add(20 * time.Second)
	f.server.opts.Now = func() time.Time { return at }
	existing := record(1, feed.Cursor{})
	existing.Callback, existing.Secret = "https://a.example/existing", ""
	f.put(t, existing)
	as := func(caller, callback string, status int, want string, more ...string) {
		t.Helper()
		w := f.postAs(t, access.Caller{Name: caller, Rights: access.All()}, formWith(append(more, "hub.callback", callback)...), status, want)
		if s, err := strconv.Atoi(w.Header().Get("Retry-After")); status == 429 && (err != nil || s < 40 || s > 41) {
			t.Errorf("Retry-After = %q, want 40", w.Header().Get("Retry-After"))
		}
	}
	callers := 0
	post := func(callback string, status int, want string, more ...string) { // each time as another caller
		t.Helper()
		callers++
		as(fmt.Sprint("caller", callers), callback, status, want, more...)
	}
	post("https://a.example/1", 202, "")
	post("https://A.example:8443/2", 202, "")
	post("http://a.example./3", 202, "")
	post("https://a.example:9999/4", 429, "3 requests for callbacks at a.example per minute")
	post("https://a.example/1", 429, "a.example", "hub.mode", "unsubscribe")
	post("https://b.example/", 202, "")

	as("greedy", "https://c.example/0", 202, "")
	as("greedy", "https://c.example/1", 202, "")
	as("greedy", "https://c.example/2", 429, "2 requests by token greedy for callbacks at c.example per minute")
	post("https://c.example/", 202, "")
	as("greedy", "https://d.example/", 202, "")
	as("greedy", "https://e.example/", 429, "3 requests by token greedy per minute")

	for n := range maxRenewals {
		post(existing.Callback, 202, "", "hub.mode", []string{"subscribe", "unsubscribe"}[n%2], "hub.secret", "-")
	}
	post(existing.Callback, 429, "60 requests about subscription "+existing.ID().String(), "hub.secret", "-")
	post(existing.Callback, 429, "about subscription", "hub.mode", "unsubscribe", "hub.secret", "-")
	status := base + "/subscriptions/" + statusName(existing.ID(), existing.Token)
	for range half(maxRenewals) { // its subscriber is not affected
		as("subscriber", existing.Callback, 202, "", "rs.status", status)
	}
	as("subscriber", existing.Callback, 429, "30 requests by token subscriber about subscription", "rs.status", status)

	at = now.Add(time.Minute)
	as("greedy", "https://a.example/1", 202, "", "hub.secret", "-")
	as("greedy", existing.Callback, 202, "", "hub.secret", "-")
}

// A subscriber can renew while strangers use up the limit of its subscription, even if the hub cannot tell the callers
// apart, as behind a Unix socket.
func TestRatesOfUnknownCaller(t *testing.T) {
	f, _ := newFront(t, Options{})
	r := record(1, feed.Cursor{})
	f.put(t, r)
	unknown := access.Caller{Ticket: true, Rights: access.All()}
	for range maxRenewals {
		f.postAs(t, unknown, formWith("hub.callback", r.Callback, "hub.secret", "-", "hub.mode", "unsubscribe"), 202, "")
	}
	f.postAs(t, unknown, formWith("hub.callback", r.Callback, "hub.secret", "-", "hub.mode", "unsubscribe"), 429, "")
	for range half(maxRenewals) {
		f.postAs(t, unknown, formWith("hub.callback", r.Callback), 202, "")
	}
	f.postAs(t, unknown, formWith("hub.callback", r.Callback), 429, "30 requests by its subscriber about subscription")
}

// While the registry fails, each request is refused with a useful response.
func TestRegistryFails(t *testing.T) {
	f, _ := newFront(t, Options{})
	for _, tt := range []struct {
		name   string
		err    error
		status int
		want   string
		logged bool // as an error
	}{
		{"unavailable", feed.ErrUnavailable, 503, "is unreachable", false},
		{"unknown", feed.ErrUnknown, 503, "send it again", false},
		{"full", feed.ErrFull, 507, "is full", false},
		{"busy", subscription.ErrBusy, 503, "in a minute", false},
		{"internal", errors.New("on fire"), 500, "internal error of the hub", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(f.logged.String())
			f.server.engine = stoppedEngine{failingRegistry{f.registry, tt.err}}
			w := f.postAs(t, alice, formWith(), tt.status, tt.want)
			if retry := w.Header().Get("Retry-After"); strings.Contains(w.Body.String(), "Idempotency-Key") || (retry != "") != (tt.status == 503) {
				t.Errorf("got Retry-After %q and %q", retry, w.Body)
			}
			if line := f.logged.String()[before:]; strings.Contains(line, `"level":"ERROR"`) != tt.logged || !strings.Contains(line, tt.err.Error()) {
				t.Errorf("logged %s, want %v", line, tt.err)
			}
		})
	}
}

// A failingRegistry accepts no requests.
type failingRegistry struct {
	subscription.Registry
	err error
}

func (r failingRegistry) Send(context.Context, subscription.Request) error {
	return fmt.Errorf("send: %w", r.err)
}
