package websub

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil/memorytest"
)

// Each subscription is on exactly one page. A page ends before its text is too large.
func TestPages(t *testing.T) {
	for _, tt := range []struct {
		name             string
		n, long          int // number of subscriptions, and bytes that their callbacks have in addition
		limit, pageCount int
	}{
		{"one on a page", 25, 0, 1, 25},
		{"partial last page", 25, 0, 7, 4},
		{"one on the last page", 25, 0, 24, 2},
		{"full page", 25, 0, 25, 1},
		{"almost full page", 25, 0, 26, 1},
		{"large text", 150, 8000, 1000, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, _ := newFront(t, Options{})
			var want, got []string
			for i := range tt.n {
				r := record(i, feed.Cursor{})
				r.Callback += "?" + strings.Repeat("x", tt.long)
				want = append(want, r.ID().String())
				f.put(t, r)
			}
			slices.Sort(want)
			pages := 0
			for next := fmt.Sprintf("/sets/demo/subscriptions?limit=%d", tt.limit); next != ""; pages++ {
				if size := len(f.operate(t, "GET", next, "", 200, "")); size > pageBytes+1000 {
					t.Errorf("page of %d bytes, want at most %d", size, pageBytes)
				}
				page := get[struct {
					Subscriptions []subscriptionView
					Next          string
				}](t, f, next)
				if len(page.Subscriptions) > tt.limit {
					t.Errorf("page of %d, want at most %d", len(page.Subscriptions), tt.limit)
				}
				for _, s := range page.Subscriptions {
					got = append(got, s.ID)
				}
				next = strings.TrimPrefix(page.Next, base)
			}
			if !slices.Equal(got, want) || pages != tt.pageCount {
				t.Errorf("got %d subscriptions on %d pages, want %d on %d", len(got), pages, tt.n, tt.pageCount)
			}
		})
	}
}

func TestList(t *testing.T) {
	f, _ := newFront(t, Options{})
	other := record(1, feed.Cursor{})
	other.Set = "other"
	f.put(t, other)
	memorytest.Fill(t, f.log, "empty")
	for _, tt := range []struct {
		name, method, path string
		status             int
		want               string
	}{
		{"empty set", "GET", "/sets/empty/subscriptions", 200, `{"subscriptions":[]}`},
		{"nonexistent set", "GET", "/sets/none/subscriptions", 404, "no such set"},
		{"deleted set", "GET", "/sets/other/subscriptions", 200, `"state":"no set"`},
		{"limit of zero", "GET", "/sets/demo/subscriptions?limit=0", 400, "limit"},
		{"negative limit", "GET", "/sets/demo/subscriptions?limit=-1", 400, "limit"},
		{"large limit", "GET", "/sets/demo/subscriptions?limit=1001", 400, "limit"},
		{"invalid limit", "GET", "/sets/demo/subscriptions?limit=x", 400, "limit"},
		{"invalid after", "GET", "/sets/demo/subscriptions?after=x", 400, "after"},
		{"short after", "GET", "/sets/demo/subscriptions?after=" + strings.Repeat("0", 31), 400, "after"},
		{"POST", "POST", "/sets/demo/subscriptions", 405, ""},
		{"DELETE", "DELETE", "/sets/demo/subscriptions", 405, ""},
	} {
		t.Run(tt.name, func(t *testing.T) { f.operate(t, tt.method, tt.path, "", tt.status, tt.want) })
	}
}

