package callback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
)

// now is the time at a front.
var now = time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC)

// secret must not be found in anything but the registry.
const secret = "very-secret"

// A front is a Server on a real disk whose engine does not run, so that what is
// asked for stays where it can be looked at.
type front struct {
	t        *testing.T
	log      *disklog.Log
	registry *Disk
	server   *Server
	logged   *lines
}

// lines is what was logged.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(b)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.String()
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func newFront(t *testing.T, o ServerOptions) *front {
	t.Helper()
	f := &front{t: t, log: openLog(t), logged: &lines{}}
	var err error
	if f.registry, err = OpenDisk(t.Context(), f.log.Keep("callback")); err != nil {
		t.Fatal(err)
	}
	o.Now = func() time.Time { return now }
	e := New(f.registry, f.log, nil, Options{BaseURL: base, Logger: f.logged.logger()})
	f.server = NewServer(e, f.log, o)
	t.Cleanup(func() { f.discreet("the log", f.logged.text()) })
	return f
}

// discreet fails the test when a text tells the secret.
func (f *front) discreet(what, text string) {
	f.t.Helper()
	if strings.Contains(text, secret) {
		f.t.Errorf("%s has the secret: %s", what, text)
	}
}

func may(string) error { return nil }

// post answers a form at the hub's URL.
func (f *front) post(body string) (status int, text string) {
	f.t.Helper()
	w := f.answer(httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(body)), may, may)
	return w.Code, w.Body.String()
}

func (f *front) answer(r *http.Request, follow, publish func(string) error) *httptest.ResponseRecorder {
	f.t.Helper()
	w := httptest.NewRecorder()
	f.server.ServeHub(w, r, follow, publish)
	text := w.Body.String()
	if h := w.Header(); h.Get("Content-Type") != "text/plain; charset=utf-8" || h.Get("Cache-Control") != "no-store" {
		f.t.Errorf("the header is %v", h)
	}
	if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") || len(text) < 5 {
		f.t.Errorf("the answer is not one line of text: %q", text)
	}
	f.discreet("an answer", text)
	return w
}

// waiting returns the requests in all inboxes, in the order of their times.
func (f *front) waiting() (all []Request) {
	f.t.Helper()
	for shard := range Shards {
		some, err := f.registry.Inbox(f.t.Context(), shard, 0, inboxMax)
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b Request) int { return int(a.Number) - int(b.Number) })
	return all
}

// newest returns the newest request.
func (f *front) newest() Request {
	f.t.Helper()
	all := f.waiting()
	if len(all) == 0 {
		f.t.Fatal("there is no request")
	}
	return all[len(all)-1]
}

