package e2e

import (
	"net"
	"net/http"
	"strconv"
	"strings"
)

// Subscription requests (WebSub sections 5.1, 5.1.1 and 5.1.2).
var requestChecks = []check{
	{"5.1 callback, mode and topic are enough", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.accepted("subscribe", c, tp)
		t.arrives(c, verification, 1)
	}},
	{"5.1 the media type may have a charset", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		a := t.post(form("subscribe", c.url, tp.url).Encode(), asForm+"; charset=UTF-8")
		if a.status != http.StatusAccepted {
			t.Fatalf("it is answered %d: %s", a.status, a.body)
		}
	}},
	{"5.1 parameters come in any order and in any escaping", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		everyByte := func(s string) string {
			var b strings.Builder
			for i := range len(s) {
				b.WriteString("%" + strings.ToUpper(strconv.FormatInt(int64(s[i])+0x100, 16)[1:]))
			}
			return b.String()
		}
		a := t.post("hub.topic=" + everyByte(tp.url) + "&hub.callback=" + everyByte(c.url) + "&hub%2Emode=%73ubscribe")
		if a.status != http.StatusAccepted {
			t.Fatalf("it is answered %d: %s", a.status, a.body)
		}
		if v := t.arrives(c, verification, 1)[0]; v.param("hub.topic") != tp.url {
			t.Errorf("the topic is %q", v.param("hub.topic"))
		}
	}},
	{"5.1 unknown parameters are ignored", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp, "foo", "bar", "hub.foo", "hub.bar", "hub.verify", "sync", "hub.verify_token", "x")
		t.delivered(c, t.publish(tp))
	}},
	{"5.1 unknown headers are ignored", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		a := t.post(form("subscribe", c.url, tp.url).Encode(), "X-Unknown: 1", "From: someone@example.org")
		if a.status != http.StatusAccepted {
			t.Fatalf("it is answered %d: %s", a.status, a.body)
		}
		t.arrives(c, verification, 1)
	}},
	{"5.1 a callback that is missing is refused", refusedForm("hub.callback", "-")},
	{"5.1 a callback that is empty is refused", refusedForm("hub.callback", "")},
	{"5.1 a callback that is relative is refused", refusedForm("hub.callback", "/callback")},
	{"5.1.1 a callback of another scheme is refused", refusedForm("hub.callback",
		"ftp://127.0.0.1/", "file:///etc/passwd", "gopher://127.0.0.1:80/_GET", "javascript:alert(1)", "mailto:a@example.org", "//127.0.0.1/")},
	{"5.1 a callback without a host is refused", refusedForm("hub.callback", "http:///callback", "http://:80/", "http:callback", "https://")},
	{"5.1 a mode that is missing is refused", refusedForm("hub.mode", "-")},
	{"5.1 a mode that is unknown is refused", refusedForm("hub.mode", "subscribed", "SUBSCRIBE", "denied", "")},
	{"5.1 a topic that is missing is refused", refusedForm("hub.topic", "-")},
	{"5.1 a topic that is empty is refused", refusedForm("hub.topic", "")},
	{"5.1 an empty body is refused", func(t *trial) {
		if a := t.post(""); a.status/100 != 4 {
			t.Fatalf("it is answered %d: %s", a.status, a.body)
		}
	}},
	{"5.1.2 an error says in plain text what is wrong", func(t *trial) {
		tp := t.topic()
		a := t.post(form("subscribe", "-", tp.url, "hub.callback", "-").Encode())
		mediaType, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
		if a.status/100 != 4 || mediaType != "text/plain" || len(strings.TrimSpace(string(a.body))) < 5 {
			t.Fatalf("it is answered %d, %q: %q", a.status, mediaType, a.body)
		}
	}},
	{"5.1 a secret of 199 bytes is taken", secretTaken(strings.Repeat("s", 199))},
	{"5.1 a secret of 200 bytes is refused", refusedForm("hub.secret", strings.Repeat("s", 200))},
	{"5.1 a secret of 100 characters and 200 bytes is refused", refusedForm("hub.secret", strings.Repeat("é", 100))},
	{"5.1 a secret of 99 characters and 198 bytes is taken", secretTaken(strings.Repeat("é", 99))},
	{"5.1.2 the answer does not wait for the verification", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		may := make(chan struct{})
		c.on(verification, hangUntil(may, confirm))
		t.accepted("subscribe", c, tp) // else it never returns
		t.arrives(c, verification, 1)
		close(may)
		t.wait("the subscriber confirms", func() error { return answered(c, verification, 1) })
		t.wait("a change is delivered", func() error { return oneDelivered(t, c, tp) })
	}},
	{"5.1.2 the answer is 202 too when the subscriber will refuse", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		c.on(verification, status(http.StatusNotFound))
		t.accepted("subscribe", c, tp)
		t.arrives(c, verification, 1)
	}},
	{"5.1.2 the answer is 202 too when nobody listens", func(t *trial) {
		tp := t.topic()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		if a := t.post(form("subscribe", "http://"+l.Addr().String()+"/", tp.url).Encode()); a.status != http.StatusAccepted {
			t.Fatalf("it is answered %d: %s", a.status, a.body)
		}
	}},
	{"5.1.1 the callback's query is kept in the verification", func(t *trial) {
		c, tp := t.callback("?foo=bar&red=fish&empty=&alone&b=2&a=1"), t.topic()
		t.accepted("subscribe", c, tp)
		v := t.arrives(c, verification, 1)[0]
		if want := pathOf(c.url) + "&"; !strings.HasPrefix(v.target, want) {
			t.Fatalf("the verification is for %s, which does not begin with %s", v.target, want)
		}
	}},
	{"5.1.1 parameters of the callback that are named like the hub's are kept", func(t *trial) {
		c, tp := t.callback("?hub.mode=mine&hub.topic=mine&hub.challenge=mine&hub.lease_seconds=mine"), t.topic()
		t.accepted("subscribe", c, tp)
		v := t.arrives(c, verification, 1)[0]
		for _, name := range []string{"hub.mode", "hub.topic", "hub.challenge", "hub.lease_seconds"} {
			if all := v.query[name]; len(all) != 2 || all[0] != "mine" || all[1] == "mine" {
				t.Errorf("%s is %q", name, all)
			}
		}
	}},
	{"5.1.1 the callback's query is in the URL of the delivery, and nothing else is", func(t *trial) {
		c, tp := t.callback("?foo=bar&hub.mode=mine&x=%2F%20+"), t.topic()
		t.subscribed(c, tp)
		d := t.delivered(c, t.publish(tp))
		if want := pathOf(c.url); d.target != want || strings.Contains(string(d.body), "foo=bar") {
			t.Fatalf("the delivery is for %s, not for %s: %s", d.target, want, tail(string(d.body)))
		}
	}},
	{"8.3 the callback is used exactly as it was given", func(t *trial) {
		c, tp := t.callback("/a%2Fb/%7Euser/%20/x;y=1,2/A%c3%a4/?q=%2f&Q=a+b%20c"), t.topic()
		v := t.subscribed(c, tp)
		d := t.delivered(c, t.publish(tp))
		if want := pathOf(c.url); !strings.HasPrefix(v.target, want+"&") || d.target != want {
			t.Fatalf("the verification is for %s and the delivery for %s, and the callback is %s", v.target, d.target, want)
		}
	}},
	{"5.1.1 a callback with an empty query is verified", func(t *trial) {
		c, tp := t.callback("/?"), t.topic()
		t.subscribed(c, tp)
		t.delivered(c, t.publish(tp))
	}},
	{"5.1 callbacks that differ in their query are different subscribers", func(t *trial) {
		c, tp := t.callback("?id=1"), t.topic()
		t.subscribed(c, tp)
		other := form("subscribe", strings.Replace(c.url, "id=1", "id=2", 1), tp.url)
		if a := t.post(other.Encode()); a.status != http.StatusAccepted {
			t.Fatalf("the second is answered %d: %s", a.status, a.body)
		}
		t.arrives(c, verification, 2)
		t.wait("both get a change", func() error {
			mark := t.publish(tp)
			t.delivered(c, mark)
			return soon(t.patience/10, func() error {
				for _, id := range []string{"id=1", "id=2"} {
					if !arrivedAt(c, id, mark) {
						return errNotYet
					}
				}
				return nil
			})
		})
	}},
}

