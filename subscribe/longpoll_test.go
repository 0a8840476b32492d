package subscribe_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/subscribe"
)

// nextURL returns the URL in the Link header.
func nextURL(t testing.TB, resp *http.Response) string {
	t.Helper()
	next, ok := strings.CutSuffix(strings.TrimPrefix(resp.Header.Get("Link"), "<"), `>; rel="next"`)
	if !ok {
		t.Fatalf("Link = %q, want rel=next", resp.Header.Get("Link"))
	}
	return next
}

// TestPageCaching checks that only pages that never change are cacheable.
func TestPageCaching(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	s := newSite(t, settings{Options: subscribe.Options{Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }}})
	first := s.publish(1)
	s.publish(3)
	for _, test := range []struct {
		later time.Duration
		query string
		token string
		want  string
	}{
		{0, "?limit=2&since=" + first.String(), "", "no-store"},
		{2 * time.Hour, "?limit=2&since=" + first.String(), "", "public, max-age=31536000, immutable"},
		{2 * time.Hour, "?limit=3&wait=1s&since=" + first.String(), "", "public, max-age=31536000, immutable"},
		{2 * time.Hour, "?limit=2&since=" + first.String(), "Bearer x", "private, max-age=31536000, immutable"},
		{2 * time.Hour, "?limit=4&since=" + first.String(), "", "no-store"}, // more may follow
		{2 * time.Hour, "?limit=2&since=start", "", "no-store"},             // the start of the log may be removed
		{2 * time.Hour, "?limit=2&since=2-" + fmt.Sprint(first.Micros), "", "no-store"},
	} {
		later.Store(int64(test.later))
		resp, _ := s.get(test.query, "Authorization", test.token)
		if got := resp.Header.Get("Cache-Control"); resp.StatusCode != 200 || got != test.want || resp.Header.Get("RS-Diverged") != "" != strings.Contains(test.query, "since=2-") {
			t.Errorf("%s after %v: got status %d, Cache-Control %s, want %s", test.query, test.later, resp.StatusCode, got, test.want)
		}
	}
}

// TestWalkPages checks that following next yields all changes once and in order.
func TestWalkPages(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{listSize: 100})
	var changes []resourcesync.Change
	for i := range 350 {
		c := change(fmt.Sprint(i%3, "/", i), resourcesync.Updated, []string{"text/html", "text/plain"}[i%2])
		changes = append(changes, c)
	}
	for i, n := 0, 1; i < len(changes); i, n = i+n, n*2 {
		s.publishChanges(changes[i:min(i+n, len(changes))]...)
	}
	for _, test := range []struct {
		filter string
		limits []int
	}{
		{"", []int{7, 100, 10000}},
		{"&prefix=https://example.org/1/&type=text/html", []int{1, 7, 100, 10000}},
		{"&prefix=https://example.org/nothing", []int{1}},
	} {
		q, _ := url.ParseQuery(test.filter)
		filter, err := feed.ParseFilter(q)
		ok(t, err)
		var want []string
		for i := range changes {
			if filter.Match(&changes[i]) {
				want = append(want, changes[i].Loc)
			}
		}
		for _, limit := range test.limits {
			for _, accept := range []string{"application/json", "application/x-ndjson"} {
				t.Run(fmt.Sprint(test.filter, limit, accept), func(t *testing.T) {
					got := s.in(t).walk(s.url(fmt.Sprint("?since=start&limit=", limit, test.filter)), accept, limit, test.filter != "")
					if !slices.Equal(got, want) {
						t.Errorf("got %d changes, want %d", len(got), len(want))
					}
				})
			}
		}
	}
}

// walk follows the pages until one is empty, and returns the locs.
func (s *site) walk(next, accept string, limit int, filtered bool) (locs []string) {
	s.Helper()
	cursor := ""
	for {
		resp, body := s.do(http.MethodGet, next, "Accept", accept)
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != accept {
			s.Fatalf("%s: %s %s %s", next, resp.Status, resp.Header, body)
		}
		next = nextURL(s, resp)
		if !strings.HasPrefix(next, s.http.URL+"/sets/a/changes?") {
			s.Fatalf("next = %s, want a URL of the topic", next)
		}
		n := len(locs)
		if accept == "application/json" {
			m, err := parseJSON(body)
			ok(s, err)
			if cursor != "" && m.After != cursor || m.Next != next {
				s.Fatalf("got a page after %s with next %s, want one after %s with next %s", m.After, m.Next, cursor, next)
			}
			cursor = m.Cursor
			for _, e := range m.Changes {
				locs = append(locs, e.Loc)
			}
		} else {
			for line := range bytes.Lines(body) {
				c, err := resourcesync.ParseChange(withoutPlace(line))
				if err != nil {
					s.Fatalf("%v: %s", err, line)
				}
				locs = append(locs, c.Loc)
			}
		}
		if len(locs)-n > limit {
			s.Fatalf("got a page of %d changes, want at most %d", len(locs)-n, limit)
		}
		if len(locs) == n {
			return locs
		}
	}
}

