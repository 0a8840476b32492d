package sets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/testutil/memorytest"
	"github.com/rshub/rshub/resourcesync"
)

// A client without an idempotency key is not advised to retry with the same key.
func TestWithAdvice(t *testing.T) {
	unknown := fmt.Errorf("delete set: %w", feed.ErrUnknown)
	p := problem.From(withAdvice(unknown, "check first"))
	if p.Status != http.StatusServiceUnavailable || p.Detail != "check first" || p.RetryAfter == 0 || !errors.Is(p, feed.ErrUnknown) || problem.From(unknown).Detail == p.Detail {
		t.Errorf("withAdvice(ErrUnknown) = %+v, want 503 with the advice", p)
	}
	for _, err := range []error{nil, feed.ErrNoSet, fmt.Errorf("delete set: %w", feed.ErrUnavailable)} {
		if got := withAdvice(err, "check first"); got != err {
			t.Errorf("withAdvice(%v) = %v, want it unchanged", err, got)
		}
	}
}

// An invalid body is refused with the rule.
func TestInvalidBodies(t *testing.T) {
	for body, want := range map[string]string{
		"":                 "invalid body",
		`{"name":"x"}`:     `"name"`,
		`{"title":"x"} {}`: "after top-level value",
		`{"complete":1}`:   "invalid body",
		`{"title":"a\nb"}`: "one line",
		`{"title":"` + strings.Repeat("x", 1001) + `"}`:       "1,000 bytes",
		`{"describedby":"javascript:alert(1)"}`:               "want https://",
		`{"resourcelist":"resourcelist.xml"}`:                 "resourcelist: invalid URI; want https://",
		`{"resourcedump":"https://me:secret@example.org/"}`:   "resourcedump: must not contain a user name",
		`{"changedump":"https://example.org/<a>"}`:            `changedump: character "<" is not allowed`,
		`{"inventory":"no"}`:                                  `inventory: got "no", want on or off`,
		`{"push":"no"}`:                                       `push: got "no", want on or off`,
		`{"lastmod":"now"}`:                                   `lastmod: got "now", want source, datetime or seconds`,
		`{"inventory":"off","complete":true}`:                 "without an inventory",
		`{"every":"15m"}`:                                     "every requires a source",
		`{"source":"https://example.org/","every":"15"}`:      `every: got "15", want a duration`,
		`{"source":"https://example.org/","every":"1s"}`:      "want 1m0s to",
		`{"source":"https://example.org/","inventory":"off"}`: "requires an inventory",
	} {
		if d, err := readDescription(strings.NewReader(body)); !errors.Is(err, resourcesync.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("readDescription(%.40q) = %+v, %v, want an error with %q", body, d, err, want)
		}
	}
}

// A fakeInventories records calls of Complete, and returns err.
type fakeInventories struct {
	calls []string
	err   error
}

func (c *fakeInventories) Complete(_ context.Context, set string, complete bool) error {
	c.calls = append(c.calls, fmt.Sprint(set, " ", complete))
	return c.err
}

func (c *fakeInventories) Count(context.Context, string) (uint64, bool) { return 0, false }

// A description may set whether the set is complete. A body with only complete does not change the
// description.
func TestComplete(t *testing.T) {
	log := memorytest.Open(t)
	old := feed.Description{Title: "old", NoInventory: true}
	for _, test := range []struct {
		body string
		call string // expected call of Complete, or empty
		want feed.Description
	}{
		{`{"complete":true}`, "demo true", old},
		{`{"complete":false}`, "demo false", old},
		{`{"title":"","complete":true}`, "demo true", feed.Description{}},
		{`{"resourcelist":"https://example.org/list","inventory":"on","complete":false}`, "demo false", feed.Description{ResourceList: "https://example.org/list"}},
		{`{"inventory":"off"}`, "", feed.Description{NoInventory: true}},
		{`{"push":"off","sitemap":true,"lastmod":"seconds"}`, "", feed.Description{NoPush: true, Sitemap: true, Lastmod: feed.LastmodSeconds}},
		{`{"push":"on","lastmod":"source"}`, "", feed.Description{}},
		{`{"cloudevents": {"change": "/op"}}`, "", feed.Description{CloudEvents: `{"change":"/op"}`}},
		{`{"cloudevents":null}`, "", feed.Description{}},
		{`{"complete":null}`, "", feed.Description{}},
		{`{}`, "", feed.Description{}},
	} {
		inventory := &fakeInventories{}
		s := New(log, hub.New(log, hub.Options{}), "", Options{Inventories: inventory})
		put := func() (feed.Description, error) {
			if err := s.hub.Describe(t.Context(), "demo", old); err != nil {
				t.Fatal(err)
			}
			err := s.put(httptest.NewRecorder(), httptest.NewRequest("PUT", "/", strings.NewReader(test.body)), "demo")
			state, serr := log.State(t.Context(), "demo")
			return state.Description, errors.Join(err, serr)
		}
		if d, err := put(); err != nil || d != test.want || strings.Join(inventory.calls, " ") != test.call {
			t.Errorf("PUT %s: got the calls %q and the description %+v, %v", test.body, inventory.calls, d, err)
		}
		if test.call == "" {
			continue
		}
		inventory.err = fmt.Errorf("in a test: %w", feed.ErrUnavailable)
		want := feed.ErrUnavailable // nothing was written
		if test.want != old {
			want = feed.ErrUnknown
		}
		if _, err := put(); !errors.Is(err, want) {
			t.Errorf("PUT %s: got %v, want %v", test.body, err, want)
		}
		s.opts.Inventories = nil
		if d, err := put(); !errors.Is(err, feed.ErrNoInventory) || d != old {
			t.Errorf("PUT %s without inventories: got %+v, %v, want ErrNoInventory", test.body, d, err)
		}
	}
}

