package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rshub/rshub/conformance/trial"
)

// Verification of intent (WebSub sections 5.3 and 5.3.1), and renewal, which is
// in force once it is verified (section 5.1).
var verifyChecks = []check{
	{mustLevel, "5.3 the verification has mode and topic as they were sent", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		v := t.Verified("subscribe", c, tp)
		if v.Param("hub.mode") != "subscribe" || v.Param("hub.topic") != tp.URL {
			t.Fatalf("it is for %s", v.Target)
		}
	}},
	{mustLevel, "5.3 the verification has one of each parameter and no body", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		v := t.Verified("subscribe", c, tp)
		for _, name := range []string{"hub.mode", "hub.topic", "hub.challenge", "hub.lease_seconds"} {
			if n := len(v.Query[name]); n != 1 {
				t.Errorf("%s is there %d times", name, n)
			}
		}
		if len(v.Body) > 0 {
			t.Errorf("the body is %q", v.Body)
		}
	}},
	{shouldLevel, "8.2 each challenge is another, and long enough", func(t *trial.Trial) {
		tp := t.Topic()
		seen := map[string]bool{}
		for range 10 {
			v := t.Verified("subscribe", t.Callback(""), tp)
			if ch := v.Challenge(); seen[ch] || len(ch) < 16 {
				t.Fatalf("the challenge %q is short, or was there before", ch)
			}
			seen[v.Challenge()] = true
		}
	}},
	{shouldLevel, "8.2 a renewal has a new challenge", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		one := t.Verified("subscribe", c, tp)
		two := t.Verified("subscribe", c, tp)
		if one.Challenge() == two.Challenge() {
			t.Fatalf("the challenge is %q again", one.Challenge())
		}
	}},
	{mustLevel, "5.3 the verification says the lease", func(t *trial.Trial) {
		v := t.Verified("subscribe", t.Callback(""), t.Topic())
		if trial.LeaseOf(&v) == 0 {
			t.Fatalf("hub.lease_seconds is %q", v.Query["hub.lease_seconds"])
		}
	}},
	{mustLevel, "5.3.1 no lease is for ever", func(t *trial.Trial) {
		const century = 100 * 365 * 24 * 3600
		tp := t.Topic()
		for _, asked := range []string{"99999999999", "9223372036854775807"} {
			c := t.Callback("")
			switch a := t.Request("subscribe", c, tp, "hub.lease_seconds", asked); a.Status / 100 {
			case 2:
				if v := t.Arrives(c, trial.Verification, 1)[0]; trial.LeaseOf(&v) == 0 || trial.LeaseOf(&v) >= century {
					t.Errorf("for %s seconds, %q are granted", asked, v.Query["hub.lease_seconds"])
				}
			case 4:
			default:
				t.Errorf("%s seconds: answered %d", asked, a.Status)
			}
		}
	}},
	{mustLevel, "5.1 a lease that is no positive number is never granted", func(t *trial.Trial) {
		tp := t.Topic()
		for _, asked := range []string{"0", "-1", "-300", "abc", "1.5", "1e3", "+5", "0x10", ""} {
			c := t.Callback("")
			switch a := t.Request("subscribe", c, tp, "hub.lease_seconds", asked); a.Status / 100 {
			case 2:
				if v := t.Arrives(c, trial.Verification, 1)[0]; trial.LeaseOf(&v) == 0 {
					t.Errorf("for %q seconds, %q are granted", asked, v.Query["hub.lease_seconds"])
				}
			case 4:
			default:
				t.Errorf("%q seconds: answered %d", asked, a.Status)
			}
		}
	}},
	{mustLevel, "5.3.1 any 2xx with the challenge confirms", func(t *trial.Trial) {
		tp := t.Topic()
		for _, code := range []int{200, 201, 202, 203, 226, 299} {
			c := t.Callback("")
			c.On(trial.Verification, trial.ConfirmWith(code))
			t.Subscribed(c, tp)
			t.Delivered(c, t.Publish(tp))
		}
	}},
	{mustLevel, "5.3.1 the challenge may come in pieces", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		c.On(trial.Verification, func(w http.ResponseWriter, a *trial.Arrival, _ <-chan struct{}) {
			for _, r := range a.Challenge() {
				_, _ = w.Write([]byte(string(r)))
				_ = http.NewResponseController(w).Flush()
			}
		})
		t.Verified("subscribe", c, tp)
		t.Wait("a change is delivered", func() error { return trial.OneDelivered(t, c, tp) })
	}},
	{mustLevel, "5.3.1 404 refuses", refuses(trial.Status(http.StatusNotFound))},
	{mustLevel, "5.3.1 404 with the challenge refuses", refuses(trial.ConfirmWith(http.StatusNotFound))},
	{mustLevel, "5.3.1 500 with the challenge refuses", refuses(trial.ConfirmWith(http.StatusInternalServerError))},
	{mustLevel, "5.3.1 an empty body refuses", refuses(trial.Status(http.StatusOK))},
	{mustLevel, "5.3.1 204 refuses", refuses(trial.Status(http.StatusNoContent))},
	{mustLevel, "5.3.1 another challenge refuses", refuses(trial.Say(200, func(string) string { return "another" }))},
	{mustLevel, "5.3.1 half of the challenge refuses", refuses(trial.Say(200, func(ch string) string { return ch[:len(ch)/2] }))},
	{mustLevel, "5.3.1 more than the challenge refuses", refuses(trial.Say(200, func(ch string) string { return ch + "x" }))},
	{mustLevel, "5.3.1 the challenge within a page refuses", refuses(trial.Say(200, func(ch string) string { return "<html>" + ch + "</html>" }))},
	{mustLevel, "5.3.1 the challenge in other letters refuses", refuses(trial.Say(200, func(ch string) string {
		if up := strings.ToUpper(ch); up != ch {
			return up
		}
		return strings.ToLower(ch) + " "
	}))},
	{mustLevel, "5.3.1 the query sent back refuses", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		c.On(trial.Verification, func(w http.ResponseWriter, a *trial.Arrival, _ <-chan struct{}) { _, _ = w.Write([]byte(a.Target)) })
		t.Verified("subscribe", c, tp)
		t.Never(c, tp)
	}},
	{mustLevel, "5.3.1 a redirect refuses, and is not followed", func(t *trial.Trial) {
		tp := t.Topic()
		for _, code := range []int{301, 302, 303, 307, 308} {
			c, elsewhere := t.Callback(""), t.Callback("/elsewhere")
			c.On(trial.Verification, func(w http.ResponseWriter, a *trial.Arrival, _ <-chan struct{}) {
				w.Header().Set("Location", elsewhere.URL+"?"+a.Target[strings.Index(a.Target, "?")+1:])
				trial.ConfirmWith(code)(w, a, nil)
			})
			t.Verified("subscribe", c, tp)
			t.Never(c, tp)
			if n := len(elsewhere.Got(trial.Verification)); n > 0 {
				t.Errorf("%d is followed", code)
			}
			if n := len(elsewhere.Got(trial.Delivery)); n > 0 {
				t.Errorf("%d moves the subscription", code)
			}
		}
	}},
	{mustLevel, "5.3 nothing is delivered before the subscriber confirms", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		may := make(chan struct{})
		c.On(trial.Verification, trial.HangUntil(may, trial.Confirm))
		t.Accepted("subscribe", c, tp)
		t.Arrives(c, trial.Verification, 1)
		t.Never(c, tp)
		close(may)
		t.Wait("the subscriber confirms", func() error { return trial.Answered(c, trial.Verification, 1) })
		t.Wait("a change is delivered", func() error { return trial.OneDelivered(t, c, tp) })
	}},
	{mustLevel, "5.1 one topic has many subscribers", func(t *trial.Trial) {
		tp := t.Topic()
		var all []*trial.Callback
		for range 5 {
			c := t.Callback("")
			t.Subscribed(c, tp)
			all = append(all, c)
		}
		mark := t.Publish(tp)
		for _, c := range all {
			t.Delivered(c, mark)
		}
	}},
	{mustLevel, "5.1 one callback may subscribe to several topics", func(t *trial.Trial) {
		c, one, two := t.Callback(""), t.Topic(), t.Topic()
		t.Subscribed(c, one)
		t.Subscribed(c, two)
		a, b := t.Publish(one), t.Publish(two)
		if d := t.Delivered(c, a); trial.SelfOf(&d) != one.URL {
			t.Errorf("the change of %s comes as one of %s", one.URL, trial.SelfOf(&d))
		}
		if d := t.Delivered(c, b); trial.SelfOf(&d) != two.URL {
			t.Errorf("the change of %s comes as one of %s", two.URL, trial.SelfOf(&d))
		}
	}},
	{mustLevel, "5.1 an active subscription may be asked for again, and stays one", func(t *trial.Trial) {
		c, witness, tp := t.Callback(""), t.Callback(""), t.Topic()
		t.Subscribed(witness, tp)
		for range 3 {
			t.Subscribed(c, tp)
		}
		for _, mark := range t.Rounds(tp, witness, 3) {
			t.Delivered(c, mark)
			if n := c.Times(mark); n != 1 {
				t.Errorf("a change is delivered %d times", n)
			}
		}
	}},
	{mustLevel, "5.1 a renewal replaces the secret once it is verified", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp, "hub.secret", "the old one")
		t.Subscribed(c, tp, "hub.secret", "the new one")
		becomes(t, c, tp, func(d *trial.Arrival) error { return trial.SignedBy(d, "the new one") })
	}},
	{mustLevel, "5.1 a renewal without a secret ends signing", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp, "hub.secret", "the old one")
		d := t.Delivered(c, t.Publish(tp))
		if err := trial.SignedBy(&d, "the old one"); err != nil {
			t.Fatal(err)
		}
		t.Subscribed(c, tp)
		becomes(t, c, tp, trial.Unsigned)
	}},
	{mustLevel, "5.1 a renewal that the subscriber refuses changes nothing", func(t *trial.Trial) {
		c, witness, tp := t.Callback(""), t.Callback(""), t.Topic()
		t.Subscribed(c, tp, "hub.secret", "the old one")
		t.Subscribed(witness, tp)
		c.On(trial.Verification, trial.Status(http.StatusNotFound))
		t.Verified("subscribe", c, tp, "hub.secret", "the new one", "hub.lease_seconds", "300")
		for _, mark := range t.Rounds(tp, witness, 3) {
			d := t.Delivered(c, mark)
			if err := trial.SignedBy(&d, "the old one"); err != nil {
				t.Error(err)
			}
		}
	}},
	{mustLevel, "5.1 a renewal that nobody answers changes nothing", func(t *trial.Trial) {
		c, witness, tp := t.Callback(""), t.Callback(""), t.Topic()
		t.Subscribed(c, tp, "hub.secret", "the old one")
		t.Subscribed(witness, tp)
		c.On(trial.Verification, trial.Hang)
		t.Verified("subscribe", c, tp, "hub.secret", "the new one")
		for _, mark := range t.Rounds(tp, witness, 3) {
			d := t.Delivered(c, mark)
			if err := trial.SignedBy(&d, "the old one"); err != nil {
				t.Error(err)
			}
		}
	}},
	{mustLevel, "5.3.1 a lease ends", func(t *trial.Trial) {
		c, witness, tp := t.Callback(""), t.Callback(""), t.Topic()
		t.Subscribed(witness, tp)
		v := t.Subscribed(c, tp, "hub.lease_seconds", "2")
		end := v.At.Add(time.Duration(trial.LeaseOf(&v)) * time.Second)
		if time.Until(end) > t.Hub.Patience {
			t.Skip(fmt.Sprintf("the hub grants no less than %d seconds", trial.LeaseOf(&v)))
		}
		if mark := t.Publish(tp); time.Until(end) > time.Second {
			t.Delivered(c, mark)
		}
		t.Wait("the lease ends", func() error {
			if time.Now().Before(end) {
				return trial.ErrNotYet
			}
			return nil
		})
		t.Nothing(c, tp, witness)
	}},
	{mustLevel, "5.1 a renewal prolongs the lease", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		v := t.Subscribed(c, tp, "hub.lease_seconds", "2")
		end := v.At.Add(time.Duration(trial.LeaseOf(&v)) * time.Second)
		if time.Until(end) > t.Hub.Patience {
			t.Skip(fmt.Sprintf("the hub grants no less than %d seconds", trial.LeaseOf(&v)))
		}
		t.Subscribed(c, tp, "hub.lease_seconds", "3600")
		t.Wait("the first lease would have ended", func() error {
			if time.Now().Before(end.Add(500 * time.Millisecond)) {
				return trial.ErrNotYet
			}
			return nil
		})
		for range 3 {
			t.Delivered(c, t.Publish(tp))
		}
	}},
}

