package server

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

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/untiltest"
	"github.com/rshub/rshub/limit"
	"github.com/rshub/rshub/problem"
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

// A told is a completeness that notes what it is told, and then fails with an error.
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
	log, err := disklog.Open(t.TempDir(), disklog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
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
		{`{"push":"off","sitemap":true,"lastmod":"seconds"}`, "", feed.Description{NoPush: true, Sitemap: true, Lastmod: feed.LastmodInSeconds}},
		{`{"push":"on","lastmod":"source"}`, "", feed.Description{}},
		{`{"complete":null}`, "", feed.Description{}},
		{`{}`, "", feed.Description{}},
	} {
		inventory := &told{}
		s := &sets{memory: log, hub: hub.New(log, hub.Options{}), inventories: inventory, callers: &callers{}}
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
		s.inventories = nil
		if d, err := put(); !errors.Is(err, feed.ErrNoInventory) || d != old {
			t.Errorf("%s without inventories describes %+v, %v", test.body, d, err)
		}
	}
}

// A list of sets ends before it has too many bytes, or too many sets, and says where the rest is.
func TestSetsHaveABound(t *testing.T) {
	t.Parallel()
	const n = 600
	link := "https://example.org/" + strings.Repeat("d", 2000)
	memory := &listed{sets: make([]feed.State, n), reads: func() {}}
	for i := range memory.sets {
		memory.sets[i] = feed.State{Set: fmt.Sprintf("set-%04d", i), Description: feed.Description{Title: strings.Repeat("t", 1000), DescribedBy: link, ResourceList: link, ResourceDump: link, ChangeDump: link}}
	}
	s := &sets{base: "http://hub.example.org", memory: memory, streams: limit.NewBudget(streamBytes, limit.Patience)}
	read := func(next string) (got []string, pages int) {
		for ; next != ""; pages++ {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", next, nil)
			if err := s.serveAll(w, r.WithContext(access.NewContext(r.Context(), access.Caller{Rights: access.All()}))); err != nil {
				t.Fatal(err)
			}
			var list struct {
				Sets []setView
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
		if err := s.serveAll(httptest.NewRecorder(), httptest.NewRequest("GET", "/sets?limit="+bad, nil)); !errors.Is(err, resourcesync.ErrInvalid) {
			t.Errorf("limit=%s: %v", bad, err)
		}
	}
}

// Details say what the hub knows of a set besides its log.
func TestDetails(t *testing.T) {
	t.Parallel()
	h := start(t, Config{})
	h.Publish("demo")
	get := func(path string) (v setView) {
		body := []byte(h.wants(200, "GET", path, ""))
		var list struct{ Sets []setView }
		if err := json.Unmarshal(body, &list); err == nil && len(list.Sets) > 0 {
			return list.Sets[0]
		}
		if err := json.Unmarshal(body, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := get("/sets"); v.Followers != nil || v.Resources != nil {
		t.Errorf("nobody asked for details: %+v", v)
	}
	for _, path := range []string{"/sets?details=1", "/sets/demo?details=1"} {
		untiltest.Done(t, path+" has details", func() bool {
			v := get(path)
			return v.Resources != nil && *v.Resources == 1 && v.Followers != nil && *v.Followers == 0
		})
	}
	if v := get("/sets?details=1&prefix=x"); v.Set != "" {
		t.Errorf("a set that does not begin with x is there: %+v", v)
	}
	// An hour of what happens is shown, in one set and in all of them.
	for _, path := range []string{"/activity", "/sets/demo/activity"} {
		var hour hourView
		body := h.wants(200, "GET", path, "")
		if err := json.Unmarshal([]byte(body), &hour); err != nil || len(hour.Changes) == 0 || len(hour.Changes) != len(hour.Deliveries) || hour.Step != 10 {
			t.Errorf("%s is %s (%v)", path, body, err)
		}
	}
}
