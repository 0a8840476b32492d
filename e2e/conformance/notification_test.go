package conformance

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
	"github.com/rshub/rshub/resourcesync"
)

// notifications are the rules of Change Notification, sections 3 to 5, on the use of WebSub.
var notifications = []rule{
	{"4.1 the topic has media type, links and the latest notification", func(t *trial.Trial) {
		tp := t.Topic()
		mark := t.Publish(tp)
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			a := t.Fetch(http.StatusOK, method, tp.URL, nil)
			links := append(trial.Links(a.Header, "self"), trial.Links(a.Header, "hub")...)
			if a.Header.Get("Content-Type") != "application/xml" || !slices.Equal(links, []string{tp.URL, t.Hub.URL + "/hub"}) {
				t.Errorf("header of %s = %v, want XML with links to self and hub", method, a.Header)
			}
			if has := bytes.Contains(a.Body, []byte(mark)); has != (method == http.MethodGet) {
				t.Errorf("body of %s = %s, want the change only for GET", method, trial.Tail(string(a.Body)))
			}
		}
	}},
	{"4.1 a topic without notifications has an empty body", func(t *trial.Trial) {
		u := t.Hub.URL + "/sets/" + t.Topic().Set + "-empty"
		t.Fetch(http.StatusOK, http.MethodPut, u, []byte(`{"title":"none yet"}`))
		if a := t.Fetch(http.StatusOK, http.MethodGet, u+"/changes", nil); len(a.Body) > 0 || a.Header.Get("Content-Length") != "0" {
			t.Errorf("Content-Length = %q, body %q, want 0 and none", a.Header.Get("Content-Length"), a.Body)
		}
	}},
	{"4.1 valid notifications are delivered, invalid ones refused", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribe(c, tp)
		right, wrong := "https://example.org/submitted/"+tp.Set, "https://example.org/wrong/"+tp.Set
		links := fmt.Sprintf(`Link: <%s>; rel="self", <%s/hub>; rel="hub"`, tp.URL, t.Hub.URL)
		bad := bytes.Replace(tp.Notify(wrong), []byte(`"created"`), []byte(`"moved"`), 1)
		if a := t.Send(http.MethodPost, t.Hub.URL+"/hub", bad, hubtest.AsXML, links); a.Status/100 != 4 {
			t.Errorf("invalid notification = %d, want 4xx: %s", a.Status, a.Body)
		}
		t.Fetch(http.StatusOK, http.MethodPost, t.Hub.URL+"/hub", tp.Notify(right), hubtest.AsXML, links)
		t.WaitDelivery(c, trial.MarkOf(right))
		if n := c.CountDeliveries(trial.MarkOf(wrong)); n > 0 {
			t.Errorf("invalid notification was delivered %d times", n)
		}
	}},
	{"3 a delivery has its capability, from, until and a link to the Capability List", func(t *trial.Trial) {
		d, _ := someDelivery(t)
		doc := t.Notification(d)
		if doc.Capability != resourcesync.ChangeNotification || doc.Index || doc.From.IsZero() || doc.Until.Before(doc.From) {
			t.Errorf("got capability %q, index %v, from %v until %v", doc.Capability, doc.Index, doc.From, doc.Until)
		}
		for _, l := range doc.Links {
			if up := l.Rel == "up"; up && read(t, l.Href).Capability != resourcesync.CapabilityList {
				t.Errorf("rel=up = %s, want a Capability List", l.Href)
			}
		}
	}},
	{"3 and 4.3 intervals are consecutive, changes unique and in order", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribe(c, tp)
		c.Respond(trial.Delivery, trial.Status(200), trial.Status(500), trial.HangUp, trial.Status(200), trial.Status(429), trial.Status(200))
		var want, got []string
		for i := range 60 {
			locs := numbered(fmt.Sprint(tp.Set, "/part", i), 1+i%4)
			want = append(want, locs...)
			t.PublishLocs(tp, locs...)
		}
		t.WaitDelivery(c, trial.MarkOf(want[len(want)-1]))
		var until time.Time
		for i, d := range c.Requests(trial.Delivery) {
			doc := t.Notification(d)
			if doc.Until.IsZero() || !until.IsZero() && !doc.From.Equal(until) {
				t.Errorf("delivery %d: got from %v, want %v", i+1, doc.From, until)
			}
			if d.Status/100 != 2 {
				continue
			}
			last := doc.From
			for _, it := range doc.Items {
				if it.Datetime.Before(last) || it.Datetime.After(doc.Until) {
					t.Errorf("delivery %d: got %s at %v, want after %v, within %v to %v", i+1, it.Loc, it.Datetime, last, doc.From, doc.Until)
				}
				got, last = append(got, it.Loc), it.Datetime
			}
			until = doc.Until
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %d changes, want the %d published ones in order: %q", len(got), len(want), got)
		}
	}},
	{"4.2 the default lease is 300 seconds to a month", func(t *trial.Trial) {
		tp := t.Topic()
		for _, asked := range []string{"-", "999999999"} {
			v := t.Subscribe(t.Callback(""), tp, "hub.lease_seconds", asked)
			if lease := trial.LeaseOf(&v); lease < 300 || lease > 2_678_400 {
				t.Errorf("lease for %s = %d seconds, want 300 to 2678400", asked, lease)
			}
		}
	}},
	{"5 the Capability List names topic and hub", func(t *trial.Trial) {
		tp := t.Topic()
		for _, list := range read(t, t.Hub.URL+"/.well-known/resourcesync").Items {
			if !strings.Contains(list.Loc, "/"+tp.Set+"/") {
				continue
			}
			for _, it := range read(t, list.Loc).Items {
				for _, l := range it.Links {
					if it.Capability == resourcesync.ChangeNotification && it.Loc == tp.URL && l.Rel == "hub" && l.Href == t.Hub.URL+"/hub" {
						return
					}
				}
			}
		}
		t.Error("Capability List has no hub")
	}},
	{"draft of 2012: POST /subscribe accepts callbackURI", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		form := trial.Form("-", c.URL, tp.URL, "hub.mode", "-", "hub.callback", "-", "callbackURI", c.URL)
		t.Fetch(http.StatusAccepted, http.MethodPost, t.Hub.URL+"/subscribe", []byte(form.Encode()), trial.AsForm)
		t.WaitRequests(c, trial.Verification, 1)
		wantOnce(t, tp, c)
	}},
}

// numbered returns the locs of n numbered resources.
func numbered(prefix string, n int) (locs []string) {
	for i := range n {
		locs = append(locs, fmt.Sprintf("https://example.org/%s/%d", prefix, i+1))
	}
	return locs
}

// read fetches a ResourceSync document.
func read(t *trial.Trial, u string) *trial.List {
	t.Helper()
	l, err := trial.ReadList(t.Fetch(http.StatusOK, http.MethodGet, u, nil).Body)
	if err != nil {
		t.Fatalf("%s: %v", u, err)
	}
	return l
}