// put makes subscriptions.
func (f *front) put(records ...Record) {
	f.t.Helper()
	for _, r := range records {
		claims, err := f.registry.Acquire(f.t.Context(), []int{r.ID().Shard()})
		if err == nil {
			err = f.registry.Commit(f.t.Context(), claims[0], Changes{Put: []Record{r}})
		}
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// asking is a whole and good form of a request to subscribe, with pairs of a
// parameter and its value in place of its own; "-" takes one away.
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

// What is in the URL does not count.
func TestParametersInTheURL(t *testing.T) {
	f := newFront(t, ServerOptions{})
	fill(t, f.log, "demo")
	r := httptest.NewRequest(http.MethodPost, "/hub?"+asking(), strings.NewReader(""))
	if w := f.answer(r, may, may); w.Code != 400 {
		t.Errorf("a form in the URL is answered %d: %s", w.Code, w.Body)
	}
	r = httptest.NewRequest(http.MethodPost, "/hub?"+asking("hub.callback", "https://other.example/", "rs.since", "x"), strings.NewReader(asking()))
	if w := f.answer(r, may, may); w.Code != 202 {
		t.Errorf("parameters in the URL and in the body are answered %d: %s", w.Code, w.Body)
	}
	if r := f.newest(); r.Callback != "https://callback.example/cb" {
		t.Errorf("kept is %+v", r)
	}
}

// A secret that others can read on the way is taken, with a word on it.
func TestSecretOverHTTP(t *testing.T) {
	f := newFront(t, ServerOptions{})
	fill(t, f.log, "demo")
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

// The draft of 2012 had no topics, and so only a hub with one set.
func TestDraftOf2012(t *testing.T) {
	const draft = "callbackURI=https://callback.example/cb"
	f := newFront(t, ServerOptions{})
	if status, text := f.post(draft); status != 400 || !strings.Contains(text, "0 sets") || !strings.Contains(text, "hub.topic") {
		t.Errorf("without a set it is answered %d: %s", status, text)
	}
	fill(t, f.log, "demo", changes("a", 1))
	for _, form := range []string{draft, draft + "&hub.mode=subscribe", draft + "&hub.topic=" + base + "/sets/demo/changes"} {
		if status, text := f.post(form); status != 202 {
			t.Errorf("%s is answered %d: %s", form, status, text)
		}
		if r := f.newest(); r.Mode != Subscribe || r.Set != "demo" || r.Callback != "https://callback.example/cb" {
			t.Errorf("kept is %+v", r)
		}
	}
	if status, text := f.post(draft + "&hub.mode=unsubscribe"); status != 202 || f.newest().Mode != Unsubscribe {
		t.Errorf("unsubscribe is answered %d: %s", status, text)
	}
	if status, _ := f.post(draft + "&hub.callback=https://standard.example/"); status != 202 || f.newest().Callback != "https://standard.example/" {
		t.Errorf("with hub.callback too it is answered %d", status)
	}
	fill(t, f.log, "second")
	if status, text := f.post(draft); status != 400 || !strings.Contains(text, "2 sets") {
		t.Errorf("with two sets it is answered %d: %s", status, text)
	}
	if status, _ := f.post(draft + "&hub.topic=" + base + "/sets/second/changes"); status != 202 || f.newest().Set != "second" {
		t.Errorf("with a topic it is answered %d", status)
	}
}

// Who may not follow or publish learns nothing, and leaves nothing.
func TestRights(t *testing.T) {
	pinged := []string{}
	f := newFront(t, ServerOptions{Ping: func(_ context.Context, set string) error { pinged = append(pinged, set); return nil }})
	fill(t, f.log, "demo")
	never := func(set string) error { return changelog.NewStatus(http.StatusForbidden, "forbidden", "not "+set) }
	ping := "hub.mode=publish&hub.topic=" + base + "/sets/demo/changes"
	for _, test := range []struct {
		form            string
		follow, publish func(string) error
		status          int
	}{
		{asking(), never, may, 403},
		{asking(), may, never, 202},
		{asking("hub.mode", "unsubscribe"), never, may, 403},
		{asking("hub.mode", "unsubscribe"), may, never, 202},
		{ping, may, never, 403},
		{ping, never, may, 202},
		{"hub.mode=publish&hub.url=" + base + "/sets/demo/changes", never, may, 202},
	} {
		before := len(f.waiting())
		w := f.answer(httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(test.form)), test.follow, test.publish)
		if w.Code != test.status {
			t.Errorf("%s is answered %d: %s", test.form, w.Code, w.Body)
		}
		if test.status == 403 && (len(f.waiting()) != before || !strings.Contains(w.Body.String(), "not demo")) {
			t.Errorf("%s was forbidden, and %d requests wait: %s", test.form, len(f.waiting()), w.Body)
		}
	}
	// Where no topic is named, only what the caller may follow counts.
	fill(t, f.log, "other")
	draft := "callbackURI=https://callback.example/cb"
	other := func(set string) error {
		if set != "other" {
			return never(set)
		}
		return nil
	}
	if w := f.answer(httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(draft)), never, may); w.Code != 400 || !strings.Contains(w.Body.String(), "0 sets") || strings.Contains(w.Body.String(), "demo") {
		t.Errorf("who may follow nothing is answered %d: %s", w.Code, w.Body)
	}
	if w := f.answer(httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(draft)), other, may); w.Code != 202 || f.newest().Set != "other" {
		t.Errorf("who may follow one is answered %d: %s", w.Code, w.Body)
	}
	if len(pinged) != 2 || pinged[0] != "demo" {
		t.Errorf("pinged was %q", pinged)
	}
}

// rs.since is a cursor, a datetime, start or now.
func TestSince(t *testing.T) {
	f := newFront(t, ServerOptions{Waits: func(set string) bool { return set == "later" }})
	b := fill(t, f.log, "demo", changes("a", 150), changes("b", 150), changes("c", 50))
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
		want   changelog.Cursor
	}{
		"start":                 {"start", 202, state.Floor},
		"now":                   {"now", 202, state.Head},
		"a cursor":              {within.String(), 202, within},
		"the head":              {state.Head.String(), 202, state.Head},
		"the floor":             {state.Floor.String(), 202, state.Floor},
		"a datetime":            {within.Time().Format("2006-01-02T15:04:05.000000Z"), 202, b[1].Entries[9].Cursor},
		"one behind the head":   {time.Now().Add(30 * time.Second).UTC().Format(time.RFC3339), 202, state.Head},
		"one in the future":     {time.Now().Add(5 * time.Minute).UTC().Format(time.RFC3339), 400, changelog.Cursor{}},
		"one before the floor":  {time.Now().AddDate(-1, 0, 0).UTC().Format(time.RFC3339), 410, changelog.Cursor{}},
		"a cursor that is gone": {b[0].Entries[10].String(), 410, changelog.Cursor{}},
		"a cursor of no log":    {"999999-1", 410, changelog.Cursor{}},
		"a lost tail":           {changelog.Cursor{Position: 999, Micros: state.Head.Micros + 1}.String(), 202, state.Floor},
		"a word":                {"begin", 400, changelog.Cursor{}},
		"a position":            {"12", 400, changelog.Cursor{}},
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
	for _, since := range []string{"-", "start", "now", "0-0", "2020-01-01"} {
		if status, text := f.post(asking("hub.topic", topic, "rs.since", since)); status != 202 || !f.newest().Start.IsZero() {
			t.Errorf("rs.since=%s of a set that is waited for is answered %d, %v: %s", since, status, f.newest().Start, text)
		}
	}
}

