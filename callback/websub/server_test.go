package websub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
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
	"github.com/rshub/rshub/callback/subscription/registrytest"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/memorytest"
)

// now is the time of a front's clock.
var now = time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC)

const base = "https://hub.example.org"

// secret must appear nowhere but in the registry.
const secret = "very-secret"

// A resting is an engine that does not run.
type resting struct{ subscription.Registry }

func (resting) Count(*subscription.Request, string) subscription.Count { return subscription.Count{} }

// A front is a Server on a real disk. Its engine does not run, so requests stay in
// the inboxes, where tests can look at them.
type front struct {
	t        *testing.T
	log      *disklog.Log
	registry registrytest.Disk
	server   *Server
	logged   *testutil.Log
}

func newFront(t *testing.T, o Options) *front {
	t.Helper()
	f := &front{t: t, log: memorytest.Open(t), logged: &testutil.Log{}}
	f.registry = registrytest.OpenDisk(t, f.log.Bucket("callback"))
	o.Now = func() time.Time { return now }
	f.server = NewServer(resting{f.registry}, f.registry, f.log, outbound.New(outbound.Options{Self: base}).Check, base, o)
	t.Cleanup(func() { f.discreet("the log", f.logged.String()) })
	return f
}

// discreet fails the test if the secret is in a text.
func (f *front) discreet(what, text string) {
	f.t.Helper()
	if strings.Contains(text, secret) {
		f.t.Errorf("%s has the secret: %s", what, text)
	}
}

// by returns the request as one of a caller with the given rights.
func by(r *http.Request, rights access.Rights) *http.Request {
	return r.WithContext(access.NewContext(r.Context(), access.Caller{Name: "alice", Rights: rights}))
}

// serveHub answers a form as a hub does, with errors too.
func (f *front) serveHub(w http.ResponseWriter, r *http.Request) {
	a := problem.Adapter{Logger: f.logged.Logger(slog.LevelDebug), Write: func(w http.ResponseWriter, _ *http.Request, err error) *feed.Problem {
		return problem.WriteText(w, err)
	}}
	a.Handle(f.server.ServeHub)(w, r)
}

// post POSTs a form to the hub's URL.
func (f *front) post(body string) (status int, text string) {
	f.t.Helper()
	w := f.answer(httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(body)), access.All())
	return w.Code, w.Body.String()
}

func (f *front) answer(r *http.Request, rights access.Rights) *httptest.ResponseRecorder {
	f.t.Helper()
	w := httptest.NewRecorder()
	f.serveHub(w, by(r, rights))
	text := w.Body.String()
	if w.Code == http.StatusNoContent { // to a ping
		return w
	}
	if h := w.Header(); h.Get("Content-Type") != "text/plain; charset=utf-8" || h.Get("Cache-Control") != "no-store" {
		f.t.Errorf("the header is %v", h)
	}
	if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") || len(text) < 5 {
		f.t.Errorf("the answer is not one line of text: %q", text)
	}
	f.discreet("an answer", text)
	return w
}

// as POSTs a form of a caller who may do everything.
func (f *front) as(caller, form string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(form))
	w := httptest.NewRecorder()
	f.serveHub(w, r.WithContext(access.NewContext(r.Context(), access.Caller{Name: caller, Rights: access.All()})))
	return w
}

// waiting returns the requests in all inboxes, in the order of their times.
func (f *front) waiting() (all []subscription.Request) {
	f.t.Helper()
	for shard := range subscription.Shards {
		some, err := f.registry.Inbox(f.t.Context(), shard, 0, subscription.InboxMax)
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b subscription.Request) int { return int(a.Number) - int(b.Number) })
	return all
}

// newest returns the newest request.
func (f *front) newest() subscription.Request {
	f.t.Helper()
	all := f.waiting()
	if len(all) == 0 {
		f.t.Fatal("there is no request")
	}
	return all[len(all)-1]
}

