package callback

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/atom"
	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

var asAtom = atom.Delivery(base, func(context.Context, string) string { return "a title" })

func formats(topic string) *outlet.Format {
	if feed.IsAtom(topic) {
		return asAtom
	}
	return outlet.Notifications
}

// slowly is what a delivery of a format is, made from the entries one by one.
func slowly(f *outlet.Format, topic string, b *feed.Batch) string {
	of := &feed.Batch{Set: topic, After: b.After, Cursor: b.Cursor, Entries: b.Entries[:1]}
	text := f.Head(context.Background(), nil, of)
	for i := range b.Entries {
		text = f.Entry(text, &b.Entries[i], feed.NewXMLWriter())
	}
	return string(append(text, f.Foot...))
}

// One callback may subscribe to all topics of a set. Each of them is a subscription of its own
// with a format of its own, and what holds for one holds for all: a retry repeats the same
// text, a backlog is delivered at once.
func TestFormats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{Format: formats})
		w.publish("old", 1)
		c := w.listen("a.example")
		begin := w.head()
		framework := feed.FrameworkTopic("demo")
		if err := w.log.Make(t.Context(), framework, feed.Description{}, 100); err != nil {
			t.Fatal(err)
		}
		st, err := w.log.State(t.Context(), framework)
		if err != nil {
			t.Fatal(err)
		}
		for topic, start := range map[string]feed.Cursor{"demo": begin, feed.AtomTopic("demo"): begin, framework: st.Head} {
			w.send(subscription.Request{Mode: subscription.Subscribe, Set: topic, Callback: c.url, Secret: "hush", Start: start})
		}
		w.settled()
		if _, _, asked := c.counts(); asked != 3 {
			t.Fatalf("the callback was asked %d times", asked)
		}
		c.says(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusServiceUnavailable) })
		w.publish("a", 2)
		w.settled()
		c.says(nil)
		time.Sleep(10 * time.Second)
		w.settled()
		w.publish("b", 3)
		if err := w.hub.Note(t.Context(), framework, changelog.Publish{Key: "k", Changes: []resourcesync.Change{
			feed.WithCapability(resourcesync.Change{Loc: base + "/sets/demo/resourcelist.xml", Change: resourcesync.Created}, resourcesync.ResourceList)}}); err != nil {
			t.Fatal(err)
		}
		w.settled()

		took := map[string][]*delivered{}
		tries := map[string][]*delivered{}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, d := range c.took {
			topic := d.header.Get("Link")
			took[topic] = append(took[topic], d)
		}
		for _, d := range c.tries {
			topic := d.header.Get("Link")
			tries[topic] = append(tries[topic], d)
		}
		for _, test := range []struct {
			topic, mediaType string
			from             feed.Cursor
			takes, tries     int
		}{
			{"demo", "application/xml", begin, 2, 3},
			{feed.AtomTopic("demo"), "application/atom+xml", begin, 2, 3},
			{framework, "application/xml", st.Head, 1, 1},
		} {
			link := feed.Base(base).Link(test.topic)
			if len(took[link]) != test.takes || len(tries[link]) < test.tries {
				t.Errorf("%s: %d deliveries, and %d attempts", test.topic, len(took[link]), len(tries[link]))
				continue
			}
			if first := tries[link]; len(first) > 1 && !bytes.Equal(first[0].body, first[1].body) {
				t.Errorf("%s: a retry has another text", test.topic)
			}
			from := test.from
			for _, d := range took[link] {
				n := strings.Count(string(d.body), "<loc>") + strings.Count(string(d.body), "<entry>")
				b, err := w.log.Since(t.Context(), feed.LogOf(test.topic), from, n)
				if err != nil {
					t.Fatal(err)
				}
				from = b.Cursor
				if want := slowly(formats(test.topic), test.topic, b); string(d.body) != want {
					t.Errorf("%s: delivered is\n%s\nwant\n%s", test.topic, d.body, want)
				}
				if d.header.Get("Content-Type") != test.mediaType || d.header.Get("X-Hub-Signature") == "" {
					t.Errorf("%s: the header is %v", test.topic, d.header)
				}
			}
		}
		if d := took[feed.Base(base).Link(framework)]; len(d) == 1 && (d[0].doc.Capability != resourcesync.FrameworkNotification || d[0].doc.Items[0].Capability != resourcesync.ResourceList) {
			t.Errorf("a framework notification is %s", d[0].body)
		}
	})
}

// An Atom subscription whose changes were removed is told so, and goes on.
func TestAtomGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{Format: formats})
		w.publish("old", 1)
		c := w.listen("a.example")
		w.send(subscription.Request{Mode: subscription.Subscribe, Set: feed.AtomTopic("demo"), Callback: c.url, Start: w.head()})
		w.settled()
		if err := w.hub.Delete(t.Context(), "demo"); err != nil {
			t.Fatal(err)
		}
		w.publish("new", 2)
		time.Sleep(10 * time.Second)
		w.settled()
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.took) != 1 || c.took[0].header.Get("RS-Gap") == "" || strings.Count(string(c.took[0].body), "<entry>") != 2 {
			t.Errorf("deliveries are %+v", c.took)
		}
	})
}
