package conformance

import (
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/rshub/rshub/e2e/internal/trial"
)

// requests are the rules of subscription requests (WebSub 5.1, 5.1.1 and 5.1.2).
var requests = []rule{
	{"5.1 callback, mode and topic suffice", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.MustAccept("subscribe", c, tp)
		t.WaitRequests(c, trial.Verification, 1)
	}},
	{"5.1 parameters in any order, escaping and charset; unknown ones ignored", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		form := "hub.topic=" + escaped(tp.URL) + "&hub.callback=" + escaped(c.URL) + "&hub%2Emode=%73ubscribe&foo=bar&hub.foo=hub.bar&hub.verify=sync"
		t.Fetch(http.StatusAccepted, http.MethodPost, t.Hub.URL+"/hub", []byte(form), trial.AsForm+"; charset=UTF-8", "X-Unknown: 1")
		if v := t.WaitRequests(c, trial.Verification, 1)[0]; v.Param("hub.topic") != tp.URL {
			t.Errorf("hub.topic = %q, want %q", v.Param("hub.topic"), tp.URL)
		}
	}},
	{"5.1 and 5.1.2 invalid requests are refused in plain text", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		for _, wrong := range []struct{ param, value string }{
			{"hub.mode", "-"}, {"hub.mode", ""}, {"hub.mode", "subscribed"}, {"hub.mode", "SUBSCRIBE"}, {"hub.mode", "denied"},
			{"hub.topic", "-"}, {"hub.topic", ""},
			{"hub.callback", "-"}, {"hub.callback", ""}, {"hub.callback", "/callback"}, {"hub.callback", "//127.0.0.1/"},
			{"hub.callback", "ftp://127.0.0.1/"}, {"hub.callback", "file:///etc/passwd"}, {"hub.callback", "javascript:alert(1)"},
			{"hub.callback", "mailto:a@example.org"}, {"hub.callback", "http:///callback"}, {"hub.callback", "http://:80/"},
			{"hub.callback", "http:callback"}, {"hub.callback", "https://"},
		} {
			a := t.Request("subscribe", c, tp, wrong.param, wrong.value)
			if a.Status/100 != 4 || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/plain") || len(a.Body) < 5 {
				t.Errorf("request with %s=%s = %d, %v, want 4xx in plain text: %q", wrong.param, wrong.value, a.Status, a.Header, a.Body)
			}
		}
		if a := t.Post(""); a.Status/100 != 4 {
			t.Errorf("request with an empty body = %d, want 4xx: %s", a.Status, a.Body)
		}
		t.Subscribe(c, tp)
		if n := len(c.Requests(trial.Verification)); n != 1 {
			t.Errorf("got %d verifications, want 1", n)
		}
	}},
	{"5.1 a secret has fewer than 200 bytes", func(t *trial.Trial) {
		tp := t.Topic()
		for _, secret := range []string{strings.Repeat("s", 200), strings.Repeat("é", 100)} {
			if a := t.Request("subscribe", t.Callback(""), tp, "hub.secret", secret); a.Status/100 != 4 {
				t.Errorf("request with a secret of %d bytes = %d, want 4xx: %s", len(secret), a.Status, a.Body)
			}
		}
		for _, secret := range []string{strings.Repeat("s", 199), strings.Repeat("é", 99)} {
			c := t.Callback("")
			t.Subscribe(c, tp, "hub.secret", secret)
			checkSigned(t, t.WaitDelivery(c, t.Publish(tp)), secret)
		}
	}},
	{"5.1 callbacks with different queries are different subscribers", func(t *trial.Trial) {
		c, tp := t.Callback("?id=1"), t.Topic()
		t.Subscribe(c, tp)
		second := trial.Form("subscribe", strings.Replace(c.URL, "id=1", "id=2", 1), tp.URL)
		if a := t.Post(second.Encode()); a.Status != http.StatusAccepted {
			t.Fatalf("second request = %d, want 202: %s", a.Status, a.Body)
		}
		t.WaitRequests(c, trial.Verification, 2)
		mark := t.Publish(tp)
		t.Wait("both get a change", func() error {
			got := map[string]bool{}
			for _, d := range c.Requests(trial.Delivery) {
				got[d.Query.Get("id")] = got[d.Query.Get("id")] || d.Contains(mark)
			}
			if !got["1"] || !got["2"] {
				return fmt.Errorf("got: %v", got)
			}
			return nil
		})
	}},
	{"5.1.1 and 8.3 the callback URL is used unchanged", func(t *trial.Trial) {
		tp := t.Topic()
		for _, rest := range []string{"?foo=bar&red=fish&empty=&alone&b=2&a=1", "/?", "/a%2Fb/%7Euser/%20/x;y=1,2/A%c3%a4/?q=%2f&Q=a+b%20c"} {
			c := t.Callback(rest)
			v := t.Subscribe(c, tp)
			d := t.WaitDelivery(c, t.Publish(tp))
			if want := trial.PathOf(c.URL); !strings.HasPrefix(v.Target, strings.TrimSuffix(want, "?")) || d.Target != want {
				t.Errorf("got verification of %s and delivery to %s, want %s", v.Target, d.Target, want)
			}
		}
	}},
	{"5.1.1 the callback keeps its own hub parameters", func(t *trial.Trial) {
		c, tp := t.Callback("?hub.mode=mine&hub.topic=mine&hub.challenge=mine&hub.lease_seconds=mine"), t.Topic()
		v := t.Subscribe(c, tp)
		for _, name := range []string{"hub.mode", "hub.topic", "hub.challenge", "hub.lease_seconds"} {
			if all := v.Query[name]; len(all) != 2 || all[0] != "mine" || all[1] == "mine" {
				t.Errorf("%s = %q, want mine and another value", name, all)
			}
		}
	}},
	{"5.1.2 the response does not wait for the verification", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		may := make(chan struct{})
		c.Respond(trial.Verification, trial.HangUntil(may, trial.Confirm))
		t.MustAccept("subscribe", c, tp) // otherwise it does not return
		t.WaitRequests(c, trial.Verification, 1)
		close(may)
		wantOnce(t, tp, c)
	}},
	{"5.1.2 the response is 202 even if the callback will refuse", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		c.Respond(trial.Verification, trial.Status(http.StatusNotFound))
		t.MustAccept("subscribe", c, tp)
		t.WaitRequests(c, trial.Verification, 1)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		t.MustAccept("subscribe", c, tp, "hub.callback", "http://"+l.Addr().String()+"/")
	}},
}

// escaped percent-encodes each byte.
func escaped(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}
