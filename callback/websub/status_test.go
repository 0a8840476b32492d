package websub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// get GETs a path and decodes the response.
func get[T any](t *testing.T, f *front, path string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(f.operate(t, http.MethodGet, path, "", 200, "")), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// An operator sees everything of a subscription, except its secret and its token. Its subscriber does not see By.
func TestShown(t *testing.T) {
	f, b := newFront(t, Options{}, 10, 5)
	r := record(1, b[0].Entries[3].Cursor)
	r.Renewed, r.By = now.Add(-time.Minute), subscription.ByToken("bob")
	r.Filter = feed.Filter{Prefix: "https://example.org/a", Changes: []resourcesync.ChangeType{"created"}, Types: []string{"text/*"}}
	r.Failed, r.Gaps, r.Next = 2, 1, now.Add(time.Second)
	r.Last = []subscription.Attempt{
		{At: now.Add(-time.Hour), Kind: "subscribe", Status: 200, Took: time.Second / 4},
		{At: now, Kind: "deliver", Status: 500, Took: 2 * time.Second, Error: "no success"},
	}
	f.put(t, r)
	want := fmt.Sprintf(`{"id":"%s","topic":"https://hub.example.org/sets/demo/changes","callback":"https://callback.example/1",`+
		`"state":"waiting","by":"token bob","cursor":"%s","lag":{"changes":11,"seconds":0},"rs.prefix":"https://example.org/a","rs.change":["created"],"rs.type":["text/*"],`+
		`"signed":true,"failed":2,"next":"2026-03-04T05:06:01Z","gaps":1,"made":"2026-03-04T04:06:00Z","renewed":"2026-03-04T05:05:00Z","leaseEnd":"2026-03-04T06:06:00Z",`+
		`"attempts":[{"at":"2026-03-04T05:06:00Z","kind":"deliver","status":500,"seconds":2,"error":"no success"},`+
		`{"at":"2026-03-04T04:06:00Z","kind":"subscribe","status":200,"seconds":0.25}]}`+"\n", r.ID(), r.Cursor)
	f.operate(t, "GET", "/sets/demo/subscriptions", "", 200, `{"subscriptions":[`+strings.TrimSuffix(want, "\n")+"]}\n")
	f.operate(t, "GET", "/sets/demo/subscriptions/"+r.ID().String(), "", 200, want)
	f.operate(t, "GET", "/subscriptions/"+statusName(r.ID(), r.Token), "", 200, strings.Replace(want, `"by":"token bob",`, "", 1))
}

// The lag is counted from the cursor, or from the floor of the log if that is later.
func TestLag(t *testing.T) {
	f, b := newFront(t, Options{}, 150, 150)
	f.server.opts.Now = func() time.Time { return b[1].Cursor.Time().Add(time.Minute) }
	all := slices.Concat(b[0].Entries, b[1].Entries)
	check := func(name string, c feed.Cursor, state string, changes int) {
		t.Helper()
		r := record(1, c)
		f.put(t, r)
		want := lagView{Changes: uint64(changes)}
		if changes > 0 {
			want.Seconds = f.server.opts.Now().Sub(all[len(all)-changes].Time()).Seconds()
		}
		if v := get[subscriptionView](t, f, "/sets/demo/subscriptions/"+r.ID().String()); v.Lag != want || v.State != state {
			t.Errorf("%s: got lag %+v and state %s, want %+v and %s", name, v.Lag, v.State, want, state)
		}
	}
	check("head", b[1].Cursor, "current", 0)
	check("one behind", all[298].Cursor, "delivering", 1)
	check("start", b[0].After, "delivering", 300)
	check("lost tail", feed.Cursor{Position: 400, Micros: 1}, "current", 0)
	if n, err := f.log.Trim(t.Context(), "demo", changelog.Retention{Count: 100}); err != nil || n != 200 {
		t.Fatalf("Trim() = %d, %v, want 200", n, err)
	}
	check("overrun", b[0].After, "delivering", 100)
	check("not overrun", all[249].Cursor, "delivering", 50)
	if err := f.log.Delete(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	check("deleted set", all[249].Cursor, "no set", 0)
}

// The URL of a status is the right to read it. All wrong URLs get the same response, whether or not there is a
// subscription.
func TestStatusURL(t *testing.T) {
	f, _ := newFront(t, Options{})
	r, other := record(1, feed.Cursor{}), record(2, feed.Cursor{})
	f.put(t, r, other)
	path := "/subscriptions/" + statusName(r.ID(), r.Token)
	f.operate(t, "GET", path, "", 200, r.Callback)
	notFound := f.operate(t, "GET", "/subscriptions/x", "", 404, "no subscription at this URL")
	nonexistent := subscription.NewID("demo", "", "https://none.example/")
	for name, path := range map[string]string{
		"no token":                 r.ID().String(),
		"empty token":              r.ID().String() + ".",
		"wrong token":              statusName(r.ID(), "token2"),
		"part of the token":        statusName(r.ID(), "token"),
		"longer token":             statusName(r.ID(), r.Token+"x"),
		"upper case":               statusName(r.ID(), "TOKEN1"),
		"token of another":         statusName(other.ID(), r.Token),
		"no ID":                    "." + r.Token,
		"nonexistent ID":           statusName(nonexistent, r.Token),
		"nonexistent ID, no token": statusName(nonexistent, ""),
		"invalid ID":               "xyz." + r.Token,
	} {
		t.Run(name, func(t *testing.T) { f.operate(t, "GET", "/subscriptions/"+path, "", 404, notFound) })
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		f.operate(t, method, path, "", 405, "")
	}
	f.commit(t, r.ID(), subscription.Changes{Delete: []subscription.ID{r.ID()}})
	f.operate(t, "GET", path, "", 404, notFound)
}
