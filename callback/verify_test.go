package callback_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

func TestVerify(t *testing.T) {
	for _, query := range []string{"", "?", "?own=1&hub.mode=mine", "?own=%2f&"} {
		t.Run("cb"+query, func(t *testing.T) {
			inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
				w.publish("a", 3)
				c := w.receiver("a.example")
				c.url += query
				start := feed.Cursor{Position: 2, Micros: w.head().Micros - 1}
				filter := feed.Filter{Prefix: "https://example.org/x&y", Changes: []resourcesync.ChangeType{resourcesync.Created, resourcesync.Deleted}}
				id := w.request(c, subscription.Request{Start: start, Lease: time.Hour, Terms: subscription.Terms{Filter: filter}})
				r, q := w.record(id), c.query()
				if uri := c.gets.all()[0].RequestURI; !strings.HasPrefix("http://a.example"+uri, strings.TrimRight(c.url, "?&")) {
					t.Errorf("URI = %s, want the callback first", uri)
				}
				for name, want := range map[string]string{
					"hub.topic": topic("demo"), "hub.lease_seconds": "3600", "rs.since": start.String(), "rs.renewed": "false",
					"rs.prefix": "https://example.org/x&y", "rs.change": "created,deleted", "rs.status": base + "/subscriptions/" + id.String() + "." + r.Token,
				} {
					if got := q.Get(name); got != want {
						t.Errorf("%s = %q, want %q", name, got, want)
					}
				}
				if modes := q["hub.mode"]; modes[len(modes)-1] != "subscribe" || len(q.Get("hub.challenge")) < 26 {
					t.Errorf("parameters = %v, want a subscription with a long challenge", q)
				}
				if !r.LeaseEnd.Equal(time.Now().Add(time.Hour)) || r.Cursor != start || len(r.Token) < 26 || r.Callback != c.url {
					t.Errorf("record = %+v, want what was requested", r)
				}
			})
		})
	}
}

// Each request has a verify token of its own, which it keeps through retries and a crash.
func TestVerifyToken(t *testing.T) {
	rights := newRegister()
	inWorld(t, callback.Options{Rights: rights}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		check := func(step string, want ...string) {
			t.Helper()
			var got []string
			for _, r := range c.gets.popAll() {
				q := r.URL.Query()
				got = append(got, fmt.Sprintf("%s %q", q.Get("hub.mode"), q["hub.verify_token"]))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: got requests %q, want %q", step, got, want)
			}
		}
		request := func(mode subscription.Mode, token string) subscription.ID {
			t.Helper()
			return w.request(c, subscription.Request{Mode: mode, VerifyToken: token, Lease: time.Hour})
		}
		c.verify(status(503))
		request(subscription.Subscribe, "one")
		check("first", `subscribe ["one"]`)
		w.recover()
		w.pass(time.Minute)
		check("after a crash", `subscribe ["one"]`, `subscribe ["one"]`, `subscribe ["one"]`)
		c.verify(confirm)
		request(subscription.Subscribe, "two")
		request(subscription.Subscribe, "three")
		request(subscription.Subscribe, "")
		check("renewals", `subscribe ["two"]`, `subscribe ["three"]`, "subscribe []")
		id := request(subscription.Unsubscribe, "four")
		check("unsubscribe", `unsubscribe ["four"]`)
		if w.exists(id) {
			t.Error("the subscription still exists")
		}
		rights.remove(alice)
		request(subscription.Subscribe, "five")
		w.pass(5 * time.Minute)
		check("refused", `denied ["five"]`)
	})
}

// A response that does not confirm changes nothing, neither for a new subscription nor for one that works.
func TestNotConfirmed(t *testing.T) {
	for _, tt := range []struct {
		name    string
		respond http.HandlerFunc
		tries   int
	}{
		{"404", status(404), 1},
		{"301", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusMovedPermanently)
		}, 1},
		{"empty", status(200), 1},
		{"short challenge", func(w http.ResponseWriter, r *http.Request) { text(r.URL.Query().Get("hub.challenge")[1:])(w, r) }, 1},
		{"long challenge", func(w http.ResponseWriter, r *http.Request) { confirm(w, r); text("\n")(w, r) }, 1},
		{"500", status(500), 3},
		{"503", status(503), 3},
		{"hangs", hang, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
				wait := time.Second
				if tt.tries > 1 {
					wait = time.Minute
				}
				fresh, known := w.receiver("fresh.example"), w.receiver("known.example")
				id := w.request(known, subscription.Request{Terms: secret("old"), Lease: time.Hour})
				before := w.record(id)
				fresh.verify(tt.respond)
				known.verify(tt.respond)
				other := w.do(subscription.Subscribe, fresh)
				terms := prefix("no")
				terms.Secret = "new"
				w.request(known, subscription.Request{Terms: terms, Lease: 2 * time.Hour, Move: true})
				w.pass(wait)
				w.publish("a", 1)
				w.do(subscription.Unsubscribe, known)
				w.pass(wait)
				if w.exists(other) {
					t.Error("a subscription was made")
				}
				if r := w.record(id); r.Secret != "old" || !r.LeaseEnd.Equal(before.LeaseEnd) || !r.Filter.IsZero() {
					t.Errorf("record = %+v, want %+v", r, before)
				}
				fresh.wantRequests(0, tt.tries)
				known.wantRequests(1, 1+2*tt.tries)
				known.wantChanges(0, 1)
				known.last().wantSignature(t, "old")
			})
		})
	}
}