// A request to unsubscribe is taken while there is something to end, also when it
// is still to be confirmed.
func TestUnsubscribeKnown(t *testing.T) {
	f := newFront(t, ServerOptions{})
	fill(t, f.log, "demo")
	end := asking("hub.mode", "unsubscribe", "hub.lease_seconds", "what a subscriber may send along")
	if status, _ := f.post(end); status != 404 {
		t.Errorf("without a subscription it is answered %d", status)
	}
	f.post(asking())
	if status, text := f.post(end); status != 202 {
		t.Errorf("after a request it is answered %d: %s", status, text)
	}
	r := Record{Subscription: Subscription{Set: "demo", Callback: "https://kept.example/", LeaseEnd: now}}
	f.put(r)
	if status, text := f.post(asking("hub.mode", "unsubscribe", "hub.callback", r.Callback)); status != 202 {
		t.Errorf("with a subscription it is answered %d: %s", status, text)
	}
	if q := f.newest(); q.Mode != Unsubscribe || q.ID() != r.ID() || q.Secret != "" || q.Lease != 0 {
		t.Errorf("kept is %+v", q)
	}
}

// Requests for callbacks at one host are bounded by the minute, others go on.
func TestRates(t *testing.T) {
	at := now
	f := newFront(t, ServerOptions{MaxRequests: 3})
	f.server.opts.Now = func() time.Time { return at }
	fill(t, f.log, "demo")
	kept := record(1, changelog.Cursor{})
	kept.Callback = "https://a.example/kept"
	f.put(kept)
	post := func(callback string, more ...string) *httptest.ResponseRecorder {
		return f.answer(httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(asking(append(more, "hub.callback", callback)...))), may, may)
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
	tooMany(post("https://a.example:9999/4"), "3 requests for callbacks at a.example within")
	tooMany(post("https://a.example/1", "hub.mode", "unsubscribe"), "a.example")
	if w := post("https://b.example/"); w.Code != 202 {
		t.Errorf("another host is answered %d: %s", w.Code, w.Body)
	}
	// A subscription that there is can be renewed and ended nevertheless.
	for n := range maxAgain {
		mode := []string{"subscribe", "unsubscribe"}[n%2]
		if w := post(kept.Callback, "hub.mode", mode); w.Code != 202 {
			t.Fatalf("%s, request %d about a subscription, is answered %d: %s", mode, n, w.Code, w.Body)
		}
	}
	tooMany(post(kept.Callback), "60 requests about subscription "+kept.ID().String())
	tooMany(post(kept.Callback, "hub.mode", "unsubscribe"), "about subscription")
	at = now.Add(time.Minute)
	for _, callback := range []string{"https://a.example/1", kept.Callback} {
		if w := post(callback); w.Code != 202 {
			t.Errorf("in the next minute %s is answered %d: %s", callback, w.Code, w.Body)
		}
	}
}

// A broken registry refuses everything, and what it says is for the client.
func TestRegistryFails(t *testing.T) {
	f := newFront(t, ServerOptions{})
	fill(t, f.log, "demo")
	for _, test := range []struct {
		err    error
		status int
		says   string
		logged bool
	}{
		{changelog.ErrUnavailable, 503, "cannot be reached", false},
		{changelog.ErrUnknown, 503, "send it again", false},
		{changelog.ErrFull, 507, "no room", false},
		{ErrBusy, 503, "in a minute", false},
		{errors.New("on fire"), 500, "the hub failed", true},
	} {
		before := len(f.logged.text())
		f.server.engine.registry = failing{f.registry, test.err}
		w := f.answer(httptest.NewRequest(http.MethodPost, "/hub", strings.NewReader(asking())), may, may)
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.says) || strings.Contains(w.Body.String(), "Idempotency-Key") {
			t.Errorf("with %v it is answered %d: %s", test.err, w.Code, w.Body)
		}
		if (w.Header().Get("Retry-After") != "") != (w.Code == 503) {
			t.Errorf("with %v, Retry-After is %q", test.err, w.Header().Get("Retry-After"))
		}
		if (len(f.logged.text()) > before) != test.logged {
			t.Errorf("with %v is logged: %s", test.err, f.logged.text()[before:])
		}
	}
}

// failing is a registry that takes no request.
type failing struct {
	Registry
	err error
}

func (r failing) Send(context.Context, Request) error { return fmt.Errorf("send: %w", r.err) }
