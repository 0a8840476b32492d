package websub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil/memorytest"
)

// A list has pages. Each subscription is on exactly one of them.
func TestListPages(t *testing.T) {
	f := newFront(t, Options{})
	memorytest.Fill(t, f.log, "demo")
	var want []string
	for n := range 25 {
		r := record(n, feed.Cursor{})
		want = append(want, r.ID().String())
		f.put(r)
	}
	other := record(1, feed.Cursor{})
	other.Set = "other"
	f.put(other)
	slices.Sort(want)
	for _, limit := range []int{1, 7, 24, 25, 26, 1000} {
		var got []string
		pages := 0
		for next := fmt.Sprintf("/sets/demo/subscriptions?limit=%d", limit); next != ""; pages++ {
			page := see[listing](f, next)
			if len(page.Subscriptions) > limit {
				t.Errorf("a page of %d has %d", limit, len(page.Subscriptions))
			}
			for _, s := range page.Subscriptions {
				got = append(got, s.ID)
			}
			var ok bool
			if next, ok = strings.CutPrefix(page.Next, base); !ok && page.Next != "" {
				t.Fatalf("next is %s", page.Next)
			}
		}
		if !slices.Equal(got, want) || pages != (24+limit)/limit {
			t.Errorf("by %d, %d pages have %d subscriptions", limit, pages, len(got))
		}
	}
	if page := see[listing](f, "/sets/demo/subscriptions"); len(page.Subscriptions) != 25 || page.Next != "" {
		t.Errorf("without a limit there are %d, and %q", len(page.Subscriptions), page.Next)
	}
	memorytest.Fill(t, f.log, "empty")
	if _, text := f.ask(http.MethodGet, "/sets/empty/subscriptions", ""); text != "{\"subscriptions\":[]}\n" {
		t.Errorf("a set without any is %q", text)
	}
	if status, text := f.ask(http.MethodGet, "/sets/none/subscriptions", ""); status != 404 || !strings.Contains(text, "no such set") {
		t.Errorf("a set that is not there is answered %d: %s", status, text)
	}
	if page := see[listing](f, "/sets/other/subscriptions"); len(page.Subscriptions) != 1 || page.Subscriptions[0].State != "no set" {
		t.Errorf("of a set that was removed there are %+v", page.Subscriptions)
	}
	for _, query := range []string{"limit=0", "limit=-1", "limit=1001", "limit=x", "after=x", "after=" + strings.Repeat("0", 31)} {
		if status, text := f.ask(http.MethodGet, "/sets/demo/subscriptions?"+query, ""); status != 400 || !strings.Contains(text, query[:5]) {
			t.Errorf("%s is answered %d: %s", query, status, text)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		if status, _ := f.ask(method, "/sets/demo/subscriptions", ""); status != 405 {
			t.Errorf("%s is answered %d", method, status)
		}
	}
}

// A page ends before it has too many bytes, and the next has the rest.
func TestListHasABound(t *testing.T) {
	f := newFront(t, Options{})
	memorytest.Fill(t, f.log, "demo")
	const n = 150
	long := strings.Repeat("x", 8000)
	var all []subscription.Record
	for i := range n {
		r := record(i, feed.Cursor{})
		r.Callback += "?" + long
		all = append(all, r)
	}
	f.put(all...)
	got, pages := map[string]bool{}, 0
	for next := "/sets/demo/subscriptions?limit=1000"; next != ""; pages++ {
		status, text := f.ask(http.MethodGet, next, "")
		if status != http.StatusOK || len(text) > pageBytes+1000 {
			t.Fatalf("%d with %d bytes", status, len(text))
		}
		var page listing
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			t.Fatal(err)
		}
		for _, s := range page.Subscriptions {
			got[s.ID] = true
		}
		next = strings.TrimPrefix(page.Next, base)
	}
	if len(got) != n || pages < 2 {
		t.Errorf("%d pages have %d subscriptions", pages, len(got))
	}
}

