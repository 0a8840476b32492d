package conformance

import (
	"net/http"
	"strings"
	"time"

	"github.com/rshub/rshub/e2e/internal/trial"
)

// verifications are the rules of the verification of intent (WebSub 5.3, 5.3.1 and 8.2).
var verifications = []rule{
	{"5.3 the verification has mode, topic, challenge and lease once each", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		v := t.Subscribe(c, tp)
		for _, name := range []string{"hub.mode", "hub.topic", "hub.challenge", "hub.lease_seconds"} {
			if n := len(v.Query[name]); n != 1 {
				t.Errorf("got %s %d times, want once", name, n)
			}
		}
		if v.Param("hub.mode") != "subscribe" || v.Param("hub.topic") != tp.URL || trial.LeaseOf(&v) == 0 || len(v.Body) > 0 {
			t.Errorf("got verification %s with body %q, want mode, topic and lease without a body", v.Target, v.Body)
		}
	}},
	{"8.2 challenges are unique and long", func(t *trial.Trial) {
		tp := t.Topic()
		seen := map[string]bool{}
		for range 5 {
			c := t.Callback("")
			for range 2 { // the second one is a renewal
				v := t.Subscribe(c, tp)
				if ch := v.Challenge(); seen[ch] || len(ch) < 16 {
					t.Fatalf("challenge %q is short or not unique", ch)
				}
				seen[v.Challenge()] = true
			}
		}
	}},
	{"5.3.1 a lease is a finite number of seconds", func(t *trial.Trial) {
		const century = 100 * 365 * 24 * 3600
		tp := t.Topic()
		for _, asked := range []string{"0", "-1", "-300", "abc", "1.5", "1e3", "+5", "0x10", "", "99999999999", "9223372036854775807"} {
			c := t.Callback("")
			a := t.Request("subscribe", c, tp, "hub.lease_seconds", asked)
			if a.Status/100 == 4 {
				continue // refusing is allowed
			}
			if v := t.WaitRequests(c, trial.Verification, 1)[0]; trial.LeaseOf(&v) == 0 || trial.LeaseOf(&v) >= century {
				t.Errorf("lease of %q seconds, status %d: got %q, want a finite number", asked, a.Status, v.Query["hub.lease_seconds"])
			}
		}
	}},
	{"5.3.1 any 2xx with the challenge confirms", func(t *trial.Trial) {
		tp := t.Topic()
		replies := []trial.Reply{func(w http.ResponseWriter, a *trial.CallbackRequest, _ <-chan struct{}) {
			for _, r := range a.Challenge() { // in pieces
				_, _ = w.Write([]byte(string(r)))
				_ = http.NewResponseController(w).Flush()
			}
		}}
		for _, code := range []int{200, 201, 202, 203, 226, 299} {
			replies = append(replies, trial.ConfirmWith(code))
		}
		wantOnce(t, tp, verifiedWith(t, tp, replies...)...)
	}},
	{"5.3.1 any other status refuses", func(t *trial.Trial) {
		tp := t.Topic()
		wantNone(t, tp, verifiedWith(t, tp, trial.Status(404), trial.ConfirmWith(404), trial.ConfirmWith(500))...)
	}},
	{"5.3.1 any other body refuses", func(t *trial.Trial) {
		tp := t.Topic()
		wantNone(t, tp, verifiedWith(t, tp,
			trial.Status(200), trial.Status(204),
			trial.ReplyBody(200, func(string) string { return "another" }),
			trial.ReplyBody(200, func(ch string) string { return ch[:len(ch)/2] }),
			trial.ReplyBody(200, func(ch string) string { return ch + "x" }),
			trial.ReplyBody(200, func(ch string) string { return "<html>" + ch + "</html>" }),
			trial.ReplyBody(200, strings.ToLower),
			func(w http.ResponseWriter, a *trial.CallbackRequest, _ <-chan struct{}) {
				_, _ = w.Write([]byte(a.Target))
			})...)
	}},
	{"5.3.1 a redirect refuses and is not followed", func(t *trial.Trial) {
		tp, elsewhere := t.Topic(), t.Callback("/elsewhere")
		var replies []trial.Reply
		for _, code := range []int{301, 302, 303, 307, 308} {
			replies = append(replies, func(w http.ResponseWriter, a *trial.CallbackRequest, _ <-chan struct{}) {
				w.Header().Set("Location", elsewhere.URL+"?"+a.Target[strings.Index(a.Target, "?")+1:])
				trial.ConfirmWith(code)(w, a, nil)
			})
		}
		wantNone(t, tp, append(verifiedWith(t, tp, replies...), elsewhere)...)
		if n := len(elsewhere.Requests(trial.Verification)); n > 0 {
			t.Errorf("got %d followed redirects, want 0", n)
		}
	}},
	{"5.3 nothing is delivered before the confirmation", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		may := make(chan struct{})
		c.Respond(trial.Verification, trial.HangUntil(may, trial.Confirm))
		t.Subscribe(c, tp)
		wantNone(t, tp, c)
		close(may)
		t.WaitDelivery(c, t.Publish(tp))
	}},
}

// verifiedWith returns callbacks with the given replies to their verification.
func verifiedWith(t *trial.Trial, tp *trial.Topic, replies ...trial.Reply) (all []*trial.Callback) {
	t.Helper()
	for _, r := range replies {
		c := t.Callback("")
		c.Respond(trial.Verification, r)
		t.Subscribe(c, tp)
		all = append(all, c)
	}
	return all
}

