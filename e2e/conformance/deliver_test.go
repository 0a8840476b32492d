package conformance

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"

	"github.com/rshub/rshub/e2e/internal/trial"
)

// deliveries are the rules of content distribution (WebSub 7).
var deliveries = []rule{
	{"7 the delivery has the topic's media type and document", func(t *trial.Trial) {
		d, _ := someDelivery(t)
		var doc struct{ XMLName xml.Name }
		err := xml.Unmarshal(d.Body, &doc)
		ct, ce := d.Header.Get("Content-Type"), d.Header.Get("Content-Encoding")
		if ct != "application/xml" || ce != "" || err != nil || doc.XMLName.Local != "urlset" {
			t.Errorf("got Content-Type %q, Content-Encoding %q, root %v, error %v: %s", ct, ce, doc.XMLName, err, trial.Tail(string(d.Body)))
		}
	}},
	{"7 one Link header names the hub and, once, the topic", func(t *trial.Trial) {
		d, tp := someDelivery(t)
		hubs := trial.Links(d.Header, "hub")
		if len(hubs) == 0 || hubs[0] != t.Hub.URL+"/hub" || trial.SelfOf(&d) != tp.URL || len(d.Header.Values("Link")) != 1 {
			t.Errorf("Link = %q, want one with hub and topic", d.Header.Values("Link"))
		}
	}},
	{"7 any 2xx with any body is success", func(t *trial.Trial) {
		tp := t.Topic()
		all := []*trial.Callback{subscribeWith(t, tp, trial.ReplyBody(200, func(string) string { return "hub.mode=unsubscribe" + strings.Repeat("x", 1<<20) }))}
		for _, code := range []int{200, 201, 202, 204, 205, 226, 299} {
			all = append(all, subscribeWith(t, tp, trial.Status(code)))
		}
		wantOnce(t, tp, all...)
	}},
	{"7 any other status is a failure and is retried", func(t *trial.Trial) {
		tp := t.Topic()
		var replies []trial.Reply
		for _, code := range []int{304, 400, 401, 403, 404, 405, 413, 429, 500, 501, 503, 599} {
			replies = append(replies, trial.Status(code))
		}
		checkRetries(t, tp, append(replies, trial.HangUp)...)
	}},
	{"7 a redirect is a failure and is not followed", func(t *trial.Trial) {
		tp, elsewhere := t.Topic(), t.Callback("/elsewhere")
		var replies []trial.Reply
		for _, code := range []int{301, 302, 303, 307, 308} {
			replies = append(replies, trial.Status(code, "Location: "+elsewhere.URL))
		}
		checkRetries(t, tp, replies...)
		if n := len(elsewhere.Requests()); n > 0 {
			t.Errorf("got %d followed redirects, want 0", n)
		}
	}},
	{"7 a 410 ends one subscription, which may be made again", func(t *trial.Trial) {
		tp, other := t.Topic(), t.Callback("")
		t.Subscribe(other, tp)
		c := subscribeWith(t, tp, trial.Status(http.StatusGone), trial.Status(http.StatusOK))
		t.PublishRounds(tp, other, 3)
		t.WaitRequests(c, trial.Delivery, 1)
		t.Subscribe(c, tp)
		t.WaitDelivery(c, t.Publish(tp))
		t.WaitDelivery(other, tp.Mark())
	}},
	{"7 hanging and failing callbacks delay no other", func(t *trial.Trial) {
		tp := t.Topic()
		noEnd := func(w http.ResponseWriter, _ *trial.CallbackRequest, done <-chan struct{}) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-done
		}
		replies := []trial.Reply{trial.Status(500), noEnd}
		for range 4 {
			replies = append(replies, trial.Hang)
		}
		var bad []*trial.Callback
		for _, r := range replies {
			b := t.CallbackAt(t.NewServer(), "")
			b.Respond(trial.Delivery, r)
			t.Subscribe(b, tp)
			bad = append(bad, b)
		}
		t.Publish(tp)
		for _, b := range bad {
			t.WaitRequests(b, trial.Delivery, 1)
		}
		c := t.Callback("")
		t.Subscribe(c, tp)
		t.PublishRounds(tp, c, 5)
	}},
	{"7 many simultaneous subscriptions are verified and receive changes", func(t *trial.Trial) {
		tp := t.Topic()
		var all []*trial.Callback
		statuses := make(chan string, 100)
		for range cap(statuses) {
			c := t.Callback("")
			all = append(all, c)
			go func() {
				form := strings.NewReader(trial.Form("subscribe", c.URL, tp.URL).Encode())
				a, err := trial.Exchange(t.Hub.Client, http.MethodPost, t.Hub.URL+"/hub", form, trial.AsForm)
				if err != nil {
					statuses <- err.Error()
					return
				}
				statuses <- fmt.Sprint(a.Status)
			}()
		}
		for range all {
			if a := <-statuses; a != "202" {
				t.Errorf("subscribe = %s, want 202", a)
			}
		}
		wantOnce(t, tp, all...)
	}},
}

