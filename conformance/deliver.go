package main

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/rshub/rshub/conformance/trial"
)

// Content distribution (WebSub sections 7, 7.1 and 8.3).
var deliverChecks = []check{
	{mustLevel, "7 the delivery has the topic's media type", func(t *trial.Trial) {
		d := someDelivery(t)
		if ct := d.Header.Get("Content-Type"); ct != "application/xml" {
			t.Fatalf("Content-Type is %q", ct)
		}
	}},
	{mustLevel, "7 the delivery is well-formed", func(t *trial.Trial) {
		d := someDelivery(t)
		var doc struct{ XMLName xml.Name }
		if err := xml.Unmarshal(d.Body, &doc); err != nil || doc.XMLName.Local != "urlset" {
			t.Fatalf("%v, %v: %s", doc.XMLName, err, trial.Tail(string(d.Body)))
		}
	}},
	{shouldLevel, "7 the delivery is not compressed, which nobody asked for", func(t *trial.Trial) {
		d := someDelivery(t)
		if e := d.Header.Get("Content-Encoding"); e != "" {
			t.Fatalf("Content-Encoding is %s", e)
		}
	}},
	{mustLevel, "7 the delivery links to the hub", func(t *trial.Trial) {
		d := someDelivery(t)
		if hubs := trial.LinksOf(&d, "hub"); len(hubs) == 0 || hubs[0] != t.Hub.URL {
			t.Fatalf("rel=hub is %q, not %s", hubs, t.Hub.URL)
		}
	}},
	{mustLevel, "7 the delivery links to the topic, once", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		d := t.Delivered(c, t.Publish(tp))
		if self := trial.LinksOf(&d, "self"); len(self) != 1 || self[0] != tp.URL {
			t.Fatalf("rel=self is %q, not %s", self, tp.URL)
		}
	}},
	{shouldLevel, "7 all links are in one field", func(t *trial.Trial) {
		d := someDelivery(t)
		if n := len(d.Header.Values("Link")); n != 1 {
			t.Fatalf("there are %d Link fields: %q", n, d.Header.Values("Link"))
		}
	}},
	{mustLevel, "7 any 2xx takes the delivery, which does not come again", func(t *trial.Trial) {
		tp := t.Topic()
		all := map[int]*trial.Callback{}
		for _, code := range []int{200, 201, 202, 204, 205, 226, 299} {
			c := t.Callback("")
			c.On(trial.Delivery, trial.Status(code))
			t.Subscribed(c, tp)
			all[code] = c
		}
		var marks []string
		for range 4 {
			mark := t.Publish(tp)
			for _, c := range all {
				t.Delivered(c, mark)
			}
			marks = append(marks, mark)
		}
		for code, c := range all {
			for _, mark := range marks {
				if n := c.Times(mark); n != 1 {
					t.Errorf("after %d a change is delivered %d times", code, n)
				}
			}
		}
	}},
	{mustLevel, "7 the body of the answer is ignored", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		c.On(trial.Delivery, trial.Flood(func(*trial.Arrival) string { return "hub.mode=unsubscribe" }, 8<<20))
		t.Subscribed(c, tp)
		for range 3 {
			t.Delivered(c, t.Publish(tp))
		}
	}},
	{shouldLevel, "7 the body of an answer without an end is no failure of others", func(t *trial.Trial) {
		c, other, tp := t.CallbackAt(t.Elsewhere(), ""), t.Callback(""), t.Topic()
		c.On(trial.Delivery, func(w http.ResponseWriter, _ *trial.Arrival, over <-chan struct{}) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-over
		})
		t.Subscribed(other, tp)
		t.Verified("subscribe", c, tp)
		for range 5 {
			t.Delivered(other, t.Publish(tp))
		}
	}},
	{shouldLevel, "7 500 is tried again", triedAgain(trial.Status(http.StatusInternalServerError))},
	{shouldLevel, "7 503 is tried again", triedAgain(trial.Status(http.StatusServiceUnavailable))},
	{shouldLevel, "7 404 is tried again", triedAgain(trial.Status(http.StatusNotFound))},
	{shouldLevel, "7 400 is tried again", triedAgain(trial.Status(http.StatusBadRequest))},
	{shouldLevel, "7 401 is tried again", triedAgain(trial.Status(http.StatusUnauthorized, "WWW-Authenticate: Basic realm=x"))},
	{shouldLevel, "7 304 is tried again", triedAgain(trial.Status(http.StatusNotModified))},
	{shouldLevel, "7 a closed connection is tried again", triedAgain(trial.HangUp)},
	{shouldLevel, "7 an answer that is no HTTP is tried again", triedAgain(trial.Raw("SSH-2.0-OpenSSH_9.2p1\r\n"))},
	{shouldLevel, "7 an answer that is cut short within its header is tried again", triedAgain(trial.Raw("HTTP/1.1 200 OK\r\nContent-Le"))},
	{shouldLevel, "7 a redirect is a failure, and is not followed", func(t *trial.Trial) {
		elsewhere := t.Callback("/elsewhere")
		failing(t, func(code int) trial.Reply { return trial.Status(code, "Location: "+elsewhere.URL) }, 301, 302, 303, 307, 308)
		if n := len(elsewhere.Arrivals()); n > 0 {
			t.Errorf("redirects are followed %d times", n)
		}
	}},
	{shouldLevel, "7 an error does not end the subscription", func(t *trial.Trial) {
		failing(t, func(code int) trial.Reply { return trial.Status(code) }, 400, 401, 403, 404, 405, 413, 429, 500, 501, 503, 599)
	}},
	{mustLevel, "7 a new change is tried at a callback that fails", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		c.On(trial.Delivery, trial.Status(500), trial.Status(500), trial.Status(500), trial.Status(http.StatusOK))
		t.Publish(tp)
		t.Arrives(c, trial.Delivery, 1)
		t.Delivered(c, t.Publish(tp))
	}},
	{mustLevel, "7 410 does not disturb others", func(t *trial.Trial) {
		c, other, tp := t.Callback(""), t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		t.Subscribed(other, tp)
		c.On(trial.Delivery, trial.Status(http.StatusGone))
		t.Rounds(tp, other, 3)
	}},
	{mustLevel, "7 after 410 one may subscribe again", func(t *trial.Trial) {
		c, other, tp := t.Callback(""), t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		t.Subscribed(other, tp)
		n := len(c.Got(trial.Delivery))
		c.On(trial.Delivery, trial.Status(http.StatusGone), trial.Status(http.StatusOK))
		t.Rounds(tp, other, 1)
		t.Arrives(c, trial.Delivery, n+1)
		t.Subscribed(c, tp)
		t.Wait("a change is delivered", func() error { return trial.OneDelivered(t, c, tp) })
	}},
	{shouldLevel, "7 a callback that hangs holds nobody up", othersGoOn(trial.Hang)},
	{shouldLevel, "7 a callback that answers byte by byte holds nobody up", othersGoOn(trial.Trickle)},
	{shouldLevel, "7 a callback that fails holds nobody up", othersGoOn(trial.Status(500))},
	{shouldLevel, "7 twenty callbacks that hang hold nobody up", func(t *trial.Trial) {
		tp := t.Topic()
		for range 20 {
			c := t.CallbackAt(t.Elsewhere(), "")
			t.Verified("subscribe", c, tp)
			c.On(trial.Delivery, trial.Hang)
		}
		c := t.Callback("")
		t.Subscribed(c, tp)
		for range 5 {
			t.Delivered(c, t.Publish(tp))
		}
	}},
	{shouldLevel, "7 many subscriptions at once are all verified, and get a change", func(t *trial.Trial) {
		tp := t.Topic()
		var all []*trial.Callback
		answers := make(chan int, 100)
		for range cap(answers) {
			c := t.Callback("")
			all = append(all, c)
			go func() {
				a, err := t.Hub.Ask(t.Hub.URL, trial.Form("subscribe", c.URL, tp.URL).Encode())
				if err != nil {
					answers <- 0
					return
				}
				answers <- a.Status
			}()
		}
		for range all {
			if code := <-answers; code != http.StatusAccepted {
				t.Errorf("a subscription is answered %d", code)
			}
		}
		for _, c := range all {
			t.Arrives(c, trial.Verification, 1)
			t.Wait("it is confirmed", func() error { return trial.Answered(c, trial.Verification, 1) })
		}
		t.Wait("all get a change", func() error {
			mark := t.Publish(tp)
			return trial.Soon(t.Hub.Patience/5, func() error {
				for _, c := range all {
					if c.Times(mark) == 0 {
						return trial.ErrNotYet
					}
				}
				return nil
			})
		})
	}},

	{mustLevel, "7.1 the signature is that of the body", signed("a secret")},
	{mustLevel, "7.1 the signature names its method", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp, "hub.secret", "a secret")
		d := t.Delivered(c, t.Publish(tp))
		if s := d.Header.Values("X-Hub-Signature"); len(s) != 1 || !regexp.MustCompile(`^(sha1=[0-9a-fA-F]{40}|sha256=[0-9a-fA-F]{64}|sha384=[0-9a-fA-F]{96}|sha512=[0-9a-fA-F]{128})$`).MatchString(s[0]) {
			t.Fatalf("X-Hub-Signature is %q", s)
		}
	}},
	{shouldLevel, "8.3 the method is sha256 or better", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp, "hub.secret", "a secret")
		d := t.Delivered(c, t.Publish(tp))
		if s := d.Header.Get("X-Hub-Signature"); s == "" || strings.HasPrefix(s, "sha1=") {
			t.Fatalf("X-Hub-Signature is %q", s)
		}
	}},
	{mustLevel, "7.1 without a secret there is no signature", func(t *trial.Trial) {
		d := someDelivery(t)
		if err := trial.Unsigned(&d); err != nil {
			t.Fatal(err)
		}
	}},
	{mustLevel, "7.1 the secret is used byte by byte", signed("ä&=+%20 \t\"'<>€🌍\x01")},
	{mustLevel, "7.1 the secret is not trimmed", signed("  a secret  ")},
	{mustLevel, "7.1 each subscriber's delivery has its own signature", func(t *trial.Trial) {
		tp := t.Topic()
		all := map[string]*trial.Callback{"one": t.Callback(""), "two": t.Callback(""), "three": t.Callback("")}
		for secret, c := range all {
			t.Subscribed(c, tp, "hub.secret", secret)
		}
		mark := t.Publish(tp)
		for secret, c := range all {
			d := t.Delivered(c, mark)
			if err := trial.SignedBy(&d, secret); err != nil {
				t.Error(err)
			}
		}
	}},
	{mustLevel, "7.1 each attempt is signed", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp, "hub.secret", "a secret")
		c.On(trial.Delivery, trial.Status(500), trial.Status(http.StatusOK))
		mark := t.Publish(tp)
		t.Delivered(c, mark)
		for _, d := range c.Got(trial.Delivery) {
			if err := trial.SignedBy(&d, "a secret"); err != nil {
				t.Error(err)
			}
		}
	}},
	{shouldLevel, "8.3 the secret itself is never sent", func(t *trial.Trial) {
		const secret = "never-to-be-seen-again"
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp, "hub.secret", secret)
		t.Delivered(c, t.Publish(tp))
		for _, a := range c.Arrivals() {
			if text := fmt.Sprint(a.Target, a.Header, string(a.Body)); strings.Contains(text, secret) {
				t.Errorf("the secret is in %s", trial.Tail(text))
			}
		}
	}},
}

