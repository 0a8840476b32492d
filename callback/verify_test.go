package callback_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

func TestVerify(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		w.publish("a", 3)
		c := w.listen("a.example")
		for _, callback := range []string{c.url, c.url + "?", c.url + "?own=1&hub.mode=mine", c.url + "?own=%2f&"} {
			start := feed.Cursor{Position: 2, Micros: w.head().Micros - 1}
			id := w.send(subscription.Request{
				Mode: subscription.Subscribe, Callback: callback, Start: start, Lease: 3600 * time.Second,
				Terms: subscription.Terms{Filter: feed.Filter{Prefix: "https://example.org/x&y", Changes: []resourcesync.ChangeType{resourcesync.Created, resourcesync.Deleted}}},
			})
			w.settled()
			r := w.saved(id)
			asked := c.asked[len(c.asked)-1]
			if !strings.HasPrefix("http://a.example"+asked.RequestURI, strings.TrimRight(callback, "?&")) {
				t.Errorf("%s: asked %s", callback, asked.RequestURI)
			}
			q := asked.URL.Query()
			for name, want := range map[string]string{
				"hub.topic": base + "/sets/demo/changes", "hub.lease_seconds": "3600", "rs.since": start.String(), "rs.renewed": "false",
				"rs.prefix": "https://example.org/x&y", "rs.change": "created,deleted", "rs.status": base + "/subscriptions/" + r.ID().String() + "." + r.Token,
			} {
				if q.Get(name) != want {
					t.Errorf("%s: %s=%q, want %q", callback, name, q.Get(name), want)
				}
			}
			if modes := q["hub.mode"]; modes[len(modes)-1] != "subscribe" || len(q.Get("hub.challenge")) < 26 {
				t.Errorf("%s: %v", callback, q)
			}
			if !r.LeaseEnd.Equal(time.Now().Add(time.Hour)) || r.Cursor != start || len(r.Token) < 26 || r.Callback != callback {
				t.Errorf("%s: saved %+v", callback, r)
			}
		}
	})
}

// Each request has a verify token of its own, which stays with it through retries and a crash.
func TestVerifyToken(t *testing.T) {
	rights := newRegister()
	inWorld(t, callback.Options{Rights: rights}, func(t *testing.T, w *world) {
		c := w.listen("a.example")
		check := func(step string, want ...string) {
			t.Helper()
			w.settled()
			c.mu.Lock()
			defer c.mu.Unlock()
			var got []string
			for _, r := range c.asked {
				q := r.URL.Query()
				got = append(got, fmt.Sprintf("%s %q", q.Get("hub.mode"), q["hub.verify_token"]))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: the callback was asked %q, want %q", step, got, want)
			}
			c.asked = nil
		}
		ask := func(mode subscription.Mode, token string) subscription.ID {
			t.Helper()
			return w.sent(subscription.Request{Mode: mode, Callback: c.url, VerifyToken: token, By: alice, Lease: time.Hour})
		}
		c.agrees(status(503))
		ask(subscription.Subscribe, "one")
		check("first", `subscribe ["one"]`)
		w.crash()
		w.start(callback.Options{Rights: rights})
		time.Sleep(time.Minute)
		check("after a crash", `subscribe ["one"]`, `subscribe ["one"]`, `subscribe ["one"]`)
		c.agrees(nil)
		ask(subscription.Subscribe, "two")
		ask(subscription.Subscribe, "three")
		ask(subscription.Subscribe, "")
		check("renewals", `subscribe ["two"]`, `subscribe ["three"]`, "subscribe []")
		id := ask(subscription.Unsubscribe, "four")
		check("unsubscribe", `unsubscribe ["four"]`)
		if !w.gone(id) {
			t.Error("the subscription was not removed")
		}
		rights.remove(alice)
		w.send(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, VerifyToken: "five", By: alice, Lease: time.Hour, At: time.Now()})
		time.Sleep(5 * time.Minute)
		check("refused", `denied ["five"]`)
	})
}