// renewals are the rules of several subscriptions, and of a lease (WebSub 5.1 and 5.3.1).
var renewals = []rule{
	{"5.1 a topic has many subscribers", func(t *trial.Trial) {
		tp := t.Topic()
		wantOnce(t, tp, verifiedWith(t, tp, trial.Confirm, trial.Confirm, trial.Confirm, trial.Confirm, trial.Confirm)...)
	}},
	{"5.1 a callback may subscribe to several topics", func(t *trial.Trial) {
		c := t.Callback("")
		for range 2 {
			tp := t.Topic()
			t.Subscribe(c, tp)
			if d := t.WaitDelivery(c, t.Publish(tp)); trial.SelfOf(&d) != tp.URL {
				t.Errorf("topic of the delivery = %[2]s, want %[1]s", tp.URL, trial.SelfOf(&d))
			}
		}
	}},
	{"5.1 subscribing again makes no second subscription", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		for range 3 {
			t.Subscribe(c, tp)
		}
		wantOnce(t, tp, c)
	}},
	{"5.1 a verified renewal replaces the secret", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribe(c, tp, "hub.secret", "the old one")
		checkSigned(t, t.WaitDelivery(c, t.Publish(tp)), "the old one")
		t.Subscribe(c, tp, "hub.secret", "the new one")
		t.Wait("deliveries are signed with the new secret", func() error {
			d := t.WaitDelivery(c, t.Publish(tp))
			return trial.CheckSignature(&d, "the new one")
		})
		t.Subscribe(c, tp)
		t.Wait("deliveries are unsigned", func() error {
			if d := t.WaitDelivery(c, t.Publish(tp)); d.Header.Get("X-Hub-Signature") != "" {
				return trial.ErrNotYet
			}
			return nil
		})
	}},
	{"5.1 an unconfirmed renewal changes nothing", func(t *trial.Trial) {
		tp, witness := t.Topic(), t.Callback("")
		t.Subscribe(witness, tp)
		for _, reply := range []trial.Reply{trial.Status(http.StatusNotFound), trial.Hang} {
			c := t.Callback("")
			t.Subscribe(c, tp, "hub.secret", "the old one")
			c.Respond(trial.Verification, reply)
			t.Subscribe(c, tp, "hub.secret", "the new one", "hub.lease_seconds", "300")
			for _, mark := range t.PublishRounds(tp, witness, 3) {
				checkSigned(t, t.WaitDelivery(c, mark), "the old one")
			}
		}
	}},
	{"5.3.1 deliveries stop when the lease ends", func(t *trial.Trial) {
		c, witness, tp := t.Callback(""), t.Callback(""), t.Topic()
		t.Subscribe(witness, tp)
		v := t.Subscribe(c, tp, "hub.lease_seconds", "2")
		waitLeaseEnd(t, v)
		wantNoMore(t, c, tp, witness)
	}},
	{"5.1 a renewal prolongs the lease", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		v := t.Subscribe(c, tp, "hub.lease_seconds", "2")
		t.Subscribe(c, tp, "hub.lease_seconds", "3600")
		waitLeaseEnd(t, v)
		wantOnce(t, tp, c)
	}},
}

// waitLeaseEnd waits until the lease of a verification has ended.
func waitLeaseEnd(t *trial.Trial, v trial.CallbackRequest) {
	t.Helper()
	end := v.At.Add(time.Duration(trial.LeaseOf(&v))*time.Second + 500*time.Millisecond)
	t.Wait("the lease ends", func() error {
		if time.Now().Before(end) {
			return trial.ErrNotYet
		}
		return nil
	})
}

// removals are the rules of unsubscribing (WebSub 5.1 and 5.3).
var removals = []rule{
	{"5.3 unsubscribing is verified and stops deliveries", func(t *trial.Trial) {
		c, witness, tp := t.Callback(""), t.Callback(""), t.Topic()
		one := t.Subscribe(c, tp)
		t.Subscribe(witness, tp)
		v := t.MustVerify("unsubscribe", c, tp)
		if v.Param("hub.mode") != "unsubscribe" || v.Param("hub.topic") != tp.URL || v.Challenge() == one.Challenge() {
			t.Errorf("got verification %s, want unsubscribe with a new challenge", v.Target)
		}
		wantNoMore(t, c, tp, witness)
		t.Subscribe(c, tp)
		wantOnce(t, tp, c)
	}},
	{"5.3.1 unsubscribing needs a confirmation", func(t *trial.Trial) {
		tp := t.Topic()
		for _, reply := range []trial.Reply{trial.Status(404), trial.ConfirmWith(400), trial.ReplyBody(200, func(string) string { return "another" })} {
			c, witness := t.Callback(""), t.Callback("")
			t.Subscribe(c, tp)
			t.Subscribe(witness, tp)
			c.Respond(trial.Verification, reply)
			t.MustVerify("unsubscribe", c, tp)
			t.PublishRounds(tp, witness, 3)
			wantOnce(t, tp, c)
		}
	}},
	{"5.1 unsubscribing ignores the lease and needs no subscription", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		for _, lease := range []string{"abc", "0", "-1", "86400"} {
			t.Subscribe(c, tp)
			t.MustVerify("unsubscribe", c, tp, "hub.lease_seconds", lease)
		}
		if a := t.Request("unsubscribe", t.Callback(""), tp); a.Status != http.StatusAccepted && a.Status/100 != 4 {
			t.Errorf("unsubscribe without a subscription = %d, want 202 or 4xx: %s", a.Status, a.Body)
		}
	}},
	{"5.1 unsubscribing from one topic leaves the others", func(t *trial.Trial) {
		c, witness, one, two := t.Callback(""), t.Callback(""), t.Topic(), t.Topic()
		t.Subscribe(c, one)
		t.Subscribe(c, two)
		t.Subscribe(witness, one)
		t.MustVerify("unsubscribe", c, one)
		wantNoMore(t, c, one, witness)
		wantOnce(t, two, c)
	}},
}
