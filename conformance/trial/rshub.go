package trial

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// A Subscription is what an rshub shows of a subscription.
type Subscription struct {
	ID, Topic, Callback, State, Cursor string
	Prefix                             string `json:"rs.prefix"`
	Signed                             bool
	Failed, Gaps                       int
	Lag                                struct{ Changes uint64 }
	Attempts                           []struct {
		Kind   string
		Status int
		Error  string
	}
}

// show reads what an rshub shows as JSON at a URL.
func (t *Trial) show(u string, v any) {
	t.Helper()
	a := t.Fetch(http.StatusOK, http.MethodGet, u, nil, "Accept: application/json")
	if err := json.Unmarshal(a.Body, v); err != nil {
		t.Fatalf("%s: %v: %s", u, err, Tail(string(a.Body)))
	}
}

// Ends are the cursors before the oldest change that an rshub keeps of a set,
// and of the newest.
func (t *Trial) Ends(set string) (floor, head string) {
	t.Helper()
	var v struct{ Floor, Head string }
	t.show(t.Hub.Base()+"/sets/"+set, &v)
	return v.Floor, v.Head
}

// Memory is what an rshub keeps of a set, at most 10,000 changes.
func (t *Trial) Memory(set string) (all []Entry) {
	t.Helper()
	var page struct{ Changes []json.RawMessage }
	t.show(t.Hub.Base()+"/sets/"+set+"/changes?since=start&limit=10000", &page)
	for _, raw := range page.Changes {
		e, err := ParseEntry(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		all = append(all, e)
	}
	return all
}

// Subscriptions lists the subscriptions of a set of an rshub.
func (t *Trial) Subscriptions(set string) (all []Subscription) {
	t.Helper()
	type page struct {
		Subscriptions []Subscription
		Next          string
	}
	for next := t.Hub.Base() + "/sets/" + set + "/subscriptions?limit=1000"; next != ""; {
		var p page
		t.show(next, &p)
		all, next = append(all, p.Subscriptions...), p.Next
	}
	return all
}

// Listed says whether a subscription is listed, or is not, as it should.
func (t *Trial) Listed(tp *Topic, c *Callback, want bool) error {
	if got := t.IDOf(tp, c) != ""; got != want {
		return fmt.Errorf("listed: %v", got)
	}
	return nil
}

// IDOf is the id of a callback's subscription, empty when it has none.
func (t *Trial) IDOf(tp *Topic, c *Callback) string {
	for _, s := range t.Subscriptions(tp.Set) {
		if s.Callback == c.URL {
			return s.ID
		}
	}
	return ""
}
