package e2e

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// Content distribution (WebSub sections 7, 7.1 and 8.3).
var deliverChecks = []check{
	{"7 the delivery has the topic's media type", func(t *trial) {
		d := t.someDelivery()
		if ct := d.header.Get("Content-Type"); ct != "application/xml" {
			t.Fatalf("Content-Type is %q", ct)
		}
	}},
	{"7 the delivery is well-formed", func(t *trial) {
		d := t.someDelivery()
		var doc struct{ XMLName xml.Name }
		if err := xml.Unmarshal(d.body, &doc); err != nil || doc.XMLName.Local != "urlset" {
			t.Fatalf("%v, %v: %s", doc.XMLName, err, tail(string(d.body)))
		}
	}},
	{"7 the delivery is not compressed, which nobody asked for", func(t *trial) {
		d := t.someDelivery()
		if e := d.header.Get("Content-Encoding"); e != "" {
			t.Fatalf("Content-Encoding is %s", e)
		}
	}},
	{"7 the delivery links to the hub", func(t *trial) {
		d := t.someDelivery()
		if hubs := linksOf(&d, "hub"); len(hubs) == 0 || hubs[0] != t.hubURL {
			t.Fatalf("rel=hub is %q, not %s", hubs, t.hubURL)
		}
	}},
	{"7 the delivery links to the topic, once", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp)
		d := t.delivered(c, t.publish(tp))
		if self := linksOf(&d, "self"); len(self) != 1 || self[0] != tp.url {
			t.Fatalf("rel=self is %q, not %s", self, tp.url)
		}
	}},
	{"7 all links are in one field", func(t *trial) {
		d := t.someDelivery()
		if n := len(d.header.Values("Link")); n != 1 {
			t.Fatalf("there are %d Link fields: %q", n, d.header.Values("Link"))
		}
	}},
	{"7 any 2xx takes the delivery, which does not come again", func(t *trial) {
		tp := t.topic()
		all := map[int]*callback{}
		for _, code := range []int{200, 201, 202, 204, 205, 226, 299} {
			c := t.callback("")
			c.on(delivery, status(code))
			t.subscribed(c, tp)
			all[code] = c
		}
		var marks []string
		for range 4 {
			mark := t.publish(tp)
			for _, c := range all {
				t.delivered(c, mark)
			}
			marks = append(marks, mark)
		}
		for code, c := range all {
			for _, mark := range marks {
				if n := c.times(mark); n != 1 {
					t.Errorf("after %d a change is delivered %d times", code, n)
				}
			}
		}
	}},
	{"7 the body of the answer is ignored", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		c.on(delivery, flood(func(*arrival) string { return "hub.mode=unsubscribe" }, 8<<20))
		t.subscribed(c, tp)
		for range 3 {
			t.delivered(c, t.publish(tp))
		}
	}},
	{"7 the body of an answer without an end is no failure of others", func(t *trial) {
		c, other, tp := t.callbackAt(t.elsewhere(), ""), t.callback(""), t.topic()
		c.on(delivery, func(w http.ResponseWriter, _ *arrival, over <-chan struct{}) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-over
		})
		t.subscribed(other, tp)
		t.verified("subscribe", c, tp)
		for range 5 {
			t.delivered(other, t.publish(tp))
		}
	}},
	{"7 500 is tried again", triedAgain(status(http.StatusInternalServerError))},
	{"7 503 is tried again", triedAgain(status(http.StatusServiceUnavailable))},
	{"7 404 is tried again", triedAgain(status(http.StatusNotFound))},
	{"7 400 is tried again", triedAgain(status(http.StatusBadRequest))},
	{"7 401 is tried again", triedAgain(status(http.StatusUnauthorized, "WWW-Authenticate: Basic realm=x"))},
	{"7 304 is tried again", triedAgain(status(http.StatusNotModified))},
	{"7 a closed connection is tried again", triedAgain(hangUp)},
	{"7 an answer that is no HTTP is tried again", triedAgain(raw("SSH-2.0-OpenSSH_9.2p1\r\n"))},
	{"7 an answer that is cut short within its header is tried again", triedAgain(raw("HTTP/1.1 200 OK\r\nContent-Le"))},
	{"7 a redirect is a failure, and is not followed", func(t *trial) {
		elsewhere := t.callback("/elsewhere")
		t.failing(func(code int) reply { return status(code, "Location: "+elsewhere.url) }, 301, 302, 303, 307, 308)
		if n := len(elsewhere.arrivals()); n > 0 {
			t.Errorf("redirects are followed %d times", n)
		}
	}},
	{"7 an error does not end the subscription", func(t *trial) {
		t.failing(func(code int) reply { return status(code) }, 400, 401, 403, 404, 405, 413, 429, 500, 501, 503, 599)
	}},
	{"7 a new change is tried at a callback that fails", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp)
		c.on(delivery, status(500), status(500), status(500), status(http.StatusOK))
		t.publish(tp)
		t.arrives(c, delivery, 1)
		t.delivered(c, t.publish(tp))
	}},
	{"7 410 does not disturb others", func(t *trial) {
		c, other, tp := t.callback(""), t.callback(""), t.topic()
		t.subscribed(c, tp)
		t.subscribed(other, tp)
		c.on(delivery, status(http.StatusGone))
		t.rounds(tp, other, 3)
	}},
	{"7 after 410 one may subscribe again", func(t *trial) {
		c, other, tp := t.callback(""), t.callback(""), t.topic()
		t.subscribed(c, tp)
		t.subscribed(other, tp)
		n := len(c.got(delivery))
		c.on(delivery, status(http.StatusGone), status(http.StatusOK))
		t.rounds(tp, other, 1)
		t.arrives(c, delivery, n+1)
		t.subscribed(c, tp)
		t.wait("a change is delivered", func() error { return oneDelivered(t, c, tp) })
	}},
	{"7 a callback that hangs holds nobody up", othersGoOn(hang)},
	{"7 a callback that answers byte by byte holds nobody up", othersGoOn(trickle)},
	{"7 a callback that fails holds nobody up", othersGoOn(status(500))},
	{"7 twenty callbacks that hang hold nobody up", func(t *trial) {
		tp := t.topic()
		for range 20 {
			c := t.callbackAt(t.elsewhere(), "")
			t.verified("subscribe", c, tp)
			c.on(delivery, hang)
		}
		c := t.callback("")
		t.subscribed(c, tp)
		for range 5 {
			t.delivered(c, t.publish(tp))
		}
	}},
	{"7 many subscriptions at once are all verified, and get a change", func(t *trial) {
		tp := t.topic()
		var all []*callback
		answers := make(chan int, 100)
		for range cap(answers) {
			c := t.callback("")
			all = append(all, c)
			go func() {
				a, err := request(http.MethodPost, t.hubURL, strings.NewReader(form("subscribe", c.url, tp.url).Encode()), asForm)
				if err != nil {
					answers <- 0
					return
				}
				answers <- a.status
			}()
		}
		for range all {
			if code := <-answers; code != http.StatusAccepted {
				t.Errorf("a subscription is answered %d", code)
			}
		}
		for _, c := range all {
			t.arrives(c, verification, 1)
			t.wait("it is confirmed", func() error { return answered(c, verification, 1) })
		}
		t.wait("all get a change", func() error {
			mark := t.publish(tp)
			return soon(t.patience/5, func() error {
				for _, c := range all {
					if c.times(mark) == 0 {
						return errNotYet
					}
				}
				return nil
			})
		})
	}},

	{"7.1 the signature is that of the body", signed("a secret")},
	{"7.1 the signature names its method", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp, "hub.secret", "a secret")
		d := t.delivered(c, t.publish(tp))
		if s := d.header.Values("X-Hub-Signature"); len(s) != 1 || !regexp.MustCompile(`^(sha1=[0-9a-fA-F]{40}|sha256=[0-9a-fA-F]{64}|sha384=[0-9a-fA-F]{96}|sha512=[0-9a-fA-F]{128})$`).MatchString(s[0]) {
			t.Fatalf("X-Hub-Signature is %q", s)
		}
	}},
	{"8.3 the method is sha256 or better", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp, "hub.secret", "a secret")
		d := t.delivered(c, t.publish(tp))
		if s := d.header.Get("X-Hub-Signature"); s == "" || strings.HasPrefix(s, "sha1=") {
			t.Fatalf("X-Hub-Signature is %q", s)
		}
	}},
	{"7.1 without a secret there is no signature", func(t *trial) {
		d := t.someDelivery()
		if err := unsigned(&d); err != nil {
			t.Fatal(err)
		}
	}},
	{"7.1 the secret is used byte by byte", signed("ä&=+%20 \t\"'<>€🌍\x01")},
	{"7.1 the secret is not trimmed", signed("  a secret  ")},
	{"7.1 each subscriber's delivery has its own signature", func(t *trial) {
		tp := t.topic()
		all := map[string]*callback{"one": t.callback(""), "two": t.callback(""), "three": t.callback("")}
		for secret, c := range all {
			t.subscribed(c, tp, "hub.secret", secret)
		}
		mark := t.publish(tp)
		for secret, c := range all {
			d := t.delivered(c, mark)
			if err := signedBy(&d, secret); err != nil {
				t.Error(err)
			}
		}
	}},
	{"7.1 each attempt is signed", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp, "hub.secret", "a secret")
		c.on(delivery, status(500), status(http.StatusOK))
		mark := t.publish(tp)
		t.delivered(c, mark)
		for _, d := range c.got(delivery) {
			if err := signedBy(&d, "a secret"); err != nil {
				t.Error(err)
			}
		}
	}},
	{"8.3 the secret itself is never sent", func(t *trial) {
		const secret = "never-to-be-seen-again"
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp, "hub.secret", secret)
		t.delivered(c, t.publish(tp))
		for _, a := range c.arrivals() {
			if text := fmt.Sprint(a.target, a.header, string(a.body)); strings.Contains(text, secret) {
				t.Errorf("the secret is in %s", tail(text))
			}
		}
	}},
}

