package trial

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// A Topic is what a trial subscribes to. Each change of it has a mark, which the
// delivery contains.
type Topic struct {
	URL, Set string
	marks    int
	Made     map[string]time.Time // when a change was published
	until    time.Time            // the end of the last notification's interval
}

// Mark is that of the newest change.
func (tp *Topic) Mark() string { return MarkOf(tp.loc(tp.marks)) }

func (tp *Topic) loc(n int) string { return fmt.Sprintf("https://example.org/%s/%d", tp.Set, n) }

// MarkOf is how a delivery shows that a resource changed.
func MarkOf(loc string) string { return "<loc>" + loc + "</loc>" }

// Created are changes that say no more than that these resources were created.
func Created(locs ...string) (all []resourcesync.Change) {
	for _, loc := range locs {
		all = append(all, resourcesync.Change{Loc: loc, Change: resourcesync.Created})
	}
	return all
}

// Numbered are the locs of n resources, by a prefix and their number.
func Numbered(prefix string, n int) (locs []string) {
	for i := range n {
		locs = append(locs, fmt.Sprintf("https://example.org/%s/%d", prefix, i+1))
	}
	return locs
}

// Notify makes a topic's next change notification. Its interval begins where
// the one before ended, and the changes follow each other by a microsecond.
func (tp *Topic) Notify(all []resourcesync.Change) []byte {
	h := resourcesync.Header{Capability: resourcesync.ChangeNotification, From: tp.until}
	now := time.Now().UTC().Truncate(time.Microsecond)
	if h.From.IsZero() {
		h.From = now.Add(-time.Second)
	}
	if !now.After(h.From) {
		now = h.From.Add(time.Microsecond)
	}
	h.Until = now.Add(time.Duration(len(all)) * time.Microsecond)
	tp.until = h.Until
	b := resourcesync.AppendXMLHeader(nil, &h, nil)
	for i, c := range all {
		c.Datetime = now.Add(time.Duration(i) * time.Microsecond)
		b = resourcesync.AppendXMLItem(b, &resourcesync.Item{Change: c}, nil)
	}
	return resourcesync.AppendXMLFooter(b, &h)
}

// Topic makes a topic that has one change. A hub with one topic has no second
// for a trial, which is skipped.
func (t *Trial) Topic() *Topic {
	tp := &Topic{Set: "topic-" + NewName(), Made: map[string]time.Time{}}
	switch {
	case t.Hub.Publishing == ByPing:
		tp.URL = t.Server.URL + "/topic/" + tp.Set
	case t.Hub.ManyTopics():
		tp.URL = strings.ReplaceAll(t.Hub.Topics, "{}", tp.Set)
	case t.topics > 0:
		t.Skip("it needs a second topic, and there is one: a topic's URL with {} stands for many")
	default:
		tp.URL = t.Hub.Topics
	}
	if t.Hub.IsRshub {
		tp.Set = setOf(tp.URL)
	}
	t.topics++
	if t.Hub.Publishing == ByPing {
		tp.marks++
		t.Server.serve(tp, tp.Notify(Created(tp.loc(tp.marks))), t.Hub.URL)
		return tp
	}
	t.Publish(tp)
	return tp
}

// setOf is the set of an rshub's topic, {base}/sets/{set}/changes.
func setOf(topic string) string { return path.Base(strings.TrimSuffix(topic, "/changes")) }

// Publish changes a topic, and returns the mark of the change.
func (t *Trial) Publish(tp *Topic) (mark string) {
	t.Helper()
	tp.marks++
	mark = tp.Mark()
	tp.Made[mark] = time.Now()
	t.PublishAll(tp, Created(tp.loc(tp.marks)))
	return mark
}

// PublishAll publishes changes, which the hub has to take.
func (t *Trial) PublishAll(tp *Topic, all []resourcesync.Change) {
	t.Helper()
	text := tp.Notify(all)
	if t.Hub.Publishing == ByPing {
		t.Server.serve(tp, text, t.Hub.URL)
		form := url.Values{"hub.mode": {"publish"}, "hub.topic": {tp.URL}, "hub.url": {tp.URL}}
		if a := t.Post(form.Encode()); a.Status/100 != 2 {
			t.Fatalf("the hub answers %d to hub.mode=publish: %s", a.Status, a.Body)
		}
		return
	}
	if a := t.Submit(tp, text); a.Status/100 != 2 {
		t.Fatalf("what is published to %s is answered %d: %s", tp.URL, a.Status, Tail(string(a.Body)))
	}
}

// Submit posts a notification as it is, and returns the answer.
func (t *Trial) Submit(tp *Topic, text []byte) *Answer {
	t.Helper()
	to := t.Hub.Publishing
	switch to {
	case "", ByHub:
		to = t.Hub.URL
	case ByTopic:
		to = tp.URL
	}
	token := t.Hub.PublishToken
	if token == "" {
		token = t.Hub.Token
	}
	return t.Send(token, http.MethodPost, to, text, "Content-Type: application/xml",
		fmt.Sprintf(`Link: <%s>; rel="self", <%s>; rel="hub"`, tp.URL, t.Hub.URL))
}