// put makes subscriptions.
func (f *front) put(records ...subscription.Record) {
	f.t.Helper()
	for _, r := range records {
		claims, err := f.registry.Acquire(f.t.Context(), []int{r.ID().Shard()})
		if err == nil {
			err = f.registry.Commit(f.t.Context(), claims[0], subscription.Changes{Put: []subscription.Record{r}})
		}
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// asking returns a valid form of a request to subscribe. Its pairs, a parameter and
// a value, replace the parameters of the form; the value "-" removes one.
func asking(pairs ...string) string {
	q := url.Values{
		"hub.mode": {"subscribe"}, "hub.topic": {base + "/sets/demo/changes"}, "hub.callback": {"https://callback.example/cb"},
		"hub.secret": {secret},
	}
	for i := 0; i < len(pairs); i += 2 {
		if q.Set(pairs[i], pairs[i+1]); pairs[i+1] == "-" {
			q.Del(pairs[i])
		}
	}
	return q.Encode()
}

// Parameters in the URL do not count.
func TestParametersInTheURL(t *testing.T) {
	f := newFront(t, Options{})
	memorytest.Fill(t, f.log, "demo")
	r := httptest.NewRequest(http.MethodPost, "/hub?"+asking(), strings.NewReader(""))
	if w := f.answer(r, access.All()); w.Code != 400 {
		t.Errorf("a form in the URL is answered %d: %s", w.Code, w.Body)
	}
	r = httptest.NewRequest(http.MethodPost, "/hub?"+asking("hub.callback", "https://other.example/", "rs.since", "x"), strings.NewReader(asking()))
	if w := f.answer(r, access.All()); w.Code != 202 {
		t.Errorf("parameters in the URL and in the body are answered %d: %s", w.Code, w.Body)
	}
	if r := f.newest(); r.Callback != "https://callback.example/cb" {
		t.Errorf("kept is %+v", r)
	}
}

// A body that cannot be read is the client's fault: strangers must not fill the log with errors.
func TestUnreadableBody(t *testing.T) {
	f := newFront(t, Options{})
	memorytest.Fill(t, f.log, "demo")
	one := record(1, feed.Cursor{})
	f.put(one)
	cursor := "/sets/demo/subscriptions/" + one.ID().String() + "/cursor"
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
			body := func() io.Reader { return io.MultiReader(strings.NewReader("hub.mode=sub"), iotest.ErrReader(tt.err)) }
			w := f.answer(httptest.NewRequest(http.MethodPost, "/hub", body()), access.All())
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
				t.Errorf("POST /hub: got %d %q, want %d %q", w.Code, w.Body, tt.status, tt.want)
			}
			err := f.server.ServeSubscription(httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, cursor, body()), "demo", one.ID().String(), "cursor")
			if p := problem.From(err); p.Status != tt.status || !strings.Contains(p.Detail, tt.want) {
				t.Errorf("PUT %s: got %d %q, want %d %q", cursor, p.Status, p.Detail, tt.status, tt.want)
			}
		})
	}
	if log := f.logged.String(); strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("got an error in the log: %s", log)
	}
}

// A secret that is sent to an http callback is accepted, with a warning.
func TestSecretOverHTTP(t *testing.T) {
	f := newFront(t, Options{})
	memorytest.Fill(t, f.log, "demo")
	for _, test := range []struct {
		form string
		note bool
	}{
		{asking(), false},
		{asking("hub.callback", "http://callback.example/"), true},
		{asking("hub.callback", "http://callback.example/", "hub.secret", "-"), false},
	} {
		if status, text := f.post(test.form); status != 202 || strings.Contains(text, "https") != test.note {
			t.Errorf("%s is answered %d: %s", test.form, status, text)
		}
	}
}