// A fakeMemory only lists its sets.
type fakeMemory struct {
	Memory
	sets []feed.State
}

func (m *fakeMemory) Sets(context.Context, ...string) ([]feed.State, error) {
	return slices.Clone(m.sets), nil
}

// A list of sets is limited in bytes and in sets, and has the URL of the next one.
func TestListIsBounded(t *testing.T) {
	t.Parallel()
	const n = 600
	link := "https://example.org/" + strings.Repeat("d", 2000)
	memory := &fakeMemory{sets: make([]feed.State, n)}
	for i := range memory.sets {
		memory.sets[i] = feed.State{Set: fmt.Sprintf("set-%04d", i), Description: feed.Description{Title: strings.Repeat("t", 1000), DescribedBy: link, ResourceList: link, ResourceDump: link, ChangeDump: link}}
	}
	s := New(memory, nil, "http://hub.example.org", Options{Streams: limit.NewBudget(64<<20, limit.MemoryTimeout)})
	read := func(next string) (got []string, pages int) {
		for ; next != ""; pages++ {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", next, nil)
			if err := s.ServeAll(w, r.WithContext(access.NewContext(r.Context(), access.Caller{Rights: access.All()}))); err != nil {
				t.Fatal(err)
			}
			var list struct {
				Sets []View
				Next string
			}
			if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Body.Len() > maxList+1000 {
				t.Fatalf("%s: %d bytes, %v", next, w.Body.Len(), err)
			}
			for _, v := range list.Sets {
				got = append(got, v.Set)
			}
			if link := w.Header().Get("Link"); (list.Next != "") != strings.Contains(link, "<"+list.Next+`>; rel="next"`) {
				t.Errorf("got next %q and Link %s, want the same URL", list.Next, link)
			}
			next = list.Next
		}
		return got, pages
	}
	if got, pages := read("/sets?limit=10000"); len(got) != n || pages != 2 || !slices.IsSorted(got) {
		t.Errorf("got %d sets on %d pages, want 600 on 2, sorted", len(got), pages)
	}
	if got, pages := read("/sets?after=set-0349"); len(got) != 250 || pages != 3 {
		t.Errorf("got %d sets on %d pages, want 250 on 3", len(got), pages)
	}
	for _, bad := range []string{"0", "-1", "10001", "x"} {
		if err := s.ServeAll(httptest.NewRecorder(), httptest.NewRequest("GET", "/sets?limit="+bad, nil)); !errors.Is(err, resourcesync.ErrInvalid) {
			t.Errorf("GET with limit=%s: got %v, want ErrInvalid", bad, err)
		}
	}
}

// A noRescan ignores requests to rescan.
type noRescan struct{}

func (noRescan) Rescan() {}

