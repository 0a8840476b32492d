package trial

import (
	"fmt"
	"net/http"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// A Topic is what a trial subscribes to. Each change of it has a mark, which the
// delivery contains.
type Topic struct {
	URL, Set string
	marks    int
	until    time.Time // the end of the last notification's interval
}

// Mark is that of the newest change.
func (tp *Topic) Mark() string { return MarkOf(tp.loc(tp.marks)) }

func (tp *Topic) loc(n int) string { return fmt.Sprintf("https://example.org/%s/%d", tp.Set, n) }

// MarkOf is how a delivery shows that a resource changed.
func MarkOf(loc string) string { return "<loc>" + loc + "</loc>" }

// Notify makes a topic's next change notification: these resources were created.
// Its interval begins where the one before ended, and the changes follow each
// other by a microsecond.
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

// Topic makes a topic that has one change.
func (t *Trial) Topic() *Topic {
	set := "topic-" + newName()
	tp := &Topic{Set: set, URL: t.Hub.URL + "/sets/" + set + "/changes"}
	t.Publish(tp)
	return tp
}

// Publish changes a topic, and returns the mark of the change.
func (t *Trial) Publish(tp *Topic) (mark string) {
	t.Helper()
	tp.marks++
	return t.PublishLocs(tp, tp.loc(tp.marks))
}

// PublishLocs publishes that these resources were created, and returns the mark
// of the last.
func (t *Trial) PublishLocs(tp *Topic, locs ...string) (mark string) {
	t.Helper()
	t.Fetch(http.StatusOK, http.MethodPost, tp.URL, tp.Notify(locs...), "Content-Type: application/xml")
	return MarkOf(locs[len(locs)-1])
}