// The draft of 2012 had no topics, so its requests need a hub with only one set.
func TestDraftOf2012(t *testing.T) {
	const draft = "callbackURI=https://callback.example/cb"
	f := newFront(t, Options{})
	if status, text := f.post(draft); status != 400 || !strings.Contains(text, "0 sets") || !strings.Contains(text, "hub.topic") {
		t.Errorf("without a set it is answered %d: %s", status, text)
	}
	memorytest.Fill(t, f.log, "demo", memorytest.Changes("a", 1))
	for _, form := range []string{draft, draft + "&hub.mode=subscribe", draft + "&hub.topic=" + base + "/sets/demo/changes"} {
		if status, text := f.post(form); status != 202 {
			t.Errorf("%s is answered %d: %s", form, status, text)
		}
		if r := f.newest(); r.Mode != subscription.Subscribe || r.Set != "demo" || r.Callback != "https://callback.example/cb" {
			t.Errorf("kept is %+v", r)
		}
	}
	if status, text := f.post(draft + "&hub.mode=unsubscribe"); status != 202 || f.newest().Mode != subscription.Unsubscribe {
		t.Errorf("unsubscribe is answered %d: %s", status, text)
	}
	if status, _ := f.post(draft + "&hub.callback=https://standard.example/"); status != 202 || f.newest().Callback != "https://standard.example/" {
		t.Errorf("with hub.callback too it is answered %d", status)
	}
	memorytest.Fill(t, f.log, "second")
	if status, text := f.post(draft); status != 400 || !strings.Contains(text, "2 sets") {
		t.Errorf("with two sets it is answered %d: %s", status, text)
	}
	for _, topic := range []string{"hub.topic", "topic"} {
		if status, _ := f.post(draft + "&" + topic + "=" + base + "/sets/second/changes"); status != 202 || f.newest().Set != "second" {
			t.Errorf("with %s it is answered %d", topic, status)
		}
	}
	if r := f.newest(); r.Form != "" {
		t.Errorf("a topic was named, and %+v is kept", r)
	}
	if status, text := f.post(draft + "&topic=second"); status != 404 || !strings.Contains(text, "topic: got") {
		t.Errorf("with another topic it is answered %d: %s", status, text)
	}
}

// The topics of a set's documents in other forms are topics, too, and each makes a subscription
// of its own. The draft of 2012 gets its changesets.
func TestTopicsOfForms(t *testing.T) {
	f := newFront(t, Options{Formats: map[string]*outlet.Format{"atom.xml": {}, "changeset.xml": {}}})
	memorytest.Fill(t, f.log, "demo", memorytest.Changes("a", 1))
	seen := map[subscription.ID]bool{}
	for form, want := range map[string]string{
		"hub.mode=subscribe&hub.callback=https://callback.example/&hub.topic=" + base + "/sets/demo/atom.xml": "atom.xml",
		"hub.mode=subscribe&hub.callback=https://callback.example/&hub.topic=" + base + "/sets/demo/changes":  "",
		"callbackURI=https://callback.example/": "changeset.xml",
	} {
		if status, text := f.post(form); status != 202 {
			t.Errorf("%s is answered %d: %s", form, status, text)
		}
		r := f.newest()
		if r.Set != "demo" || r.Form != want || seen[r.ID()] {
			t.Errorf("of %s %+v is kept", form, r)
		}
		seen[r.ID()] = true
	}
	for _, none := range []string{"/sets/demo/feed.xml", "/sets/demo/changelist.xml", "/sets/demo", "/sets/DEMO/atom.xml"} {
		if status, text := f.post("hub.mode=subscribe&hub.callback=https://callback.example/&hub.topic=" + base + none); status != 404 {
			t.Errorf("topic %s is answered %d: %s", none, status, text)
		}
	}
}

func rights(t *testing.T, text string) access.Rights {
	t.Helper()
	r, err := access.ParseRights(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A caller who may not follow or publish learns nothing, and nothing of its request
// is kept.
func TestRights(t *testing.T) {
	sources := &polled{}
	f := newFront(t, Options{Sources: sources})
	memorytest.Fill(t, f.log, "demo")
	publisher, follower := rights(t, "publish:*"), rights(t, "follow:*")
	ping := "hub.mode=publish&hub.topic=" + base + "/sets/demo/changes"
	for _, test := range []struct {
		form   string
		rights access.Rights
		status int
	}{
		{asking(), publisher, 403},
		{asking(), follower, 202},
		{asking("hub.mode", "unsubscribe"), publisher, 403},
		{asking("hub.mode", "unsubscribe"), follower, 202},
		{ping, follower, 403},
		{ping, publisher, 204},
		{"hub.mode=publish&hub.url=" + base + "/sets/demo/changes", publisher, 204},
	} {
		before := len(f.waiting())
		w := f.answer(httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(test.form)), test.rights)
		if w.Code != test.status {
			t.Errorf("%s is answered %d: %s", test.form, w.Code, w.Body)
		}
		if test.status == 403 && (len(f.waiting()) != before || !strings.Contains(w.Body.String(), ":demo")) {
			t.Errorf("%s was forbidden, and %d requests wait: %s", test.form, len(f.waiting()), w.Body)
		}
	}
	// Without a topic, only the sets that the caller may follow count.
	memorytest.Fill(t, f.log, "other")
	draft := "callbackURI=https://callback.example/cb"
	if w := f.answer(httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(draft)), publisher); w.Code != 400 || !strings.Contains(w.Body.String(), "0 sets") || strings.Contains(w.Body.String(), "demo") {
		t.Errorf("who may follow nothing is answered %d: %s", w.Code, w.Body)
	}
	if w := f.answer(httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(draft)), rights(t, "follow:other")); w.Code != 202 || f.newest().Set != "other" {
		t.Errorf("who may follow one is answered %d: %s", w.Code, w.Body)
	}
	if len(sources.pinged) != 2 || sources.pinged[0] != "demo" {
		t.Errorf("pinged was %q", sources.pinged)
	}
}

