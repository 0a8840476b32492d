package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// Change Notification 1.0.1, sections 3 to 5: what goes over WebSub.
var notificationChecks = []check{
	{"CN 4.1 GET on the topic answers with its media type and links", topicAnswers(http.MethodGet)},
	{"CN 4.1 HEAD on the topic answers with its media type and links", topicAnswers(http.MethodHead)},
	{"CN 4.1 a topic without a notification has an empty body", func(t *trial) {
		u := t.rshub.url + "/sets/without-changes"
		must(t, http.StatusOK, http.MethodPut, u, []byte(`{"title":"none yet"}`))
		if a := must(t, http.StatusOK, http.MethodGet, u+"/changes", nil); len(a.body) > 0 || a.header.Get("Content-Length") != "0" {
			t.Fatalf("Content-Length is %q, the body %q", a.header.Get("Content-Length"), a.body)
		}
	}},
	{"CN 4.1 the topic has the latest notification", func(t *trial) {
		tp := t.topic()
		mark := t.publish(tp)
		if a := must(t, http.StatusOK, http.MethodGet, tp.url, nil); !bytes.Contains(a.body, []byte(mark)) {
			t.Fatalf("it is %s", tail(string(a.body)))
		}
	}},
	{"CN 4.1 what is submitted to the hub is answered 200, and delivered", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp)
		must(t, http.StatusOK, http.MethodPost, t.hubURL, []byte(xmlOf(goodURL)), asXML, t.links(tp))
		t.delivered(c, "<loc>https://example.org/1</loc>")
	}},
	{"CN 4.1 what is wrong is answered 4xx, and not delivered", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp)
		bad := strings.Replace(xmlOf(goodURL), "created", "moved", 1)
		must(t, http.StatusBadRequest, http.MethodPost, t.hubURL, []byte(bad), asXML, t.links(tp))
		t.delivered(c, t.publish(tp))
		if n := c.times("<loc>https://example.org/1</loc>"); n > 0 {
			t.Fatalf("it is delivered %d times", n)
		}
	}},
	{"CN 3 the delivery is a urlset with capability change-notification", func(t *trial) {
		doc := t.notification(t.someDelivery())
		if doc.Capability != resourcesync.ChangeNotification || doc.Index {
			t.Fatalf("capability is %q; index: %v", doc.Capability, doc.Index)
		}
	}},
	{"CN 3 the notification has from and until", func(t *trial) {
		doc := t.notification(t.someDelivery())
		if doc.From.IsZero() || doc.Until.IsZero() || doc.Until.Before(doc.From) {
			t.Fatalf("it is from %v until %v", doc.From, doc.Until)
		}
	}},
	{"CN 3 if the notification points up, then to the Capability List", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp)
		doc := t.notification(t.delivered(c, t.publish(tp)))
		for _, l := range doc.Links {
			if l.Rel == "up" {
				if got := document(t, l.Href).Capability; got != resourcesync.CapabilityList {
					t.Fatalf("rel=up is %s, a %s", l.Href, got)
				}
			}
		}
	}},
	{"CN 3 entries are in chronological order, within the interval", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp)
		must(t, http.StatusOK, http.MethodPost, tp.url, changes("many", 500), asNDJSON)
		t.delivered(c, "/many/500</loc>")
		for _, d := range c.got(delivery) {
			doc := t.notification(d)
			last := doc.From
			for i, it := range doc.Items {
				if it.Datetime.Before(last) || it.Datetime.After(doc.Until) {
					t.Fatalf("entry %d is of %v, after %v, in %v to %v", i+1, it.Datetime, last, doc.From, doc.Until)
				}
				last = it.Datetime
			}
		}
	}},
	{"CN 3 intervals are consecutive, and do not overlap", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp)
		for i := range 10 {
			must(t, http.StatusOK, http.MethodPost, tp.url, changes(fmt.Sprint("part", i), 1+i*7), asNDJSON)
		}
		t.delivered(c, "/part9/64</loc>")
		t.consecutive(c.got(delivery))
	}},
	{"CN 3 intervals are consecutive across failures", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp)
		c.on(delivery, status(200), status(500), hangUp, status(503), status(200))
		for range 10 {
			t.publish(tp)
		}
		t.delivered(c, t.publish(tp))
		t.consecutive(c.got(delivery))
	}},
	{"CN 4.3 every change arrives once and in order", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp)
		c.on(delivery, status(200), status(500), status(200), status(429), status(200))
		var want []string
		for i := range 60 {
			n := 1 + i%4
			must(t, http.StatusOK, http.MethodPost, tp.url, changes(fmt.Sprint("part", i), n), asNDJSON)
			for j := range n {
				want = append(want, fmt.Sprintf("https://example.org/part%d/%d", i, j+1))
			}
		}
		t.delivered(c, "/part59/4</loc>")
		var got []string
		for _, d := range c.got(delivery) {
			if d.status/100 == 2 {
				for _, it := range t.notification(d).Items {
					got = append(got, it.Loc)
				}
			}
		}
		if a, b := strings.Join(got, "\n"), strings.Join(want, "\n"); a != b {
			t.Fatalf("%d changes arrived, not %d as they were published:\n%s", len(got), len(want), tail(a))
		}
	}},
	{"CN 3 a large batch is split into urlsets", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp)
		const n = 20_000
		must(t, http.StatusOK, http.MethodPost, tp.url, changes("large", n), asNDJSON)
		t.delivered(c, fmt.Sprintf("/large/%d</loc>", n))
		count := 0
		for _, d := range c.got(delivery) {
			if d.status/100 != 2 {
				continue
			}
			doc := t.notification(d)
			if count += len(doc.Items); len(doc.Items) > 50_000 || len(d.body) > 50_000_000 {
				t.Errorf("a notification has %d entries and %d bytes", len(doc.Items), len(d.body))
			}
		}
		if count != n {
			t.Fatalf("%d changes arrived, not %d", count, n)
		}
	}},
	{"CN 3 all that describes a change arrives", func(t *trial) {
		c, tp := t.callback(""), t.topic()
		t.subscribed(c, tp)
		l := generatedLoad(t, 300)
		must(t, http.StatusOK, http.MethodPost, tp.url, l.ndjson(0, len(l.lines)), asNDJSON)
		var got []entry
		t.wait("all changes arrive", func() error {
			got = nil
			for _, d := range c.got(delivery) {
				if d.status/100 == 2 {
					got = append(got, t.notification(d).entries...)
				}
			}
			if len(got) < len(l.texts) {
				return fmt.Errorf("%d did", len(got))
			}
			return nil
		})
		sameTexts(t, "the callback", got, l.texts)
	}},
	{"CN 4.2 the lease is 300 seconds to a month, if nothing else is asked for", func(t *trial) {
		for _, asked := range []string{"-", "999999999"} {
			v := t.verified("subscribe", t.callback(""), t.topic(), "hub.lease_seconds", asked)
			if lease := leaseOf(&v); lease < 300 || lease > 2_678_400 {
				t.Errorf("%s: %d seconds are granted", asked, lease)
			}
		}
	}},
	{"CN 5 the Capability List names topic and hub, which is all that it takes", func(t *trial) {
		tp := t.topic()
		found := ""
		for _, it := range document(t, t.rshub.url+"/sets/"+tp.set+"/capabilitylist.xml").Items {
			for _, l := range it.Links {
				if it.Capability == resourcesync.ChangeNotification && l.Rel == "hub" {
					tp.url, found = it.Loc, l.Href
				}
			}
		}
		if found == "" {
			t.Fatal("it names no hub")
		}
		c := t.callback("")
		if a := t.postTo(found, form("subscribe", c.url, tp.url).Encode()); a.status != http.StatusAccepted {
			t.Fatalf("it is answered %d: %s", a.status, a.body)
		}
		t.arrives(c, verification, 1)
		t.delivered(c, t.publish(tp))
	}},
	{"CN 4.4 who unsubscribes is verified, and gets nothing more", func(t *trial) {
		c, witness, tp := t.callback(""), t.callback(""), t.topic()
		t.subscribed(witness, tp)
		t.subscribed(c, tp)
		t.verified("unsubscribe", c, tp)
		t.nothing(c, tp, witness)
	}},
}