// someDelivery is a delivery of a subscription without a secret.
func someDelivery(t *trial.Trial) trial.Arrival {
	c, tp := t.Callback(""), t.Topic()
	t.Subscribed(c, tp)
	return t.Delivered(c, t.Publish(tp))
}

// triedAgain is a check that an answer is a failure, after which the change is
// delivered again.
func triedAgain(answer trial.Reply) func(t *trial.Trial) {
	return func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		c.On(trial.Delivery, answer, trial.Status(http.StatusOK))
		mark := t.Publish(tp)
		t.Delivered(c, mark)
		if n := c.Times(mark); n < 2 {
			t.Fatalf("it arrived %d times", n)
		}
	}
}

// failing has a callback fail with each status once, and checks that each gets
// that change again, and the next one.
func failing(t *trial.Trial, answer func(code int) trial.Reply, codes ...int) {
	type failing struct {
		code int
		*trial.Callback
	}
	tp := t.Topic()
	var all []failing
	for _, code := range codes {
		f := failing{code, t.Callback("")}
		t.Subscribed(f.Callback, tp)
		f.On(trial.Delivery, answer(code), trial.Status(http.StatusOK))
		all = append(all, f)
	}
	mark := t.Publish(tp)
	for _, f := range all {
		t.Delivered(f.Callback, mark)
		if f.Times(mark) < 2 {
			t.Errorf("%d counts as success", f.code)
		}
	}
	next := t.Publish(tp)
	for _, f := range all {
		t.Delivered(f.Callback, next)
	}
}

// othersGoOn is a check that one callback's answer holds up no other.
func othersGoOn(answer trial.Reply) func(t *trial.Trial) {
	return func(t *trial.Trial) {
		bad, tp := t.CallbackAt(t.Elsewhere(), ""), t.Topic()
		t.Subscribed(bad, tp)
		n := len(bad.Got(trial.Delivery))
		bad.On(trial.Delivery, answer)
		c := t.Callback("")
		t.Subscribed(c, tp)
		t.Publish(tp)
		t.Arrives(bad, trial.Delivery, n+1)
		for range 5 {
			mark := t.Publish(tp)
			d := t.Delivered(c, mark)
			if took := d.At.Sub(tp.Made[mark]); took > 3*time.Second {
				t.Errorf("a change took %v", took)
			}
		}
	}
}

// signed is a check that deliveries are signed with a secret.
func signed(secret string) func(t *trial.Trial) {
	return func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp, "hub.secret", secret)
		for range 3 {
			d := t.Delivered(c, t.Publish(tp))
			if err := trial.SignedBy(&d, secret); err != nil {
				t.Error(err)
			}
		}
	}
}