// someDelivery is a delivery of a subscription without a secret.
func (t *trial) someDelivery() arrival {
	c, tp := t.callback(""), t.topic()
	t.subscribed(c, tp)
	return t.delivered(c, t.publish(tp))
}

// triedAgain is a check that an answer is a failure, after which the change is
// delivered again.
func triedAgain(answer reply) func(t *trial) {
	return func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp)
		c.on(delivery, answer, status(http.StatusOK))
		mark := t.publish(tp)
		t.delivered(c, mark)
		if n := c.times(mark); n < 2 {
			t.Fatalf("it arrived %d times", n)
		}
	}
}

// failing has a callback fail with each status once, and checks that each gets
// that change again, and the next one.
func (t *trial) failing(answer func(code int) reply, codes ...int) {
	type failed struct {
		code int
		*callback
		*topic
		mark string
	}
	var all []failed
	for _, code := range codes {
		f := failed{code: code, callback: t.callback(""), topic: t.topic()}
		t.subscribed(f.callback, f.topic)
		f.on(delivery, answer(code), status(http.StatusOK))
		f.mark = t.publish(f.topic)
		all = append(all, f)
	}
	for _, f := range all {
		t.delivered(f.callback, f.mark)
		if f.times(f.mark) < 2 {
			t.Errorf("%d counts as success", f.code)
		}
		t.delivered(f.callback, t.publish(f.topic))
	}
}

