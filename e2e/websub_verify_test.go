package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

var errNotYet = errors.New("not yet")

// answered says whether so many arrivals of a kind were answered.
func answered(c *callback, kind string, n int) error {
	for _, a := range c.got(kind) {
		if a.status != 0 {
			n--
		}
	}
	if n > 0 {
		return fmt.Errorf("%d are not answered", n)
	}
	return nil
}

// oneDelivered publishes a change and says whether it arrives soon.
func oneDelivered(t *trial, c *callback, tp *topic) error {
	mark := t.publish(tp)
	return soon(t.patience/10, func() error {
		if c.times(mark) == 0 {
			return errNotYet
		}
		return nil
	})
}

// Verification of intent (WebSub sections 5.3 and 5.3.1), and renewal, which is
// in force once it is verified (section 5.1).
var verifyChecks = []check{
	{"5.3 the verification has mode and topic as they were sent", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		v := t.verified("subscribe", c, tp)
		if v.param("hub.mode") != "subscribe" || v.param("hub.topic") != tp.url {
			t.Fatalf("it is for %s", v.target)
		}
	}},
	{"5.3 the verification has one of each parameter and no body", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		v := t.verified("subscribe", c, tp)
		for _, name := range []string{"hub.mode", "hub.topic", "hub.challenge", "hub.lease_seconds"} {
			if n := len(v.query[name]); n != 1 {
				t.Errorf("%s is there %d times", name, n)
			}
		}
		if len(v.body) > 0 {
			t.Errorf("the body is %q", v.body)
		}
	}},
	{"8.2 each challenge is another, and long enough", func(t *trial) {
		tp := t.topic()
		seen := map[string]bool{}
		for range 10 {
			v := t.verified("subscribe", t.callback(""), tp)
			if ch := v.challenge(); seen[ch] || len(ch) < 16 {
				t.Fatalf("the challenge %q is short, or was there before", ch)
			}
			seen[v.challenge()] = true
		}
	}},
	{"8.2 a renewal has a new challenge", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		one := t.verified("subscribe", c, tp)
		two := t.verified("subscribe", c, tp)
		if one.challenge() == two.challenge() {
			t.Fatalf("the challenge is %q again", one.challenge())
		}
	}},
	{"5.3 the verification says the lease", func(t *trial) {
		v := t.verified("subscribe", t.callback(""), t.topic())
		if leaseOf(&v) == 0 {
			t.Fatalf("hub.lease_seconds is %q", v.query["hub.lease_seconds"])
		}
	}},
	{"5.3.1 no lease is for ever", func(t *trial) {
		const century = 100 * 365 * 24 * 3600
		for _, asked := range []string{"99999999999", "9223372036854775807"} {
			c, tp := t.callback(""), t.topic()
			switch a := t.request("subscribe", c, tp, "hub.lease_seconds", asked); a.status / 100 {
			case 2:
				if v := t.arrives(c, verification, 1)[0]; leaseOf(&v) == 0 || leaseOf(&v) >= century {
					t.Errorf("for %s seconds, %q are granted", asked, v.query["hub.lease_seconds"])
				}
			case 4:
			default:
				t.Errorf("%s seconds: answered %d", asked, a.status)
			}
		}
	}},
	{"5.1 a lease that is no positive number is never granted", func(t *trial) {
		for _, asked := range []string{"0", "-1", "-300", "abc", "1.5", "1e3", "+5", "0x10", ""} {
			c, tp := t.callback(""), t.topic()
			switch a := t.request("subscribe", c, tp, "hub.lease_seconds", asked); a.status / 100 {
			case 2:
				if v := t.arrives(c, verification, 1)[0]; leaseOf(&v) == 0 {
					t.Errorf("for %q seconds, %q are granted", asked, v.query["hub.lease_seconds"])
				}
			case 4:
			default:
				t.Errorf("%q seconds: answered %d", asked, a.status)
			}
		}
	}},
	{"5.3.1 any 2xx with the challenge confirms", func(t *trial) {
		for _, code := range []int{200, 201, 202, 203, 226, 299} {
			c, tp := t.callback(""), t.topic()
			c.on(verification, confirmWith(code))
			t.subscribed(c, tp)
			t.delivered(c, t.publish(tp))
		}
	}},
	{"5.3.1 the challenge may come in pieces", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		c.on(verification, func(w http.ResponseWriter, a *arrival, _ <-chan struct{}) {
			for _, r := range a.challenge() {
				_, _ = w.Write([]byte(string(r)))
				_ = http.NewResponseController(w).Flush()
			}
		})
		t.verified("subscribe", c, tp)
		t.wait("a change is delivered", func() error { return oneDelivered(t, c, tp) })
	}},
	{"5.3.1 404 refuses", refuses(status(http.StatusNotFound))},
	{"5.3.1 404 with the challenge refuses", refuses(confirmWith(http.StatusNotFound))},
	{"5.3.1 500 with the challenge refuses", refuses(confirmWith(http.StatusInternalServerError))},
	{"5.3.1 an empty body refuses", refuses(status(http.StatusOK))},
	{"5.3.1 204 refuses", refuses(status(http.StatusNoContent))},
	{"5.3.1 another challenge refuses", refuses(say(200, func(string) string { return "another" }))},
	{"5.3.1 half of the challenge refuses", refuses(say(200, func(ch string) string { return ch[:len(ch)/2] }))},
	{"5.3.1 more than the challenge refuses", refuses(say(200, func(ch string) string { return ch + "x" }))},
	{"5.3.1 the challenge within a page refuses", refuses(say(200, func(ch string) string { return "<html>" + ch + "</html>" }))},
	{"5.3.1 the challenge in other letters refuses", refuses(say(200, func(ch string) string {
		if up := strings.ToUpper(ch); up != ch {
			return up
		}
		return strings.ToLower(ch) + " "
	}))},
	{"5.3.1 the query sent back refuses", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		c.on(verification, func(w http.ResponseWriter, a *arrival, _ <-chan struct{}) { _, _ = w.Write([]byte(a.target)) })
		t.verified("subscribe", c, tp)
		t.never(c, tp)
	}},
	{"5.3.1 a redirect refuses, and is not followed", func(t *trial) {
		for _, code := range []int{301, 302, 303, 307, 308} {
			c, elsewhere, tp := t.callback(""), t.callback("/elsewhere"), t.topic()
			c.on(verification, func(w http.ResponseWriter, a *arrival, _ <-chan struct{}) {
				w.Header().Set("Location", elsewhere.url+"?"+a.target[strings.Index(a.target, "?")+1:])
				confirmWith(code)(w, a, nil)
			})
			t.verified("subscribe", c, tp)
			t.never(c, tp)
			if n := len(elsewhere.got(verification)); n > 0 {
				t.Errorf("%d is followed", code)
			}
			if n := len(elsewhere.got(delivery)); n > 0 {
				t.Errorf("%d moves the subscription", code)
			}
		}
	}},
	{"5.3 nothing is delivered before the subscriber confirms", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		may := make(chan struct{})
		c.on(verification, hangUntil(may, confirm))
		t.accepted("subscribe", c, tp)
		t.arrives(c, verification, 1)
		t.never(c, tp)
		close(may)
		t.wait("the subscriber confirms", func() error { return answered(c, verification, 1) })
		t.wait("a change is delivered", func() error { return oneDelivered(t, c, tp) })
	}},
	{"5.1 one topic has many subscribers", func(t *trial) {
		tp := t.topic()
		var all []*callback
		for range 5 {
			c := t.callback("")
			t.subscribed(c, tp)
			all = append(all, c)
		}
		mark := t.publish(tp)
		for _, c := range all {
			t.delivered(c, mark)
		}
	}},
	{"5.1 one callback may subscribe to several topics", func(t *trial) {
		c, one, two := t.callback(""), t.topic(), t.topic()
		t.subscribed(c, one)
		t.subscribed(c, two)
		a, b := t.publish(one), t.publish(two)
		if d := t.delivered(c, a); selfOf(&d) != one.url {
			t.Errorf("the change of %s comes as one of %s", one.url, selfOf(&d))
		}
		if d := t.delivered(c, b); selfOf(&d) != two.url {
			t.Errorf("the change of %s comes as one of %s", two.url, selfOf(&d))
		}
	}},
	{"5.1 an active subscription may be asked for again, and stays one", func(t *trial) {
		c, witness, tp := t.callback(""), t.callback(""), t.topic()
		t.subscribed(witness, tp)
		for range 3 {
			t.subscribed(c, tp)
		}
		for _, mark := range t.rounds(tp, witness, 3) {
			t.delivered(c, mark)
			if n := c.times(mark); n != 1 {
				t.Errorf("a change is delivered %d times", n)
			}
		}
	}},
	{"5.1 a renewal replaces the secret once it is verified", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp, "hub.secret", "the old one")
		t.subscribed(c, tp, "hub.secret", "the new one")
		t.becomes(c, tp, func(d *arrival) error { return signedBy(d, "the new one") })
	}},
	{"5.1 a renewal without a secret ends signing", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp, "hub.secret", "the old one")
		d := t.delivered(c, t.publish(tp))
		if err := signedBy(&d, "the old one"); err != nil {
			t.Fatal(err)
		}
		t.subscribed(c, tp)
		t.becomes(c, tp, unsigned)
	}},
	{"5.1 a renewal that the subscriber refuses changes nothing", func(t *trial) {
		c, witness, tp := t.callback(""), t.callback(""), t.topic()
		t.subscribed(c, tp, "hub.secret", "the old one")
		t.subscribed(witness, tp)
		c.on(verification, status(http.StatusNotFound))
		t.verified("subscribe", c, tp, "hub.secret", "the new one", "hub.lease_seconds", "300")
		for _, mark := range t.rounds(tp, witness, 3) {
			d := t.delivered(c, mark)
			if err := signedBy(&d, "the old one"); err != nil {
				t.Error(err)
			}
		}
	}},
	{"5.1 a renewal that nobody answers changes nothing", func(t *trial) {
		c, witness, tp := t.callback(""), t.callback(""), t.topic()
		t.subscribed(c, tp, "hub.secret", "the old one")
		t.subscribed(witness, tp)
		c.on(verification, hang)
		t.verified("subscribe", c, tp, "hub.secret", "the new one")
		for _, mark := range t.rounds(tp, witness, 3) {
			d := t.delivered(c, mark)
			if err := signedBy(&d, "the old one"); err != nil {
				t.Error(err)
			}
		}
	}},
	{"5.3.1 a lease ends", func(t *trial) {
		c, witness, tp := t.callback(""), t.callback(""), t.topic()
		t.subscribed(witness, tp)
		v := t.subscribed(c, tp, "hub.lease_seconds", "2")
		end := v.at.Add(time.Duration(leaseOf(&v)) * time.Second)
		if time.Until(end) > t.patience {
			t.Skip(fmt.Sprintf("the hub grants no less than %d seconds", leaseOf(&v)))
		}
		if mark := t.publish(tp); time.Until(end) > time.Second {
			t.delivered(c, mark)
		}
		t.wait("the lease ends", func() error {
			if time.Now().Before(end) {
				return errNotYet
			}
			return nil
		})
		t.nothing(c, tp, witness)
	}},
	{"5.1 a renewal prolongs the lease", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		v := t.subscribed(c, tp, "hub.lease_seconds", "2")
		end := v.at.Add(time.Duration(leaseOf(&v)) * time.Second)
		if time.Until(end) > t.patience {
			t.Skip(fmt.Sprintf("the hub grants no less than %d seconds", leaseOf(&v)))
		}
		t.subscribed(c, tp, "hub.lease_seconds", "3600")
		t.wait("the first lease would have ended", func() error {
			if time.Now().Before(end.Add(500 * time.Millisecond)) {
				return errNotYet
			}
			return nil
		})
		for range 3 {
			t.delivered(c, t.publish(tp))
		}
	}},
}