// A laterHub may make the set later.
type laterHub struct{ inventories bool }

func (h *laterHub) Waits(set string) bool              { return set == "later" }
func (h *laterHub) Keeps(context.Context, string) bool { return h.inventories }

// rs.since is a cursor, a datetime, start or now.
func TestSince(t *testing.T) {
	hub := &laterHub{}
	f := newFront(t, Options{Sets: hub, Inventories: hub})
	b := memorytest.Fill(t, f.log, "demo", memorytest.Changes("a", 150), memorytest.Changes("b", 150), memorytest.Changes("c", 50))
	if n, err := f.log.Trim(t.Context(), "demo", changelog.Retention{Count: 250}); err != nil || n != 100 {
		t.Fatalf("%d are trimmed, %v", n, err)
	}
	state, err := f.log.State(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	f.server.begin.Now = time.Now
	within := b[1].Entries[10].Cursor
	for name, test := range map[string]struct {
		since  string
		status int
		want   feed.Cursor
	}{
		"start":                 {"start", 202, state.Floor},
		"now":                   {"now", 202, state.Head},
		"a cursor":              {within.String(), 202, within},
		"the head":              {state.Head.String(), 202, state.Head},
		"the floor":             {state.Floor.String(), 202, state.Floor},
		"a datetime":            {within.Time().Format("2006-01-02T15:04:05.000000Z"), 202, b[1].Entries[9].Cursor},
		"one behind the head":   {time.Now().Add(30 * time.Second).UTC().Format(time.RFC3339), 202, state.Head},
		"one in the future":     {time.Now().Add(5 * time.Minute).UTC().Format(time.RFC3339), 400, feed.Cursor{}},
		"one before the floor":  {time.Now().AddDate(-1, 0, 0).UTC().Format(time.RFC3339), 410, feed.Cursor{}},
		"a cursor that is gone": {b[0].Entries[10].String(), 410, feed.Cursor{}},
		"a cursor of no log":    {"999999-1", 410, feed.Cursor{}},
		"a lost tail":           {feed.Cursor{Position: 999, Micros: state.Head.Micros + 1}.String(), 202, state.Floor},
		"a word":                {"begin", 400, feed.Cursor{}},
		"a position":            {"12", 400, feed.Cursor{}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &front{t: t, log: f.log, registry: f.registry, server: f.server}
			status, text := f.post(asking("rs.since", test.since))
			if status != test.status || status == 400 && !strings.Contains(text, "rs.since") {
				t.Fatalf("%s is answered %d: %s", test.since, status, text)
			}
			if status != 202 {
				return
			}
			if r := f.newest(); r.Start != test.want || !r.Move || r.Diverged != (name == "a lost tail") {
				t.Errorf("%s begins at %v, moves %t, diverged %t; want %v", test.since, r.Start, r.Move, r.Diverged, test.want)
			}
		})
	}
	// A set that is not made yet.
	topic := base + "/sets/later/changes"
	for _, inventory := range []bool{false, true} {
		hub.inventories = inventory // what is gone names where to begin anew
		w := f.answer(httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(asking("rs.since", "999999-1"))), access.All())
		links := feed.ParseLinks(w.Header().Values("Link"))
		if w.Code != 410 || (len(links) > 0) != inventory || inventory && !links[0].HasRel(feed.RelBaseline) || strings.Contains(w.Body.String(), string(base)+"/sets/demo/changes?since=baseline") != inventory {
			t.Errorf("with inventory %t, the answer is %d %v: %s", inventory, w.Code, links, w.Body)
		}
	}
	for _, since := range []string{"-", "start", "now", "0-0", "2020-01-01"} {
		if status, text := f.post(asking("hub.topic", topic, "rs.since", since)); status != 202 || !f.newest().Start.IsZero() {
			t.Errorf("rs.since=%s of a set that is waited for is answered %d, %v: %s", since, status, f.newest().Start, text)
		}
	}
}