// refuses is a check that an answer to the verification makes no subscription.
func refuses(answer trial.Reply) func(t *trial.Trial) {
	return func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		c.On(trial.Verification, answer)
		t.Verified("subscribe", c, tp)
		t.Never(c, tp)
	}
}

// becomes waits until a delivery is as it should, and checks that those behind
// it are too.
func becomes(t *trial.Trial, c *trial.Callback, tp *trial.Topic, as func(*trial.Arrival) error) {
	t.Wait("deliveries are as they should", func() error {
		d := t.Delivered(c, t.Publish(tp))
		return as(&d)
	})
	for range 3 {
		d := t.Delivered(c, t.Publish(tp))
		if err := as(&d); err != nil {
			t.Error(err)
		}
	}
}

// Unsubscribing (WebSub sections 5 and 5.3).
var unsubscribeChecks = []check{
	{mustLevel, "5.1 to unsubscribe is accepted, and verified", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		one := t.Subscribed(c, tp)
		v := t.Verified("unsubscribe", c, tp)
		if v.Param("hub.mode") != "unsubscribe" || v.Param("hub.topic") != tp.URL || v.Challenge() == "" || v.Challenge() == one.Challenge() {
			t.Fatalf("the verification is for %s", v.Target)
		}
	}},
	{mustLevel, "5.3 who has unsubscribed gets nothing more", func(t *trial.Trial) {
		c, witness, tp := t.Callback(""), t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		t.Subscribed(witness, tp)
		t.Delivered(c, t.Publish(tp))
		t.Verified("unsubscribe", c, tp)
		t.Nothing(c, tp, witness)
	}},
	{mustLevel, "5.3 to unsubscribe needs the subscriber's confirmation", staysSubscribed(trial.Status(http.StatusNotFound))},
	{mustLevel, "5.3.1 to unsubscribe needs the challenge", staysSubscribed(trial.Say(200, func(string) string { return "another" }))},
	{mustLevel, "5.3.1 to unsubscribe needs a 2xx", staysSubscribed(trial.ConfirmWith(http.StatusBadRequest))},
	{mustLevel, "5.1 the lease of who unsubscribes is ignored", func(t *trial.Trial) {
		tp := t.Topic()
		for _, lease := range []string{"abc", "0", "-1", "86400"} {
			c := t.Callback("")
			t.Subscribed(c, tp)
			t.Verified("unsubscribe", c, tp, "hub.lease_seconds", lease)
		}
	}},
	{mustLevel, "5.1 who has unsubscribed may subscribe again", func(t *trial.Trial) {
		c, witness, tp := t.Callback(""), t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		t.Subscribed(witness, tp)
		t.Verified("unsubscribe", c, tp)
		t.Nothing(c, tp, witness)
		t.Subscribed(c, tp)
		t.Delivered(c, t.Publish(tp))
	}},
	{mustLevel, "5.1 to unsubscribe from one topic leaves the other", func(t *trial.Trial) {
		c, witness, one, two := t.Callback(""), t.Callback(""), t.Topic(), t.Topic()
		t.Subscribed(c, one)
		t.Subscribed(c, two)
		t.Subscribed(witness, one)
		t.Verified("unsubscribe", c, one)
		t.Nothing(c, one, witness)
		t.Delivered(c, t.Publish(two))
	}},
	{mustLevel, "5.1 who unsubscribes without a subscription is answered", func(t *trial.Trial) {
		if a := t.Request("unsubscribe", t.Callback(""), t.Topic()); a.Status != http.StatusAccepted && a.Status/100 != 4 {
			t.Fatalf("it is answered %d: %s", a.Status, a.Body)
		}
	}},
}

// staysSubscribed is a check that an answer to the verification does not end the
// subscription.
func staysSubscribed(answer trial.Reply) func(t *trial.Trial) {
	return func(t *trial.Trial) {
		c, witness, tp := t.Callback(""), t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		t.Subscribed(witness, tp)
		c.On(trial.Verification, answer)
		t.Verified("unsubscribe", c, tp)
		for _, mark := range t.Rounds(tp, witness, 3) {
			t.Delivered(c, mark)
		}
	}
}