// An operator's command becomes a request. Anything else is refused.
func TestCommands(t *testing.T) {
	f, b := newFront(t, Options{}, 10)
	memorytest.Fill(t, f.log, "other")
	r := record(1, b[0].After)
	f.put(t, r)
	one, move := "/sets/demo/subscriptions/"+r.ID().String(), subscription.Request{Mode: subscription.Move}
	cursor := b[0].Entries[4].Cursor
	body := func(cursor string) string { return fmt.Sprintf(`{"cursor":%q}`, cursor) }
	moveTo := func(c feed.Cursor) subscription.Request { move.Start = c; return move }
	none := subscription.Request{}
	for _, tt := range []struct {
		name, method, path, body string
		status                   int
		want                     string
		sent                     subscription.Request // without Set, Callback and At
	}{
		{"remove", "DELETE", one, "", 202, `"remove"`, subscription.Request{Mode: subscription.Remove}},
		{"retry", "POST", one + "/retry", "", 202, `"retry"`, subscription.Request{Mode: subscription.Retry}},
		{"move", "PUT", one + "/cursor", body(cursor.String()), 202, `"move"`, moveTo(cursor)},
		{"move to now", "PUT", one + "/cursor", body("now"), 202, `"move"`, moveTo(b[0].Cursor)},
		{"move to start", "PUT", one + "/cursor", body("start"), 202, `"move"`, moveTo(b[0].After)},
		{"deleted datetime", "PUT", one + "/cursor", body("2001-01-01"), 410, "the changes are gone", none},
		{"deleted cursor", "PUT", one + "/cursor", body("999-1"), 410, "use cursor=start", none},
		{"future", "PUT", one + "/cursor", body("2999-01-01"), 400, "cursor=2999", none},
		{"invalid cursor", "PUT", one + "/cursor", body("here"), 400, `cursor: got \"here\"`, none},
		{"empty cursor", "PUT", one + "/cursor", body(""), 400, "cursor is missing", none},
		{"no body", "PUT", one + "/cursor", "", 400, "invalid body", none},
		{"no cursor", "PUT", one + "/cursor", "{}", 400, "cursor is missing", none},
		{"number", "PUT", one + "/cursor", `{"cursor":1}`, 400, "invalid body", none},
		{"trailing text", "PUT", one + "/cursor", `{"cursor":"now"} x`, 400, "after top-level value", none},
		{"unknown member", "PUT", one + "/cursor", `{"cursor":"now","set":"other"}`, 400, "unknown member", none},
		{"two cursors", "PUT", one + "/cursor", `{"cursor":"now","cursor":"start"}`, 400, `duplicate member \"cursor\"`, none},
		{"large body", "PUT", one + "/cursor", body(strings.Repeat("1", 2000)), 413, "1024 bytes", none},
		{"POST", "POST", one, "", 405, "DELETE, GET, HEAD", none},
		{"GET of retry", "GET", one + "/retry", "", 405, "POST", none},
		{"POST of cursor", "POST", one + "/cursor", body("now"), 405, "PUT", none},
		{"unknown part", "GET", one + "/secret", "", 404, "/retry", none},
		{"part of a part", "DELETE", one + "/cursor/x", "", 404, "/retry", none},
		{"DELETE of another set", "DELETE", strings.Replace(one, "demo", "other", 1), "", 404, "no subscription", none},
		{"GET of another set", "GET", strings.Replace(one, "demo", "other", 1), "", 404, "no subscription", none},
		{"nonexistent ID", "DELETE", "/sets/demo/subscriptions/" + strings.Repeat("0", 32), "", 404, "no subscription", none},
		{"invalid ID", "DELETE", "/sets/demo/subscriptions/1", "", 400, "32 hexadecimal digits", none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(f.pending(t))
			f.operate(t, tt.method, tt.path, tt.body, tt.status, tt.want)
			all := f.pending(t)
			if sent := len(all) > before; sent != (tt.status == 202) {
				t.Fatalf("got %d new requests", len(all)-before)
			} else if !sent {
				return
			}
			got := all[len(all)-1]
			tt.sent.Number, tt.sent.Set, tt.sent.Callback, tt.sent.At = got.Number, "demo", r.Callback, now
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", tt.sent) {
				t.Errorf("sent %+v, want %+v", got, tt.sent)
			}
		})
	}
}