// A request to unsubscribe is accepted while there is a subscription to end, also
// one that is still to be confirmed.
func TestUnsubscribeKnown(t *testing.T) {
	f := newFront(t, Options{})
	memorytest.Fill(t, f.log, "demo")
	end := asking("hub.mode", "unsubscribe", "hub.lease_seconds", "what a subscriber may send along")
	if status, _ := f.post(end); status != 404 {
		t.Errorf("without a subscription it is answered %d", status)
	}
	f.post(asking())
	if status, text := f.post(end); status != 202 {
		t.Errorf("after a request it is answered %d: %s", status, text)
	}
	r := subscription.Record{Subscription: subscription.Subscription{Set: "demo", Callback: "https://kept.example/", LeaseEnd: now}}
	f.put(r)
	if status, text := f.post(asking("hub.mode", "unsubscribe", "hub.callback", r.Callback, "hub.verify_token", "v")); status != 202 {
		t.Errorf("with a subscription it is answered %d: %s", status, text)
	}
	if q := f.newest(); q.Mode != subscription.Unsubscribe || q.ID() != r.ID() || q.Lease != 0 || q.VerifyToken != "v" {
		t.Errorf("kept is %+v", q)
	}
}

// Requests about callbacks at one host are limited in each minute. Requests about
// other hosts are not affected.
func TestRates(t *testing.T) {
	at := now
	f := newFront(t, Options{MaxRequests: 3})
	f.server.opts.Now = func() time.Time { return at }
	memorytest.Fill(t, f.log, "demo")
	kept := record(1, feed.Cursor{})
	kept.Callback, kept.Secret = "https://a.example/kept", ""
	f.put(kept)
	who := 0 // who asks next: each time somebody else
	as := func(caller, callback string, more ...string) *httptest.ResponseRecorder {
		return f.as(caller, asking(append(more, "hub.callback", callback)...))
	}
	post := func(callback string, more ...string) *httptest.ResponseRecorder {
		who++
		return as(fmt.Sprint("caller", who), callback, more...)
	}
	at = now.Add(20 * time.Second)
	for _, callback := range []string{"https://a.example/1", "https://A.example:8443/2", "http://a.example./3"} {
		if w := post(callback); w.Code != 202 {
			t.Errorf("%s is answered %d: %s", callback, w.Code, w.Body)
		}
	}
	tooMany := func(w *httptest.ResponseRecorder, says string) {
		t.Helper()
		if w.Code != 429 || !strings.Contains(w.Body.String(), says) {
			t.Errorf("one too many is answered %d: %s", w.Code, w.Body)
		}
		if s, err := strconv.Atoi(w.Header().Get("Retry-After")); err != nil || s < 40 || s > 41 {
			t.Errorf("Retry-After is %q", w.Header().Get("Retry-After"))
		}
	}
	tooMany(post("https://a.example:9999/4"), "3 requests for callbacks at a.example per minute")
	tooMany(post("https://a.example/1", "hub.mode", "unsubscribe"), "a.example")
	if w := post("https://b.example/"); w.Code != 202 {
		t.Errorf("another host is answered %d: %s", w.Code, w.Body)
	}
	// One caller has half of it at a host, and all of it at all hosts together.
	for i, status := range []int{202, 202, 429} {
		if w := as("greedy", fmt.Sprint("https://c.example/", i)); w.Code != status || status == 429 && !strings.Contains(w.Body.String(), "2 requests by token greedy for callbacks at c.example per minute") {
			t.Errorf("request %d of one caller is answered %d: %s", i, w.Code, w.Body)
		}
	}
	if w := post("https://c.example/"); w.Code != 202 {
		t.Errorf("another caller is answered %d: %s", w.Code, w.Body)
	}
	if w := as("greedy", "https://d.example/"); w.Code != 202 {
		t.Errorf("at another host it is answered %d: %s", w.Code, w.Body)
	}
	tooMany(as("greedy", "https://e.example/"), "3 requests by token greedy per minute")
	// An existing subscription can still be renewed and ended.
	for n := range maxAgain {
		mode := []string{"subscribe", "unsubscribe"}[n%2]
		if w := post(kept.Callback, "hub.mode", mode, "hub.secret", "-"); w.Code != 202 {
			t.Fatalf("%s, request %d about a subscription, is answered %d: %s", mode, n, w.Code, w.Body)
		}
	}
	tooMany(post(kept.Callback, "hub.secret", "-"), "60 requests about subscription "+kept.ID().String())
	tooMany(post(kept.Callback, "hub.mode", "unsubscribe", "hub.secret", "-"), "about subscription")
	// Strangers do not use up what its subscriber has.
	status := base + "/subscriptions/" + kept.ID().String() + "." + kept.Token
	for n := range half(maxAgain) {
		if w := as("its own", kept.Callback, "rs.status", status); w.Code != 202 {
			t.Fatalf("renewal %d by its subscriber is answered %d: %s", n, w.Code, w.Body)
		}
	}
	tooMany(as("its own", kept.Callback, "rs.status", status), "30 requests by token its own about subscription")
	at = now.Add(time.Minute)
	for _, callback := range []string{"https://a.example/1", kept.Callback} {
		if w := as("greedy", callback, "hub.secret", "-"); w.Code != 202 {
			t.Errorf("in the next minute %s is answered %d: %s", callback, w.Code, w.Body)
		}
	}
}

