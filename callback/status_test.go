package callback

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/resourcesync"
)

// record makes a subscription of set demo, with a secret and a token.
func record(n int, cursor changelog.Cursor) Record {
	return Record{
		Subscription: Subscription{
			Set: "demo", Callback: fmt.Sprintf("https://callback.example/%d", n), Secret: secret,
			LeaseEnd: now.Add(time.Hour), Token: fmt.Sprint("token", n), Made: now.Add(-time.Hour),
		},
		Progress: Progress{Cursor: cursor},
	}
}

// ask answers a request of an operator to the set's subscriptions, or of a
// subscriber to the URL of its status.
func (f *front) ask(method, path, body string) (status int, text string) {
	f.t.Helper()
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, strings.NewReader(body))
	var err error
	switch parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/"); {
	case parts[0] == "subscriptions":
		err = f.server.ServeStatus(w, r, parts[1])
	case len(parts) == 3:
		err = f.server.ServeSubscriptions(w, r, parts[1])
	default:
		err = f.server.ServeSubscription(w, r, parts[1], parts[3], strings.Join(parts[4:], "/"))
	}
	if err != nil {
		changelog.WriteError(w, r, err)
	}
	f.discreet("an answer", w.Body.String())
	if w.Header().Get("Cache-Control") != "no-store" {
		f.t.Errorf("the header is %v", w.Header())
	}
	return w.Code, w.Body.String()
}

// see asks for what is there.
func see[T any](f *front, path string) (v T) {
	f.t.Helper()
	status, text := f.ask(http.MethodGet, path, "")
	if status != http.StatusOK {
		f.t.Fatalf("%s is answered %d: %s", path, status, text)
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		f.t.Fatal(err)
	}
	return v
}

type listing struct {
	Subscriptions []shown
	Next          string
}