// refuses is a check that an answer to the verification makes no subscription.
func refuses(answer reply) func(t *trial) {
	return func(t *trial) {
		c, tp := t.callback(""), t.topic()
		c.on(verification, answer)
		t.verified("subscribe", c, tp)
		t.never(c, tp)
	}
}

// becomes waits until a delivery is as it should, and checks that those behind
// it are too.
func (t *trial) becomes(c *callback, tp *topic, as func(*arrival) error) {
	t.wait("deliveries are as they should", func() error {
		d := t.delivered(c, t.publish(tp))
		return as(&d)
	})
	for range 3 {
		d := t.delivered(c, t.publish(tp))
		if err := as(&d); err != nil {
			t.Error(err)
		}
	}
}

// Unsubscribing (WebSub sections 5 and 5.3).
var unsubscribeChecks = []check{
	{"5.1 to unsubscribe is accepted, and verified", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		one := t.subscribed(c, tp)
		v := t.verified("unsubscribe", c, tp)
		if v.param("hub.mode") != "unsubscribe" || v.param("hub.topic") != tp.url || v.challenge() == "" || v.challenge() == one.challenge() {
			t.Fatalf("the verification is for %s", v.target)
		}
	}},
	{"5.3 who has unsubscribed gets nothing more", func(t *trial) {
		c, witness, tp := t.callback(""), t.callback(""), t.topic()
		t.subscribed(c, tp)
		t.subscribed(witness, tp)
		t.delivered(c, t.publish(tp))
		t.verified("unsubscribe", c, tp)
		t.nothing(c, tp, witness)
	}},
	{"5.3 to unsubscribe needs the subscriber's confirmation", staysSubscribed(status(http.StatusNotFound))},
	{"5.3.1 to unsubscribe needs the challenge", staysSubscribed(say(200, func(string) string { return "another" }))},
	{"5.3.1 to unsubscribe needs a 2xx", staysSubscribed(confirmWith(http.StatusBadRequest))},
	{"5.1 the lease of who unsubscribes is ignored", func(t *trial) {
		for _, lease := range []string{"abc", "0", "-1", "86400"} {
			c, tp := t.callback(""), t.topic()
			t.subscribed(c, tp)
			t.verified("unsubscribe", c, tp, "hub.lease_seconds", lease)
		}
	}},
	{"5.1 who has unsubscribed may subscribe again", func(t *trial) {
		c, witness, tp := t.callback(""), t.callback(""), t.topic()
		t.subscribed(c, tp)
		t.subscribed(witness, tp)
		t.verified("unsubscribe", c, tp)
		t.nothing(c, tp, witness)
		t.subscribed(c, tp)
		t.delivered(c, t.publish(tp))
	}},
	{"5.1 to unsubscribe from one topic leaves the other", func(t *trial) {
		c, witness, one, two := t.callback(""), t.callback(""), t.topic(), t.topic()
		t.subscribed(c, one)
		t.subscribed(c, two)
		t.subscribed(witness, one)
		t.verified("unsubscribe", c, one)
		t.nothing(c, one, witness)
		t.delivered(c, t.publish(two))
	}},
	{"5.1 who unsubscribes without a subscription is answered", func(t *trial) {
		if a := t.request("unsubscribe", t.callback(""), t.topic()); a.status != http.StatusAccepted && a.status/100 != 4 {
			t.Fatalf("it is answered %d: %s", a.status, a.body)
		}
	}},
}

// staysSubscribed is a check that an answer to the verification does not end the
// subscription.
func staysSubscribed(answer reply) func(t *trial) {
	return func(t *trial) {
		c, witness, tp := t.callback(""), t.callback(""), t.topic()
		t.subscribed(c, tp)
		t.subscribed(witness, tp)
		c.on(verification, answer)
		t.verified("unsubscribe", c, tp)
		for _, mark := range t.rounds(tp, witness, 3) {
			t.delivered(c, mark)
		}
	}
}
