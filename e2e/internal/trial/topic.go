package trial

import (
	"fmt"
	"net/http"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// A Topic is a topic of a trial. Each change has a mark, which is a text in the delivery.
type Topic struct {
	URL, Set string
	marks    int
	until    time.Time // end of the interval of the last notification
}

// Mark returns the mark of the newest change.
func (tp *Topic) Mark() string { return MarkOf(tp.loc(tp.marks)) }

func (tp *Topic) loc(n int) string { return fmt.Sprintf("https://example.org/%s/%d", tp.Set, n) }

// MarkOf returns the mark of a change of a resource.
func MarkOf(loc string) string { return "<loc>" + loc + "</loc>" }

// Notify returns the topic's next change notification, in which the resources were created. Its
// interval starts at the end of the previous one, and the changes are a microsecond apart.
func (tp *Topic) Notify(locs ...string) []byte {
	h := resourcesync.Header{Capability: resourcesync.ChangeNotification, From: tp.until}
	now := time.Now().UTC().Truncate(time.Microsecond)
	if h.From.IsZero() {
		h.From = now.Add(-time.Second)
	}
	if !now.After(h.From) {
		now = h.From.Add(time.Microsecond)
	}
	h.Until = now.Add(time.Duration(len(locs)) * time.Microsecond)
	tp.until = h.Until
	b := resourcesync.AppendXMLHeader(nil, &h, nil)
	for i, loc := range locs {
		c := resourcesync.Change{Loc: loc, Change: resourcesync.Created, Datetime: now.Add(time.Duration(i) * time.Microsecond)}
		b = resourcesync.AppendXMLItem(b, &resourcesync.Item{Change: c}, nil)
	}
	return resourcesync.AppendXMLFooter(b, &h)
}

// Topic creates a topic that has one change.
func (t *Trial) Topic() *Topic {
	set := "topic-" + newName()
	tp := &Topic{Set: set, URL: t.Hub.URL + "/sets/" + set + "/changes"}
	t.Publish(tp)
	return tp
}

// Publish publishes a change, and returns its mark.
func (t *Trial) Publish(tp *Topic) (mark string) {
	t.Helper()
	tp.marks++
	return t.PublishLocs(tp, tp.loc(tp.marks))
}

// PublishLocs publishes that resources were created, and returns the mark of the last one.
func (t *Trial) PublishLocs(tp *Topic, locs ...string) (mark string) {
	t.Helper()
	t.Fetch(http.StatusOK, http.MethodPost, tp.URL, tp.Notify(locs...), "Content-Type: application/xml")
	return MarkOf(locs[len(locs)-1])
}
