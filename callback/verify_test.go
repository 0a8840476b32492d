package callback_test

import (
	"context"
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
		runInWorld(t, "cb"+query, callback.Options{}, func(t *testing.T, w *world) {
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
			c.wantQuery(map[string]string{
				"hub.topic": topic("demo"), "hub.lease_seconds": "3600", "rs.since": start.String(), "rs.renewed": "false",
				"rs.prefix": "https://example.org/x&y", "rs.change": "created,deleted", "rs.status": base + "/subscriptions/" + id.String() + "." + r.Token,
			})
			if modes := q["hub.mode"]; modes[len(modes)-1] != "subscribe" || len(q.Get("hub.challenge")) < 26 {
				t.Errorf("parameters = %v, want a subscription with a long challenge", q)
			}
			if !r.LeaseEnd.Equal(time.Now().Add(time.Hour)) || r.Cursor != start || len(r.Token) < 26 || r.Callback != c.url {
				t.Errorf("record = %+v, want what was requested", r)
			}
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
		w.wantGone(id)
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
		runInWorld(t, tt.name, callback.Options{}, func(t *testing.T, w *world) {
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
			w.wantGone(other)
			if r := w.record(id); r.Secret != "old" || !r.LeaseEnd.Equal(before.LeaseEnd) || !r.Filter.IsZero() {
				t.Errorf("record = %+v, want %+v", r, before)
			}
			fresh.wantRequests(0, tt.tries)
			known.wantRequests(1, 1+2*tt.tries)
			known.wantChanges(0, 1)
			known.last().wantSignature(t, "old")
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
		c.wantQuery(map[string]string{"rs.renewed": "true", "rs.since": "0-0"})
		w.pass(saveEvery)
		if r := w.record(id); r.Token != token || r.Secret != "new" || r.Cursor != w.head() || r.Renewed.IsZero() || r.Made.Equal(r.Renewed) {
			t.Errorf("record after the delivery = %+v, want token %s, the new secret and cursor %v", r, token, w.head())
		}
		w.request(c, subscription.Request{Move: true}) // to the zero cursor
		c.wantNames("a/0 a/1 a/0 a/1")
	})
}

func TestUnsubscribe(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscriber()
		w.do(subscription.Unsubscribe, c)
		w.wantGone(id)
		c.wantQuery(map[string]string{"hub.mode": "unsubscribe", "hub.topic": topic("demo"), "hub.lease_seconds": ""})
		w.publish("a", 1)
		w.do(subscription.Unsubscribe, c) // of nothing: no verification
		w.pass(time.Second)
		c.wantRequests(0, 2)
		w.wantEmptyInbox(id)
	})
}

// A subscription ends when its lease does, not earlier, and the callback is notified.
func TestLeaseEnds(t *testing.T) {
	for _, tt := range []struct {
		name    string
		respond http.HandlerFunc
		deleted bool // whether the set is deleted
		reason  string
	}{
		{"accepts", accept, false, "lease expired"},
		{"fails", fail, false, "lease expired"},
		{"deleted set", accept, true, "lease expired; the set does not exist"},
	} {
		runInWorld(t, tt.name, callback.Options{}, func(t *testing.T, w *world) {
			c := w.receiver("a.example")
			c.respond(tt.respond)
			id := w.request(c, subscription.Request{Lease: 300 * time.Second})
			w.publish("a", 1)
			w.pass(270 * time.Second)
			w.publish("late", 1) // shows an earlier end that nothing else notices
			if tt.deleted {
				w.deleteSet()
			}
			w.pass(29 * time.Second)
			w.record(id)
			c.wantDenials()
			if tt.name == "accepts" {
				c.wantChanges(0, 2)
			}
			w.pass(2 * time.Second)
			w.wantGone(id)
			c.wantDenials(tt.reason)
			c.wantQuery(map[string]string{"hub.topic": topic("demo"), "hub.challenge": ""})
			posts := c.posts.len()
			w.publish("b", 1)
			w.pass(10 * time.Minute)
			c.wantRequests(posts, 2)
		})
	}
}

// A secret that is not encrypted with the first key is stored again even if that fails at first, and a delivery
// is in flight then.
func TestResealDuringDelivery(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscriber()
		w.crash()
		r := w.record(id)
		r.Stale = true
		w.store.onLoad(func(shard int) recordsFunc {
			return func(yield func(subscription.Record, error) bool) {
				if shard == id.Shard() {
					yield(r, nil)
				}
			}
		})
		w.store.onCommit(noCommits)
		w.start()
		w.pass(58 * time.Second)
		w.store.onCommit(func(_ context.Context, _ int, _ subscription.Changes, commit func() error) error {
			time.Sleep(2 * time.Second) // fake time
			return commit()
		})
		c.respond(hang)
		w.pass(3 * time.Second) // the second attempt is after a minute
		w.publish("a", 1)
		w.pass(1500 * time.Millisecond)
		if calls, stale := w.metric("in_flight"), w.metric("stale_secrets"); calls != 1 || stale != 1 {
			t.Errorf("got %d calls and %d stale secrets during a delivery, want 1 and 1", calls, stale)
		}
		w.store.onCommit(nil)
		c.respond(accept)
		w.pass(30 * time.Second)
		w.wantMetric("stale_secrets", 0)
	})
}

// After a renewal with another secret both sign for a day, even verifications and denials.
func TestTwoSecrets(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.receiver("a.example")
		c.url += "?own=1"
		signatures := func(h http.Header, current string, text []byte, secrets ...string) {
			t.Helper()
			for i, name := range []string{current, "Rs-Former-Signature"} {
				got, want := strings.Join(h.Values(name), ", "), signature(secrets[i], text)
				if got != want {
					t.Errorf("%s = %q, want %q of secret %q", name, got, want, secrets[i])
				}
			}
		}
		wantGet := func(mode, secret, former string) {
			t.Helper()
			gets := c.gets.all()
			r := gets[len(gets)-1]
			signatures(r.Header, "Rs-Signature", []byte(r.URL.RawQuery), secret, former)
			c.wantQuery(map[string]string{"hub.mode": mode, "own": "1"})
			at, err := time.Parse(time.RFC3339, r.URL.Query().Get("rs.time"))
			if signed := err == nil && time.Since(at).Abs() < 2*time.Second; signed != (secret != "") || r.Header.Get("X-Hub-Signature") != "" {
				t.Errorf("%s: query %s with header %v, want rs.time if there is a secret", mode, r.URL.RawQuery, r.Header)
			}
		}
		wantPost := func(secret, former string) {
			t.Helper()
			w.publish("x", 1)
			signatures(c.last().header, "X-Hub-Signature", c.last().body, secret, former)
		}
		subscribe := func(s string) {
			t.Helper()
			w.request(c, subscription.Request{Terms: secret(s), Start: w.head(), Lease: 72 * time.Hour})
		}
		subscribe("")
		wantGet("subscribe", "", "")
		wantPost("", "")
		subscribe("one")
		wantGet("subscribe", "one", "")
		wantPost("one", "")
		c.verify(status(404))
		subscribe("never")
		wantGet("subscribe", "never", "one")
		wantPost("one", "")
		c.verify(confirm)
		subscribe("two")
		wantGet("subscribe", "two", "one")
		wantPost("two", "one")
		subscribe("three")
		wantPost("three", "two")
		w.request(c, subscription.Request{Mode: subscription.Unsubscribe, Terms: secret("wrong")})
		wantGet("unsubscribe", "three", "two")
		subscribe("four")
		wantGet("subscribe", "four", "")
		w.do(subscription.Remove, c)
		wantGet("denied", "four", "")
	})
}