// The framework notifications of a private set are private, even when the set no longer requests
// any.
func TestPrivateChannel(t *testing.T) {
	log := memorytest.Open(t)
	s := New(log, hub.New(log, hub.Options{}), "", Options{Private: noRescan{}, Announcer: noRescan{}})
	ctx := access.NewContext(t.Context(), access.Caller{Rights: access.All()})
	for _, test := range []struct {
		body string
		want bool
	}{{`{"framework":true}`, false}, {`{"private":true}`, true}, {`{"framework":true}`, false}, {`{"framework":true,"private":true}`, true}} {
		if err := s.put(httptest.NewRecorder(), httptest.NewRequest("PUT", "/", strings.NewReader(test.body)).WithContext(ctx), "demo"); err != nil {
			t.Fatal(err)
		}
		if st, err := log.State(ctx, "demo.framework"); err != nil || st.Private != test.want {
			t.Errorf("PUT %s: got a private channel: %t, %v, want %t", test.body, st.Private, err, test.want)
		}
	}
	s.hub = failingFor{s.hub, "demo"} // the channel of a set that stays private stays private
	if err := s.put(httptest.NewRecorder(), httptest.NewRequest("PUT", "/", strings.NewReader(`{"framework":true}`)).WithContext(ctx), "demo"); !errors.Is(err, feed.ErrUnavailable) {
		t.Error(err)
	}
	if st, err := log.State(ctx, "demo.framework"); err != nil || !st.Private {
		t.Errorf("after a failed PUT: got a private channel: %t, %v, want true", st.Private, err)
	}
	for _, set := range []string{"other", strings.Repeat("x", 63)} { // the second name is too long for a channel
		if err := s.put(httptest.NewRecorder(), httptest.NewRequest("PUT", "/", strings.NewReader(`{"private":true}`)).WithContext(ctx), set); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := log.Sets(ctx); err != nil || len(all) != 4 {
		t.Errorf("Sets(): got %d sets, %v, want 4", len(all), err)
	}
}

// A failingFor is a hub that fails to describe one set.
type failingFor struct {
	Hub
	set string
}

func (d failingFor) Describe(ctx context.Context, set string, about feed.Description) error {
	if set == d.set {
		return feed.ErrUnavailable
	}
	return d.Hub.Describe(ctx, set, about)
}

// A fakeEngines records calls of SetEngine.
type fakeEngines struct{ calls []string }

func (e *fakeEngines) SetEngine(_ context.Context, is feed.State, set, engine string) error {
	e.calls = append(e.calls, fmt.Sprintf("%s: %q replaces %q", set, engine, is.IndexNow))
	return nil
}

// A failingHub fails to describe and delete sets.
type failingHub struct{}

func (failingHub) Describe(context.Context, string, feed.Description) error {
	return feed.ErrUnavailable
}
func (failingHub) Delete(context.Context, string) error { return feed.ErrUnavailable }

// A search engine is notified of changes as long as the description requests it.
func TestSearchEngines(t *testing.T) {
	log := memorytest.Open(t)
	h, e := hub.New(log, hub.Options{}), &fakeEngines{}
	if err := h.Describe(t.Context(), "demo", feed.Description{IndexNow: "x"}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		hub          Hub
		method, body string
		want         error
		calls        []string
	}{
		{failingHub{}, "DELETE", "", feed.ErrUnavailable, nil},
		{failingHub{}, "PUT", `{}`, feed.ErrUnavailable, nil},
		{failingHub{}, "PUT", `{"indexnow":"y"}`, feed.ErrUnavailable, []string{`demo: "y" replaces ""`}},
		{h, "PUT", `{"indexnow":"y"}`, nil, []string{`demo: "y" replaces ""`, `demo: "" replaces "x"`}},
		{h, "PUT", `{"indexnow":"y"}`, nil, []string{`demo: "y" replaces ""`}},
		{h, "PUT", `{}`, nil, []string{`demo: "" replaces "y"`}},
		{h, "PUT", `{"indexnow":"z"}`, nil, []string{`demo: "z" replaces ""`}},
		{h, "DELETE", "", nil, []string{`demo: "" replaces "z"`}},
		{h, "DELETE", "", feed.ErrNoSet, nil},
	} {
		e.calls = nil
		s := New(log, test.hub, "", Options{SearchEngines: e})
		r := httptest.NewRequest(test.method, "/", strings.NewReader(test.body))
		r = r.WithContext(access.NewContext(r.Context(), access.Caller{Rights: access.All()}))
		if err := s.ServeOne(httptest.NewRecorder(), r, "demo"); !errors.Is(err, test.want) || !slices.Equal(e.calls, test.calls) {
			t.Errorf("%s %s: got the calls %q, %v, want %q, %v", test.method, test.body, e.calls, err, test.calls, test.want)
		}
	}
}

// A lostPolls is Sources whose results cannot be read.
type lostPolls struct{}

func (lostPolls) Rescan() {}

func (lostPolls) LastPoll(context.Context, feed.State) (*LastPoll, error) {
	return nil, fmt.Errorf("in a test: %w", feed.ErrUnavailable)
}

// An error after the description was written is not reported as if nothing was written.
func TestErrorAfterDescribe(t *testing.T) {
	log := memorytest.Open(t)
	s := New(log, hub.New(log, hub.Options{}), "", Options{Inventories: &fakeInventories{}, Sources: lostPolls{}, Fetcher: anywhere{}})
	put := func(query, title string) error {
		r := httptest.NewRequest("PUT", "/sets/demo"+query, strings.NewReader(`{"title":"`+title+`","source":"https://example.org/list.xml"}`))
		return s.ServeOne(httptest.NewRecorder(), r.WithContext(access.NewContext(r.Context(), access.Caller{Rights: access.All()})), "demo")
	}
	if err := put("", "one"); !errors.Is(err, feed.ErrUnknown) {
		t.Errorf("PUT without the last poll: got %v, want ErrUnknown", err)
	}
	err := put("?recent=x", "two")
	if st, serr := log.State(t.Context(), "demo"); !errors.Is(err, resourcesync.ErrInvalid) || serr != nil || st.Title != "one" {
		t.Errorf("PUT with an invalid parameter: got %v, and then the title %q, %v, want ErrInvalid and the old title", err, st.Title, serr)
	}
}

// anywhere fetches any URL.
type anywhere struct{}

func (anywhere) Check(string, string) error { return nil }