// refusedForm is a check that a request with each of the values is refused.
func refusedForm(param string, values ...string) func(t *trial) {
	return func(t *trial) {
		c, tp := t.callback(""), t.topic()
		for _, v := range values {
			if a := t.post(form("subscribe", c.url, tp.url, param, v).Encode()); a.status < 400 || a.status > 499 {
				t.Errorf("%s=%.50s is answered %d: %s", param, v, a.status, a.body)
			}
		}
		if t.Failed() {
			return
		}
		// Nothing came of it.
		t.subscribed(c, tp)
		if n := len(c.got(verification)); n != 1 {
			t.Errorf("there are %d verifications", n)
		}
	}
}

// secretTaken is a check that a secret is taken, and used.
func secretTaken(secret string) func(t *trial) {
	return func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp, "hub.secret", secret)
		d := t.delivered(c, t.publish(tp))
		if err := signedBy(&d, secret); err != nil {
			t.Fatal(err)
		}
	}
}

// pathOf is a URL's path with its query, as they are written.
func pathOf(u string) string {
	rest := u[strings.Index(u, "://")+3:]
	return rest[strings.Index(rest, "/"):]
}

func arrivedAt(c *callback, query, mark string) bool {
	for _, d := range c.got(delivery) {
		if strings.Contains(d.target, query) && d.has(mark) {
			return true
		}
	}
	return false
}

// leaseOf is the lease that a verification grants, 0 when it says none.
func leaseOf(v *arrival) int64 {
	n, err := strconv.ParseInt(v.param("hub.lease_seconds"), 10, 64)
	if err != nil || n < 1 {
		return 0
	}
	return n
}
