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

// A request without an idempotency key is not told to come again with the same key.
func TestAdvise(t *testing.T) {
	unknown := fmt.Errorf("delete set: %w", feed.ErrUnknown)
	p := problem.From(advise(unknown, "look first"))
	if p.Status != http.StatusServiceUnavailable || p.Detail != "look first" || p.RetryAfter == 0 || !errors.Is(p, feed.ErrUnknown) || problem.From(unknown).Detail == p.Detail {
		t.Errorf("the problem is %+v", p)
	}
	for _, err := range []error{nil, feed.ErrNoSet, fmt.Errorf("delete set: %w", feed.ErrUnavailable)} {
		if got := advise(err, "look first"); got != err {
			t.Errorf("%v becomes %v", err, got)
		}
	}
}

// What a body says wrong is refused, with the rule.
func TestWrongBodies(t *testing.T) {
	for body, says := range map[string]string{
		"":                 "the body is not",
		`{"name":"x"}`:     `"name"`,
		`{"title":"x"} {}`: "after top-level value",
		`{"complete":1}`:   "the body is not",
		`{"title":"a\nb"}`: "one line",
		`{"title":"` + strings.Repeat("x", 1001) + `"}`:       "1,000 bytes",
		`{"describedby":"javascript:alert(1)"}`:               "begins with https://",
		`{"resourcelist":"resourcelist.xml"}`:                 "resourcelist is a URI that begins with https://",
		`{"resourcedump":"https://me:secret@example.org/"}`:   "resourcedump must have no user name",
		`{"changedump":"https://example.org/<a>"}`:            `changedump: character "<" is not allowed`,
		`{"inventory":"no"}`:                                  "inventory is on or off",
		`{"push":"no"}`:                                       "push is on or off",
		`{"lastmod":"now"}`:                                   "lastmod is source, datetime or seconds",
		`{"inventory":"off","complete":true}`:                 "without an inventory",
		`{"every":"15m"}`:                                     "every needs a source",
		`{"source":"https://example.org/","every":"15"}`:      "every is a duration",
		`{"source":"https://example.org/","every":"1s"}`:      "it must be from 1m0s to",
		`{"source":"https://example.org/","inventory":"off"}`: "needs an inventory",
	} {
		if d, err := readDescribed(strings.NewReader(body)); !errors.Is(err, resourcesync.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q is read as %+v, %v", body, d, err)
		}
	}
}

// A told is Inventories that notes what it is told, and then fails with an error.
type told struct {
	calls []string
	err   error
}

func (c *told) Complete(_ context.Context, set string, complete bool) error {
	c.calls = append(c.calls, fmt.Sprint(set, " ", complete))
	return c.err
}

func (c *told) Count(context.Context, string) (uint64, bool) { return 0, false }

// Whoever describes a set may say whether it is complete. Who says only that leaves the
// description as it is.
func TestComplete(t *testing.T) {
	log := memorytest.Open(t)
	old := feed.Description{Title: "old", NoInventory: true}
	for _, test := range []struct {
		body string
		says string // of completeness
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
		inventory := &told{}
		s := New(log, hub.New(log, hub.Options{}), "", Options{Inventories: inventory})
		put := func() (feed.Description, error) {
			if err := s.hub.Describe(t.Context(), "demo", old); err != nil {
				t.Fatal(err)
			}
			err := s.put(httptest.NewRecorder(), httptest.NewRequest("PUT", "/", strings.NewReader(test.body)), "demo")
			state, serr := log.State(t.Context(), "demo")
			return state.Description, errors.Join(err, serr)
		}
		if d, err := put(); err != nil || d != test.want || strings.Join(inventory.calls, " ") != test.says {
			t.Errorf("%s tells %q and describes %+v, %v", test.body, inventory.calls, d, err)
		}
		if test.says == "" {
			continue
		}
		inventory.err = fmt.Errorf("in a test: %w", feed.ErrUnavailable)
		want := feed.ErrUnavailable // nothing was written
		if test.want != old {
			want = feed.ErrUnknown
		}
		if _, err := put(); !errors.Is(err, want) {
			t.Errorf("%s: %v", test.body, err)
		}
		s.opts.Inventories = nil
		if d, err := put(); !errors.Is(err, feed.ErrNoInventory) || d != old {
			t.Errorf("%s without inventories describes %+v, %v", test.body, d, err)
		}
	}
}

