package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/rshub/rshub/conformance/trial"
	"github.com/rshub/rshub/resourcesync"
)

// Change Notification 1.0.1, sections 3 to 5: what goes over WebSub.
var notificationChecks = []check{
	{mustLevel, "CN 4.1 GET on the topic answers with its media type and links", topicAnswers(http.MethodGet)},
	{mustLevel, "CN 4.1 HEAD on the topic answers with its media type and links", topicAnswers(http.MethodHead)},
	{shouldLevel, "CN 4.1 a topic without a notification has an empty body", func(t *trial.Trial) {
		if !t.Hub.IsRshub {
			t.Skip("how to make a topic without changes is only known of an rshub")
		}
		u := t.Hub.Base() + "/sets/without-changes-" + trial.NewName()
		t.Fetch(http.StatusOK, http.MethodPut, u, []byte(`{"title":"none yet"}`))
		if a := t.Fetch(http.StatusOK, http.MethodGet, u+"/changes", nil); len(a.Body) > 0 || a.Header.Get("Content-Length") != "0" {
			t.Fatalf("Content-Length is %q, the body %q", a.Header.Get("Content-Length"), a.Body)
		}
	}},
	{mustLevel, "CN 4.1 the topic has the latest notification", func(t *trial.Trial) {
		tp := t.Topic()
		mark := t.Publish(tp)
		if a := t.Fetch(http.StatusOK, http.MethodGet, tp.URL, nil); !bytes.Contains(a.Body, []byte(mark)) {
			t.Fatalf("it is %s", trial.Tail(string(a.Body)))
		}
	}},
	{mustLevel, "CN 4.1 what is submitted to the hub is answered 200, and delivered", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		loc := "https://example.org/submitted/" + trial.NewName()
		if a := t.Submit(tp, tp.Notify(trial.Created(loc))); a.Status != http.StatusOK {
			t.Fatalf("it is answered %d: %s", a.Status, a.Body)
		}
		t.Delivered(c, trial.MarkOf(loc))
	}},
	{mustLevel, "CN 4.1 what is wrong is answered 4xx, and not delivered", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		loc := "https://example.org/wrong/" + trial.NewName()
		bad := bytes.Replace(tp.Notify(trial.Created(loc)), []byte(`"created"`), []byte(`"moved"`), 1)
		if a := t.Submit(tp, bad); a.Status/100 != 4 {
			t.Fatalf("it is answered %d: %s", a.Status, a.Body)
		}
		t.Delivered(c, t.Publish(tp))
		if n := c.Times(trial.MarkOf(loc)); n > 0 {
			t.Fatalf("it is delivered %d times", n)
		}
	}},
	{mustLevel, "CN 3 the delivery is a urlset with capability change-notification", func(t *trial.Trial) {
		doc := t.Notification(someDelivery(t))
		if doc.Capability != resourcesync.ChangeNotification || doc.Index {
			t.Fatalf("capability is %q; index: %v", doc.Capability, doc.Index)
		}
	}},
	{mustLevel, "CN 3 the notification has from and until", func(t *trial.Trial) {
		doc := t.Notification(someDelivery(t))
		if doc.From.IsZero() || doc.Until.IsZero() || doc.Until.Before(doc.From) {
			t.Fatalf("it is from %v until %v", doc.From, doc.Until)
		}
	}},
	{mustLevel, "CN 3 if the notification points up, then to the Capability List", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		doc := t.Notification(t.Delivered(c, t.Publish(tp)))
		for _, l := range doc.Links {
			if l.Rel == "up" {
				if got := documentOf(t, l.Href, t.Fetch(http.StatusOK, http.MethodGet, l.Href, nil)).Capability; got != resourcesync.CapabilityList {
					t.Fatalf("rel=up is %s, a %s", l.Href, got)
				}
			}
		}
	}},
	{mustLevel, "CN 3 entries are in chronological order, within the interval", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		t.Delivered(c, t.PublishLocs(tp, trial.Numbered(tp.Set+"/many", 500)...))
		for _, d := range c.Got(trial.Delivery) {
			doc := t.Notification(d)
			last := doc.From
			for i, it := range doc.Items {
				if it.Datetime.Before(last) || it.Datetime.After(doc.Until) {
					t.Fatalf("entry %d is of %v, after %v, in %v to %v", i+1, it.Datetime, last, doc.From, doc.Until)
				}
				last = it.Datetime
			}
		}
	}},
	{mustLevel, "CN 3 intervals are consecutive, and do not overlap", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		mark := ""
		for i := range 10 {
			mark = t.PublishLocs(tp, trial.Numbered(fmt.Sprint(tp.Set, "/part", i), 1+i*7)...)
		}
		t.Delivered(c, mark)
		consecutive(t, c.Got(trial.Delivery))
	}},
	{mustLevel, "CN 3 intervals are consecutive across failures", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		c.On(trial.Delivery, trial.Status(200), trial.Status(500), trial.HangUp, trial.Status(503), trial.Status(200))
		for range 10 {
			t.Publish(tp)
		}
		t.Delivered(c, t.Publish(tp))
		consecutive(t, c.Got(trial.Delivery))
	}},
	{mustLevel, "CN 4.3 every change arrives once and in order", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		c.On(trial.Delivery, trial.Status(200), trial.Status(500), trial.Status(200), trial.Status(429), trial.Status(200))
		var want []string
		mark := ""
		for i := range 60 {
			locs := trial.Numbered(fmt.Sprint(tp.Set, "/part", i), 1+i%4)
			mark = t.PublishLocs(tp, locs...)
			want = append(want, locs...)
		}
		t.Delivered(c, mark)
		var got []string
		for _, change := range t.Taken(c, "https://example.org/"+tp.Set+"/part") {
			got = append(got, change.Loc)
		}
		if a, b := strings.Join(got, "\n"), strings.Join(want, "\n"); a != b {
			t.Fatalf("%d changes arrived, not %d as they were published:\n%s", len(got), len(want), trial.Tail(a))
		}
	}},
	{mustLevel, "CN 3 a large batch is split into urlsets", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		const n = 20_000
		t.Delivered(c, t.PublishLocs(tp, trial.Numbered(tp.Set+"/large", n)...))
		for _, d := range c.Got(trial.Delivery) {
			if items := len(t.Notification(d).Items); items > 50_000 || len(d.Body) > 50_000_000 {
				t.Errorf("a notification has %d entries and %d bytes", items, len(d.Body))
			}
		}
		if count := len(t.Taken(c, "https://example.org/"+tp.Set+"/large/")); count != n {
			t.Fatalf("%d changes arrived, not %d", count, n)
		}
	}},
	{mustLevel, "CN 3 all that describes a change arrives", func(t *trial.Trial) {
		c, tp := t.Callback(""), t.Topic()
		t.Subscribed(c, tp)
		all, err := sampleChanges(tp.Set, 300)
		if err != nil {
			t.Fatal(err)
		}
		t.PublishAll(tp, all)
		var got []resourcesync.Change
		t.Wait("all changes arrive", func() error {
			if got = t.Taken(c, "https://example.org/"+tp.Set+"?"); len(got) < len(all) {
				return fmt.Errorf("%d did", len(got))
			}
			return nil
		})
		for i := range all {
			if a, b := described(got[i]), described(all[i]); a != b {
				t.Fatalf("change %d is\n%s, not\n%s", i+1, a, b)
			}
		}
	}},
	{shouldLevel, "CN 4.2 the lease is 300 seconds to a month, if nothing else is asked for", func(t *trial.Trial) {
		tp := t.Topic()
		for _, asked := range []string{"-", "999999999"} {
			v := t.Verified("subscribe", t.Callback(""), tp, "hub.lease_seconds", asked)
			if lease := trial.LeaseOf(&v); lease < 300 || lease > 2_678_400 {
				t.Errorf("%s: %d seconds are granted", asked, lease)
			}
		}
	}},
	{mustLevel, "CN 5 the Capability List names topic and hub, which is all that it takes", func(t *trial.Trial) {
		tp := t.Topic()
		found := discovered(t, tp)
		if found == "" {
			t.Fatal("it names no hub")
		}
		c := t.Callback("")
		if a := t.PostTo(found, trial.Form("subscribe", c.URL, tp.URL).Encode()); a.Status != http.StatusAccepted {
			t.Fatalf("it is answered %d: %s", a.Status, a.Body)
		}
		t.Arrives(c, trial.Verification, 1)
		t.Delivered(c, t.Publish(tp))
	}},
	{mustLevel, "CN 4.4 who unsubscribes is verified, and gets nothing more", func(t *trial.Trial) {
		c, witness, tp := t.Callback(""), t.Callback(""), t.Topic()
		t.Subscribed(witness, tp)
		t.Subscribed(c, tp)
		t.Verified("unsubscribe", c, tp)
		t.Nothing(c, tp, witness)
	}},
}