// An answer that is no confirmation changes nothing, neither for a new subscription nor
// for one that works.
func TestNotConfirmed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		agree func(w http.ResponseWriter, r *http.Request)
		tries int
	}{
		"404": {status(404), 1},
		"301": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusMovedPermanently)
		}, 1},
		"empty": {status(200), 1},
		"shorter": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.URL.Query().Get("hub.challenge")[1:])
		}, 1},
		"longer": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.URL.Query().Get("hub.challenge")+"\n")
		}, 1},
		"500":   {status(500), 3},
		"503":   {status(503), 3},
		"hangs": {hang, 3},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
				wait := time.Second
				if test.tries > 1 {
					wait = time.Minute
				}
				fresh, known := w.listen("fresh.example"), w.listen("known.example")
				id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: known.url, Terms: subscription.Terms{Secret: "old"}, Lease: time.Hour, Start: w.head()})
				before := w.saved(id)
				fresh.agrees(test.agree)
				known.agrees(test.agree)
				other := w.send(subscription.Request{Mode: subscription.Subscribe, Callback: fresh.url})
				w.send(subscription.Request{Mode: subscription.Subscribe, Callback: known.url, Terms: subscription.Terms{Secret: "new", Filter: feed.Filter{Prefix: "no"}}, Lease: 2 * time.Hour, Move: true})
				time.Sleep(wait)
				w.publish("a", 1)
				w.send(subscription.Request{Mode: subscription.Unsubscribe, Callback: known.url})
				w.pass(wait)
				after := w.saved(id)
				if !w.gone(other) || after.Secret != "old" || !after.LeaseEnd.Equal(before.LeaseEnd) || !after.Filter.IsZero() {
					t.Errorf("something changed: %+v", after)
				}
				if len(fresh.asked) != test.tries || len(known.asked) != 1+2*test.tries {
					t.Errorf("asked %d and %d times, want %d and %d", len(fresh.asked), len(known.asked), test.tries, 1+2*test.tries)
				}
				known.check(0, 1)
				if d := known.last(); !strings.HasPrefix(d.header.Get("X-Hub-Signature"), signed("old", d.body)) {
					t.Error("it is not signed with the old secret")
				}
			})
		})
	}
}

// A renewal keeps the cursor and replaces all else.
func TestRenew(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c := w.listen("a.example")
		id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Secret: "old"}, Lease: time.Hour})
		c.says(status(500))
		w.publish("a", 2)
		time.Sleep(time.Minute)
		tries, _, _ := c.counts()
		token := w.saved(id).Token
		c.says(nil)
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Terms: subscription.Terms{Secret: "new"}, Lease: 2 * time.Hour, Start: w.head()})
		c.check(0, 2) // a fresh verification tries at once
		if n, _, _ := c.counts(); n != tries+1 {
			t.Errorf("%d tries after the renewal", n-tries)
		}
		// The store has the cursor of before: what was delivered since is saved later.
		if r := w.saved(id); r.Secret != "new" || r.Cursor != (feed.Cursor{}) {
			t.Errorf("the renewal saved %+v", r)
		}
		d := c.last()
		if d.header.Get("X-Hub-Signature") != signed("new", d.body) {
			t.Error("it is not signed with the new secret")
		}
		q := c.asked[1].URL.Query()
		if q.Get("rs.renewed") != "true" || q.Get("rs.since") != "0-0" {
			t.Errorf("asked with %v", q)
		}
		w.pass(saveEvery)
		if r := w.saved(id); r.Token != token || r.Secret != "new" || r.Cursor != w.head() || r.Renewed.IsZero() || r.Made.Equal(r.Renewed) {
			t.Errorf("saved %+v", r)
		}
		w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Move: true}) // from the beginning again
		if got := c.locs(); len(got) != 4 || got[0] != got[2] {
			t.Errorf("after the move: %v", got)
		}
	})
}