// A listed is a memory that only lists its sets.
type listed struct {
	Memory
	sets []feed.State
}

func (m *listed) Sets(context.Context, ...string) ([]feed.State, error) {
	return slices.Clone(m.sets), nil
}

// A list of sets ends before it has too many bytes, or too many sets, and says where the rest is.
func TestSetsHaveABound(t *testing.T) {
	t.Parallel()
	const n = 600
	link := "https://example.org/" + strings.Repeat("d", 2000)
	memory := &listed{sets: make([]feed.State, n)}
	for i := range memory.sets {
		memory.sets[i] = feed.State{Set: fmt.Sprintf("set-%04d", i), Description: feed.Description{Title: strings.Repeat("t", 1000), DescribedBy: link, ResourceList: link, ResourceDump: link, ChangeDump: link}}
	}
	s := New(memory, nil, "http://hub.example.org", Options{Streams: limit.NewBudget(64<<20, limit.Patience)})
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
				t.Errorf("next is %q, and Link is %s", list.Next, link)
			}
			next = list.Next
		}
		return got, pages
	}
	if got, pages := read("/sets?limit=10000"); len(got) != n || pages != 2 || !slices.IsSorted(got) {
		t.Errorf("%d sets on %d pages", len(got), pages)
	}
	if got, pages := read("/sets?after=set-0349"); len(got) != 250 || pages != 3 {
		t.Errorf("%d sets are on %d pages", len(got), pages)
	}
	for _, bad := range []string{"0", "-1", "10001", "x"} {
		if err := s.ServeAll(httptest.NewRecorder(), httptest.NewRequest("GET", "/sets?limit="+bad, nil)); !errors.Is(err, resourcesync.ErrInvalid) {
			t.Errorf("limit=%s: %v", bad, err)
		}
	}
}

// looking does what it is told without a look.
type looking struct{}

func (looking) Look()      {}
func (looking) Described() {}