// sampleChanges are n changes of every kind, with a query in their loc that says
// whose they are.
func sampleChanges(set string, n int) ([]resourcesync.Change, error) {
	lines, err := trial.Samples(n)
	if err != nil {
		return nil, err
	}
	var all []resourcesync.Change
	for _, line := range lines {
		c, err := resourcesync.ParseChange(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		c.Loc = strings.Replace(c.Loc, "https://example.org/", "https://example.org/"+set+"?", 1)
		all = append(all, *c)
	}
	return all, nil
}

// described is all that a change says but for its datetime, which may be the
// hub's.
func described(c resourcesync.Change) string {
	c.Datetime = time.Time{}
	return string(resourcesync.AppendJSONMembers(nil, &c))
}

// discovered is the hub that a topic's Capability List names. The list is found
// from the Source Description of the topic's site, or of a directory in which
// the topic is.
func discovered(t *trial.Trial, tp *trial.Topic) (hub string) {
	u, err := url.Parse(tp.URL)
	if err != nil {
		t.Fatal(err)
	}
	var lists []string
	for dir := path.Dir(u.Path); len(lists) == 0; dir = path.Dir(dir) {
		at := *u
		at.Path, at.RawPath, at.RawQuery = path.Join(dir, ".well-known/resourcesync"), "", ""
		if a := t.Send(t.Hub.Token, http.MethodGet, at.String(), nil); a.Status == http.StatusOK {
			lists = capabilityLists(t, at.String(), a)
		}
		if dir == "/" || dir == "." {
			break
		}
	}
	if len(lists) == 0 {
		t.Skip("the topic's site has no Source Description")
	}
	for _, loc := range lists {
		for _, it := range documentOf(t, loc, t.Fetch(http.StatusOK, http.MethodGet, loc, nil)).Items {
			for _, l := range it.Links {
				if it.Capability == resourcesync.ChangeNotification && it.Loc == tp.URL && l.Rel == "hub" {
					return l.Href
				}
			}
		}
	}
	return ""
}

// capabilityLists are those that a Source Description names.
func capabilityLists(t *trial.Trial, u string, a *trial.Answer) (locs []string) {
	for _, it := range documentOf(t, u, a).Items {
		if it.Capability == resourcesync.CapabilityList {
			locs = append(locs, it.Loc)
		}
	}
	return locs
}

// documentOf reads a ResourceSync document.
func documentOf(t *trial.Trial, u string, a *trial.Answer) *resourcesync.Document {
	doc, err := resourcesync.ReadXML(bytes.NewReader(a.Body), resourcesync.Limits{})
	if err != nil {
		t.Fatalf("%s: %v: %s", u, err, trial.Tail(string(a.Body)))
	}
	return doc
}

// topicAnswers is a check of what the topic's URL says.
func topicAnswers(method string) func(t *trial.Trial) {
	return func(t *trial.Trial) {
		tp := t.Topic()
		a := t.Fetch(http.StatusOK, method, tp.URL, nil)
		self, hubs := trial.LinksIn(a.Header, "self"), trial.LinksIn(a.Header, "hub")
		if ct := a.Header.Get("Content-Type"); ct != "application/xml" || len(self) != 1 || self[0] != tp.URL || len(hubs) != 1 || hubs[0] != t.Hub.URL {
			t.Fatalf("Content-Type is %q, Link %q", ct, a.Header["Link"])
		}
	}
}

// consecutive checks that each delivery that was taken begins where the one
// before it ended.
func consecutive(t *trial.Trial, all []trial.Arrival) {
	var until time.Time
	for i, d := range all {
		doc := t.Notification(d)
		if doc.Until.IsZero() || !until.IsZero() && !doc.From.Equal(until) {
			t.Errorf("delivery %d is from %v, and the one before it was until %v", i+1, doc.From, until)
		}
		if d.Status/100 == 2 {
			until = doc.Until
		}
	}
	if len(all) < 2 {
		t.Errorf("there are %d deliveries", len(all))
	}
}