func TestUnsubscribe(t *testing.T) {
	inWorld(t, callback.Options{}, func(t *testing.T, w *world) {
		c, id := w.subscribed()
		w.sent(subscription.Request{Mode: subscription.Unsubscribe, Callback: c.url})
		q := c.asked[1].URL.Query()
		if !w.gone(id) || q.Get("hub.mode") != "unsubscribe" || q.Has("hub.lease_seconds") || q.Get("hub.topic") != base+"/sets/demo/changes" {
			t.Errorf("gone %v, asked %v", w.gone(id), q)
		}
		w.publish("a", 1)
		w.send(subscription.Request{Mode: subscription.Unsubscribe, Callback: c.url}) // unknown: nobody is asked
		w.pass(time.Second)
		if tries, _, asked := c.counts(); tries != 0 || asked != 2 {
			t.Errorf("%d deliveries, %d questions", tries, asked)
		}
		w.noRequests(id)
	})
}

func TestLeaseEnds(t *testing.T) {
	long(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{})
		for i, answer := range []func(http.ResponseWriter, *http.Request){nil, status(500)} {
			c := w.listen(fmt.Sprint("host", i, ".example"))
			id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Lease: 300 * time.Second, Start: w.head()})
			c.says(answer)
			before := w.head().Position
			w.publish("a", 1)
			time.Sleep(270 * time.Second)
			w.publish("late", 1) // whoever reckons with an earlier end sees it here
			w.pass(29 * time.Second)
			if w.gone(id) || c.questions() != 1 {
				t.Fatal("it ended before its lease did")
			}
			if answer == nil {
				c.check(before, 2)
			}
			w.pass(2 * time.Second)
			if !w.gone(id) || c.questions() != 2 {
				t.Fatalf("gone %v, asked %d times", w.gone(id), c.questions())
			}
			if q := c.asked[1].URL.Query(); q.Get("hub.mode") != "denied" || q.Get("hub.reason") != "lease expired" || q.Get("hub.topic") == "" || q.Has("hub.challenge") {
				t.Errorf("asked %v", q)
			}
			tries, _, _ := c.counts()
			w.publish("b", 1)
			time.Sleep(10 * time.Minute)
			if after, _, _ := c.counts(); after != tries {
				t.Error("something was delivered after the lease")
			}
		}
	})
}

// A callback whose set was removed and not made anew is told so when its lease ends.
func TestExpiryWithoutASet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{})
		w.publish("a", 1)
		c := w.listen("a.example")
		id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Lease: 300 * time.Second, Start: w.head()})
		ok(t, w.hub.Delete(t.Context(), "demo"))
		w.pass(299 * time.Second)
		if w.gone(id) || c.questions() != 1 {
			t.Errorf("the subscription ended with its set, or %d questions were asked", c.questions())
		}
		w.pass(2 * time.Second)
		if q := c.asked[1].URL.Query(); !w.gone(id) || q.Get("hub.mode") != "denied" || q.Get("hub.reason") != "lease expired; the set does not exist" {
			t.Errorf("asked %v", q)
		}
	})
}

// A renewal that came before the lease ended counts, though it is confirmed
// after that.
func TestRenewalAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLongWorld(t, callback.Options{})
		c := w.listen("a.example")
		id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Lease: 300 * time.Second})
		w.publish("a", 1)
		time.Sleep(298 * time.Second)
		c.agrees(agreesAfter(5 * time.Second))
		w.send(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Lease: 300 * time.Second})
		time.Sleep(4 * time.Second) // the lease is over, and the callback has not answered yet
		w.published("b", 1)
		c.check(0, 1)
		w.pass(2 * time.Second)
		c.check(0, 2)
		if w.gone(id) || c.questions() != 2 {
			t.Errorf("gone %v, asked %d times", w.gone(id), c.questions())
		}
	})
}

// signed is what a delivery is signed with (WebSub section 7.1), if there is a secret.
func signed(secret string, body []byte) string {
	if secret == "" {
		return ""
	}
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}