// othersGoOn is a check that one callback's answer holds up no other.
func othersGoOn(answer reply) func(t *trial) {
	return func(t *trial) {
		bad, tp := t.callbackAt(t.elsewhere(), ""), t.topic()
		t.subscribed(bad, tp)
		n := len(bad.got(delivery))
		bad.on(delivery, answer)
		c := t.callback("")
		t.subscribed(c, tp)
		t.publish(tp)
		t.arrives(bad, delivery, n+1)
		for range 5 {
			mark := t.publish(tp)
			d := t.delivered(c, mark)
			if took := d.at.Sub(tp.made[mark]); took > 3*time.Second {
				t.Errorf("a change took %v", took)
			}
		}
	}
}

// signed is a check that deliveries are signed with a secret.
func signed(secret string) func(t *trial) {
	return func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp, "hub.secret", secret)
		for range 3 {
			d := t.delivered(c, t.publish(tp))
			if err := signedBy(&d, secret); err != nil {
				t.Error(err)
			}
		}
	}
}

// signedBy checks a delivery's signature.
func signedBy(d *arrival, secret string) error {
	all := d.header.Values("X-Hub-Signature")
	if len(all) != 1 {
		return fmt.Errorf("there are %d signatures", len(all))
	}
	method, hexed, _ := strings.Cut(all[0], "=")
	h := map[string]func() hash.Hash{"sha1": sha1.New, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New}[method]
	got, err := hex.DecodeString(hexed)
	if err != nil || h == nil {
		return fmt.Errorf("X-Hub-Signature is %q", all[0])
	}
	mac := hmac.New(h, []byte(secret))
	mac.Write(d.body)
	if !hmac.Equal(got, mac.Sum(nil)) {
		return fmt.Errorf("X-Hub-Signature %s is not that of the body with %.20q", all[0], secret)
	}
	return nil
}

func unsigned(d *arrival) error {
	if d.header.Get("X-Hub-Signature") != "" {
		return errors.New("it is signed")
	}
	return nil
}

var linkForm = regexp.MustCompile(`<([^>]*)>([^,<]*)`)

// linksOf are the targets of a delivery's links with a relation.
func linksOf(d *arrival, rel string) (targets []string) {
	return linksIn(d.header, rel)
}

func linksIn(h http.Header, rel string) (targets []string) {
	for _, l := range linkForm.FindAllStringSubmatch(strings.Join(h.Values("Link"), ", "), -1) {
		for p := range strings.SplitSeq(l[2], ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
			for v := range strings.FieldsSeq(strings.Trim(value, `" `)) {
				if strings.EqualFold(name, "rel") && strings.EqualFold(v, rel) {
					targets = append(targets, l[1])
				}
			}
		}
	}
	return targets
}

// selfOf is the topic that a delivery says it is of.
func selfOf(d *arrival) string { return strings.Join(linksOf(d, "self"), " ") }

// arrivals returns all that arrived, as copies.
func (c *callback) arrivals() (all []arrival) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.arrived {
		all = append(all, *a)
	}
	return all
}
