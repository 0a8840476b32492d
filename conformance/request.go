package main

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/rshub/rshub/conformance/trial"
)

// Subscription requests (WebSub sections 5.1, 5.1.1 and 5.1.2).
var requestChecks = []check{
	{mustLevel, "5.1 callback, mode and topic are enough", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Accepted("subscribe", c, tp)
		t.Arrives(c, trial.Verification, 1)
	}},
	{mustLevel, "5.1 the media type may have a charset", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		a := t.Post(trial.Form("subscribe", c.URL, tp.URL).Encode(), trial.AsForm+"; charset=UTF-8")
		if a.Status != http.StatusAccepted {
			t.Fatalf("it is answered %d: %s", a.Status, a.Body)
		}
	}},
	{mustLevel, "5.1 parameters come in any order and in any escaping", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		everyByte := func(s string) string {
			var b strings.Builder
			for i := range len(s) {
				b.WriteString("%" + strings.ToUpper(strconv.FormatInt(int64(s[i])+0x100, 16)[1:]))
			}
			return b.String()
		}
		a := t.Post("hub.topic=" + everyByte(tp.URL) + "&hub.callback=" + everyByte(c.URL) + "&hub%2Emode=%73ubscribe")
		if a.Status != http.StatusAccepted {
			t.Fatalf("it is answered %d: %s", a.Status, a.Body)
		}
		if v := t.Arrives(c, trial.Verification, 1)[0]; v.Param("hub.topic") != tp.URL {
			t.Errorf("the topic is %q", v.Param("hub.topic"))
		}
	}},
	{mustLevel, "5.1 unknown parameters are ignored", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp, "foo", "bar", "hub.foo", "hub.bar", "hub.verify", "sync", "hub.verify_token", "x")
		t.Delivered(c, t.Publish(tp))
	}},
	{mustLevel, "5.1 unknown headers are ignored", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		a := t.Post(trial.Form("subscribe", c.URL, tp.URL).Encode(), "X-Unknown: 1", "From: someone@example.org")
		if a.Status != http.StatusAccepted {
			t.Fatalf("it is answered %d: %s", a.Status, a.Body)
		}
		t.Arrives(c, trial.Verification, 1)
	}},
	{mustLevel, "5.1 a callback that is missing is refused", refusedForm("hub.callback", "-")},
	{mustLevel, "5.1 a callback that is empty is refused", refusedForm("hub.callback", "")},
	{mustLevel, "5.1 a callback that is relative is refused", refusedForm("hub.callback", "/callback")},
	{shouldLevel, "5.1.1 a callback of another scheme is refused", refusedForm("hub.callback",
		"ftp://127.0.0.1/", "file:///etc/passwd", "gopher://127.0.0.1:80/_GET", "javascript:alert(1)", "mailto:a@example.org", "//127.0.0.1/")},
	{mustLevel, "5.1 a callback without a host is refused", refusedForm("hub.callback", "http:///callback", "http://:80/", "http:callback", "https://")},
	{mustLevel, "5.1 a mode that is missing is refused", refusedForm("hub.mode", "-")},
	{mustLevel, "5.1 a mode that is unknown is refused", refusedForm("hub.mode", "subscribed", "SUBSCRIBE", "denied", "")},
	{mustLevel, "5.1 a topic that is missing is refused", refusedForm("hub.topic", "-")},
	{mustLevel, "5.1 a topic that is empty is refused", refusedForm("hub.topic", "")},
	{mustLevel, "5.1 an empty body is refused", func(t *trial.Trial) {
		if a := t.Post(""); a.Status/100 != 4 {
			t.Fatalf("it is answered %d: %s", a.Status, a.Body)
		}
	}},
	{shouldLevel, "5.1.2 an error says in plain text what is wrong", func(t *trial.Trial) {
		tp := t.Topic()
		a := t.Post(trial.Form("subscribe", "-", tp.URL, "hub.callback", "-").Encode())
		mediaType, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
		if a.Status/100 != 4 || mediaType != "text/plain" || len(strings.TrimSpace(string(a.Body))) < 5 {
			t.Fatalf("it is answered %d, %q: %q", a.Status, mediaType, a.Body)
		}
	}},
	{mustLevel, "5.1 a secret of 199 bytes is taken", secretTaken(strings.Repeat("s", 199))},
	{mustLevel, "5.1 a secret of 200 bytes is refused", refusedForm("hub.secret", strings.Repeat("s", 200))},
	{mustLevel, "5.1 a secret of 100 characters and 200 bytes is refused", refusedForm("hub.secret", strings.Repeat("é", 100))},
	{mustLevel, "5.1 a secret of 99 characters and 198 bytes is taken", secretTaken(strings.Repeat("é", 99))},
	{mustLevel, "5.1.2 the answer does not wait for the verification", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		may := make(chan struct{})
		c.On(trial.Verification, trial.HangUntil(may, trial.Confirm))
		t.Accepted("subscribe", c, tp) // else it never returns
		t.Arrives(c, trial.Verification, 1)
		close(may)
		t.Wait("the subscriber confirms", func() error { return trial.Answered(c, trial.Verification, 1) })
		t.Wait("a change is delivered", func() error { return trial.OneDelivered(t, c, tp) })
	}},
	{mustLevel, "5.1.2 the answer is 202 too when the subscriber will refuse", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		c.On(trial.Verification, trial.Status(http.StatusNotFound))
		t.Accepted("subscribe", c, tp)
		t.Arrives(c, trial.Verification, 1)
	}},
	{mustLevel, "5.1.2 the answer is 202 too when nobody listens", func(t *trial.Trial) {
		tp := t.Topic()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		if a := t.Post(trial.Form("subscribe", "http://"+l.Addr().String()+"/", tp.URL).Encode()); a.Status != http.StatusAccepted {
			t.Fatalf("it is answered %d: %s", a.Status, a.Body)
		}
	}},
	{mustLevel, "5.1.1 the callback's query is kept in the verification", func(t *trial.Trial) {
		c, tp := t.Callback("?foo=bar&red=fish&empty=&alone&b=2&a=1"), t.Topic()
		t.Accepted("subscribe", c, tp)
		v := t.Arrives(c, trial.Verification, 1)[0]
		if want := trial.PathOf(c.URL) + "&"; !strings.HasPrefix(v.Target, want) {
			t.Fatalf("the verification is for %s, which does not begin with %s", v.Target, want)
		}
	}},
	{mustLevel, "5.1.1 parameters of the callback that are named like the hub's are kept", func(t *trial.Trial) {
		c, tp := t.Callback("?hub.mode=mine&hub.topic=mine&hub.challenge=mine&hub.lease_seconds=mine"), t.Topic()
		t.Accepted("subscribe", c, tp)
		v := t.Arrives(c, trial.Verification, 1)[0]
		for _, name := range []string{"hub.mode", "hub.topic", "hub.challenge", "hub.lease_seconds"} {
			if all := v.Query[name]; len(all) != 2 || all[0] != "mine" || all[1] == "mine" {
				t.Errorf("%s is %q", name, all)
			}
		}
	}},
	{mustLevel, "5.1.1 the callback's query is in the URL of the delivery, and nothing else is", func(t *trial.Trial) {
		c, tp := t.Callback("?foo=bar&hub.mode=mine&x=%2F%20+"), t.Topic()
		t.Subscribed(c, tp)
		d := t.Delivered(c, t.Publish(tp))
		if want := trial.PathOf(c.URL); d.Target != want || strings.Contains(string(d.Body), "foo=bar") {
			t.Fatalf("the delivery is for %s, not for %s: %s", d.Target, want, trial.Tail(string(d.Body)))
		}
	}},
	{mustLevel, "8.3 the callback is used exactly as it was given", func(t *trial.Trial) {
		c, tp := t.Callback("/a%2Fb/%7Euser/%20/x;y=1,2/A%c3%a4/?q=%2f&Q=a+b%20c"), t.Topic()
		v := t.Subscribed(c, tp)
		d := t.Delivered(c, t.Publish(tp))
		if want := trial.PathOf(c.URL); !strings.HasPrefix(v.Target, want+"&") || d.Target != want {
			t.Fatalf("the verification is for %s and the delivery for %s, and the callback is %s", v.Target, d.Target, want)
		}
	}},
	{mustLevel, "5.1.1 a callback with an empty query is verified", func(t *trial.Trial) {
		c, tp := t.Callback("/?"), t.Topic()
		t.Subscribed(c, tp)
		t.Delivered(c, t.Publish(tp))
	}},
	{mustLevel, "5.1 callbacks that differ in their query are different subscribers", func(t *trial.Trial) {
		c, tp := t.Callback("?id=1"), t.Topic()
		t.Subscribed(c, tp)
		other := trial.Form("subscribe", strings.Replace(c.URL, "id=1", "id=2", 1), tp.URL)
		if a := t.Post(other.Encode()); a.Status != http.StatusAccepted {
			t.Fatalf("the second is answered %d: %s", a.Status, a.Body)
		}
		t.Arrives(c, trial.Verification, 2)
		t.Wait("both get a change", func() error {
			mark := t.Publish(tp)
			t.Delivered(c, mark)
			return trial.Soon(t.Hub.Patience/10, func() error {
				for _, id := range []string{"id=1", "id=2"} {
					if !arrivedAt(c, id, mark) {
						return trial.ErrNotYet
					}
				}
				return nil
			})
		})
	}},
}

// refusedForm is a check that a request with each of the values is refused.
func refusedForm(param string, values ...string) func(t *trial.Trial) {
	return func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		for _, v := range values {
			if a := t.Post(trial.Form("subscribe", c.URL, tp.URL, param, v).Encode()); a.Status < 400 || a.Status > 499 {
				t.Errorf("%s=%.50s is answered %d: %s", param, v, a.Status, a.Body)
			}
		}
		if t.Failed() {
			return
		}
		// Nothing came of it.
		t.Subscribed(c, tp)
		if n := len(c.Got(trial.Verification)); n != 1 {
			t.Errorf("there are %d verifications", n)
		}
	}
}

// secretTaken is a check that a secret is taken, and used.
func secretTaken(secret string) func(t *trial.Trial) {
	return func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp, "hub.secret", secret)
		d := t.Delivered(c, t.Publish(tp))
		if err := trial.SignedBy(&d, secret); err != nil {
			t.Fatal(err)
		}
	}
}

func arrivedAt(c *trial.Callback, query, mark string) bool {
	for _, d := range c.Got(trial.Delivery) {
		if strings.Contains(d.Target, query) && d.Has(mark) {
			return true
		}
	}
	return false
}