// signatures are the rules of authenticated distribution (WebSub 7.1 and 8.3).
var signatures = []rule{
	{"7.1 and 8.3 each attempt is signed by the subscriber's secret with SHA-256 or better", func(t *trial.Trial) {
		tp := t.Topic()
		all := map[string]*trial.Callback{"a secret": t.Callback(""), "  a secret  ": t.Callback(""), "ä&=+%20 \t\"'<>€🌍\x01": t.Callback("")}
		for secret, c := range all {
			c.Respond(trial.Delivery, trial.Status(500), trial.Status(http.StatusOK))
			t.Subscribe(c, tp, "hub.secret", secret)
		}
		mark := t.Publish(tp)
		for secret, c := range all {
			t.WaitDelivery(c, mark)
			for _, d := range c.Requests(trial.Delivery) {
				if checkSigned(t, d, secret); strings.HasPrefix(d.Header.Get("X-Hub-Signature"), "sha1=") {
					t.Errorf("X-Hub-Signature = %q", d.Header.Get("X-Hub-Signature"))
				}
			}
		}
	}},
	{"7.1 no secret, no signature", func(t *trial.Trial) {
		if d, _ := someDelivery(t); d.Header.Get("X-Hub-Signature") != "" {
			t.Errorf("X-Hub-Signature = %q", d.Header.Get("X-Hub-Signature"))
		}
	}},
	{"8.3 the secret is never sent", func(t *trial.Trial) {
		const secret = "never-to-be-seen-again"
		c, tp := t.Callback(""), t.Topic()
		t.Subscribe(c, tp, "hub.secret", secret)
		t.WaitDelivery(c, t.Publish(tp))
		for _, a := range c.Requests() {
			if text := fmt.Sprint(a.Target, a.Header, string(a.Body)); strings.Contains(text, secret) {
				t.Errorf("request has the secret: %s", trial.Tail(text))
			}
		}
	}},
}

// someDelivery returns a delivery of a subscription without a secret.
func someDelivery(t *trial.Trial) (trial.CallbackRequest, *trial.Topic) {
	t.Helper()
	c, tp := t.Callback(""), t.Topic()
	t.Subscribe(c, tp)
	return t.WaitDelivery(c, t.Publish(tp)), tp
}

// subscribeWith returns a subscriber with the given replies to its deliveries.
func subscribeWith(t *trial.Trial, tp *trial.Topic, replies ...trial.Reply) *trial.Callback {
	t.Helper()
	c := t.Callback("")
	c.Respond(trial.Delivery, replies...)
	t.Subscribe(c, tp)
	return c
}

// checkRetries has a callback fail once with each reply, and checks that the hub retries the delivery
// and continues with the next one.
func checkRetries(t *trial.Trial, tp *trial.Topic, replies ...trial.Reply) {
	t.Helper()
	var all []*trial.Callback
	for _, r := range replies {
		all = append(all, subscribeWith(t, tp, r, trial.Status(http.StatusOK)))
	}
	mark := t.Publish(tp)
	for i, c := range all {
		t.WaitDelivery(c, mark)
		if c.CountDeliveries(mark) < 2 {
			t.Errorf("delivery after failure %d was not retried", i+1)
		}
	}
	wantOnce(t, tp, all...)
}