// The subscriber of a subscription can renew it while strangers use up its limit, even if it has no token and no
// address, as behind a Unix socket.
func TestRatesOfUnknownCaller(t *testing.T) {
	f := newFront(t, Options{})
	memorytest.Fill(t, f.log, "demo")
	f.put(subscription.Record{Subscription: subscription.Subscription{
		Set: "demo", Callback: "https://callback.example/cb", Terms: subscription.Terms{Secret: secret}, LeaseEnd: now.Add(time.Hour),
	}})
	post := func(form string) int {
		r := httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(form))
		r.RemoteAddr = ""
		w := httptest.NewRecorder()
		f.serveHub(w, r.WithContext(access.NewContext(r.Context(), access.Caller{Rights: access.All()})))
		return w.Code
	}
	stranger := asking("hub.secret", "-", "hub.mode", "unsubscribe")
	for post(stranger) == 202 {
	}
	for n := range half(maxAgain) {
		if status := post(asking()); status != 202 {
			t.Fatalf("renewal %d: got %d, want 202", n, status)
		}
	}
	if status := post(asking()); status != 429 {
		t.Errorf("renewal beyond the limit: got %d, want 429", status)
	}
}

// While the registry is broken, every request is refused with an answer that is
// useful to the client.
func TestRegistryFails(t *testing.T) {
	f := newFront(t, Options{})
	memorytest.Fill(t, f.log, "demo")
	for _, test := range []struct {
		err    error
		status int
		says   string
		logged bool
	}{
		{feed.ErrUnavailable, 503, "is unreachable", false},
		{feed.ErrUnknown, 503, "send it again", false},
		{feed.ErrFull, 507, "is full", false},
		{subscription.ErrBusy, 503, "in a minute", false},
		{errors.New("on fire"), 500, "internal error of the hub", true},
	} {
		before := len(f.logged.String())
		f.server.engine = resting{failing{f.registry, test.err}}
		w := f.answer(httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(asking())), access.All())
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.says) || strings.Contains(w.Body.String(), "Idempotency-Key") {
			t.Errorf("with %v it is answered %d: %s", test.err, w.Code, w.Body)
		}
		if (w.Header().Get("Retry-After") != "") != (w.Code == 503) {
			t.Errorf("with %v, Retry-After is %q", test.err, w.Header().Get("Retry-After"))
		}
		if line := f.logged.String()[before:]; strings.Contains(line, `"level":"ERROR"`) != test.logged || !strings.Contains(line, test.err.Error()) {
			t.Errorf("with %v is logged: %s", test.err, line)
		}
	}
}

// A failing is a registry that accepts no request.
type failing struct {
	subscription.Registry
	err error
}

func (r failing) Send(context.Context, subscription.Request) error {
	return fmt.Errorf("send: %w", r.err)
}
