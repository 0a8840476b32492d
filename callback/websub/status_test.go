package websub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/testutil/memorytest"
	"github.com/rshub/rshub/resourcesync"
)

// record returns a subscription to the set demo, with a secret and a token.
func record(n int, cursor feed.Cursor) subscription.Record {
	return subscription.Record{
		Subscription: subscription.Subscription{
			Set: "demo", Callback: fmt.Sprintf("https://callback.example/%d", n), Terms: subscription.Terms{Secret: secret},
			LeaseEnd: now.Add(time.Hour), Token: fmt.Sprint("token", n), Made: now.Add(-time.Hour),
		},
		Progress: subscription.Progress{Cursor: cursor},
	}
}

// ask makes an operator's request about the set's subscriptions, or a subscriber's
// request to the URL of its status.
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
		problem.Write(w, r, err)
	}
	f.discreet("an answer", w.Body.String())
	if w.Header().Get("Cache-Control") != "no-store" {
		f.t.Errorf("the header is %v", w.Header())
	}
	return w.Code, w.Body.String()
}

// see GETs a path and decodes the answer.
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

// Everything of a subscription is shown, except its secret and its token.
func TestShown(t *testing.T) {
	f := newFront(t, Options{})
	b := memorytest.Fill(t, f.log, "demo", memorytest.Changes("a", 10), memorytest.Changes("b", 5))
	r := record(1, b[0].Entries[3].Cursor)
	r.Renewed = now.Add(-time.Minute)
	r.Filter = feed.Filter{Prefix: "https://example.org/a", Changes: []resourcesync.ChangeType{"created"}, Types: []string{"text/*"}}
	r.Failed, r.Gaps, r.Next = 2, 1, now.Add(time.Second)
	r.Last = []subscription.Attempt{
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

// The lag is counted from the cursor, or from the floor of the log if that is later.
func TestLag(t *testing.T) {
	f := newFront(t, Options{})
	b := memorytest.Fill(t, f.log, "demo", memorytest.Changes("a", 150), memorytest.Changes("b", 150))
	f.server.opts.Now = func() time.Time { return b[1].Cursor.Time().Add(time.Minute) }
	all := slices.Concat(b[0].Entries, b[1].Entries)
	check := func(what string, c feed.Cursor, n int, first feed.Entry, state string) {
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
	check("of a log that lost its tail", feed.Cursor{Position: 400, Micros: 1}, 0, all[0], "current")
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

// The URL of a status is the right to read it. A wrong URL shows nothing, not even
// whether there is a subscription.
func TestStatusURL(t *testing.T) {
	f := newFront(t, Options{})
	memorytest.Fill(t, f.log, "demo")
	r, other := record(1, feed.Cursor{}), record(2, feed.Cursor{})
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
		"an id that is not":      statusName(subscription.NewID("demo", "", "https://none.example/"), r.Token),
		"an id of no token":      statusName(subscription.NewID("demo", "", "https://none.example/"), ""),
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
		err = f.registry.Commit(t.Context(), claims[0], subscription.Changes{Delete: []subscription.ID{r.ID()}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if status, text := f.ask(http.MethodGet, "/subscriptions/"+statusName(r.ID(), r.Token), ""); status != 404 || text != none {
		t.Errorf("after its end it is answered %d: %s", status, text)
	}
}