// A list goes over pages, each subscription once.
func TestListPages(t *testing.T) {
	f := newFront(t, ServerOptions{})
	fill(t, f.log, "demo")
	var want []string
	for n := range 25 {
		r := record(n, changelog.Cursor{})
		want = append(want, r.ID().String())
		f.put(r)
	}
	other := record(1, changelog.Cursor{})
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
	fill(t, f.log, "empty")
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

// What is shown of a subscription is all of it but its secret and its token.
func TestShown(t *testing.T) {
	f := newFront(t, ServerOptions{})
	b := fill(t, f.log, "demo", changes("a", 10), changes("b", 5))
	r := record(1, b[0].Entries[3].Cursor)
	r.Renewed = now.Add(-time.Minute)
	r.Filter = changelog.Filter{Prefix: "https://example.org/a", Changes: []resourcesync.ChangeType{"created"}, Types: []string{"text/*"}}
	r.Failed, r.Gaps, r.Next = 2, 1, now.Add(time.Second)
	r.Last = []Attempt{
		{At: now.Add(-time.Hour), Kind: "subscribe", Status: 200, Took: time.Second / 4},
		{At: now, Kind: "deliver", Status: 500, Took: 2 * time.Second, Error: "no success"},
	}
	f.put(r)
	status, text := f.ask(http.MethodGet, "/sets/demo/subscriptions/"+r.ID().String(), "")
	want := fmt.Sprintf(`{"id":"%s","topic":"https://hub.example.org/sets/demo/changes","callback":"https://callback.example/1",`+
		`"state":"waiting","cursor":"%s","lag":{"changes":11,"seconds":0},"rs.prefix":"https://example.org/a","rs.change":["created"],"rs.type":["text/*"],`+
		`"signed":true,"failed":2,"next":"2026-03-04T05:06:01Z","gaps":1,"made":"2026-03-04T04:06:00Z","renewed":"2026-03-04T05:05:00Z","leaseEnd":"2026-03-04T06:06:00Z",`+
		`"attempts":[{"at":"2026-03-04T05:06:00Z","kind":"deliver","status":500,"seconds":2,"error":"no success"},`+
		`{"at":"2026-03-04T04:06:00Z","kind":"subscribe","status":200,"seconds":0.25}]}`+"\n", r.ID(), r.Cursor)
	if status != 200 || text != want {
		t.Errorf("shown is %d\n%s, want\n%s", status, text, want)
	}
	if _, mine := f.ask(http.MethodGet, "/subscriptions/"+statusName(r.ID(), r.Token), ""); mine != text {
		t.Errorf("its subscriber sees %s", mine)
	}
	if strings.Contains(text, r.Token) {
		t.Error("the token is shown")
	}
}

// The lag is counted from the cursor, or from what is left of the log.
func TestLag(t *testing.T) {
	f := newFront(t, ServerOptions{})
	b := fill(t, f.log, "demo", changes("a", 150), changes("b", 150))
	f.server.opts.Now = func() time.Time { return b[1].Cursor.Time().Add(time.Minute) }
	all := slices.Concat(b[0].Entries, b[1].Entries)
	check := func(what string, c changelog.Cursor, n int, first changelog.Entry, state string) {
		t.Helper()
		r := record(1, c)
		f.put(r)
		v := see[shown](f, "/sets/demo/subscriptions/"+r.ID().String())
		seconds := 0.0
		if n > 0 {
			seconds = f.server.opts.Now().Sub(first.Time()).Seconds()
		}
		if v.Lag != (lag{uint64(n), seconds}) || v.State != state {
			t.Errorf("%s: the lag is %+v, %s; want %d, %v", what, v.Lag, v.State, n, seconds)
		}
	}
	check("at the head", b[1].Cursor, 0, all[0], "current")
	check("one behind", all[298].Cursor, 1, all[299], "delivering")
	check("at the start", b[0].After, 300, all[0], "delivering")
	check("of a log that lost its tail", changelog.Cursor{Position: 400, Micros: 1}, 0, all[0], "current")
	if n, err := f.log.Trim(t.Context(), "demo", changelog.Retention{Count: 100}); err != nil || n != 200 {
		t.Fatalf("%d are trimmed, %v", n, err)
	}
	check("overrun", b[0].After, 100, all[200], "delivering")
	check("not overrun", all[249].Cursor, 50, all[250], "delivering")
	if err := f.log.Delete(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	check("of a deleted set", all[249].Cursor, 0, all[0], "no set")
}

// What an operator wants becomes a request; what he may not want is refused.
func TestOperators(t *testing.T) {
	f := newFront(t, ServerOptions{})
	b := fill(t, f.log, "demo", changes("a", 10))
	fill(t, f.log, "other")
	r := record(1, b[0].After)
	f.put(r)
	one := "/sets/demo/subscriptions/" + r.ID().String()
	cursor := b[0].Entries[4].Cursor
	body := func(cursor string) string { return fmt.Sprintf(`{"cursor":%q}`, cursor) }
	for _, test := range []struct {
		method, path, body string
		status             int
		says               string
		wants              Request // beside the set, the callback and the time
	}{
		{"DELETE", one, "", 202, `"remove"`, Request{Mode: Remove}},
		{"POST", one + "/retry", "", 202, `"retry"`, Request{Mode: Retry}},
		{"PUT", one + "/cursor", body(cursor.String()), 202, `"move"`, Request{Mode: Move, Start: cursor}},
		{"PUT", one + "/cursor", body("now"), 202, `"move"`, Request{Mode: Move, Start: b[0].Cursor}},
		{"PUT", one + "/cursor", body("start"), 202, `"move"`, Request{Mode: Move, Start: b[0].After}},
		{"PUT", one + "/cursor", body("2001-01-01"), 410, "does not reach back", Request{}},
		{"PUT", one + "/cursor", body("999-1"), 410, "begin with cursor=start", Request{}},
		{"PUT", one + "/cursor", body("2999-01-01"), 400, "cursor=2999", Request{}},
		{"PUT", one + "/cursor", body("here"), 400, "cursor=here", Request{}},
		{"PUT", one + "/cursor", body(""), 400, "there is no cursor", Request{}},
		{"PUT", one + "/cursor", "", 400, "the body", Request{}},
		{"PUT", one + "/cursor", "{}", 400, "there is no cursor", Request{}},
		{"PUT", one + "/cursor", `{"cursor":1}`, 400, "the body", Request{}},
		{"PUT", one + "/cursor", `{"cursor":"now"} x`, 400, "something follows", Request{}},
		{"PUT", one + "/cursor", `{"cursor":"now","set":"other"}`, 400, "unknown field", Request{}},
		{"PUT", one + "/cursor", body(strings.Repeat("1", 2000)), 413, "1024 bytes", Request{}},
		{"POST", one, "", 405, "DELETE, GET, HEAD", Request{}},
		{"GET", one + "/retry", "", 405, "POST", Request{}},
		{"POST", one + "/cursor", body("now"), 405, "PUT", Request{}},
		{"GET", one + "/secret", "", 404, "/retry", Request{}},
		{"DELETE", one + "/cursor/x", "", 404, "/retry", Request{}},
		{"DELETE", "/sets/other/subscriptions/" + r.ID().String(), "", 404, "no subscription", Request{}},
		{"GET", "/sets/other/subscriptions/" + r.ID().String(), "", 404, "no subscription", Request{}},
		{"DELETE", "/sets/demo/subscriptions/" + strings.Repeat("0", 32), "", 404, "no subscription", Request{}},
		{"DELETE", "/sets/demo/subscriptions/1", "", 400, "32 hexadecimal digits", Request{}},
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

// Who asks to go on behind a cursor that the log has lost is told so by the first
// delivery, whoever asks.
func TestSinceLostTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		f := &front{t: t, log: w.log, registry: w.registry, server: NewServer(w.engine, w.log, ServerOptions{})}
		w.publish("a", 3)
		lost := w.head()
		lost.Position += 2
		lost.Micros++
		c := w.listen("a.example")
		id := NewID("demo", c.url)
		subscribe := func() (int, string) {
			return f.post(asking("hub.callback", c.url, "rs.since", lost.String()))
		}
		move := func() (int, string) {
			return f.ask("PUT", "/sets/demo/subscriptions/"+id.String()+"/cursor", fmt.Sprintf(`{"cursor":%q}`, lost))
		}
		for i, ask := range []func() (int, string){subscribe, move, subscribe} { // the last is a renewal
			before, _, _ := c.counts()
			if status, text := ask(); status != 202 {
				t.Fatalf("request %d is answered %d: %s", i, status, text)
			}
			w.settled()
			if h := c.tries[before].header; h.Get("RS-Diverged") != "true" || h.Get("RS-Previous") != "0" {
				t.Errorf("request %d: delivered is %v", i, h)
			}
			w.publish("b", 1)
			w.settled()
			if c.last().header.Get("RS-Diverged") != "" {
				t.Errorf("request %d: RS-Diverged is said once too often", i)
			}
			lost.Position++
		}
	})
}

// The URL of a status is the right to read it: none that is not exactly it tells
// anything, nor whether there is a subscription.
func TestStatusURL(t *testing.T) {
	f := newFront(t, ServerOptions{})
	fill(t, f.log, "demo")
	r, other := record(1, changelog.Cursor{}), record(2, changelog.Cursor{})
	f.put(r, other)
	if v := see[shown](f, "/subscriptions/"+statusName(r.ID(), r.Token)); v.Callback != r.Callback {
		t.Errorf("its status is of %s", v.Callback)
	}
	_, none := f.ask(http.MethodGet, "/subscriptions/x", "")
	for what, name := range map[string]string{
		"no token":               r.ID().String(),
		"an empty token":         r.ID().String() + ".",
		"a wrong token":          statusName(r.ID(), "token2"),
		"a part of it":           statusName(r.ID(), "token"),
		"more than it":           statusName(r.ID(), r.Token+"x"),
		"another's token":        statusName(other.ID(), r.Token),
		"no id":                  "." + r.Token,
		"an id that is not":      statusName(NewID("demo", "https://none.example/"), r.Token),
		"an id of no token":      statusName(NewID("demo", "https://none.example/"), ""),
		"an id that cannot be":   "xyz." + r.Token,
		"a token in other cases": statusName(r.ID(), "TOKEN1"),
	} {
		if status, text := f.ask(http.MethodGet, "/subscriptions/"+name, ""); status != 404 || text != none {
			t.Errorf("%s is answered %d: %s", what, status, text)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		if status, _ := f.ask(method, "/subscriptions/"+statusName(r.ID(), r.Token), ""); status != 405 {
			t.Errorf("%s is answered %d", method, status)
		}
	}
	claims, err := f.registry.Acquire(t.Context(), []int{r.ID().Shard()})
	if err == nil {
		err = f.registry.Commit(t.Context(), claims[0], Changes{Delete: []ID{r.ID()}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if status, text := f.ask(http.MethodGet, "/subscriptions/"+statusName(r.ID(), r.Token), ""); status != 404 || text != none {
		t.Errorf("after its end it is answered %d: %s", status, text)
	}
}

// A subscription that is made, fails, is looked at and ends tells its secret to
// nobody, nor its callback's path to the log.
func TestDiscretion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := &lines{}
		w := newWorld(t, Options{Logger: logged.logger()})
		c := w.listen("callback.example")
		f := &front{t: t, log: w.log, registry: w.registry, server: NewServer(w.engine, w.log, ServerOptions{}), logged: logged}
		w.publish("a", 1)
		c.url += "/path-of-it"
		if status, text := f.post(asking("hub.callback", c.url)); status != 202 {
			t.Fatalf("it is answered %d: %s", status, text)
		}
		w.settled()
		id := NewID("demo", c.url)
		url := c.asked[0].URL.Query().Get("rs.status")
		if want := base + "/subscriptions/" + statusName(id, w.saved(id).Token); url != want {
			t.Errorf("the status is at %s, want %s", url, want)
		}
		status := strings.TrimPrefix(url, base)
		c.says(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, secret, 500) })
		w.publish("b", 1)
		time.Sleep(time.Minute)
		w.settled()
		if v := see[shown](f, status); v.State != "waiting" || v.Failed < 2 || len(v.Attempts) < 3 || v.Next == nil || !v.Next.After(time.Now()) {
			t.Errorf("a failing subscription is shown as %+v", v)
		}
		see[listing](f, "/sets/demo/subscriptions")
		c.says(nil)
		one := "/sets/demo/subscriptions/" + id.String()
		f.ask("POST", one+"/retry", "")
		w.settled()
		time.Sleep(saveEvery)
		w.settled()
		if v := see[shown](f, one); v.State != "current" || v.Failed != 0 {
			t.Errorf("after the retry it is shown as %+v", v)
		}
		f.ask("DELETE", one, "")
		w.settled()
		if code, _ := f.ask("GET", status, ""); code != 404 {
			t.Errorf("after its end its status is answered %d", code)
		}
		text := logged.text()
		f.discreet("the log", text)
		if !strings.Contains(text, "callback.example") || strings.Contains(text, "path-of-it") {
			t.Errorf("logged is %s", text)
		}
	})
}