// A renewal keeps the cursor and replaces the terms.
func TestRenew(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		id := w.request(c, subscription.Request{Terms: secret("old"), Lease: time.Hour})
		c.respond(fail)
		w.publish("a", 2)
		w.pass(time.Minute)
		posts, token := c.posts.len(), w.record(id).Token
		c.respond(accept)
		w.request(c, subscription.Request{Terms: secret("new"), Lease: 2 * time.Hour, Start: w.head()})
		c.wantRequests(posts+1, 2) // a confirmed renewal brings the retry forward
		c.wantChanges(0, 2)
		c.last().wantSignature(t, "new")
		// The cursor of the renewal is that before the delivery, whose progress is stored later.
		if r := w.record(id); r.Secret != "new" || !r.Cursor.IsZero() {
			t.Errorf("record after the renewal = %+v, want the new secret and the zero cursor", r)
		}
		if q := c.query(); q.Get("rs.renewed") != "true" || q.Get("rs.since") != "0-0" {
			t.Errorf("verification has %v, want a renewal since 0-0", q)
		}
		w.pass(saveEvery)
		if r := w.record(id); r.Token != token || r.Secret != "new" || r.Cursor != w.head() || r.Renewed.IsZero() || r.Made.Equal(r.Renewed) {
			t.Errorf("record after the delivery = %+v, want token %s, the new secret and cursor %v", r, token, w.head())
		}
		w.request(c, subscription.Request{Move: true}) // to the zero cursor
		if got, want := c.names(), "a/0 a/1 a/0 a/1"; got != want {
			t.Errorf("after a move received %s, want %s", got, want)
		}
	})
}

func TestUnsubscribe(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscriber()
		w.do(subscription.Unsubscribe, c)
		if w.exists(id) {
			t.Error("the subscription still exists")
		}
		if q := c.query(); q.Get("hub.mode") != "unsubscribe" || q.Has("hub.lease_seconds") || q.Get("hub.topic") != topic("demo") {
			t.Errorf("verification has %v, want an unsubscription without a lease", q)
		}
		w.publish("a", 1)
		w.do(subscription.Unsubscribe, c) // of nothing: no verification
		w.pass(time.Second)
		c.wantRequests(0, 2)
		w.wantEmptyInbox(id)
	})
}

// A subscription ends when its lease does, not earlier, and the callback is notified.
func TestLeaseEnds(t *testing.T) {
	long(t)
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		for i, respond := range []http.HandlerFunc{accept, fail} {
			c := w.receiver(fmt.Sprint("host", i, ".example"))
			before := w.head()
			id := w.request(c, subscription.Request{Lease: 300 * time.Second, Start: before})
			c.respond(respond)
			w.publish("a", 1)
			w.pass(270 * time.Second)
			w.publish("late", 1) // shows an earlier end that nothing else notices
			w.pass(29 * time.Second)
			if !w.exists(id) || c.gets.len() != 1 {
				t.Fatal("the subscription ended before its lease")
			}
			if i == 0 {
				c.wantChanges(before.Position, 2)
			}
			w.pass(2 * time.Second)
			if w.exists(id) {
				t.Fatal("the subscription still exists")
			}
			if q := c.query(); q.Get("hub.mode") != "denied" || q.Get("hub.reason") != "lease expired" || q.Get("hub.topic") == "" || q.Has("hub.challenge") {
				t.Errorf("denial has %v, want one that it expired", q)
			}
			posts := c.posts.len()
			w.publish("b", 1)
			w.pass(10 * time.Minute)
			c.wantRequests(posts, 2)
		}
	})
}

// The denial at the end of a lease reports that the set does not exist.
func TestExpiryWithoutASet(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		w.publish("a", 1)
		c := w.receiver("a.example")
		id := w.request(c, subscription.Request{Lease: 300 * time.Second, Start: w.head()})
		w.deleteSet()
		w.pass(299 * time.Second)
		w.record(id)
		c.wantRequests(0, 1)
		w.pass(2 * time.Second)
		if got := c.denials(); w.exists(id) || len(got) != 1 || got[0] != "lease expired; the set does not exist" {
			t.Errorf("subscription exists: %t, denials = %q", w.exists(id), got)
		}
	})
}
