package websub

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/memorytest"
	"github.com/rshub/rshub/resourcesync"
)

const (
	positions = "7851a25dff088758d86156f91005b110"
	contents  = "e93a944786583470529e4f7fa9a3b796"
	others    = "dc76589d6111e11fabe890a659d5f145"
)

// shelved is a front whose set demo held two resources at one cursor. The prefix of the
// last look is noted.
func shelved(t *testing.T, prefix *string) (f *front, at feed.Cursor) {
	f = newFront(t, Options{Held: func(_ context.Context, set string, c feed.Cursor, p string) (Held, error) {
		*prefix = p
		if set != "demo" || c != at {
			return Held{}, fmt.Errorf("in a test: %w", feed.ErrGone)
		}
		return Held{Complete: true, Count: 2, Position: positions, Content: contents}, nil
	}})
	return f, memorytest.Fill(t, f.log, "demo", memorytest.Changes("a", 2))[0].Cursor
}

// The hub compares by itself. What is equal becomes a request to the owner of the shard; what is
// not says where to go on.
func TestProve(t *testing.T) {
	var prefix string
	f, at := shelved(t, &prefix)
	r := record(1, at)
	r.Filter = feed.Filter{Prefix: "https://example.org/", Changes: []resourcesync.ChangeType{"created", "deleted", "updated"}}
	f.put(r)
	path := "/subscriptions/" + statusName(r.ID(), r.Token)
	for _, test := range []struct{ said, by string }{ // by is empty: not equal
		{`"count":2,"position":"` + positions + `"`, "position"},
		{`"count":2,"content":"` + contents + `"`, "content"},
		{`"count":2,"position":"` + positions + `","content":"` + contents + `"`, "position"},
		{`"count":2,"position":"` + others + `"`, ""},
		{`"count":3,"position":"` + positions + `"`, ""},
		{`"count":2,"position":"` + contents + `"`, ""},
		{`"count":2,"position":"` + positions + `","content":"` + others + `"`, ""},
		{`"count":2,"position":"` + others + `","content":"` + contents + `"`, ""},
	} {
		waiting := len(f.waiting())
		status, text := f.ask(http.MethodPost, path, fmt.Sprintf(`{"at":"%v",%s}`, at, test.said))
		var c comparison
		if err := json.Unmarshal([]byte(text), &c); err != nil || status != 200 {
			t.Fatalf("%s is answered %d: %s", test.said, status, text)
		}
		if c.Equal != (test.by != "") || c.At != at.String() || !c.Complete || prefix != "https://example.org/" {
			t.Errorf("%s is answered %s, within %q", test.said, text, prefix)
		}
		requests := f.waiting()
		if !c.Equal {
			if len(requests) != waiting || c.Proved != nil || c.Audit != base+"/sets/demo/audit" {
				t.Errorf("%s is answered %s, and is kept: %d", test.said, text, len(requests)-waiting)
			}
			continue
		}
		if len(requests) != waiting+1 {
			t.Fatalf("%s: %d requests wait", test.said, len(requests))
		}
		q := requests[waiting]
		if c.By != test.by || c.Proved == nil || !c.Proved.Equal(now) || c.Audit != "" || q.Mode != subscription.Prove || q.ID() != r.ID() ||
			q.Proof != (subscription.Proof{At: now, Cursor: at, By: test.by, Complete: true}) || q.Filter.Prefix != prefix {
			t.Errorf("%s is answered %s, and %+v waits", test.said, text, q)
		}
	}
}

// What cannot be compared is refused, and says why.
func TestProveRefused(t *testing.T) {
	var prefix string
	f, at := shelved(t, &prefix)
	r, some, types, over := record(1, at), record(2, at), record(3, at), record(4, at)
	some.Filter.Changes = []resourcesync.ChangeType{"created", "updated"}
	types.Filter.Types = []string{"text/*"}
	over.Ended, over.Why = now, "it was refused"
	f.put(r, some, types, over)
	good := fmt.Sprintf(`{"at":"%v","count":2,"position":"%s"}`, at, positions)
	for _, test := range []struct {
		of     subscription.Record
		body   string
		status int
		says   string
	}{
		{r, ``, 400, "the body is not"},
		{r, `{}`, 400, "at is missing"},
		{r, `{"at":"2-5","position":"` + positions + `"}`, 400, "count is missing"},
		{r, `{"at":"2-5","count":-1,"position":"` + positions + `"}`, 400, "the body is not"},
		{r, `{"at":"2-5","count":2}`, 400, "there is no digest"},
		{r, `{"at":"2-5","count":2,"position":"7851"}`, 400, "position is a digest"},
		{r, `{"at":"2-5","count":2,"content":"` + strings.ToUpper(contents) + `"}`, 400, "content is a digest"},
		{r, `{"at":"now","count":2,"content":"` + contents + `"}`, 400, "at: "},
		{r, `{"cursor":"2-5","count":2,"content":"` + contents + `"}`, 400, "cursor"},
		{r, `{"at":"` + strings.Repeat("1", maxClaimed) + `"}`, 413, ""},
		{r, `{"at":"2-5","count":2,"position":"` + positions + `"}`, 410, "GET " + base + "/sets/demo/audit"},
		{some, good, 409, "rs.change"},
		{types, good, 409, "rs.type"},
		{over, good, 409, "it was refused"},
	} {
		status, text := f.ask(http.MethodPost, "/subscriptions/"+statusName(test.of.ID(), test.of.Token), test.body)
		if status != test.status || !strings.Contains(text, test.says) {
			t.Errorf("%.60s is answered %d: %s", test.body, status, text)
		}
	}
	if n := len(f.waiting()); n != 0 {
		t.Errorf("%d requests wait", n)
	}

	// A subscription may be proved so many times a minute, and no more.
	f.server.opts.Now = func() time.Time { return now.Add(time.Minute) }
	for i := range maxAgain + 1 {
		status, text := f.ask(http.MethodPost, "/subscriptions/"+statusName(r.ID(), r.Token), good)
		if want := map[bool]int{true: 429, false: 200}[i == maxAgain]; status != want {
			t.Fatalf("proof %d is answered %d: %s", i, status, text)
		}
	}

	// A hub without inventories has nothing to compare with.
	f = newFront(t, Options{})
	memorytest.Fill(t, f.log, "demo")
	f.put(r)
	if status, text := f.ask(http.MethodPost, "/subscriptions/"+statusName(r.ID(), r.Token), good); status != 404 || !strings.Contains(text, "no-inventory") {
		t.Errorf("without inventories it is answered %d: %s", status, text)
	}
}
