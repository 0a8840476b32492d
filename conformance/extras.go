package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/conformance/trial"
)

// What rshub promises beyond WebSub: requests and positions. Sections are of
// WebSub where it leaves room for them.
var extraChecks = []check{
	{extraLevel, "5.1.2 what is wrong is named", func(t *trial.Trial) {
		tp := t.Topic()
		c := t.Callback("")
		for _, test := range []struct {
			param, value string
			status       int
		}{
			{"hub.callback", "-", 400}, {"hub.callback", "ftp://example.org/", 400}, {"hub.callback", "http://user:secret@127.0.0.1/", 400},
			{"hub.callback", c.URL + "#fragment", 400}, {"hub.callback", c.URL + "/" + strings.Repeat("x", 2048), 400}, {"hub.callback", c.URL + "/a b", 400},
			{"hub.callback", c.URL + "/ä", 400}, {"hub.callback", "http://127.0.0.1:25/", 400}, {"hub.callback", t.Hub.URL, 400},
			{"hub.mode", "-", 400}, {"hub.mode", "both", 400},
			{"hub.topic", "-", 400}, {"hub.topic", "https://example.org/sets/a/changes", 404}, {"hub.topic", t.Hub.Base() + "/sets/A%20B/changes", 404},
			{"hub.topic", t.Hub.Base() + "/sets/" + tp.Set, 404}, {"hub.topic", tp.URL + "/", 404}, {"hub.topic", tp.URL + "?since=start", 404},
			{"hub.secret", strings.Repeat("s", 200), 400},
			{"hub.lease_seconds", "0", 400}, {"hub.lease_seconds", "-1", 400}, {"hub.lease_seconds", "1.5", 400}, {"hub.lease_seconds", "day", 400},
			{"rs.since", "yesterday", 400}, {"rs.since", "2999-01-01T00:00:00Z", 400}, {"rs.since", "7-7", 410},
			{"rs.change", "moved", 400}, {"rs.type", "text", 400}, {"rs.tag", "two words", 400}, {"rs.rel", "Up", 400}, {"rs.prefix", strings.Repeat("x", 2049), 400},
		} {
			a := t.Post(trial.Form("subscribe", c.URL, tp.URL, test.param, test.value).Encode())
			text := string(a.Body)
			if a.Status != test.status || test.status == 400 && !strings.Contains(text, test.param) || strings.Count(strings.TrimSpace(text), "\n") > 0 ||
				!strings.HasPrefix(a.Header.Get("Content-Type"), "text/plain") || strings.Contains(text, "user:secret") {
				t.Errorf("%s=%.60s is answered %d, %s: %s", test.param, test.value, a.Status, a.Header.Get("Content-Type"), text)
			}
		}
	}},
	{extraLevel, "5.1 a parameter that is there twice is refused", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		for _, name := range []string{"hub.callback", "hub.mode", "hub.topic", "hub.secret", "hub.lease_seconds", "rs.since", "rs.prefix"} {
			f := trial.Form("subscribe", c.URL, tp.URL, "hub.secret", "s", "hub.lease_seconds", "300", "rs.since", "now", "rs.prefix", "https://")
			f.Add(name, f.Get(name))
			if a := t.Post(f.Encode()); a.Status != http.StatusBadRequest || !strings.Contains(string(a.Body), name) {
				t.Errorf("%s is answered %d: %s", name, a.Status, a.Body)
			}
		}
	}},
	{extraLevel, "5.1 a form has at most 64 KiB", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		if a := t.Request("subscribe", c, tp, "foo", strings.Repeat("x", 64<<10)); a.Status != http.StatusRequestEntityTooLarge {
			t.Fatalf("it is answered %d: %s", a.Status, a.Body)
		}
	}},
	{extraLevel, "5.1 a form is UTF-8, and well-formed", func(t *trial.Trial) {
		for _, body := range []string{"hub.mode=subscribe&hub.topic=%zz", "hub.mode=subscribe&hub.secret=%ff", "%ff=x"} {
			if a := t.Post(body); a.Status != http.StatusBadRequest {
				t.Errorf("%s is answered %d: %s", body, a.Status, a.Body)
			}
		}
	}},
	{extraLevel, "5.1 parameters in the hub's URL do not count", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		if a := t.PostTo(t.Hub.URL+"?"+trial.Form("subscribe", c.URL, tp.URL).Encode(), ""); a.Status != http.StatusBadRequest {
			t.Fatalf("it is answered %d: %s", a.Status, a.Body)
		}
	}},
	{extraLevel, "5.3 the lease is 10 days, and is kept within the bounds", func(t *trial.Trial) {
		for asked, want := range map[string]int64{"-": 864_000, "": 864_000, "99999999999999999999": 2_678_400, "2678401": 2_678_400, "1": 1, "3600": 3600} {
			if v := t.Verified("subscribe", t.Callback(""), t.Topic(), "hub.lease_seconds", asked); trial.LeaseOf(&v) != want {
				t.Errorf("for %q seconds, %d are granted, not %d", asked, trial.LeaseOf(&v), want)
			}
		}
	}},
	{extraLevel, "5.1 to unsubscribe without a subscription is 404, and nobody is asked", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		if a := t.Request("unsubscribe", c, tp); a.Status != http.StatusNotFound {
			t.Fatalf("it is answered %d: %s", a.Status, a.Body)
		}
		t.Never(c, tp)
		if n := len(c.Arrivals()); n > 0 {
			t.Fatalf("%d requests arrived", n)
		}
	}},
	{extraLevel, "6 hub.mode=publish knows hub.url and hub.topic", func(t *trial.Trial) {
		tp := t.Topic()
		a := t.Post(url.Values{"hub.mode": {"publish"}, "hub.topic": {tp.URL}}.Encode())
		b := t.Post(url.Values{"hub.mode": {"publish"}, "hub.url": {tp.URL}}.Encode())
		if a.Status != b.Status || a.Status != http.StatusNoContent && a.Status/100 != 4 {
			t.Errorf("one is answered %d: %s\nthe other %d: %s", a.Status, a.Body, b.Status, b.Body)
		}
		for _, name := range []string{"hub.topic", "hub.url"} {
			if a := t.Post(url.Values{"hub.mode": {"publish"}, name: {"https://example.org/"}}.Encode()); a.Status != http.StatusNotFound || !strings.Contains(string(a.Body), name) {
				t.Errorf("an unknown topic in %s is answered %d: %s", name, a.Status, a.Body)
			}
		}
		several := url.Values{"hub.mode": {"publish"}, "hub.url": {tp.URL, "https://example.org/wrong", tp.URL}}
		if a := t.Post(several.Encode()); a.Status != http.StatusNotFound || !strings.Contains(string(a.Body), "https://example.org/wrong") {
			t.Errorf("several hub.url, one of them wrong, are answered %d: %s", a.Status, a.Body)
		}
		if a := t.Post("hub.mode=publish"); a.Status != http.StatusBadRequest {
			t.Errorf("no topic is answered %d: %s", a.Status, a.Body)
		}
	}},
	{extraLevel, "POST /subscribe takes callbackURI", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		f := url.Values{"callbackURI": {c.URL}, "hub.topic": {tp.URL}}
		if a := t.PostTo(t.Hub.Base()+"/subscribe", f.Encode()); a.Status != http.StatusAccepted {
			t.Fatalf("it is answered %d: %s", a.Status, a.Body)
		}
		t.Arrives(c, trial.Verification, 1)
		t.Delivered(c, t.Publish(tp))
	}},
	{extraLevel, "5.3 rs.since is the head when the request was accepted", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		_, at := t.Ends(tp.Set)
		may := make(chan struct{})
		c.On(trial.Verification, trial.HangUntil(may, trial.Confirm))
		t.Accepted("subscribe", c, tp)
		mark := t.Publish(tp) // before the subscriber confirms
		v := t.Arrives(c, trial.Verification, 1)[0]
		close(may)
		if v.Param("rs.since") != at {
			t.Errorf("rs.since is %s, and the head was %s", v.Param("rs.since"), at)
		}
		t.Delivered(c, mark)
		chained(t, c, at)
	}},
	{extraLevel, "5.3 rs.since=start brings all that is kept", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Publish(tp)
		floor, _ := t.Ends(tp.Set)
		if v := t.Subscribed(c, tp, "rs.since", "start"); v.Param("rs.since") != floor {
			t.Errorf("rs.since is %s, and the floor %s", v.Param("rs.since"), floor)
		}
		hasAll(t, c, tp)
		chained(t, c, floor)
	}},
	{extraLevel, "5.3 rs.since takes a cursor, which is exclusive", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		_, at := t.Ends(tp.Set)
		mark := t.Publish(tp)
		if v := t.Subscribed(c, tp, "rs.since", at); v.Param("rs.since") != at {
			t.Errorf("rs.since is %s, not %s", v.Param("rs.since"), at)
		}
		t.Delivered(c, mark)
		chained(t, c, at)
	}},
	{extraLevel, "5.3 rs.since takes a datetime, which is inclusive", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Publish(tp)
		second := t.Memory(tp.Set)[1]
		t.Subscribed(c, tp, "rs.since", second.Datetime)
		t.Delivered(c, fmt.Sprintf("/%s/2</loc>", tp.Set))
		chained(t, c, "1-")
	}},
	{extraLevel, "5.3 rs.renewed says whether there was a subscription", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		one := t.Subscribed(c, tp)
		t.Wait("a change is delivered", func() error { return trial.OneDelivered(t, c, tp) }) // it is there
		two := t.Verified("subscribe", c, tp)
		if one.Param("rs.renewed") != "false" || two.Param("rs.renewed") != "true" {
			t.Fatalf("rs.renewed is %q, then %q", one.Param("rs.renewed"), two.Param("rs.renewed"))
		}
	}},
	{extraLevel, "5.1 a renewal keeps the place", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		at := t.Subscribed(c, tp).Param("rs.since")
		for range 5 {
			t.Delivered(c, t.Publish(tp))
			t.Verified("subscribe", c, tp)
		}
		t.Delivered(c, t.Publish(tp))
		chained(t, c, at)
	}},
	{extraLevel, "5.1 a renewal keeps the place of a callback that fails", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		at := t.Subscribed(c, tp).Param("rs.since")
		c.On(trial.Delivery, trial.Status(500))
		t.Publish(tp)
		t.Arrives(c, trial.Delivery, 1)
		t.Verified("subscribe", c, tp)
		c.On(trial.Delivery, trial.Status(200))
		t.Delivered(c, t.Publish(tp))
		chained(t, c, at)
		hasAllSince(t, c, tp, 1)
	}},
	{extraLevel, "5.1 a renewal with rs.since moves the place", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		t.Delivered(c, t.Publish(tp))
		n := len(c.Got(trial.Delivery))
		v := t.Verified("subscribe", c, tp, "rs.since", "start")
		t.Arrives(c, trial.Delivery, n+1)
		if got := c.Got(trial.Delivery)[n]; got.Header.Get("RS-Previous") != "0" || !strings.HasPrefix(v.Param("rs.since"), "0-") {
			t.Fatalf("rs.since is %s, and RS-Previous %s", v.Param("rs.since"), got.Header.Get("RS-Previous"))
		}
	}},
	{extraLevel, "5.3 rs.prefix chooses by the beginning of the loc", filtered("rs.prefix", "https://example.org/yes/", "https://example.org/yes/")},
	{extraLevel, "5.3 rs.change chooses by the kind of change", filtered("rs.change", "deleted,created", "created,deleted")},
	{extraLevel, "5.3 rs.type chooses by the media type", filtered("rs.type", "text/*", "text/*")},
	{extraLevel, "5.3 rs.tag chooses by tags", filtered("rs.tag", "frogs,fish", "fish,frogs")},
	{extraLevel, "5.3 rs.rel chooses by links", filtered("rs.rel", "via,collection", "collection,via")},
	{extraLevel, "5.1 a renewal replaces the filter", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp, "rs.prefix", "https://nowhere.example.org/")
		t.Verified("subscribe", c, tp)
		t.Wait("a change is delivered", func() error { return trial.OneDelivered(t, c, tp) })
	}},
	{extraLevel, "7 RS-Position and RS-Previous chain the deliveries", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		at := t.Subscribed(c, tp).Param("rs.since")
		for i := range 20 {
			t.PublishLocs(tp, trial.Numbered(fmt.Sprint("part", i), 1+i%5)...)
		}
		t.Delivered(c, "/part19/5</loc>")
		chained(t, c, at)
		all := c.Got(trial.Delivery)
		_, want := t.Ends(tp.Set)
		got := all[len(all)-1].Header.Get("RS-Position")
		if before, _, _ := strings.Cut(want, "-"); got != before {
			t.Errorf("RS-Position is %s at the end, and the head %s", got, want)
		}
	}},
	{extraLevel, "7 RS-Attempt counts, and a retry is the same", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp, "hub.secret", "a secret")
		c.On(trial.Delivery, trial.Status(500), trial.Status(404), trial.Status(200))
		t.Publish(tp)
		t.Arrives(c, trial.Delivery, 1)
		t.Publish(tp) // it is not mixed in
		t.Arrives(c, trial.Delivery, 4)
		all := c.Got(trial.Delivery)
		for i, want := range []string{"1", "2", "3", "1"} {
			if got := all[i].Header.Get("RS-Attempt"); got != want {
				t.Errorf("RS-Attempt of request %d is %s, not %s", i+1, got, want)
			}
		}
		for i := range 2 {
			for _, name := range []string{"RS-Position", "RS-Previous", "X-Hub-Signature", "Link", "Content-Type"} {
				if a, b := all[i].Header.Get(name), all[i+1].Header.Get(name); a != b || a == "" {
					t.Errorf("%s is %q, then %q", name, a, b)
				}
			}
			if !bytes.Equal(all[i].Body, all[i+1].Body) {
				t.Errorf("the body differs:\n%s\n%s", all[i].Body, all[i+1].Body)
			}
		}
	}},
	{extraLevel, "7 Retry-After in seconds is obeyed", retriedAfter(http.StatusServiceUnavailable, func() string { return "3" })},
	{extraLevel, "7 Retry-After as a date is obeyed", retriedAfter(http.StatusTooManyRequests, func() string {
		return time.Now().Add(4 * time.Second).UTC().Format(http.TimeFormat)
	})},
	{extraLevel, "7 retries become rarer", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		c.On(trial.Delivery, trial.Status(500))
		t.Publish(tp)
		all := t.Arrives(c, trial.Delivery, 4)
		for i := range 2 {
			a, b := all[i+1].At.Sub(all[i].At), all[i+2].At.Sub(all[i+1].At)
			if a < 500*time.Millisecond || b < a*5/4 {
				t.Errorf("after %v comes a wait of %v", a, b)
			}
		}
	}},
	{extraLevel, "7 a backlog is delivered in few requests", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		at := t.Subscribed(c, tp).Param("rs.since")
		c.On(trial.Delivery, trial.Status(500))
		for range 200 {
			t.Publish(tp)
		}
		t.Arrives(c, trial.Delivery, 1)
		c.On(trial.Delivery, trial.Status(200))
		n := len(c.Got(trial.Delivery))
		t.Delivered(c, t.Publish(tp))
		hasAllSince(t, c, tp, 1)
		chained(t, c, at)
		if more := len(c.Got(trial.Delivery)) - n; more > 20 {
			t.Errorf("it took %d deliveries", more)
		}
	}},
	{extraLevel, "7 413 makes deliveries smaller", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		at := t.Subscribed(c, tp).Param("rs.since")
		c.On(trial.Delivery, func(w http.ResponseWriter, a *trial.Arrival, _ <-chan struct{}) {
			if strings.Count(string(a.Body), "<loc>") > 40 {
				w.WriteHeader(http.StatusRequestEntityTooLarge)
				return
			}
			w.WriteHeader(http.StatusOK)
		})
		t.PublishLocs(tp, trial.Numbered("big", 100)...)
		t.Delivered(c, "/big/100</loc>")
		chained(t, c, at)
	}},
	{extraLevel, "7 410 ends the subscription", func(t *trial.Trial) {
		c, witness, tp := t.Callback(""), t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		t.Subscribed(witness, tp)
		c.On(trial.Delivery, trial.Status(http.StatusGone), trial.Status(http.StatusOK))
		t.Rounds(tp, witness, 1)
		t.Arrives(c, trial.Delivery, 1)
		t.Wait("it is not listed any more", func() error { return t.Listed(tp, c, false) })
		t.Nothing(c, tp, witness)
	}},
	{extraLevel, "7 an answer of 1 GiB is not read", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		var sent atomic.Int64
		c.On(trial.Delivery, func(w http.ResponseWriter, a *trial.Arrival, over <-chan struct{}) {
			trial.Flood(func(*trial.Arrival) string { return "" }, 1<<30)(countingWriter{w, &sent}, a, over)
		})
		for range 3 {
			t.Delivered(c, t.Publish(tp))
		}
		if n := sent.Load(); n > 100<<20 {
			t.Errorf("%d bytes were taken", n)
		}
	}},
	{extraLevel, "5.3 a confirmation of 1 GiB is none", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		var sent atomic.Int64
		c.On(trial.Verification, func(w http.ResponseWriter, a *trial.Arrival, over <-chan struct{}) {
			trial.Flood((*trial.Arrival).Challenge, 1<<30)(countingWriter{w, &sent}, a, over)
		})
		t.Verified("subscribe", c, tp)
		t.Never(c, tp)
		if n := sent.Load(); n > 100<<20 {
			t.Errorf("%d bytes were taken", n)
		}
	}},
	{extraLevel, "5.3 a callback with a certificate that nobody vouches for is not asked", func(t *trial.Trial) {
		c, tp := t.TLSCallback(), t.Topic()
		t.Accepted("subscribe", c, tp)
		t.Never(c, tp)
		if n := len(c.Arrivals()); n > 0 {
			t.Fatalf("%d requests arrived", n)
		}
	}},
	{extraLevel, "5.2 who does not renew is told that the lease has expired", func(t *trial.Trial) {
		c, tp := t.Callback("?a=1"), t.Topic()
		asked := time.Now() // the lease is counted from when the hub made the verification request, which was later
		t.Subscribed(c, tp, "hub.lease_seconds", "1")
		d := t.Arrives(c, trial.Denial, 1)[0]
		if d.Param("hub.topic") != tp.URL || !strings.Contains(d.Param("hub.reason"), "lease") || !strings.HasPrefix(d.Target, trial.PathOf(c.URL)+"&") || d.Query.Has("hub.challenge") {
			t.Errorf("it is told %s", d.Target)
		}
		if d.At.Before(asked.Add(time.Second)) {
			t.Errorf("it is told after %v", d.At.Sub(asked))
		}
		t.Wait("it is not listed any more", func() error { return t.Listed(tp, c, false) })
	}},
	{extraLevel, "5.2 who is removed by the operator is told so", func(t *trial.Trial) {
		c, witness, tp := t.Callback(""), t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		t.Subscribed(witness, tp)
		t.Wait("it is listed", func() error { return t.Listed(tp, c, true) })
		t.Fetch(http.StatusAccepted, http.MethodDelete, t.Hub.Base()+"/sets/"+tp.Set+"/subscriptions/"+t.IDOf(tp, c), nil)
		if d := t.Arrives(c, trial.Denial, 1)[0]; d.Param("hub.topic") != tp.URL || d.Param("hub.reason") == "" {
			t.Errorf("it is told %s", d.Target)
		}
		t.Nothing(c, tp, witness)
	}},
	{extraLevel, "GET /sets/{set}/subscriptions shows all but secrets", func(t *trial.Trial) {
		c, tp := t.Callback("?a=1&b=%20"), t.Topic()
		t.Subscribed(c, tp, "hub.secret", "never-to-be-seen", "rs.prefix", "https://example.org/")
		t.Delivered(c, t.Publish(tp))
		t.Wait("it is listed as current", func() error {
			for _, s := range t.Subscriptions(tp.Set) {
				if s.Callback == c.URL && s.Topic == tp.URL && s.Signed && s.Prefix == "https://example.org/" && s.State == "current" && s.Lag.Changes == 0 {
					return nil
				}
			}
			return fmt.Errorf("%+v", t.Subscriptions(tp.Set))
		})
		if a := t.Fetch(http.StatusOK, http.MethodGet, t.Hub.Base()+"/sets/"+tp.Set+"/subscriptions", nil); bytes.Contains(a.Body, []byte("never-to-be-seen")) {
			t.Errorf("the secret is in %s", a.Body)
		}
	}},
	{extraLevel, "rs.status shows the subscriber how it is", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		u := t.Subscribed(c, tp, "hub.secret", "never-to-be-seen").Param("rs.status")
		c.On(trial.Delivery, trial.Status(503))
		t.Publish(tp)
		t.Arrives(c, trial.Delivery, 2)
		t.Wait("the failure is shown", func() error {
			a := t.Fetch(http.StatusOK, http.MethodGet, u, nil)
			var s trial.Subscription
			if err := json.Unmarshal(a.Body, &s); err != nil {
				t.Fatalf("%v: %s", err, trial.Tail(string(a.Body)))
			}
			if bytes.Contains(a.Body, []byte("never-to-be-seen")) {
				t.Fatalf("the secret is in %s", a.Body)
			}
			if s.Callback != c.URL || s.Failed < 1 || s.Lag.Changes != 1 || len(s.Attempts) < 1 || s.Attempts[0].Status != 503 {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		for _, other := range []string{u + "x", u[:len(u)-1], strings.TrimSuffix(u, trial.PathOf(u)) + "/subscriptions/x"} {
			if a := t.Fetch(http.StatusNotFound, http.MethodGet, other, nil); bytes.Contains(a.Body, []byte(c.URL)) {
				t.Errorf("%s shows %s", other, a.Body)
			}
		}
	}},
}
