package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// What rshub promises beyond WebSub: requests and positions. Sections are of
// WebSub where it leaves room for them.
var extraChecks = []check{
	{"5.1.2 what is wrong is named", func(t *trial) {
		tp := t.topic()
		c := t.callback("")
		for _, test := range []struct {
			param, value string
			status       int
		}{
			{"hub.callback", "-", 400}, {"hub.callback", "ftp://example.org/", 400}, {"hub.callback", "http://user:secret@127.0.0.1/", 400},
			{"hub.callback", c.url + "#fragment", 400}, {"hub.callback", c.url + "/" + strings.Repeat("x", 2048), 400}, {"hub.callback", c.url + "/a b", 400},
			{"hub.callback", c.url + "/ä", 400}, {"hub.callback", "http://127.0.0.1:25/", 400}, {"hub.callback", t.hubURL, 400},
			{"hub.mode", "-", 400}, {"hub.mode", "both", 400},
			{"hub.topic", "-", 400}, {"hub.topic", "https://example.org/sets/a/changes", 404}, {"hub.topic", t.rshub.url + "/sets/A%20B/changes", 404},
			{"hub.topic", t.rshub.url + "/sets/" + tp.set, 404}, {"hub.topic", tp.url + "/", 404}, {"hub.topic", tp.url + "?since=start", 404},
			{"hub.secret", strings.Repeat("s", 200), 400},
			{"hub.lease_seconds", "0", 400}, {"hub.lease_seconds", "-1", 400}, {"hub.lease_seconds", "1.5", 400}, {"hub.lease_seconds", "day", 400},
			{"rs.since", "yesterday", 400}, {"rs.since", "2999-01-01T00:00:00Z", 400}, {"rs.since", "7-7", 410},
			{"rs.change", "moved", 400}, {"rs.type", "text", 400}, {"rs.prefix", strings.Repeat("x", 2049), 400},
		} {
			a := t.post(form("subscribe", c.url, tp.url, test.param, test.value).Encode())
			text := string(a.body)
			if a.status != test.status || test.status == 400 && !strings.Contains(text, test.param) || strings.Count(strings.TrimSpace(text), "\n") > 0 ||
				!strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") || strings.Contains(text, "user:secret") {
				t.Errorf("%s=%.60s is answered %d, %s: %s", test.param, test.value, a.status, a.header.Get("Content-Type"), text)
			}
		}
	}},
	{"5.1 a parameter that is there twice is refused", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		for _, name := range []string{"hub.callback", "hub.mode", "hub.topic", "hub.secret", "hub.lease_seconds", "rs.since", "rs.prefix"} {
			f := form("subscribe", c.url, tp.url, "hub.secret", "s", "hub.lease_seconds", "300", "rs.since", "now", "rs.prefix", "https://")
			f.Add(name, f.Get(name))
			if a := t.post(f.Encode()); a.status != http.StatusBadRequest || !strings.Contains(string(a.body), name) {
				t.Errorf("%s is answered %d: %s", name, a.status, a.body)
			}
		}
	}},
	{"5.1 a form has at most 64 KiB", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		if a := t.request("subscribe", c, tp, "foo", strings.Repeat("x", 64<<10)); a.status != http.StatusRequestEntityTooLarge {
			t.Fatalf("it is answered %d: %s", a.status, a.body)
		}
	}},
	{"5.1 a form is UTF-8, and well-formed", func(t *trial) {
		for _, body := range []string{"hub.mode=subscribe&hub.topic=%zz", "hub.mode=subscribe&hub.secret=%ff", "%ff=x"} {
			if a := t.post(body); a.status != http.StatusBadRequest {
				t.Errorf("%s is answered %d: %s", body, a.status, a.body)
			}
		}
	}},
	{"5.1 parameters in the hub's URL do not count", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		if a := t.postTo(t.hubURL+"?"+form("subscribe", c.url, tp.url).Encode(), ""); a.status != http.StatusBadRequest {
			t.Fatalf("it is answered %d: %s", a.status, a.body)
		}
	}},
	{"5.3 the lease is 10 days, and is kept within the bounds", func(t *trial) {
		for asked, want := range map[string]int64{"-": 864_000, "": 864_000, "99999999999999999999": 2_678_400, "2678401": 2_678_400, "1": 1, "3600": 3600} {
			if v := t.verified("subscribe", t.callback(""), t.topic(), "hub.lease_seconds", asked); leaseOf(&v) != want {
				t.Errorf("for %q seconds, %d are granted, not %d", asked, leaseOf(&v), want)
			}
		}
	}},
	{"5.1 to unsubscribe without a subscription is 404, and nobody is asked", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		if a := t.request("unsubscribe", c, tp); a.status != http.StatusNotFound {
			t.Fatalf("it is answered %d: %s", a.status, a.body)
		}
		t.never(c, tp)
		if n := len(c.arrivals()); n > 0 {
			t.Fatalf("%d requests arrived", n)
		}
	}},
	{"6 hub.mode=publish knows hub.url and hub.topic", func(t *trial) {
		tp := t.topic()
		a := t.post(url.Values{"hub.mode": {"publish"}, "hub.topic": {tp.url}}.Encode())
		b := t.post(url.Values{"hub.mode": {"publish"}, "hub.url": {tp.url}}.Encode())
		if a.status != b.status || a.status/100 != 2 && a.status/100 != 4 {
			t.Errorf("one is answered %d: %s\nthe other %d: %s", a.status, a.body, b.status, b.body)
		}
		for _, name := range []string{"hub.topic", "hub.url"} {
			if a := t.post(url.Values{"hub.mode": {"publish"}, name: {"https://example.org/"}}.Encode()); a.status != http.StatusNotFound || !strings.Contains(string(a.body), name) {
				t.Errorf("an unknown topic in %s is answered %d: %s", name, a.status, a.body)
			}
		}
		if a := t.post("hub.mode=publish"); a.status != http.StatusBadRequest {
			t.Errorf("no topic is answered %d: %s", a.status, a.body)
		}
	}},
	{"POST /subscribe takes callbackURI", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		f := url.Values{"callbackURI": {c.url}, "hub.topic": {tp.url}}
		if a := t.postTo(t.rshub.url+"/subscribe", f.Encode()); a.status != http.StatusAccepted {
			t.Fatalf("it is answered %d: %s", a.status, a.body)
		}
		t.arrives(c, verification, 1)
		t.delivered(c, t.publish(tp))
	}},
	{"5.3 rs.since is the head when the request was accepted", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		at := head(t, t.rshub, tp.set)
		may := make(chan struct{})
		c.on(verification, hangUntil(may, confirm))
		t.accepted("subscribe", c, tp)
		mark := t.publish(tp) // before the subscriber confirms
		v := t.arrives(c, verification, 1)[0]
		close(may)
		if v.param("rs.since") != at {
			t.Errorf("rs.since is %s, and the head was %s", v.param("rs.since"), at)
		}
		t.delivered(c, mark)
		t.chained(c, at)
	}},
	{"5.3 rs.since=start brings all that is kept", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.publish(tp)
		floor := get[struct{ Floor string }](t, t.rshub.url+"/sets/"+tp.set).Floor
		if v := t.subscribed(c, tp, "rs.since", "start"); v.param("rs.since") != floor {
			t.Errorf("rs.since is %s, and the floor %s", v.param("rs.since"), floor)
		}
		t.hasAll(c, tp)
		t.chained(c, floor)
	}},
	{"5.3 rs.since takes a cursor, which is exclusive", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		at := head(t, t.rshub, tp.set)
		mark := t.publish(tp)
		if v := t.subscribed(c, tp, "rs.since", at); v.param("rs.since") != at {
			t.Errorf("rs.since is %s, not %s", v.param("rs.since"), at)
		}
		t.delivered(c, mark)
		t.chained(c, at)
	}},
	{"5.3 rs.since takes a datetime, which is inclusive", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.publish(tp)
		second := memory(t, t.rshub, tp.set)[1]
		t.subscribed(c, tp, "rs.since", second.datetime)
		t.delivered(c, fmt.Sprintf("/%s/2</loc>", tp.set))
		t.chained(c, "1-")
	}},
	{"5.3 rs.renewed says whether there was a subscription", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		one := t.subscribed(c, tp)
		t.wait("a change is delivered", func() error { return oneDelivered(t, c, tp) }) // it is there
		two := t.verified("subscribe", c, tp)
		if one.param("rs.renewed") != "false" || two.param("rs.renewed") != "true" {
			t.Fatalf("rs.renewed is %q, then %q", one.param("rs.renewed"), two.param("rs.renewed"))
		}
	}},
	{"5.1 a renewal keeps the place", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		at := t.subscribed(c, tp).param("rs.since")
		for range 5 {
			t.delivered(c, t.publish(tp))
			t.verified("subscribe", c, tp)
		}
		t.delivered(c, t.publish(tp))
		t.chained(c, at)
	}},
	{"5.1 a renewal keeps the place of a callback that fails", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		at := t.subscribed(c, tp).param("rs.since")
		c.on(delivery, status(500))
		t.publish(tp)
		t.arrives(c, delivery, 1)
		t.verified("subscribe", c, tp)
		c.on(delivery, status(200))
		t.delivered(c, t.publish(tp))
		t.chained(c, at)
		t.hasAllSince(c, tp, 1)
	}},
	{"5.1 a renewal with rs.since moves the place", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp)
		t.delivered(c, t.publish(tp))
		n := len(c.got(delivery))
		v := t.verified("subscribe", c, tp, "rs.since", "start")
		t.arrives(c, delivery, n+1)
		if got := c.got(delivery)[n]; got.header.Get("RS-Previous") != "0" || !strings.HasPrefix(v.param("rs.since"), "0-") {
			t.Fatalf("rs.since is %s, and RS-Previous %s", v.param("rs.since"), got.header.Get("RS-Previous"))
		}
	}},
	{"5.3 rs.prefix chooses by the beginning of the loc", filtered("rs.prefix", "https://example.org/yes/", "https://example.org/yes/")},
	{"5.3 rs.change chooses by the kind of change", filtered("rs.change", "deleted,created", "created,deleted")},
	{"5.3 rs.type chooses by the media type", filtered("rs.type", "text/*", "text/*")},
	{"5.1 a renewal replaces the filter", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp, "rs.prefix", "https://nowhere.example.org/")
		t.verified("subscribe", c, tp)
		t.wait("a change is delivered", func() error { return oneDelivered(t, c, tp) })
	}},
	{"7 RS-Position and RS-Previous chain the deliveries", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		at := t.subscribed(c, tp).param("rs.since")
		for i := range 20 {
			must(t, http.StatusOK, http.MethodPost, tp.url, changes(fmt.Sprint("part", i), 1+i%5), asNDJSON)
		}
		t.delivered(c, "/part19/5</loc>")
		t.chained(c, at)
		all := c.got(delivery)
		got, want := all[len(all)-1].header.Get("RS-Position"), head(t, t.rshub, tp.set)
		if before, _, _ := strings.Cut(want, "-"); got != before {
			t.Errorf("RS-Position is %s at the end, and the head %s", got, want)
		}
	}},
	{"7 RS-Attempt counts, and a retry is the same", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp, "hub.secret", "a secret")
		c.on(delivery, status(500), status(404), status(200))
		t.publish(tp)
		t.arrives(c, delivery, 1)
		t.publish(tp) // it is not mixed in
		t.arrives(c, delivery, 4)
		all := c.got(delivery)
		for i, want := range []string{"1", "2", "3", "1"} {
			if got := all[i].header.Get("RS-Attempt"); got != want {
				t.Errorf("RS-Attempt of request %d is %s, not %s", i+1, got, want)
			}
		}
		for i := range 2 {
			for _, name := range []string{"RS-Position", "RS-Previous", "X-Hub-Signature", "Link", "Content-Type"} {
				if a, b := all[i].header.Get(name), all[i+1].header.Get(name); a != b || a == "" {
					t.Errorf("%s is %q, then %q", name, a, b)
				}
			}
			if !bytes.Equal(all[i].body, all[i+1].body) {
				t.Errorf("the body differs:\n%s\n%s", all[i].body, all[i+1].body)
			}
		}
	}},
	{"7 Retry-After in seconds is obeyed", retriedAfter(http.StatusServiceUnavailable, func() string { return "3" })},
	{"7 Retry-After as a date is obeyed", retriedAfter(http.StatusTooManyRequests, func() string {
		return time.Now().Add(4 * time.Second).UTC().Format(http.TimeFormat)
	})},
	{"7 retries become rarer", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp)
		c.on(delivery, status(500))
		t.publish(tp)
		all := t.arrives(c, delivery, 4)
		for i := range 2 {
			a, b := all[i+1].at.Sub(all[i].at), all[i+2].at.Sub(all[i+1].at)
			if a < 500*time.Millisecond || b < a*5/4 {
				t.Errorf("after %v comes a wait of %v", a, b)
			}
		}
	}},
	{"7 a backlog is delivered in few requests", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		at := t.subscribed(c, tp).param("rs.since")
		c.on(delivery, status(500))
		for range 200 {
			t.publish(tp)
		}
		t.arrives(c, delivery, 1)
		c.on(delivery, status(200))
		n := len(c.got(delivery))
		t.delivered(c, t.publish(tp))
		t.hasAllSince(c, tp, 1)
		t.chained(c, at)
		if more := len(c.got(delivery)) - n; more > 20 {
			t.Errorf("it took %d deliveries", more)
		}
	}},
	{"7 413 makes deliveries smaller", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		at := t.subscribed(c, tp).param("rs.since")
		c.on(delivery, func(w http.ResponseWriter, a *arrival, _ <-chan struct{}) {
			if strings.Count(string(a.body), "<loc>") > 40 {
				w.WriteHeader(http.StatusRequestEntityTooLarge)
				return
			}
			w.WriteHeader(http.StatusOK)
		})
		must(t, http.StatusOK, http.MethodPost, tp.url, changes("big", 100), asNDJSON)
		t.delivered(c, "/big/100</loc>")
		t.chained(c, at)
	}},
	{"7 410 ends the subscription", func(t *trial) {
		c, witness, tp := t.callback(""), t.callback(""), t.topic()
		t.subscribed(c, tp)
		t.subscribed(witness, tp)
		c.on(delivery, status(http.StatusGone), status(http.StatusOK))
		t.rounds(tp, witness, 1)
		t.arrives(c, delivery, 1)
		t.wait("it is not listed any more", func() error { return t.listed(tp, c, false) })
		t.nothing(c, tp, witness)
	}},
	{"7 an answer of 1 GiB is not read", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp)
		var sent countedBytes
		c.on(delivery, func(w http.ResponseWriter, a *arrival, over <-chan struct{}) {
			flood(func(*arrival) string { return "" }, 1<<30)(countingWriter{w, &sent}, a, over)
		})
		for range 3 {
			t.delivered(c, t.publish(tp))
		}
		if n := sent.Load(); n > 100<<20 {
			t.Errorf("%d bytes were taken", n)
		}
	}},
	{"5.3 a confirmation of 1 GiB is none", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		var sent countedBytes
		c.on(verification, func(w http.ResponseWriter, a *arrival, over <-chan struct{}) {
			flood((*arrival).challenge, 1<<30)(countingWriter{w, &sent}, a, over)
		})
		t.verified("subscribe", c, tp)
		t.never(c, tp)
		if n := sent.Load(); n > 100<<20 {
			t.Errorf("%d bytes were taken", n)
		}
	}},
	{"5.3 a callback with a certificate that nobody vouches for is not asked", func(t *trial) {
		c, tp := t.tlsCallback(), t.topic()
		t.accepted("subscribe", c, tp)
		t.never(c, tp)
		if n := len(c.arrivals()); n > 0 {
			t.Fatalf("%d requests arrived", n)
		}
	}},
	{"5.2 who does not renew is told that the lease has expired", func(t *trial) {
		c, tp := t.callback("?a=1"), t.topic()
		v := t.subscribed(c, tp, "hub.lease_seconds", "1")
		d := t.arrives(c, denial, 1)[0]
		if d.param("hub.topic") != tp.url || !strings.Contains(d.param("hub.reason"), "lease") || !strings.HasPrefix(d.target, pathOf(c.url)+"&") || d.query.Has("hub.challenge") {
			t.Errorf("it is told %s", d.target)
		}
		if d.at.Before(v.at.Add(time.Second)) {
			t.Errorf("it is told after %v", d.at.Sub(v.at))
		}
		t.wait("it is not listed any more", func() error { return t.listed(tp, c, false) })
	}},
	{"5.2 who is removed by the operator is told so", func(t *trial) {
		c, witness, tp := t.callback(""), t.callback(""), t.topic()
		t.subscribed(c, tp)
		t.subscribed(witness, tp)
		t.wait("it is listed", func() error { return t.listed(tp, c, true) })
		must(t, http.StatusAccepted, http.MethodDelete, t.rshub.url+"/sets/"+tp.set+"/subscriptions/"+t.idOf(tp, c), nil)
		if d := t.arrives(c, denial, 1)[0]; d.param("hub.topic") != tp.url || d.param("hub.reason") == "" {
			t.Errorf("it is told %s", d.target)
		}
		t.nothing(c, tp, witness)
	}},
	{"GET /sets/{set}/subscriptions shows all but secrets", func(t *trial) {
		c, tp := t.callback("?a=1&b=%20"), t.topic()
		t.subscribed(c, tp, "hub.secret", "never-to-be-seen", "rs.prefix", "https://example.org/")
		t.delivered(c, t.publish(tp))
		t.wait("it is listed as current", func() error {
			for _, s := range t.subscriptions(tp) {
				if s.Callback == c.url && s.Topic == tp.url && s.Signed && s.Prefix == "https://example.org/" && s.State == "current" && s.Lag.Changes == 0 {
					return nil
				}
			}
			return fmt.Errorf("%+v", t.subscriptions(tp))
		})
		if a := must(t, http.StatusOK, http.MethodGet, t.rshub.url+"/sets/"+tp.set+"/subscriptions", nil); bytes.Contains(a.body, []byte("never-to-be-seen")) {
			t.Errorf("the secret is in %s", a.body)
		}
	}},
	{"rs.status shows the subscriber how it is", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		u := t.subscribed(c, tp, "hub.secret", "never-to-be-seen").param("rs.status")
		c.on(delivery, status(503))
		t.publish(tp)
		t.arrives(c, delivery, 2)
		t.wait("the failure is shown", func() error {
			a := must(t, http.StatusOK, http.MethodGet, u, nil)
			var s shownSubscription
			decode(t, a.body, &s)
			if bytes.Contains(a.body, []byte("never-to-be-seen")) {
				t.Fatalf("the secret is in %s", a.body)
			}
			if s.Callback != c.url || s.Failed < 1 || s.Lag.Changes != 1 || len(s.Attempts) < 1 || s.Attempts[0].Status != 503 {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		for _, other := range []string{u + "x", u[:len(u)-1], strings.TrimSuffix(u, pathOf(u)) + "/subscriptions/x"} {
			if a := must(t, http.StatusNotFound, http.MethodGet, other, nil); bytes.Contains(a.body, []byte(c.url)) {
				t.Errorf("%s shows %s", other, a.body)
			}
		}
	}},
}

// TestExtras checks what rshub adds to WebSub.
func TestExtras(t *testing.T) {
	t.Parallel()
	s := startSubject(t)
	if s.rshub == nil {
		t.Skip("this is about rshub")
	}
	runChecks(t, s, extraChecks)
}