// What an operator asks for becomes a request. Anything else is refused.
func TestOperators(t *testing.T) {
	f := newFront(t, Options{})
	b := memorytest.Fill(t, f.log, "demo", memorytest.Changes("a", 10))
	memorytest.Fill(t, f.log, "other")
	r := record(1, b[0].After)
	f.put(r)
	one := "/sets/demo/subscriptions/" + r.ID().String()
	cursor := b[0].Entries[4].Cursor
	body := func(cursor string) string { return fmt.Sprintf(`{"cursor":%q}`, cursor) }
	for _, test := range []struct {
		method, path, body string
		status             int
		says               string
		wants              subscription.Request // without the set, the callback and the time
	}{
		{"DELETE", one, "", 202, `"remove"`, subscription.Request{Mode: subscription.Remove}},
		{"POST", one + "/retry", "", 202, `"retry"`, subscription.Request{Mode: subscription.Retry}},
		{"PUT", one + "/cursor", body(cursor.String()), 202, `"move"`, subscription.Request{Mode: subscription.Move, Start: cursor}},
		{"PUT", one + "/cursor", body("now"), 202, `"move"`, subscription.Request{Mode: subscription.Move, Start: b[0].Cursor}},
		{"PUT", one + "/cursor", body("start"), 202, `"move"`, subscription.Request{Mode: subscription.Move, Start: b[0].After}},
		{"PUT", one + "/cursor", body("2001-01-01"), 410, "the changes are gone", subscription.Request{}},
		{"PUT", one + "/cursor", body("999-1"), 410, "use cursor=start", subscription.Request{}},
		{"PUT", one + "/cursor", body("2999-01-01"), 400, "cursor=2999", subscription.Request{}},
		{"PUT", one + "/cursor", body("here"), 400, `cursor: got \"here\"`, subscription.Request{}},
		{"PUT", one + "/cursor", body(""), 400, "cursor is missing", subscription.Request{}},
		{"PUT", one + "/cursor", "", 400, "invalid body", subscription.Request{}},
		{"PUT", one + "/cursor", "{}", 400, "cursor is missing", subscription.Request{}},
		{"PUT", one + "/cursor", `{"cursor":1}`, 400, "invalid body", subscription.Request{}},
		{"PUT", one + "/cursor", `{"cursor":"now"} x`, 400, "after top-level value", subscription.Request{}},
		{"PUT", one + "/cursor", `{"cursor":"now","set":"other"}`, 400, "unknown member", subscription.Request{}},
		{"PUT", one + "/cursor", `{"cursor":"now","cursor":"start"}`, 400, `duplicate member \"cursor\"`, subscription.Request{}},
		{"PUT", one + "/cursor", body(strings.Repeat("1", 2000)), 413, "1024 bytes", subscription.Request{}},
		{"POST", one, "", 405, "DELETE, GET, HEAD", subscription.Request{}},
		{"GET", one + "/retry", "", 405, "POST", subscription.Request{}},
		{"POST", one + "/cursor", body("now"), 405, "PUT", subscription.Request{}},
		{"GET", one + "/secret", "", 404, "/retry", subscription.Request{}},
		{"DELETE", one + "/cursor/x", "", 404, "/retry", subscription.Request{}},
		{"DELETE", "/sets/other/subscriptions/" + r.ID().String(), "", 404, "no subscription", subscription.Request{}},
		{"GET", "/sets/other/subscriptions/" + r.ID().String(), "", 404, "no subscription", subscription.Request{}},
		{"DELETE", "/sets/demo/subscriptions/" + strings.Repeat("0", 32), "", 404, "no subscription", subscription.Request{}},
		{"DELETE", "/sets/demo/subscriptions/1", "", 400, "32 hexadecimal digits", subscription.Request{}},
	} {
		before := len(f.waiting())
		status, text := f.ask(test.method, test.path, test.body)
		if status != test.status || !strings.Contains(text, test.says) {
			t.Errorf("%s %s %.60s is answered %d, want %d and %q: %s", test.method, test.path, test.body, status, test.status, test.says, text)
		}
		if sent := len(f.waiting()) > before; sent != (test.status == 202) {
			t.Errorf("%s %s is answered %d, and a request was sent: %t", test.method, test.path, status, sent)
		} else if sent {
			q := f.newest()
			test.wants.Number, test.wants.Set, test.wants.Callback, test.wants.At = q.Number, "demo", r.Callback, now
			if fmt.Sprintf("%+v", q) != fmt.Sprintf("%+v", test.wants) {
				t.Errorf("%s %s became %+v, want %+v", test.method, test.path, q, test.wants)
			}
		}
	}
}