// The framework notifications of a private set are private, also if it wants none any more.
func TestPrivateChannel(t *testing.T) {
	log := memorytest.Open(t)
	s := New(log, hub.New(log, hub.Options{}), "", Options{Private: looking{}, Announcer: looking{}})
	ctx := access.NewContext(t.Context(), access.Caller{Rights: access.All()})
	for _, test := range []struct {
		body string
		want bool
	}{{`{"framework":true}`, false}, {`{"private":true}`, true}, {`{"framework":true}`, false}, {`{"framework":true,"private":true}`, true}} {
		if err := s.put(httptest.NewRecorder(), httptest.NewRequest("PUT", "/", strings.NewReader(test.body)).WithContext(ctx), "demo"); err != nil {
			t.Fatal(err)
		}
		if st, err := log.State(ctx, "demo.framework"); err != nil || st.Private != test.want {
			t.Errorf("after %s the channel is private: %t, %v", test.body, st.Private, err)
		}
	}
	s.hub = deafTo{s.hub, "demo"} // a set that stays private keeps its channel private
	if err := s.put(httptest.NewRecorder(), httptest.NewRequest("PUT", "/", strings.NewReader(`{"framework":true}`)).WithContext(ctx), "demo"); !errors.Is(err, feed.ErrUnavailable) {
		t.Error(err)
	}
	if st, err := log.State(ctx, "demo.framework"); err != nil || !st.Private {
		t.Errorf("after a PUT that failed the channel is private: %t, %v", st.Private, err)
	}
	for _, set := range []string{"other", strings.Repeat("x", 63)} { // no name is left for a channel of the second
		if err := s.put(httptest.NewRecorder(), httptest.NewRequest("PUT", "/", strings.NewReader(`{"private":true}`)).WithContext(ctx), set); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := log.Sets(ctx); err != nil || len(all) != 4 {
		t.Errorf("there are %d sets: %v", len(all), err)
	}
}

// A deafTo is a hub that does not describe one set.
type deafTo struct {
	Hub
	set string
}

func (d deafTo) Describe(ctx context.Context, set string, about feed.Description) error {
	if set == d.set {
		return feed.ErrUnavailable
	}
	return d.Hub.Describe(ctx, set, about)
}

// engines note what they are told.
type engines struct{ told []string }

func (e *engines) Tell(_ context.Context, is feed.State, set, engine string) error {
	e.told = append(e.told, fmt.Sprintf("%s: %q in place of %q", set, engine, is.IndexNow))
	return nil
}

// A deaf hub describes and deletes nothing.
type deaf struct{}

func (deaf) Describe(context.Context, string, feed.Description) error { return feed.ErrUnavailable }
func (deaf) Delete(context.Context, string) error                     { return feed.ErrUnavailable }

// A search engine hears of a set's changes as long as the description says so.
func TestSearchEngines(t *testing.T) {
	log := memorytest.Open(t)
	h, e := hub.New(log, hub.Options{}), &engines{}
	if err := h.Describe(t.Context(), "demo", feed.Description{IndexNow: "x"}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		hub          Hub
		method, body string
		want         error
		told         []string
	}{
		{deaf{}, "DELETE", "", feed.ErrUnavailable, nil},
		{deaf{}, "PUT", `{}`, feed.ErrUnavailable, nil},
		{deaf{}, "PUT", `{"indexnow":"y"}`, feed.ErrUnavailable, []string{`demo: "y" in place of ""`}},
		{h, "PUT", `{"indexnow":"y"}`, nil, []string{`demo: "y" in place of ""`, `demo: "" in place of "x"`}},
		{h, "PUT", `{"indexnow":"y"}`, nil, []string{`demo: "y" in place of ""`}},
		{h, "PUT", `{}`, nil, []string{`demo: "" in place of "y"`}},
		{h, "PUT", `{"indexnow":"z"}`, nil, []string{`demo: "z" in place of ""`}},
		{h, "DELETE", "", nil, []string{`demo: "" in place of "z"`}},
		{h, "DELETE", "", feed.ErrNoSet, nil},
	} {
		e.told = nil
		s := New(log, test.hub, "", Options{SearchEngines: e})
		r := httptest.NewRequest(test.method, "/", strings.NewReader(test.body))
		r = r.WithContext(access.NewContext(r.Context(), access.Caller{Rights: access.All()}))
		if err := s.ServeOne(httptest.NewRecorder(), r, "demo"); !errors.Is(err, test.want) || !slices.Equal(e.told, test.told) {
			t.Errorf("%s %s tells %q, %v", test.method, test.body, e.told, err)
		}
	}
}

// A lost is Sources whose results cannot be read.
type lost struct{}

func (lost) Described() {}

func (lost) Looked(context.Context, feed.State) (*Looked, error) {
	return nil, fmt.Errorf("in a test: %w", feed.ErrUnavailable)
}

// What was described is not answered as if it was not.
func TestDescribedAllTheSame(t *testing.T) {
	log := memorytest.Open(t)
	s := New(log, hub.New(log, hub.Options{}), "", Options{Inventories: &told{}, Sources: lost{}, Fetcher: anywhere{}})
	put := func(query, title string) error {
		r := httptest.NewRequest("PUT", "/sets/demo"+query, strings.NewReader(`{"title":"`+title+`","source":"https://example.org/list.xml"}`))
		return s.ServeOne(httptest.NewRecorder(), r.WithContext(access.NewContext(r.Context(), access.Caller{Rights: access.All()})), "demo")
	}
	if err := put("", "one"); !errors.Is(err, feed.ErrUnknown) {
		t.Errorf("without the result of the last look: %v", err)
	}
	err := put("?recent=x", "two")
	if st, serr := log.State(t.Context(), "demo"); !errors.Is(err, resourcesync.ErrInvalid) || serr != nil || st.Title != "one" {
		t.Errorf("with a wrong parameter: %v, and the title is %q, %v", err, st.Title, serr)
	}
}

// anywhere fetches any URL.
type anywhere struct{}

func (anywhere) Check(string, string) error { return nil }