// withoutPlace returns the line of an entry without position and datetime.
func withoutPlace(line []byte) []byte {
	_, rest, _ := bytes.Cut(line, []byte(`"loc":`))
	return append([]byte(`{"loc":`), rest...)
}

func TestPage(t *testing.T) {
	s := newSite(t, settings{})
	s.publish(3)
	resp, body := s.get("?since=start")
	if m, err := parseJSON(body); err != nil || len(m.Changes) != 3 || m.Set != "a" || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s, %v, header %v", body, err, resp.Header)
	}
	head, none := s.do(http.MethodHead, s.url("?since=start"))
	if head.StatusCode != 200 || len(none) > 0 || head.Header.Get("Content-Length") != strconv.Itoa(len(body)) || head.Header.Get("Link") != resp.Header.Get("Link") {
		t.Errorf("HEAD: %v, GET: %v", head.Header, resp.Header)
	}
	// An empty page has a next, too.
	resp, body = s.get("?since=now")
	m, err := parseJSON(body)
	if err != nil || len(m.Changes) > 0 || m.Next != nextURL(t, resp) || !strings.Contains(m.Next, "since="+m.Cursor) {
		t.Errorf("empty page %s, %v", body, err)
	}
	s.publish(2)
	_, body = s.do(http.MethodGet, m.Next)
	if m, err := parseJSON(body); err != nil || len(m.Changes) != 2 {
		t.Errorf("next page %s, %v", body, err)
	}
}

func TestLongPoll(t *testing.T) {
	s := newSite(t, settings{})
	s.publish(3)
	type answer struct {
		resp *http.Response
		m    message
	}
	answers := make(chan answer)
	poll := func(query string) {
		go func() {
			resp, body := s.get(query)
			m, err := parseJSON(body)
			if err != nil {
				t.Errorf("%v: %s", err, body)
			}
			answers <- answer{resp: resp, m: m}
		}()
	}
	waiting := func(query string) {
		poll(query)
		testutil.Until(t, "the long poll waits", func() bool { return strings.Contains(stacks(), "hub.(*Hub).Follow") })
	}

	poll("?since=start&wait=1m") // answered immediately
	if a := <-answers; len(a.m.Changes) != 3 {
		t.Errorf("got %+v", a.m)
	}
	waiting("?wait=60&prefix=https://example.org/b")
	s.publishChanges(change("a", resourcesync.Created, ""))
	end := s.publishChanges(change("b", resourcesync.Created, ""))
	a := <-answers
	if len(a.m.Changes) != 1 || a.m.Cursor != end.String() || a.m.Changes[0].Loc != "https://example.org/b" {
		t.Errorf("got %+v", a.m)
	}
	if next := nextURL(t, a.resp); !strings.Contains(next, "wait=60") || !strings.Contains(next, "prefix=") {
		t.Errorf("next is %s", next)
	}
	// Without matching changes, the page is empty and its cursor advances.
	waiting("?wait=300ms&prefix=https://example.org/b")
	end = s.publishChanges(change("a", resourcesync.Deleted, ""))
	if a := <-answers; len(a.m.Changes) != 0 || a.m.Cursor != end.String() {
		t.Errorf("got %+v, want the cursor %v", a.m, end)
	}
	// The set is deleted while a long poll waits.
	waiting("?wait=1m")
	ok(t, s.hub.Delete(t.Context(), "a"))
	if a := <-answers; a.resp.StatusCode != 410 {
		t.Errorf("got %s, want 410", a.resp.Status)
	}
	// Shutdown ends the wait.
	s.publish(1)
	waiting("?wait=5m")
	if err := s.server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if a := <-answers; len(a.m.Changes) != 0 || a.resp.StatusCode != 200 {
		t.Errorf("got %+v", a)
	}
}