// TestChangeNotification checks rshub against the ResourceSync Change
// Notification specification.
func TestChangeNotification(t *testing.T) {
	t.Parallel()
	s := startSubject(t)
	if s.rshub == nil {
		t.Skip("this is about rshub")
	}
	runChecks(t, s, notificationChecks)
}

// topicAnswers is a check of what the topic's URL says.
func topicAnswers(method string) func(t *trial) {
	return func(t *trial) {
		tp := t.topic()
		a := must(t, http.StatusOK, method, tp.url, nil)
		self, hubs := linksIn(a.header, "self"), linksIn(a.header, "hub")
		if ct := a.header.Get("Content-Type"); ct != "application/xml" || len(self) != 1 || self[0] != tp.url || len(hubs) != 1 || hubs[0] != t.hubURL {
			t.Fatalf("Content-Type is %q, Link %q", ct, a.header["Link"])
		}
	}
}

// links is the Link field of a source.
func (t *trial) links(tp *topic) string {
	return fmt.Sprintf(`Link: <%s>; rel="self", <%s>; rel="hub"`, tp.url, t.hubURL)
}

// notification reads a delivery.
func (t *trial) notification(d arrival) *list {
	l, err := readNotification(&d)
	if err != nil {
		t.Fatalf("%v: %s", err, tail(string(d.body)))
	}
	return l
}

func readNotification(d *arrival) (*list, error) {
	doc, err := resourcesync.ReadXML(bytes.NewReader(d.body), resourcesync.Limits{})
	if err != nil {
		return nil, err
	}
	l := &list{Document: doc}
	return l, l.readPlaces(d.body)
}

// consecutive checks that each delivery that was taken begins where the one
// before it ended.
func (t *trial) consecutive(all []arrival) {
	var until time.Time
	for i, d := range all {
		doc := t.notification(d)
		if doc.Until.IsZero() || !until.IsZero() && !doc.From.Equal(until) {
			t.Errorf("delivery %d is from %v, and the one before it was until %v", i+1, doc.From, until)
		}
		if d.status/100 == 2 {
			until = doc.Until
		}
	}
	if len(all) < 2 {
		t.Errorf("there are %d deliveries", len(all))
	}
}
